"""How the end of a run scales with many workers, simulated.

Inputs are assigned with the same `Assignment` as in a real run. Only the time is simulated: a worker serves the
requests of its open inputs one after the other.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiments import Inputs
from smoothcert import Gaussian, InputSpecific
from smoothcert.executors.assignment import Assignment
from smoothcert.runs.logs import read_log
from smoothcert.tasks.replay import probabilities

WORKERS = (8, 64, 512)
INPUTS = 50_000


class Windows(Assignment):
    """For comparison: every worker has as many open inputs as possible until the end."""

    def give(self, worker: int) -> list[int]:
        mine = self._open[worker]
        given = [
            self._waiting.popleft()
            for _ in range(min(self._capacity[worker] - len(mine), len(self._waiting)))
        ]
        mine.update(given)
        return given


@dataclass
class SimulatedWorker:
    """The requests of a worker, and the one that it is drawing."""

    queue: deque[tuple[int, int]] = field(default_factory=deque)
    """Requests as (input, samples), in the order in which they are drawn."""
    current: tuple[int, int] | None = None


def makespan(
    assignment: Assignment, first: int, draws: NDArray[np.int64], *, workers: int, window: int
) -> float:
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
        p = probabilities(
            read_log(inputs.logs / f"{name}.tsv"), noise=noise, samples=100_000, alpha=0.001
        )
        draws = plan.after_pilot(rng.binomial(plan.pilot, rng.choice(p, INPUTS)), noise)
        cost = draws + plan.pilot
        hours = {"specific": cost.mean(), "fixed": plan.most_samples}
        hours = {name: INPUTS * samples / rate / 3600 for name, samples in hours.items()}
        costs.append(
            {"sigma": sigma, "samples": cost.mean(), "largest": cost.max() / rate, "hours": hours}
        )
        for workers in WORKERS:
            ideal = cost.sum() / workers
            simulated = {
                "full": makespan(
                    Windows(range(INPUTS)), plan.pilot, draws, workers=workers, window=window
                ),
                "shrinking": makespan(
                    Assignment(range(INPUTS)), plan.pilot, draws, workers=workers, window=window
                ),
            }
            times = {
                name: {"seconds": t / rate, "busy": 100 * ideal / t}
                for name, t in simulated.items()
            }
            done = INPUTS / times["shrinking"]["seconds"]
            rows.append(
                {"sigma": sigma, "workers": workers, "ideal": ideal / rate, "per second": done}
                | times
            )
    return {"rows": rows, "costs": costs}
