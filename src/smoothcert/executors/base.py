"""What an executor is: it takes a job and ids, and returns certificates as they finish.

The executor for this process and one device is here as well, and the choice of another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pkgutil import resolve_name

from smoothcert.data.base import Dataset
from smoothcert.device.runtime import Device, Dtype, Runtime, Say
from smoothcert.errors import InvalidInput, UnreadableInput, setting
from smoothcert.plans import Certificate, Look, Plan, Rule
from smoothcert.sampling.engine import Begun, Engine
from smoothcert.smoothed import ReadySubject, Subject

_PROCESSES = "smoothcert.executors.processes:ProcessExecutor"
_RAY = "smoothcert.executors.ray:RayExecutor"
"""Executors that are imported when a user chooses them. Ray is optional."""


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
    """Base of all executors. Use it as a context manager.

    Call `resolve`, `start`, and then `certify` for each part of the run.
    """

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


def choose_executor(
    executor: str,
    *,
    devices: str | None = None,
    address: str | None = None,
    workers: int | str | None = None,
    gpus_per_worker: float | None = None,
) -> Executor:
    """Make an executor by its name. A setting that belongs to another executor is an error.

    Args:
        executor: local (this machine) or ray (a Ray cluster).
        devices: local: the devices to use, one process on each, as in "cuda:0,cuda:1", or "all"
            CUDA devices. Default: one device, in this process.
        address: ray: the address of the cluster, "auto" or "HOST:PORT". Default: a new Ray instance
            on this machine.
        workers: ray: the number of workers, or "auto" for as many as the cluster has room for.
            Default: "auto".
        gpus_per_worker: ray: GPUs that each worker reserves. Default: 1 if the cluster has GPUs,
            otherwise 0.
    """
    if executor == "ray":
        if devices is not None:
            raise InvalidInput(
                "not-for-ray",
                "`devices={devices}` is for `executor=local`; Ray finds its devices itself",
                devices=devices,
            )
        ray: Executor = resolve_name(_RAY)(address, workers or "auto", gpus_per_worker)
        return ray
    cluster = {"address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    only_ray = [setting(key, value) for key, value in cluster.items() if value is not None]
    if only_ray:
        raise InvalidInput(
            "only-for-ray",
            "{settings}: only for `executor=ray`; to use several devices of this machine, give "
            "`devices=cuda:0,cuda:1`",
            settings=", ".join(only_ray),
        )
    if devices is None:
        return LocalExecutor()
    processes: Executor = resolve_name(_PROCESSES)(devices)
    return processes
