"""The interface of executors, the one for this process, and the choice of one by its name.

An executor takes a job and ids, and returns certificates as they finish.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from smoothcert.data.base import Dataset
from smoothcert.device.runtime import Device, Dtype, Runtime
from smoothcert.errors import InvalidInput, UnreadableInput, setting
from smoothcert.plans import Certificate, Look, Plan, Rule
from smoothcert.sampling.engine import Begun, Engine
from smoothcert.smoothed.subject import Prepared, Say, Subject


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
        """One input, as an engine with this plan opens it. Only the plan of the job goes on with earlier votes."""
        try:
            found = self.subject.read(self.dataset, id, known_labels=plan.known_labels)
        except InvalidInput as error:
            raise UnreadableInput(error.message, id) from error
        return (*found, self.begun.get(id, ()) if plan == self.plan else ())


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
        since: When the worker was ready.
        until: When the worker was lost or the run ended; None before that.
        open: Inputs that the worker has.
        sampling: Seconds in which the worker had something to sample.
    """

    since: float = field(default_factory=time.perf_counter)
    until: float | None = None
    open: int = 0
    sampling: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the worker was ready, up to its loss or the end of the run."""
        return (self.until or time.perf_counter()) - self.since


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
        """Prepare for a job; returns its runtime with the batch size and the compilation that were chosen.

        Args:
            job: The job.
            say: Shows messages to the user.
        """

    @abstractmethod
    def certify(
        self, ids: Sequence[int], plan: Rule | None = None, seed: int | None = None
    ) -> Iterator[list[Certificate]]:
        """Certify inputs, in the order in which they finish. Certificates that arrive together are in one list.

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
        self, ids: Sequence[int], plan: Rule | None = None, seed: int | None = None
    ) -> Iterator[list[Certificate]]:
        engine = self.engine(plan, seed)
        for certificate in engine.certify(self._job.read(id, engine.plan) for id in ids):
            yield [certificate]

    def status(self) -> Status:
        engine, sampler = self._engine, self._engine.sampler
        counts = (engine.opened, engine.committed, sampler.forwarded, sampler.counted)
        return Status(*counts, lowest=engine.lowest, highest=engine.highest)

    def engine(self, plan: Rule | None = None, seed: int | None = None) -> Engine:
        """The engine for a plan and a key of the noise, where None stands for those of the job.

        With the same key, it is the same engine.
        """
        plan, seed = plan or self._job.plan, self._job.subject.seed if seed is None else seed
        if self._engine.sampler.counter.stream.seed != seed:
            self._engine = self._prepared.engine(plan, seed=seed)
        self._engine.plan = plan
        return self._engine


def choose_executor(
    name: str,
    *,
    devices: str | None = None,
    address: str | None = None,
    workers: int | str | None = None,
    gpus_per_worker: float | None = None,
) -> Executor:
    """Make an executor by its name. A setting that belongs to another executor is an error.

    Args:
        name: local (this machine) or ray (a Ray cluster).
        devices: local: the devices to use, one process on each, as in "cuda:0,cuda:1", or "all" CUDA devices. Default:
            one device, in this process.
        address: ray: the address of the cluster, "auto" or "HOST:PORT". Default: a new Ray instance on this machine.
        workers: ray: the number of workers, or "auto" for as many as the cluster has room for. Default: "auto".
        gpus_per_worker: ray: GPUs that each worker reserves. Default: 1 if the cluster has GPUs, otherwise 0.
    """
    cluster = {"address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    if name == "ray":
        if devices is not None:
            raise InvalidInput(
                f"{setting('devices', devices)} is for {setting('executor', 'local')}; Ray finds its devices itself"
            )
        from smoothcert.executors.ray import RayExecutor

        return RayExecutor(address, workers or "auto", gpus_per_worker)
    if given := [setting(name, value) for name, value in cluster.items() if value is not None]:
        raise InvalidInput(
            f"{', '.join(given)}: only for {setting('executor', 'ray')}; to use several devices of this machine, give "
            f"{setting('devices', 'cuda:0,cuda:1')}"
        )
    if devices is None:
        return LocalExecutor()
    from smoothcert.executors.processes import ProcessExecutor

    return ProcessExecutor(devices)
