"""In this process, on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smoothcert.certificate import Certificate
from smoothcert.engine import Engine, Input, build_engine
from smoothcert.errors import InvalidInput
from smoothcert.executors.base import Executor, Job, Say, Status
from smoothcert.sampler.runtime import Runtime


class LocalExecutor(Executor):
    _job: Job
    _engine: Engine

    def start(self, job: Job, say: Say) -> Runtime:
        self._job = job
        self._engine, runtime = engine_for(job, say)
        return runtime

    def certify(self, ids: Sequence[int]) -> Iterator[Certificate]:
        return self._engine.certify(read_input(self._job, id) for id in ids)

    def status(self) -> Status:
        engine = self._engine
        return Status(engine.opened, engine.committed, engine.sampler.forwarded, engine.sampler.counted)


def engine_for(job: Job, say: Say) -> tuple[Engine, Runtime]:
    """A worker's engine; the inputs' shape is that of the first one."""
    return build_engine(
        job.classifier.module,
        classes=job.classifier.classes,
        shape=tuple(job.dataset[0][0].shape),
        noise=job.noise,
        plan=job.plan,
        runtime=job.runtime,
        seed=job.seed,
        say=say,
    )


def read_input(job: Job, id: int) -> Input:
    """Input `id`, fit to be certified."""
    x, label = job.dataset[id]
    if not bool(x.isfinite().all()):
        raise InvalidInput(f"input {id} of {job.dataset.name} has NaN or infinite values")
    if label >= job.classifier.classes:
        raise InvalidInput(
            f"input {id} of {job.dataset.name} has label {label}, but the model knows only the classes 0 to "
            f"{job.classifier.classes - 1}"
        )
    return id, x, None if label < 0 else label
