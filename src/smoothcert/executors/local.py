"""The executor for this process and one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smoothcert.device.runtime import Runtime
from smoothcert.executors.base import Executor, Job, Status
from smoothcert.plans import Certificate, Rule
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
        self._prepared_before = prepared

    def start(self, job: Job, say: Say) -> Runtime:
        self._prepared = self._prepared_before or job.subject.prepare(say)
        self._job = job
        self._engine = self._prepared.engine(job.plan, seed=job.subject.seed)
        return self._prepared.subject.runtime

    def certify(
        self, ids: Sequence[int], plan: Rule | None = None, seed: int | None = None
    ) -> Iterator[list[Certificate]]:
        engine = self.engine(plan, seed)
        for certificate in engine.certify(self._job.read(id, engine.plan) for id in ids):
            yield [certificate]

    def status(self) -> Status:
        engine = self._engine
        return Status(
            opened=engine.opened,
            committed=engine.committed,
            forwarded=engine.sampler.forwarded,
            counted=engine.sampler.counted,
            lowest=engine.lowest,
            highest=engine.highest,
        )

    def engine(self, plan: Rule | None = None, seed: int | None = None) -> Engine:
        """The engine for a plan and a key of the noise, where None stands for those of the job.

        With the same key, it is the same engine.
        """
        plan = plan or self._job.plan
        seed = self._job.subject.seed if seed is None else seed
        if self._engine.sampler.counter.stream.seed != seed:
            self._engine = self._prepared.engine(plan, seed=seed)
        self._engine.plan = plan
        return self._engine
