"""Where certification runs: an executor takes a job and ids, and gives certificates back as they finish."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from smoothcert.certificate import Certificate
from smoothcert.classifiers.base import Classifier
from smoothcert.datasets.base import Dataset
from smoothcert.noise import Gaussian
from smoothcert.plans.base import Plan
from smoothcert.sampler.runtime import Runtime

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """All that a worker must know."""

    classifier: Classifier
    dataset: Dataset
    noise: Gaussian
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


class Executor(ABC):
    """Use as a context manager: `start` it, then `certify`."""

    @abstractmethod
    def start(self, job: Job, say: Say) -> Runtime:
        """Get ready; returns the runtime with everything settled that was left open."""

    @abstractmethod
    def certify(self, ids: Sequence[int]) -> Iterator[Certificate]:
        """Certify these inputs, in the order in which they finish."""

    @abstractmethod
    def status(self) -> Status: ...

    def close(self) -> None:  # noqa: B027 (an executor without anything to give back need not say so)
        """Give everything back."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
