"""The executor for one device, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smoothcert.device.runtime import Runtime
from smoothcert.executors.base import Executor, Job, Status
from smoothcert.executors.worker import status_of
from smoothcert.plans import Certificate
from smoothcert.sampling.engine import Engine
from smoothcert.smoothed.subject import Prepared, Say


class LocalExecutor(Executor):
    """Certifies in this process, on one device.

    Args:
        prepared: The subject of the job, if it is prepared already.
    """

    _job: Job
    _engine: Engine

    def __init__(self, prepared: Prepared | None = None) -> None:
        self._prepared = prepared

    def start(self, job: Job, say: Say) -> Runtime:
        prepared = self._prepared or job.subject.prepare(say)
        self._job = job
        self._engine = prepared.engine(job.plan, seed=job.subject.seed)
        return prepared.subject.runtime

    def certify(self, ids: Sequence[int]) -> Iterator[list[Certificate]]:
        for certificate in self._engine.certify(self._job.subject.read(self._job.dataset, id) for id in ids):
            yield [certificate]

    def status(self) -> Status:
        return status_of(self._engine)
