"""How certification scales: the end of a run (simulated), and the rates of driver and journal (measured).

The simulation assigns inputs with the same `Assignment` as a real run. Only the time is simulated: a worker serves the
requests of its open inputs one after the other.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiments import Inputs
from smoothcert import Gaussian, InputSpecific
from smoothcert.device.runtime import Runtime
from smoothcert.executors.assignment import Assignment
from smoothcert.executors.base import Job, Status
from smoothcert.executors.pool import PoolExecutor
from smoothcert.executors.worker import Message, Ready, Report
from smoothcert.plans import Certificate, Look
from smoothcert.runs.journal import Journal
from smoothcert.runs.logs import read_log
from smoothcert.tasks.replay import probabilities

WORKERS = (8, 64, 512)
INPUTS = 50_000


class Windows(Assignment):
    """For comparison: every worker has as many open inputs as possible until the end."""

    def give(self, worker: int) -> list[int]:
        mine = self._open[worker]
        given = [self._waiting.popleft() for _ in range(min(self._capacity[worker] - len(mine), len(self._waiting)))]
        mine.update(given)
        return given


@dataclass
class SimulatedWorker:
    """The requests of a worker, and the one that it is drawing."""

    queue: deque[tuple[int, int]] = field(default_factory=deque)
    """Requests as (input, samples), in the order in which they are drawn."""
    current: tuple[int, int] | None = None


def makespan(assignment: Assignment, first: int, draws: NDArray[np.int64], *, workers: int, window: int) -> float:
    """How long the run takes, in units of the time for one sample. An input costs its `first` look, then its draws."""
    simulated = [SimulatedWorker() for _ in range(workers)]
    looked: set[int] = set()
    events: list[tuple[float, int]] = []

    def advance(number: int, now: float) -> None:
        worker = simulated[number]
        worker.queue.extend((id, first or int(draws[id])) for id in assignment.give(number))
        if worker.current is None and worker.queue:
            worker.current = worker.queue.popleft()
            heapq.heappush(events, (now + worker.current[1], number))

    for number in range(workers):
        assignment.join(number, window)
    for number in range(workers):
        advance(number, 0.0)
    now = 0.0
    while events:
        now, number = heapq.heappop(events)
        worker = simulated[number]
        assert worker.current
        id, _ = worker.current
        worker.current = None
        if first and draws[id] and id not in looked:
            looked.add(id)
            worker.queue.append((id, int(draws[id])))
        else:
            assignment.finish(number, id)
        advance(number, now)
    return now


def tail(inputs: Inputs, *, logs: dict[str, float], rate: float, window: int) -> dict[str, Any]:
    """The time of a whole run, simulated: a worker draws `rate` samples per second and has `window` inputs open."""
    assert inputs.logs is not None
    rows, costs = [], []
    for name, sigma in logs.items():
        noise, plan = Gaussian(sigma), InputSpecific(100_000, decline=0.05)
        rng = np.random.default_rng(0)
        p = probabilities(read_log(inputs.logs / f"{name}.tsv"), noise=noise, samples=100_000, alpha=0.001)
        draws = plan.after_pilot(rng.binomial(plan.pilot, rng.choice(p, INPUTS)), noise)
        cost = draws + plan.pilot
        hours = {"specific": cost.mean(), "fixed": plan.most_samples}
        hours = {name: INPUTS * samples / rate / 3600 for name, samples in hours.items()}
        costs.append({"sigma": sigma, "samples": cost.mean(), "largest": cost.max() / rate, "hours": hours})
        for workers in WORKERS:
            ideal = cost.sum() / workers
            simulated = {
                "full": makespan(Windows(range(INPUTS)), plan.pilot, draws, workers=workers, window=window),
                "shrinking": makespan(Assignment(range(INPUTS)), plan.pilot, draws, workers=workers, window=window),
            }
            times = {name: {"seconds": t / rate, "busy": 100 * ideal / t} for name, t in simulated.items()}
            done = INPUTS / times["shrinking"]["seconds"]
            rows.append({"sigma": sigma, "workers": workers, "ideal": ideal / rate, "per second": done} | times)
    return {"rows": rows, "costs": costs}


class Canned:
    """A worker that answers every call at once, with a certificate for every input of the call."""

    def __init__(self, plan: InputSpecific, noise: Gaussian) -> None:
        looks = [Look(1000, {1: 900, 2: 100}), Look(2421, {1: 2180, 2: 241})]
        self.certificate = Certificate.from_votes(looks, plan=plan, noise=noise, label=1)

    def advance(self, ids: Sequence[int]) -> Report:
        return Report(tuple(replace(self.certificate, id=id) for id in ids), (), Status(), 0.0)


class CannedExecutor(PoolExecutor[int]):
    """A pool of canned workers in this process, to measure the driver alone."""

    def __init__(self, workers: int, canned: Canned) -> None:
        super().__init__()
        self.workers, self.canned = workers, canned
        self.messages: deque[tuple[int, Message]] = deque()
        self.numbers = count()

    def places(self) -> int:
        return self.workers

    def launch(self, runtime: Runtime) -> int:
        self.messages.append((number := next(self.numbers), Ready("here", runtime, capacity=6)))
        return number

    def send(self, worker: int, ids: Sequence[int]) -> None:
        self.messages.append((worker, self.canned.advance(ids)))

    def receive(self, seconds: float) -> Iterator[tuple[int, Message]]:
        for _ in range(len(self.messages)):
            yield self.messages.popleft()

    def discard(self, worker: int) -> None:
        pass


def driver(inputs: Inputs) -> dict[str, Any]:
    """Certificates per second of the driver and of the journal, and calls per second through Ray."""
    noise, plan = Gaussian(0.5), InputSpecific(100_000, decline=0.05)
    canned = Canned(plan, noise)
    subject = SimpleNamespace(runtime=Runtime("cpu", "float32", "none", 256))  # canned workers need no more
    job = Job(subject, None, plan)  # type: ignore[arg-type]
    rows = []
    for workers in WORKERS:
        with CannedExecutor(workers, canned) as executor:
            executor.start(job, print)
            start = time.perf_counter()
            done = sum(len(finished) for finished in executor.certify(range(INPUTS)))
            rows.append({"part": f"driver, {workers} workers", "rate": done / (time.perf_counter() - start)})
    with Journal(inputs.work, write=True) as journal:
        ids = count()
        for together in (1, 8, 64):
            start = time.perf_counter()
            for _ in range(500):
                with journal.transaction():
                    for id in islice(ids, together):
                        journal.add(replace(canned.certificate, id=id), {"forwarded": id})
            rate = 500 * together / (time.perf_counter() - start)
            rows.append({"part": f"journal, {together} certificates at a time", "rate": rate})
    return {"rows": [*rows, {"part": "calls through Ray, two workers", "rate": ray_calls(canned)}]}


def ray_calls(canned: Canned, seconds: float = 5.0) -> float:
    """Calls per second, with two calls in flight per worker and one certificate per call."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    workers = [ray.remote(Canned).remote(canned.certificate.plan, canned.certificate.noise) for _ in range(2)]
    calls = {worker.advance.remote([0]): worker for worker in workers for _ in range(2)}
    ray.get(list(calls))
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        [call], _ = ray.wait(list(calls), num_returns=1)
        worker = calls.pop(call)
        done += len(ray.get(call).finished)
        calls[worker.advance.remote([done])] = worker
    rate = done / (time.perf_counter() - start)
    ray.shutdown()
    return rate
