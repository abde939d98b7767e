"""Executors run the sampler: in this process, on several devices of this machine, or on a Ray cluster."""

from __future__ import annotations

from smoothcert.errors import InvalidInput, setting
from smoothcert.executors.base import Executor, Job, LocalExecutor, Status

__all__ = ["Executor", "Job", "LocalExecutor", "Status", "choose_executor"]


def choose_executor(
    name: str,
    *,
    devices: str | None = None,
    address: str | None = None,
    workers: int | str | None = None,
    gpus_per_worker: float | None = None,
) -> Executor:
    """Make an executor by its name. A setting that belongs to another executor is an error.

    Args:
        name: local (this machine) or ray (a Ray cluster).
        devices: local: the devices to use, one process on each, as in "cuda:0,cuda:1", or "all" CUDA devices. Default:
            one device, in this process.
        address: ray: the address of the cluster, "auto" or "HOST:PORT". Default: a new Ray instance on this machine.
        workers: ray: the number of workers, or "auto" for as many as the cluster has room for. Default: "auto".
        gpus_per_worker: ray: GPUs that each worker reserves. Default: 1 if the cluster has GPUs, otherwise 0.
    """
    cluster = {"address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    if name == "ray":
        if devices is not None:
            raise InvalidInput(
                f"{setting('devices', devices)} is for {setting('executor', 'local')}; Ray finds its devices itself"
            )
        from smoothcert.executors.ray import RayExecutor

        return RayExecutor(address, workers or "auto", gpus_per_worker)
    if given := [setting(name, value) for name, value in cluster.items() if value is not None]:
        raise InvalidInput(
            f"{', '.join(given)}: only for {setting('executor', 'ray')}; to use several devices of this machine, give "
            f"{setting('devices', 'cuda:0,cuda:1')}"
        )
    if devices is None:
        return LocalExecutor()
    from smoothcert.executors.processes import ProcessExecutor

    return ProcessExecutor(devices)
