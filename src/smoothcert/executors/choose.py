"""The choice of an executor by its name."""

from __future__ import annotations

from pkgutil import resolve_name

from smoothcert.errors import InvalidInput, setting
from smoothcert.executors.base import Executor
from smoothcert.executors.local import LocalExecutor
from smoothcert.executors.processes import ProcessExecutor

_RAY = "smoothcert.executors.ray:RayExecutor"
"""Ray is optional, so nothing imports its executor before a user chooses it."""


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
        devices: local: the devices to use, one process on each, as in "cuda:0,cuda:1", or "all"
            CUDA devices. Default: one device, in this process.
        address: ray: the address of the cluster, "auto" or "HOST:PORT". Default: a new Ray instance
            on this machine.
        workers: ray: the number of workers, or "auto" for as many as the cluster has room for.
            Default: "auto".
        gpus_per_worker: ray: GPUs that each worker reserves. Default: 1 if the cluster has GPUs,
            otherwise 0.
    """
    if name == "ray":
        if devices is not None:
            raise InvalidInput(
                "not-for-ray",
                "{devices} is for {local}; Ray finds its devices itself",
                devices=setting("devices", devices),
                local=setting("executor", "local"),
            )
        executor: Executor = resolve_name(_RAY)(address, workers or "auto", gpus_per_worker)
        return executor
    cluster = {"address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    only_ray = [setting(key, value) for key, value in cluster.items() if value is not None]
    if only_ray:
        raise InvalidInput(
            "only-for-ray",
            "{settings}: only for {ray}; to use several devices of this machine, give {devices}",
            settings=", ".join(only_ray),
            ray=setting("executor", "ray"),
            devices=setting("devices", "cuda:0,cuda:1"),
        )
    return LocalExecutor() if devices is None else ProcessExecutor(devices)
