"""What runs beside a device: an engine that is told inputs and reports certificates.

It speaks in plain records and never raises, so that pipes and Ray carry the same conversation.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from smoothcert.datasets.base import first_readable
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.executors.base import Job, Say, Status
from smoothcert.plans import Certificate
from smoothcert.sampler.engine import Engine, Input, build_engine

# Seconds that a call lasts while there is enough to do: often enough for progress, rare enough for a driver of many.
_PERIOD = 1.0


@dataclass(frozen=True)
class Ready:
    """A worker's first word."""

    place: str
    runtime: Runtime
    """With everything settled that was left open."""
    capacity: int
    """Inputs that it can keep open."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What came of one call."""

    finished: tuple[Certificate, ...]
    failed: tuple[tuple[int, str], ...]
    """Inputs that could not be read, and why."""
    status: Status
    sampling: float
    """Seconds in all that the worker had something to sample."""


@dataclass(frozen=True)
class Failed:
    """A worker's last word; `final` if no other worker would fare better."""

    error: str
    final: bool = False


Message = Ready | Report | Failed


class Worker:
    """`start`, then `advance` again and again."""

    _engine: Engine
    _batch: int

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queue: deque[int] = deque()
        self._sampling = 0.0

    def start(self, runtime: Runtime, threads: int) -> Ready | Failed:
        """Get ready to sample, on a CPU with so many threads."""
        torch.set_num_threads(min(max(threads, 1), cores()))
        try:
            if runtime.torch_device.type == "cuda" and runtime.torch_device.index is not None:
                torch.cuda.set_device(runtime.torch_device)  # else every process would take memory of the first one
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                self._engine, runtime = engine_for(replace(self._job, runtime=runtime), lambda message: None)
        except Exception as error:
            return _failed(error)
        place = f"{platform.node()}, {runtime.device}, process {os.getpid()}"
        said = tuple(str(warning.message) for warning in caught if warning.category is UserWarning)
        self._batch = runtime.batch
        return Ready(place, runtime, self._engine.free, said)

    def advance(self, ids: Sequence[int]) -> Report | Failed:
        """Take these inputs on and sample for a while; back early when others could be taken on."""
        engine = self._engine
        self._queue.extend(ids)
        finished: list[Certificate] = []
        failed: list[tuple[int, str]] = []
        start = time.perf_counter()
        try:
            while time.perf_counter() - start < _PERIOD:
                while self._queue and engine.free:
                    self._open(self._queue.popleft(), failed)
                if not engine.busy:
                    break
                finished += engine.step()
                if (finished or failed) and self._hungry:
                    break
        except Exception as error:
            return _failed(error)
        self._sampling += time.perf_counter() - start
        return Report(tuple(finished), tuple(failed), status_of(engine), self._sampling)

    @property
    def _hungry(self) -> bool:
        """Whether there is room for more inputs, and not a batch left to do before they would have their turn."""
        return bool(self._engine.free) and not self._queue and self._engine.sampler.waiting < self._batch

    def _open(self, id: int, failed: list[tuple[int, str]]) -> None:
        try:
            self._engine.open(*read_input(self._job, id))
        except Exception as error:
            failed.append((id, _describe(error)))


def engine_for(job: Job, say: Say) -> tuple[Engine, Runtime]:
    """A worker's engine; the inputs' shape is that of the first one that can be read."""
    return build_engine(
        job.classifier.module,
        classes=job.classifier.classes,
        shape=tuple(first_readable(job.dataset).shape),
        noise=job.noise,
        plan=job.plan,
        runtime=job.runtime,
        seed=job.seed,
        say=say,
    )


def read_input(job: Job, id: int) -> Input:
    """Input `id`, fit to be certified."""
    x, label = job.dataset[id]
    if not bool(x.isfinite().all()):
        raise InvalidInput(f"input {id} of {job.dataset.name} has NaN or infinite values: leave it out with ids=")
    if label >= job.classifier.classes:
        raise InvalidInput(
            f"input {id} of {job.dataset.name} has label {label}, but the model knows only the classes 0 to "
            f"{job.classifier.classes - 1}"
        )
    return id, x, None if label < 0 else label


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def status_of(engine: Engine) -> Status:
    return Status(engine.opened, engine.committed, engine.sampler.forwarded, engine.sampler.counted)


def _failed(error: Exception) -> Failed:
    final = isinstance(error, SmoothcertError)
    return Failed(_describe(error), final)


def _describe(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, SmoothcertError):
        return str(error)
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
