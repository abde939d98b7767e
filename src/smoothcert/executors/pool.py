"""Many workers, one driver: hands out inputs, collects certificates, survives the loss of workers.

How workers are reached is left to the executors that build on this: pipes to processes, or Ray.
"""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.executors.assignment import TRIES, Assignment
from smoothcert.executors.base import Executor, Job, Say, Status, WorkerStatus
from smoothcert.executors.worker import Failed, Message, Ready, Report
from smoothcert.plans import Certificate

Handle = TypeVar("Handle")

# Calls per worker that are under way: while one is being answered, the worker is busy with the other.
_CALLS = 2
# Seconds between two looks for places of new workers; after false starts, up to the longest pause.
_ROUND = 2.0
_LONGEST_PAUSE = 60.0


class PoolExecutor(Executor, Generic[Handle]):
    """The driver. A worker's first message is `Ready`; each call brings a `Report`, and its loss a `Failed`."""

    _job: Job
    _say: Say
    _runtime: Runtime | None
    """Settled by the first worker that is ready; all others have to agree with it."""

    def __init__(self) -> None:
        self._members: dict[Handle, _Member] = {}
        self._begin()

    def _begin(self) -> None:
        """As before any job: an executor may be used again."""
        self._runtime = None
        self._assignment = Assignment(())
        self._crew: list[WorkerStatus] = []
        self._total = Status(workers=self._crew)
        self._false_starts = 0
        self._next_round = 0.0

    @abstractmethod
    def places(self) -> int:
        """How many workers there should be now."""

    @abstractmethod
    def launch(self, runtime: Runtime) -> Handle:
        """Set a worker up for the job, without waiting for it."""

    @abstractmethod
    def send(self, worker: Handle, ids: Sequence[int]) -> None:
        """Have a worker `advance`, without waiting for the answer."""

    @abstractmethod
    def receive(self, seconds: float) -> Iterable[tuple[Handle, Message]]:
        """The messages that came in; waits up to so long for the first one."""

    @abstractmethod
    def discard(self, worker: Handle) -> None:
        """End a worker, whether it still lives or not; nothing more is heard of it."""

    def start(self, job: Job, say: Say) -> Runtime:
        self._begin()
        self._job, self._say = job, say
        while self._runtime is None:
            self._hire(at_most=1)
            for worker, message in self.receive(_ROUND):
                self._settle(worker, message)
        return self._runtime

    def certify(self, ids: Sequence[int]) -> Iterator[list[Certificate]]:
        self._assignment = Assignment(ids)
        for worker, member in self._members.items():
            self._join(worker, member)
        self._next_round = 0.0
        while not self._assignment.done:
            self._hire()
            messages = list(self.receive(_ROUND))
            reports = [(worker, message) for worker, message in messages if isinstance(message, Report)]
            if finished := [certificate for worker, report in reports for certificate in self._take(worker, report)]:
                yield finished
            for worker, report in reports:
                self._retry(worker, report.failed)
            for worker, message in messages:
                self._settle(worker, message)
                if isinstance(message, Ready):
                    self._join(worker, self._members[worker])
        for member in self._members.values():
            member.status.until = time.perf_counter()
        if self._assignment.given_up:
            raise SmoothcertError(self._assignment.given_up)

    def status(self) -> Status:
        return self._total

    def close(self) -> None:
        while self._members:
            self.discard(self._members.popitem()[0])

    def _hire(self, at_most: int | None = None) -> None:
        if time.perf_counter() < self._next_round:
            return
        self._next_round = time.perf_counter() + min(_ROUND * 2**self._false_starts, _LONGEST_PAUSE)
        places = at_most or self.places()
        while len(self._members) < places:
            self._members[self.launch(self._runtime or self._job.runtime)] = _Member()

    def _settle(self, worker: Handle, message: Message) -> None:
        """A worker is ready, or it is lost; of one that is, nothing more is wanted."""
        member = self._members.get(worker)
        if member and isinstance(message, Ready):
            self._agree(message)
            self._false_starts = 0
            member.ready = message
        elif member and isinstance(message, Failed):
            del self._members[worker]
            self.discard(worker)
            if message.final:
                raise InvalidInput(message.error)
            if member.ready:
                self._next_round = 0.0
                self._lose(worker, member, message.error)
            else:
                self._false_start(message.error)

    def _agree(self, ready: Ready) -> None:
        if self._runtime is None:
            self._runtime = ready.runtime
            for warning in ready.warnings:
                warnings.warn(warning, stacklevel=2)
        elif replace(ready.runtime, device=self._runtime.device) != self._runtime:
            raise SmoothcertError(
                f"the worker on {ready.place} would run the classifier otherwise than the others ({ready.runtime}, not "
                f"{self._runtime}), and certificates would speak of two; choose --compile and --batch so that all can"
            )

    def _false_start(self, error: str) -> None:
        self._false_starts += 1
        if self._false_starts >= TRIES and not any(member.ready for member in self._members.values()):
            raise SmoothcertError(f"{TRIES} workers in a row could not start, at last with: {error}")

    def _join(self, worker: Handle, member: _Member) -> None:
        if member.ready:
            self._assignment.join(worker, member.ready.capacity)
            member.status = WorkerStatus(len(self._crew) + 1)
            self._crew.append(member.status)
            self._feed(worker, member)

    def _feed(self, worker: Handle, member: _Member) -> None:
        while member.calls < _CALLS:
            ids = self._assignment.give(worker)
            if not ids and not self._assignment.open(worker):
                break
            self.send(worker, ids)
            member.calls += 1
        member.status.open = self._assignment.open(worker)

    def _feed_all(self) -> None:
        for worker, member in self._members.items():
            if member.ready:
                self._feed(worker, member)

    def _take(self, worker: Handle, report: Report) -> list[Certificate]:
        """The certificates of a report; the worker has its next inputs before anything waits for a disk."""
        member = self._members[worker]
        member.calls -= 1
        wanted = [certificate for certificate in report.finished if self._assignment.finish(worker, certificate.id)]
        member.finished += len(wanted)
        member.spent += sum(certificate.samples for certificate in wanted)
        self._count(member, report.status)
        member.status.sampling = report.sampling
        self._feed(worker, member)
        return wanted

    def _retry(self, worker: Handle, failed: Sequence[tuple[int, str]]) -> None:
        for id, error in failed:
            self._say(f"input {id} failed ({error}); another worker will try")
            self._assignment.fail(worker, id, error)
            self._feed_all()

    def _lose(self, worker: Handle, member: _Member, error: str) -> None:
        """What others do again was not done: only finished inputs count of what a lost worker had begun."""
        assert member.ready
        open = self._assignment.open(worker)
        self._say(f"lost the worker on {member.ready.place} ({error}); its {open} open inputs go to others")
        member.status.until = time.perf_counter()
        member.status.open = 0
        self._count(member, Status(member.finished, member.spent, member.report.forwarded, member.spent))
        self._assignment.leave(worker, error)
        self._feed_all()

    def _count(self, member: _Member, now: Status) -> None:
        total, before = self._total, member.report
        self._total = Status(
            total.opened + now.opened - before.opened,
            total.committed + now.committed - before.committed,
            total.forwarded + now.forwarded - before.forwarded,
            total.counted + now.counted - before.counted,
            self._crew,
        )
        member.report = now
        member.status.counted = now.counted


@dataclass
class _Member:
    """What the driver knows of a worker."""

    ready: Ready | None = None
    status: WorkerStatus = field(default_factory=lambda: WorkerStatus(0))
    calls: int = 0
    """Under way."""
    finished: int = 0
    spent: int = 0
    """Samples of the finished inputs."""
    report: Status = field(default_factory=Status)
    """The last one."""
