"""The executor for a Ray cluster, with one actor for each worker."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from smoothcert import _check
from smoothcert.device.runtime import Device, Dtype, Runtime, Say
from smoothcert.errors import InvalidInput, needs
from smoothcert.executors.base import Job
from smoothcert.executors.pool import PoolExecutor
from smoothcert.executors.worker import Failed, Message, Worker, cores

with needs("ray", what="the Ray executor"):
    import ray

_CPUS = 1
"""CPUs that a worker reserves. On CPUs, it uses as many threads as its share of all CPUs."""


class RayExecutor(PoolExecutor[Any]):
    """Certifies on a Ray cluster.

    Args:
        address: The address of the cluster, "auto" or "HOST:PORT". Default: start a Ray instance on
            this machine, and stop it at the end.
        workers: The number of workers, or "auto" for as many as the cluster has room for.
        gpus_per_worker: GPUs that each worker reserves; 0 computes on CPUs. Default: 1 if the
            cluster has GPUs, otherwise 0.
    """

    def __init__(
        self, address: str | None, workers: int | str, gpus_per_worker: float | None
    ) -> None:
        super().__init__()
        if address not in (None, "auto") and not re.fullmatch(r"[^/]+:\d+", str(address)):
            raise InvalidInput(
                "not-address", "address must be auto or HOST:PORT, got {value!r}", value=address
            )
        self.address = address
        self.workers = _check.number_or_auto("workers", workers)
        """The number of workers; 0 for as many as there is room for."""
        self.gpus = gpus_per_worker
        if gpus_per_worker is not None:
            self.gpus = _check.at_least("gpus_per_worker", gpus_per_worker, 0)
        self._connected = False
        self._calls: dict[Any, Any] = {}

    def resolve(self, device: Device, dtype: Dtype, compile: str, batch: int | str) -> Runtime:
        # A machine of the cluster chooses the runtime, because the driver may have another device.
        self._connect()
        has_gpus = bool(ray.cluster_resources().get("GPU"))
        if self.gpus is None:
            self.gpus = 1.0 if has_gpus and device in ("auto", "cuda") else 0.0
        if not self.gpus:
            return Runtime.resolve("cpu" if device == "auto" else device, dtype, compile, batch)
        if not has_gpus:
            raise InvalidInput(
                "cluster-without-gpu",
                "the Ray cluster has no GPU: give `gpus_per_worker=0` to compute on its CPUs",
            )
        reserve = ray.remote(num_cpus=_CPUS, num_gpus=self.gpus)
        resolve = reserve(lambda: Runtime.resolve(device, dtype, compile, batch))  # no methods
        try:
            runtime: Runtime = ray.get(resolve.remote())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return runtime

    def start(self, job: Job, say: Say) -> Runtime:
        self._connect()
        self._shared_job = ray.put(job)
        reserve = ray.remote(num_cpus=_CPUS, num_gpus=self.gpus, scheduling_strategy="SPREAD")
        self._actor = reserve(Worker)
        return super().start(job, say)

    def places(self) -> int:
        if self.workers:
            return self.workers
        return sum(self._room(node["Resources"]) for node in ray.nodes() if node["Alive"])

    def launch(self, runtime: Runtime) -> Any:
        worker = self._actor.remote(self._shared_job)
        self._calls[worker.start.remote(runtime, self._threads())] = worker
        return worker

    def send(self, worker: Any, ids: Sequence[int]) -> None:
        self._calls[worker.advance.remote(ids, self._plan, self._seed)] = worker

    def receive(self) -> Iterator[tuple[Any, Message]]:
        calls = list(self._calls)
        if not calls:
            time.sleep(self.launch_interval)
            return
        ready, _ = ray.wait(calls, num_returns=1, timeout=self.launch_interval)
        if ready:
            ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        for call in ready:
            if call not in self._calls:
                continue  # its worker was discarded because of an earlier call
            worker = self._calls.pop(call)
            try:
                yield worker, ray.get(call)
            except ray.exceptions.RayError as error:
                yield worker, Failed(_reason(error))

    def discard(self, worker: Any) -> None:
        self._calls = {call: other for call, other in self._calls.items() if other != worker}
        ray.kill(worker)

    def close(self) -> None:
        super().close()
        if self._connected:
            ray.shutdown()
            self._connected = False

    def _connect(self) -> None:
        """Connect to the address, or to a new local instance, unless this process is connected."""
        if ray.is_initialized():
            return
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if self.address is None:
            cpus = max(self.workers, cores())
            ray.init("local", num_cpus=cpus, include_dashboard=False, **quiet)
        else:
            try:
                _check_reachable(self.address)
                ray.init(self.address, **quiet)
            except (OSError, RuntimeError, ValueError) as error:
                raise InvalidInput(
                    "cluster-not-reached",
                    "cannot reach a Ray cluster at {address}: {reason}",
                    address=self.address,
                    reason=_reason(error),
                ) from None
        self._connected = True

    def _room(self, resources: dict[str, float]) -> int:
        """How many workers fit on a node."""
        room = resources.get("CPU", 0) // _CPUS
        if self.gpus:
            room = min(room, resources.get("GPU", 0) // self.gpus)
        return int(room)

    def _threads(self) -> int:
        """CPU threads per worker."""
        if not self.workers:
            return _CPUS
        return int(ray.cluster_resources().get("CPU", 1)) // self.workers


def _check_reachable(address: str) -> None:
    """Raise at once if nothing answers at this address. Ray itself would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()


def _reason(error: Exception) -> str:
    """What happened, from an error of Ray: the last line of its message."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
