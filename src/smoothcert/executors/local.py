"""The executor for this process and one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smoothcert.device.runtime import Runtime
from smoothcert.device.setup import Say
from smoothcert.executors.base import Executor, Job, Status
from smoothcert.plans import Certificate, Rule
from smoothcert.sampling.engine import Engine
from smoothcert.smoothed import ReadySubject


class LocalExecutor(Executor):
    """Certifies in this process, on one device.

    Args:
        ready: The subject of the job, if it is prepared already.
    """

    _job: Job
    _ready: ReadySubject
    _engine: Engine

    def __init__(self, ready: ReadySubject | None = None) -> None:
        self._ready_before = ready

    def start(self, job: Job, say: Say) -> Runtime:
        self._ready = self._ready_before or job.subject.prepare(say)
        self._job = job
        self._engine = self._ready.engine(job.plan, seed=job.subject.seed)
        return self._ready.runtime

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
            self._engine = self._ready.engine(plan, seed=seed)
        self._engine.plan = plan
        return self._engine
