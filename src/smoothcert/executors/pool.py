"""The driver of many workers: it assigns inputs, collects certificates and replaces lost workers.

Subclasses define how the driver reaches its workers: through pipes to processes, or through Ray.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from smoothcert.device.runtime import Runtime, Say
from smoothcert.errors import InvalidInput, SmoothcertError, warn
from smoothcert.executors.assignment import TRIES, Assignment
from smoothcert.executors.base import Executor, Job, Status, WorkerStatus
from smoothcert.executors.worker import Failed, Message, Ready, Report
from smoothcert.plans import Certificate, Rule

Handle = TypeVar("Handle")
"""What identifies a worker: a connection to a process, or a Ray actor."""

_CALLS_PER_WORKER = 2
"""Calls in flight, so that the worker is busy while the driver handles an answer."""
_LONGEST_PAUSE = 60.0
"""Seconds between two attempts to launch workers after many failed starts."""


class PoolExecutor(Executor, Generic[Handle]):
    """The driver of many workers.

    The first message of a worker is `Ready`. Each call is answered by a `Report`. If the worker is
    lost, a `Failed` takes the place of either.
    """

    launch_interval = 2.0
    """Seconds between two attempts to launch workers. The pause grows after failed starts."""

    _job: Job
    _say: Say
    _runtime: Runtime | None
    """The runtime of the first worker that was ready. All other workers must have the same one."""

    def __init__(self) -> None:
        self._records: dict[Handle, _Record] = {}
        self._reset()

    def _reset(self) -> None:
        """Forget the last job, because an executor can be used again."""
        self._runtime = None
        self._assignment = Assignment(())
        self._plan: Rule | None = None
        """The plan of the inputs that are being certified."""
        self._seed: int | None = None
        """The key of their noise."""
        self._joined: list[_Record] = []
        """All workers that were ready, lost ones included."""
        self._failed_starts = 0
        self._next_launch = 0.0

    @abstractmethod
    def places(self) -> int:
        """How many workers there should be now."""

    @abstractmethod
    def launch(self, runtime: Runtime) -> Handle:
        """Start a worker for the job, without waiting for it."""

    @abstractmethod
    def send(self, worker: Handle, ids: Sequence[int]) -> None:
        """Call `Worker.advance` with these ids, `_plan` and `_seed`, without waiting."""

    @abstractmethod
    def receive(self) -> Iterable[tuple[Handle, Message]]:
        """The messages that have arrived within `launch_interval`, each with its worker."""

    @abstractmethod
    def discard(self, worker: Handle) -> None:
        """End a worker, dead or alive. `receive` returns no more messages from it."""

    def start(self, job: Job, say: Say) -> Runtime:
        self._reset()
        self._job = job
        self._say = say
        while self._runtime is None:
            self._launch_missing_workers()
            for worker, message in self.receive():
                self._handle_start_or_loss(worker, message)
        return self._runtime

    def certify(
        self, ids: Sequence[int], plan: Rule | None = None, seed: int | None = None
    ) -> Iterator[list[Certificate]]:
        self._assignment = Assignment(ids)
        self._plan = plan
        self._seed = seed
        for worker, record in self._records.items():
            self._join(worker, record)
        self._next_launch = 0.0
        while not self._assignment.done:
            self._launch_missing_workers()
            messages = list(self.receive())
            finished = self._collect(messages)
            if finished:
                yield finished
            for worker, message in messages:
                self._handle_start_or_loss(worker, message)
                if isinstance(message, Ready):
                    self._join(worker, self._records[worker])
        if self._assignment.given_up:
            raise self._assignment.given_up

    def status(self) -> Status:
        last = [Status(), *(record.last for record in self._joined)]
        return Status(
            opened=sum(status.opened for status in last),
            committed=sum(status.committed for status in last),
            forwarded=sum(status.forwarded for status in last),
            counted=sum(status.counted for status in last),
            workers=self._joined,
            lowest=min(status.lowest for status in last),
            highest=max(status.highest for status in last),
        )

    def close(self) -> None:
        while self._records:
            self.discard(self._records.popitem()[0])

    def _launch_missing_workers(self) -> None:
        """Launch workers until there are as many as there should be.

        Do nothing if the last attempt was a moment ago. The first worker starts alone, because it
        chooses the runtime of all.
        """
        now = time.perf_counter()
        if now < self._next_launch:
            return
        pause = min(self.launch_interval * 2**self._failed_starts, _LONGEST_PAUSE)
        self._next_launch = now + pause
        places = 1 if self._runtime is None else self.places()
        while len(self._records) < places:
            self._records[self.launch(self._runtime or self._job.subject.runtime)] = _Record()

    def _handle_start_or_loss(self, worker: Handle, message: Message) -> None:
        """Record that a worker is ready, or remove it if it failed.

        Messages of removed workers are ignored.
        """
        record = self._records.get(worker)
        if record is None:
            return
        if isinstance(message, Ready):
            self._check_runtime(message)
            self._failed_starts = 0
            record.ready = message
        if isinstance(message, Failed):
            del self._records[worker]
            self.discard(worker)
            if message.final:
                raise InvalidInput("worker-failed", "{error}", error=message.error)
            if record.ready:
                self._next_launch = 0.0
                self._reassign_inputs(worker, record, record.ready.place, message.error)
            else:
                self._count_failed_start(message.error)

    def _check_runtime(self, ready: Ready) -> None:
        """Take the runtime of the first worker, and refuse a worker with another one."""
        if self._runtime is None:
            self._runtime = ready.runtime
            for warning in ready.warnings:
                warn(warning)
        elif replace(ready.runtime, device=self._runtime.device) != self._runtime:
            raise SmoothcertError(
                "other-runtime",
                "the worker on {place} would run the classifier in another way than the first "
                "worker ({runtime}, not {first}), and a run cannot mix them: choose `compile` and "
                "`batch` that work on all devices",
                place=ready.place,
                runtime=ready.runtime,
                first=self._runtime,
            )

    def _count_failed_start(self, error: str) -> None:
        self._failed_starts += 1
        any_ready = any(record.ready for record in self._records.values())
        if self._failed_starts >= TRIES and not any_ready:
            raise SmoothcertError(
                "no-worker-starts",
                "{tries} workers in a row could not start, the last one with: {error}",
                tries=TRIES,
                error=error,
            )

    def _join(self, worker: Handle, record: _Record) -> None:
        """Assign the first inputs to a worker, if it is ready."""
        if record.ready is None:
            return
        self._assignment.join(worker, record.ready.capacity)
        if record not in self._joined:
            self._joined.append(record)
        self._send_inputs(worker, record)

    def _send_inputs(self, worker: Handle, record: _Record) -> None:
        """Assign inputs to a worker until enough calls are in flight.

        A call without new inputs lets it go on with those that it has.
        """
        while record.calls < _CALLS_PER_WORKER:
            ids = self._assignment.give(worker)
            if not ids and not self._assignment.open(worker):
                break
            self.send(worker, ids)
            record.calls += 1

    def _send_inputs_to_all(self) -> None:
        for worker, record in self._records.items():
            if record.ready:
                self._send_inputs(worker, record)

    def _collect(self, messages: Sequence[tuple[Handle, Message]]) -> list[Certificate]:
        """The certificates of all reports.

        Workers get their next inputs before anything is written to disk.
        """
        finished: list[Certificate] = []
        for worker, report in messages:
            if isinstance(report, Report):
                finished += self._finish(worker, report)
                self._retry(worker, report.failed)
        return finished

    def _finish(self, worker: Handle, report: Report) -> list[Certificate]:
        """The certificates of a report, whose worker gets its next inputs."""
        record = self._records[worker]
        record.calls -= 1
        finished = [
            certificate
            for certificate in report.finished
            if self._assignment.finish(worker, certificate.id)
        ]
        record.finished += len(finished)
        record.spent += sum(certificate.samples for certificate in finished)
        record.last = report.status
        self._send_inputs(worker, record)
        return finished

    def _retry(self, worker: Handle, failed: Sequence[tuple[int, str]]) -> None:
        """Assign failed inputs again."""
        for id, error in failed:
            self._say(f"input {id} failed ({error})")
            self._assignment.fail(worker, id, error, unreadable=True)
            self._send_inputs_to_all()

    def _reassign_inputs(self, worker: Handle, record: _Record, place: str, error: str) -> None:
        """Assign the open inputs of a lost worker to others.

        They begin again, so only its finished inputs stay in the total.
        """
        open = self._assignment.open(worker)
        self._say(
            f"lost the worker on {place} ({error}); its {open} open inputs go to other workers"
        )
        record.lost = True
        record.last = replace(
            record.last, opened=record.finished, committed=record.spent, counted=record.spent
        )
        self._assignment.leave(worker, error)
        self._send_inputs_to_all()


@dataclass(eq=False)
class _Record(WorkerStatus):
    """What the driver knows about a worker.

    Args:
        ready: Its first message, None before.
        calls: Calls in flight.
        spent: Samples of these inputs.
        last: Its last status.
    """

    ready: Ready | None = None
    calls: int = 0
    spent: int = 0
    last: Status = field(default_factory=Status)
