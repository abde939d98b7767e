"""Where samplers run. Only this room knows of processes and machines."""

from __future__ import annotations

from smoothcert.errors import InvalidInput
from smoothcert.executors.base import Executor, Job, Status
from smoothcert.executors.local import LocalExecutor

__all__ = ["Executor", "Job", "LocalExecutor", "Status", "choose_executor"]


def choose_executor(
    name: str,
    *,
    devices: str | None = None,
    address: str | None = None,
    workers: str | None = None,
    gpus_per_worker: float | None = None,
) -> Executor:
    """The executor that these options describe; what belongs to another one is refused."""
    cluster = {"--address": address, "--workers": workers, "--gpus-per-worker": gpus_per_worker}
    if name == "ray":
        if devices is not None:
            raise InvalidInput(f"--devices {devices} is for --executor local; Ray finds its devices itself")
        from smoothcert.executors.ray import RayExecutor

        return RayExecutor(address, workers or "auto", gpus_per_worker)
    if given := [f"{option} {value}" for option, value in cluster.items() if value is not None]:
        raise InvalidInput(f"{', '.join(given)}: only with --executor ray; on this machine, --devices cuda:0,cuda:1")
    if devices is None:
        return LocalExecutor()
    from smoothcert.executors.processes import ProcessExecutor

    return ProcessExecutor(devices)
