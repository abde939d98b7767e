"""What an executor is: it takes a job and ids, and returns certificates as they finish."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from smoothcert.data.base import Dataset
from smoothcert.device.runtime import Device, Dtype, Runtime
from smoothcert.device.setup import Say
from smoothcert.errors import InvalidInput, UnreadableInput
from smoothcert.plans import Certificate, Look, Plan, Rule
from smoothcert.sampling.engine import Begun
from smoothcert.smoothed import Subject


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to know.

    Args:
        subject: The classifier as it is run.
        dataset: The data set.
        plan: Decides how many samples an input gets.
        begun: The votes so far of inputs that are continued, by id.
    """

    subject: Subject
    dataset: Dataset
    plan: Plan
    begun: Mapping[int, Sequence[Look]] = field(default_factory=dict)

    def read(self, id: int, plan: Rule) -> Begun:
        """One input, as an engine with this plan opens it.

        Only the plan of the job goes on with earlier votes.
        """
        try:
            opened = self.subject.read(self.dataset, id, known_labels=plan.known_labels)
        except InvalidInput as error:
            raise UnreadableInput(error.message, id, error) from error
        earlier = self.begun.get(id, ()) if plan == self.plan else ()
        return *opened, earlier


@dataclass(frozen=True)
class Status:
    """How far an executor is, for progress displays and the summary.

    Args:
        opened: Inputs that were started.
        committed: Samples that the plan has requested so far for these inputs.
        forwarded: Rows that went through the classifier, padding included.
        counted: Rows that were a sample of an input, without padding.
        workers: All workers, lost ones included. Empty for an executor without workers.
        lowest: The smallest value of these inputs.
        highest: The largest value of these inputs.
    """

    opened: int = 0
    committed: int = 0
    forwarded: int = 0
    counted: int = 0
    workers: Sequence[WorkerStatus] = ()
    lowest: float = inf
    highest: float = -inf


@dataclass(eq=False)
class WorkerStatus:
    """How far one worker is. Its executor keeps this up to date.

    Args:
        finished: Inputs that the worker has finished.
        lost: Whether the worker was lost.
    """

    finished: int = 0
    lost: bool = False


class Executor(ABC):
    """Base of all executors. Use it as a context manager: call `start`, then `certify`."""

    def resolve(self, device: Device, dtype: Dtype, compile: str, batch: int | str) -> Runtime:
        """Choose the runtime on the machine where the classifier will run.

        Args:
            device: The device, or "auto".
            dtype: The number format, or "auto".
            compile: How to speed up the classifier, or "auto".
            batch: Rows per forward pass, or "auto".
        """
        return Runtime.resolve(device, dtype, compile, batch)

    @abstractmethod
    def start(self, job: Job, say: Say) -> Runtime:
        """Prepare for a job.

        Args:
            job: The job.
            say: Shows messages to the user.

        Returns:
            Its runtime, with the batch size and the compilation that were chosen.
        """

    @abstractmethod
    def certify(
        self, ids: Sequence[int], plan: Rule | None = None, seed: int | None = None
    ) -> Iterator[list[Certificate]]:
        """Certify inputs, in the order in which they finish.

        Certificates that arrive together are in one list.

        Args:
            ids: The inputs.
            plan: A plan for these inputs, in place of that of the job.
            seed: The key of their noise, in place of that of the job.
        """

    @abstractmethod
    def status(self) -> Status:
        """How far the executor is."""

    def close(self) -> None:  # noqa: B027 (an executor without resources does not need it)
        """Release all resources."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
