"""The executor for one device, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smoothcert.device.runtime import Runtime
from smoothcert.executors.base import Executor, Job, Status
from smoothcert.executors.worker import engine_for, status_of
from smoothcert.plans import Certificate, Plan
from smoothcert.sampling.engine import Engine
from smoothcert.smoothed.subject import Prepared, Say


class LocalExecutor(Executor):
    """Certifies in this process, on one device.

    Args:
        prepared: The subject of the job, if it is prepared already.
    """

    _job: Job
    _prepared: Prepared
    _engine: Engine

    def __init__(self, prepared: Prepared | None = None) -> None:
        self._given = prepared

    def start(self, job: Job, say: Say) -> Runtime:
        self._prepared = self._given or job.subject.prepare(say)
        self._job = job
        self._engine = self._prepared.engine(job.plan, seed=job.subject.seed)
        return self._prepared.subject.runtime

    def certify(
        self, ids: Sequence[int], plan: Plan | None = None, seed: int | None = None
    ) -> Iterator[list[Certificate]]:
        self._engine = engine_for(self._job, self._prepared, self._engine, plan, seed)
        for certificate in self._engine.certify(self._job.read(id, self._engine.plan) for id in ids):
            yield [certificate]

    def status(self) -> Status:
        return status_of(self._engine)
