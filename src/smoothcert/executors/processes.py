"""The executor for several devices of this machine, with one process for each device."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread

import torch

from smoothcert.device.runtime import Device, Dtype, Runtime, Say
from smoothcert.errors import InvalidInput
from smoothcert.executors.base import Job
from smoothcert.executors.pool import PoolExecutor
from smoothcert.executors.worker import Failed, Message, Worker, cores


class ProcessExecutor(PoolExecutor[Connection]):
    """Certifies on several devices of this machine.

    Args:
        devices: The devices, as in "cuda:0,cuda:1", or "all" CUDA devices. They must be of one
            kind, because the noise depends on the kind of device.
    """

    def __init__(self, devices: str) -> None:
        super().__init__()
        self.devices = _parse(devices)
        self._job_bytes = b""
        self._processes: dict[Connection, _Process] = {}

    def resolve(self, device: Device, dtype: Dtype, compile: str, batch: int | str) -> Runtime:
        if device != "auto":
            raise InvalidInput(
                "device-and-devices",
                "give `device={device}` or `devices={devices}`, not both",
                device=device,
                devices=",".join(self.devices),
            )
        runtimes = [Runtime.resolve(name, dtype, compile, batch) for name in self.devices]
        return runtimes[0]  # the others were resolved to check that their devices exist

    def start(self, job: Job, say: Say) -> Runtime:
        try:
            self._job_bytes = pickle.dumps(job)
        except Exception as error:
            raise InvalidInput(
                "not-picklable",
                "cannot send the model or the data to other processes ({error}): define them in a "
                "module, or use one device",
                error=str(error),
            ) from None
        # If the resource tracker started later, it would unblock the signal that `launch` blocks.
        resource_tracker.ensure_running()
        return super().start(job, say)

    def places(self) -> int:
        return len(self.devices)

    def launch(self, runtime: Runtime) -> Connection:
        free = list(self.devices)
        for other in self._processes.values():
            free.remove(other.device)
        runtime = replace(runtime, device=free[0])
        threads = cores() // len(self.devices)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, runtime, threads), daemon=True)
        # Only the driver handles Ctrl-C. A new process needs seconds before it could ignore the
        # signal itself, so we start it with the signal blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # otherwise we would not notice when the process ends
        # A new process needs seconds before it reads, so a thread sends the job.
        sender = Thread(target=_try_send, args=(ours, self._job_bytes), daemon=True)
        sender.start()
        self._processes[ours] = _Process(runtime.device, process, sender)
        return ours

    def send(self, worker: Connection, ids: Sequence[int]) -> None:
        _try_send(worker, pickle.dumps((ids, self._plan, self._seed)))

    def receive(self) -> Iterator[tuple[Connection, Message]]:
        for worker in wait(list(self._processes), self.launch_interval):
            assert isinstance(worker, Connection)
            try:
                yield worker, worker.recv()
            except (EOFError, OSError):
                process = self._processes[worker].process
                process.join()
                yield worker, Failed(f"its process ended with exit code {process.exitcode}")

    def discard(self, worker: Connection) -> None:
        lost = self._processes.pop(worker)
        lost.process.kill()
        lost.process.join()
        lost.sender.join()
        lost.process.close()
        worker.close()


@dataclass(frozen=True)
class _Process:
    """One worker: its device, its process, and the thread that sends the job to it."""

    device: str
    process: BaseProcess
    sender: Thread


def _parse(devices: str) -> list[str]:
    """The names of the devices in a text such as "cuda:0,cuda:1"."""
    names = [name.strip() for name in devices.split(",")]
    if names == ["all"]:
        names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if not names:
        raise InvalidInput(
            "no-cuda-device",
            "there is no CUDA device here: name the devices, as in `devices=cpu,cpu`",
        )
    if len({name.partition(":")[0] for name in names}) > 1:
        raise InvalidInput(
            "devices-of-two-kinds",
            "devices must be names of one kind, as in `devices=cuda:0,cuda:1`, because the noise "
            "depends on the kind, got {value}",
            value=devices,
        )
    return names


def _try_send(worker: Connection, data: bytes) -> None:
    """Send data to a worker. If the worker is dead, `receive` reports that, not this function."""
    with suppress(OSError):
        worker.send_bytes(data)


def _serve(driver: Connection, runtime: Runtime, threads: int) -> None:
    """The main function of a worker's process: it answers calls until the driver is gone."""
    with suppress(EOFError, OSError):
        worker = Worker(pickle.loads(driver.recv_bytes()))
        driver.send(worker.start(runtime, threads))
        while True:
            driver.send(worker.advance(*driver.recv()))
