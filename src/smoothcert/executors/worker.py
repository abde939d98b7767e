"""A worker: an engine on one device that receives inputs and reports certificates.

It answers with plain records, also where something fails, so that it works the same through pipes
and through Ray.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from smoothcert.device.runtime import Runtime, say_nothing
from smoothcert.errors import ModelFailed, SmoothcertError, first_line
from smoothcert.executors.base import Job, LocalExecutor, Status
from smoothcert.plans import Certificate, Rule
from smoothcert.sampling.engine import Engine

_CALL_SECONDS = 1.0
"""How long a call lasts while there is enough to do. Shorter calls show progress more often; longer
calls are less work for a driver with many workers."""


@dataclass(frozen=True)
class Ready:
    """The first message of a worker.

    Args:
        place: Its machine, device and process, for messages.
        runtime: Its runtime, with the batch size and the compilation that were chosen.
        capacity: How many inputs it can keep open.
        warnings: Warnings during its start.
    """

    place: str
    runtime: Runtime
    capacity: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The answer to one call.

    Args:
        finished: Certificates of the inputs that are finished.
        failed: Inputs that could not be read, and why.
        status: How far the worker is.
    """

    finished: tuple[Certificate, ...]
    failed: tuple[tuple[int, str], ...]
    status: Status


@dataclass(frozen=True)
class Failed:
    """The last message of a worker.

    Args:
        error: What went wrong.
        final: Whether every other worker would fail in the same way.
    """

    error: str
    final: bool = False

    @classmethod
    def from_error(cls, error: Exception) -> Self:
        """The message about an error.

        A mistake of the user would occur on every worker, so it is final. A model that passed its
        checks and fails later may work on another device.
        """
        is_mistake = isinstance(error, SmoothcertError) and not isinstance(error, ModelFailed)
        return cls(_describe(error), final=is_mistake)


Message = Ready | Report | Failed


class Worker:
    """Certifies inputs on one device. Call `start` once, then `advance` again and again.

    Args:
        job: What to do.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._local = LocalExecutor()
        self._queue: deque[int] = deque()
        self._failure: Failed | None = None
        """What the next call reports, because the last one reported what was finished before."""

    def start(self, runtime: Runtime, threads: int) -> Ready | Failed:
        """Prepare the classifier."""
        torch.set_num_threads(min(max(threads, 1), cores()))
        device = runtime.torch_device
        try:
            if device.type == "cuda" and device.index is not None:
                torch.cuda.set_device(device)  # or every process would use memory of device 0
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                subject = self._job.subject.at(runtime)
                runtime = self._local.start(replace(self._job, subject=subject), say_nothing)
        except Exception as error:
            return Failed.from_error(error)
        place = f"{platform.node()}, {runtime.device}, process {os.getpid()}"
        messages = tuple(
            str(warning.message) for warning in caught if warning.category is UserWarning
        )
        return Ready(place, runtime, self._local.engine().free, messages)

    def advance(
        self, ids: Sequence[int], plan: Rule | None = None, seed: int | None = None
    ) -> Report | Failed:
        """Accept inputs and sample for about a second, or until the worker needs more inputs.

        Plan and seed change only when no input is open.
        """
        if self._failure:
            return self._failure
        self._queue.extend(ids)
        finished: list[Certificate] = []
        failed: list[tuple[int, str]] = []
        try:
            self._sample(self._local.engine(plan, seed), finished, failed)
        except Exception as error:
            self._failure = Failed.from_error(error)
            if not finished:
                return self._failure
        return Report(tuple(finished), tuple(failed), self._local.status())

    def _sample(
        self, engine: Engine, finished: list[Certificate], failed: list[tuple[int, str]]
    ) -> None:
        """Sample for about a second, or until the worker needs more inputs."""
        end = time.perf_counter() + _CALL_SECONDS
        while time.perf_counter() < end:
            self._open_inputs(engine, failed)
            if not engine.busy:
                return
            finished += engine.step()
            needs_inputs = engine.free and not self._queue and not engine.sampler.full
            if needs_inputs and (finished or failed):
                return

    def _open_inputs(self, engine: Engine, failed: list[tuple[int, str]]) -> None:
        """Open inputs of the queue while the engine has room; add those that fail to `failed`."""
        while self._queue and engine.free:
            id = self._queue.popleft()
            try:
                engine.open(*self._job.read(id, engine.plan))
            except Exception as error:
                failed.append((id, _describe(error)))


def cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _describe(error: Exception) -> str:
    if isinstance(error, SmoothcertError):
        return error.message
    name = type(error).__name__
    line = first_line(error)
    return line if line == name else f"{name}: {line}"
