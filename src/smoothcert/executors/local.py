"""The executor for one device, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smoothcert.device.runtime import Runtime
from smoothcert.executors.base import Executor, Job, Say, Status
from smoothcert.executors.worker import engine_for, read_input, status_of
from smoothcert.plans import Certificate
from smoothcert.sampling.engine import Engine


class LocalExecutor(Executor):
    """Certifies in this process, on one device."""

    _job: Job
    _engine: Engine

    def start(self, job: Job, say: Say) -> Runtime:
        self._job = job
        self._engine, runtime = engine_for(job, say)
        return runtime

    def certify(self, ids: Sequence[int]) -> Iterator[list[Certificate]]:
        for certificate in self._engine.certify(read_input(self._job, id) for id in ids):
            yield [certificate]

    def status(self) -> Status:
        return status_of(self._engine)
