"""Where certification runs: an executor takes a job and ids, and gives certificates back as they finish."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from smoothcert.classifiers.base import Classifier
from smoothcert.datasets.base import Dataset
from smoothcert.device.runtime import Device, Dtype, Runtime
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """All that a worker must know."""

    classifier: Classifier
    dataset: Dataset
    noise: Noise
    plan: Plan
    runtime: Runtime
    seed: int


@dataclass(frozen=True)
class Status:
    """Where an executor stands, for progress and summary."""

    opened: int = 0
    """Inputs begun."""
    committed: int = 0
    """Samples that the inputs begun are known to want."""
    forwarded: int = 0
    """Rows that went through the classifier, padding included."""
    counted: int = 0
    """Rows among them that were an input's sample."""
    workers: Sequence[WorkerStatus] = ()
    """All that there were, if there are several."""


@dataclass
class WorkerStatus:
    """One worker of many; its executor keeps it up to date."""

    number: int
    since: float = field(default_factory=time.perf_counter)
    until: float | None = None
    """When it was lost."""
    open: int = 0
    """Inputs that are with it."""
    counted: int = 0
    sampling: float = 0.0
    """Seconds in which it had something to sample."""

    @property
    def seconds(self) -> float:
        return (self.until or time.perf_counter()) - self.since

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.counted / self.seconds if self.seconds else 0.0


class Executor(ABC):
    """Use as a context manager: `start` it, then `certify`."""

    def resolve(self, device: Device, dtype: Dtype, compile: str, batch: int | str) -> Runtime:
        """The runtime that these settings stand for where the work will be done."""
        return Runtime.resolve(device, dtype, compile, batch)

    @abstractmethod
    def start(self, job: Job, say: Say) -> Runtime:
        """Get ready; returns the runtime with everything settled that was left open."""

    @abstractmethod
    def certify(self, ids: Sequence[int]) -> Iterator[list[Certificate]]:
        """Certify these inputs, in the order in which they finish; together those that came in together."""

    @abstractmethod
    def status(self) -> Status: ...

    def close(self) -> None:  # noqa: B027 (an executor without anything to give back need not say so)
        """Give everything back."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
