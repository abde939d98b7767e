"""Spend a budget of samples or minutes on a set of inputs, and end in time.

The inputs are certified in random order and in blocks, the first an eighth of all. A block has one plan, which is
recorded before its first sample is drawn: for a `Price`, the budget sets the price, for every other plan the ceiling.
What is left after a block decides about the next one. With a budget of samples, this depends on votes alone, so an
interrupted run ends with the same certificates. With minutes, it also depends on the clock.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

import numpy as np

from smoothcert import _check
from smoothcert._registry import describe, restore
from smoothcert.errors import InvalidInput, setting
from smoothcert.executors import Executor, Job
from smoothcert.plans import Certificate, OneLook, Plan, Price, plan_or_default
from smoothcert.runs.manifest import Manifest
from smoothcert.statistics.population import distribution
from smoothcert.tasks.survey import Forecast, Survey, Tally, costs, first_votes, foresee, order, survey

_PART_OF_REST, _PART_OF_ALL = 8, 64
"""A block has an eighth of the inputs that are left, or a 64th of all inputs if that is more."""
_SURVEY = 0.02
"""A survey costs at most this share of the budget."""
_LAST, _ENDING = 0.985, 0.5
"""The share of the minutes that is planned, and seconds to end the command."""
_PILOT_SHARE, _SMALLEST_PILOT = 1 / 30, 25
"""The share of the samples that pilots get at most, and the smallest pilot."""
_RECENT = 3
"""The last blocks tell the rate."""
_PRICES = np.geomspace(1e3, 1e-11, 900)
"""The prices and ceilings that are tried, from the cheapest run to the dearest one."""
_SIZES = np.unique(np.rint(np.geomspace(10, 1e9, 240)).astype(int))


@dataclass(frozen=True)
class Budget:
    """How much a whole set of inputs may cost.

    Args:
        samples: Forward passes.
        minutes: Minutes, start-up included.
        since: When the minutes began, as `time.perf_counter()` tells it.
    """

    samples: float | None
    minutes: float | None
    since: float

    def __post_init__(self) -> None:
        if self.samples is not None and self.minutes is not None:
            given = f"{setting('budget', self.samples)} and {setting('minutes', self.minutes)}"
            raise InvalidInput(f"{given} exclude one another: give one of them")
        if self.samples is not None:
            object.__setattr__(self, "samples", _check.whole("budget", self.samples, least=1))
        else:
            _check.between("minutes", self.minutes, 0)

    def described(self, plan: Plan) -> dict[str, Any]:
        """What a manifest compares: also the settings of the plan that the budget may change."""
        return {"samples": self.samples, "minutes": self.minutes, "ceiling": plan.samples, "pilot": plan.pilot}

    def total(self, found: Survey) -> float:
        """All samples that may be spent."""
        if self.samples is not None:
            return self.samples
        return found.samples + found.rate * max(self.seconds_left, 0)

    @property
    def seconds_left(self) -> float:
        return self.since + 60 * _LAST * (self.minutes or 0) - _ENDING - time.perf_counter()

    def refuse(self, inputs: int, least: int, found: Survey) -> InvalidInput:
        """The error for a budget that is too small; `least` is what every input needs."""
        if self.samples is not None:
            wanted = setting("budget", found.samples + inputs * least)
        else:
            missing = inputs * least / found.rate - self.seconds_left
            wanted = setting("minutes", ceil(100 * ((self.minutes or 0) + missing / 60 / _LAST)) / 100)
        return InvalidInput(f"the budget is too small for {inputs:,} inputs: give at least {wanted}")


class Spending:
    """What was spent of a budget, and the plan of the next block.

    Args:
        job: The job. Its plan has the settings that the budget does not change.
        ids: The inputs of the run.
        survey: What is known about them.
        total: All samples that may be spent.
        seconds: In how many seconds to end; None for a budget of samples.
        done: The certificates that exist already.
    """

    def __init__(
        self,
        job: Job,
        ids: Sequence[int],
        survey: Survey,
        total: float,
        seconds: float | None,
        done: Iterable[Certificate] = (),
    ) -> None:
        self.plan, self.noise, self.survey, self.total = job.plan, job.subject.noise, survey, total
        self.spent, self._votes = survey.samples, Tally(survey.votes)
        self._order = order(ids, job.subject.seed)
        for certificate in done:
            self.add(certificate)
        self._marks = [(time.perf_counter(), self.spent)]
        self._end = None if seconds is None else time.perf_counter() + seconds
        plans = (self._with({"samples": int(size)}) for size in _SIZES)
        self._least = next(plan.most_samples for plan in plans if plan is not None)

    @classmethod
    def begin(cls, budget: Budget, job: Job, ids: Sequence[int], executor: Executor) -> Spending:
        """Survey the inputs, and choose the size of the pilot. A budget that is too small is an error."""
        found = survey(executor, job, ids, lambda seen: _SURVEY * budget.total(seen), timed=budget.samples is None)
        total = budget.total(found)
        each = (total - found.samples) / len(ids)
        if isinstance(job.plan, Price) and job.plan.pilot == Price.default_pilot:
            pilot = int(np.clip(_PILOT_SHARE * each, _SMALLEST_PILOT, Price.default_pilot))
            job = replace(job, plan=replace(job.plan, pilot=min(pilot, job.plan.samples)))
        made = cls(job, ids, found, total, None if budget.minutes is None else budget.seconds_left)
        if each < made._least:
            raise budget.refuse(len(ids), made._least, found)
        return made

    @classmethod
    def resume(cls, budget: Budget, job: Job, manifest: Manifest, done: Iterable[Certificate]) -> Spending:
        """Go on as recorded, without measuring again."""
        record = manifest.spending or {}
        votes = Tally({(count, samples): inputs for count, samples, inputs in record["votes"]})
        found = Survey(votes, record["survey"], record["rate"])
        job = replace(job, plan=replace(job.plan, samples=(manifest.budget or {})["ceiling"]))  # type: ignore[type-var]
        made = cls(job, manifest.ids, found, record["total"], None, done)
        if budget.minutes is not None:
            made._end = time.perf_counter() + (made.total - made.spent) / found.rate
        return made

    def forecast(self, plan: Plan) -> Forecast:
        """What the run will cost: nearly all of the budget if samples have a price, else what this plan costs."""
        found = foresee(self.survey, plan, self.noise, len(self._order))
        if isinstance(plan, Price) and plan.price > _PRICES[-1]:  # else all inputs get what they can use
            return replace(found, samples=self.total, error=0.0)
        return replace(found, samples=min(found.samples + self.spent, self.total))

    def add(self, certificate: Certificate) -> None:
        """Count the samples and the first votes of an input."""
        self.spent += certificate.samples
        self._votes[first_votes(certificate, self.plan)] += 1

    def blocks(self, todo: Iterable[int], begun: Mapping[str, Any] | None = None) -> Iterator[tuple[list[int], Plan]]:
        """The next inputs and their plan, until all are certified. Between two blocks, `add` all certificates.

        Args:
            todo: The inputs that have no certificate.
            begun: The record of a block that was interrupted.
        """
        waiting = set(todo)
        if begun is not None and (rest := [id for id in begun["block"] if id in waiting]):
            yield rest, restore(begun["plan"])
            waiting -= set(rest)
        left = [id for id in self._order if id in waiting]
        while left:
            self._marks.append((time.perf_counter(), self.spent))
            size = min(max(len(left) // _PART_OF_REST, len(self._order) // _PART_OF_ALL, 1), len(left))
            yield left[:size], self._next_plan(size, len(left))
            left = left[size:]

    def record(self, block: list[int], plan: Plan) -> dict[str, Any]:
        """What a run needs to be resumed in this block."""
        votes = [[*pair, inputs] for pair, inputs in sorted(self.survey.votes.items())]
        known = {"total": self.total, "rate": self._rate, "survey": self.survey.samples, "votes": votes}
        return known | {"block": block, "plan": describe(plan)}

    @property
    def _rate(self) -> float:
        """Samples per second in the last blocks."""
        (since, before), (now, spent) = self._marks[-1 - _RECENT :][0], self._marks[-1]
        return (spent - before) / (now - since) if spent > before else self.survey.rate

    def _next_plan(self, size: int, left: int) -> Plan:
        """The dearest plan with which the next inputs cost their share of what is left.

        Even if all of them cost its ceiling, there is enough for the others.
        """
        if self._end is not None:
            self.total = self.spent + self._rate * max(self._end - time.perf_counter(), 0)
        rest = self.total - self.spent
        most = int((rest - self._least * (left - size)) / size)
        if most < self._least:  # only if the clock ran faster than expected
            return OneLook(1, self.plan.alpha)
        ceiling, weights = min(self.plan.samples, most - self.plan.pilot), distribution(self._votes)
        tried: list[dict[str, Any]] = [{"samples": int(size)} for size in _SIZES[ceiling > _SIZES]]
        tried.append({"samples": ceiling})
        if isinstance(self.plan, Price):
            tried = [{"samples": ceiling, "price": float(f"{price:.4g}")} for price in _PRICES]

        def cost(settings: dict[str, Any]) -> float:
            plan = self._with(settings)
            return 0.0 if plan is None else float(weights @ costs(plan, self.noise))

        found = self._with(tried[max(bisect_right(tried, rest / left, key=cost) - 1, 0)])
        return OneLook(1, self.plan.alpha) if found is None else found

    def _with(self, settings: dict[str, Any]) -> Plan | None:
        """The plan with other settings; None if it could prove nothing with them."""
        try:
            return replace(self.plan, **settings).for_noise(self.noise)  # type: ignore[type-var]
        except InvalidInput:
            return None


def plan_for_budget(plan: Plan | None) -> Plan:
    """The plan whose price or ceiling a budget will set."""
    if isinstance(plan, Price) and plan.price:
        raise InvalidInput(f"a budget sets the price: leave out {setting('price', plan.price)}, or the budget")
    return plan_or_default(plan or Price(price=0))


def as_recorded(plan: Plan, recorded: Plan) -> Plan:
    """The plan with what the budget has set in a recorded one."""
    if type(plan) is not type(recorded):
        return plan
    own = {field.name for field in fields(plan)}  # type: ignore[arg-type]
    return replace(plan, **{name: getattr(recorded, name) for name in ("samples", "pilot", "price") if name in own})  # type: ignore[type-var]
