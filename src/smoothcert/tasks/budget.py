"""Spend a budget of samples or minutes on a set of inputs, and end in time.

The inputs are certified in random order and in blocks, the first an eighth of all. A block has one plan, which is
recorded before its first sample is drawn: for a `Price`, the budget sets the price, for every other plan the ceiling.
What is left after a block decides about the next one. With a budget of samples, this depends on votes alone, so an
interrupted run ends with the same certificates. With minutes, it also depends on the clock.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

import numpy as np

from smoothcert import _check
from smoothcert._registry import describe, restore
from smoothcert.errors import InvalidInput, setting
from smoothcert.executors import Executor, Job
from smoothcert.plans import Certificate, OneLook, PilotPlan, Plan, Price, plan_or_default
from smoothcert.runs.manifest import BudgetEntry, Manifest, SpendingEntry
from smoothcert.statistics.population import distribution, posterior
from smoothcert.tasks.survey import Forecast, Survey, costs, foresee, order, survey, votes_of

_PART_OF_REST, _PART_OF_ALL = 8, 64
"""A block has an eighth of the inputs that are left, or a 64th of all inputs if that is more."""
_BLOCK_SECONDS = 1.0
"""With minutes, a block takes at least this long: at its end, few inputs wait for one another, in small batches."""
_RATE_SECONDS = 0.1
"""Blocks that take less time do not tell the rate."""
_RATE_BLOCKS = 3
"""The rate is that of this many blocks."""
_SURVEY_SHARE = 0.02
"""A survey costs at most this share of the budget."""
_PLANNED_SHARE = 0.985
"""The share of the minutes that is planned."""
_ENDING_SECONDS = 0.5
"""How long it takes to end the command."""
_PILOT_SHARE = 1 / 30
"""Unless its size was chosen, a pilot gets at most this share of the samples of an input."""
_SMALLEST_PILOT = 25
_TEACHERS = 2_000
"""The votes of this many inputs tell how p is distributed."""
_PRICES = np.geomspace(1e3, 1e-11, 900)
"""The prices that are tried, from the cheapest run to the dearest one."""
_SIZES = np.unique(np.rint(np.geomspace(10, 1e9, 240)).astype(int))
"""The ceilings that are tried."""


@dataclass(frozen=True)
class Budget:
    """How much a whole set of inputs may cost.

    Args:
        samples: Forward passes.
        minutes: Minutes, start-up included.
        since: When the minutes began, as returned by `time.perf_counter()`.
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

    def described(self, plan: Plan) -> BudgetEntry:
        """What a manifest compares: also the settings of the plan that the budget may change."""
        return {
            "samples": None if self.samples is None else int(self.samples),
            "minutes": self.minutes,
            "ceiling": plan.samples,
            "pilot": plan.pilot,
        }

    def total(self, found: Survey) -> float:
        """All samples that may be spent."""
        if self.samples is not None:
            return self.samples
        return found.samples + found.rate * max(self.seconds_left, 0)

    @property
    def seconds_left(self) -> float:
        return (
            self.since
            + 60 * _PLANNED_SHARE * (self.minutes or 0)
            - _ENDING_SECONDS
            - time.perf_counter()
        )

    def refuse(self, inputs: int, least: int, found: Survey) -> InvalidInput:
        """The error for a budget that is too small; `least` is what every input needs."""
        if self.samples is not None:
            wanted = setting("budget", found.samples + inputs * least)
        else:
            missing = _BLOCK_SECONDS + inputs * least / found.rate - self.seconds_left
            wanted = setting(
                "minutes", ceil(110 * ((self.minutes or 0) + missing / 60 / _PLANNED_SHARE)) / 100
            )
        return InvalidInput(
            f"the budget is too small for {inputs:,} inputs: give at least {wanted}"
        )


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
        self.spent, self._votes = survey.samples, Counter(survey.votes.values())
        self._order = order(ids, job.subject.seed)
        self._teachers = set(self._order[:_TEACHERS])
        for certificate in done:
            self.add(certificate)
        self._marks = [(time.perf_counter(), self.spent)]
        self._end = None if seconds is None else time.perf_counter() + seconds
        plans = (self._with({"samples": int(size)}) for size in _SIZES)
        self._least = next(plan.most_samples for plan in plans if plan is not None)

    @classmethod
    def begin(cls, budget: Budget, job: Job, ids: Sequence[int], executor: Executor) -> Spending:
        """Survey the inputs, and choose the size of the pilot. A budget that is too small is an error."""
        timed = budget.minutes is not None
        found = survey(
            executor, job, ids, lambda seen: _SURVEY_SHARE * budget.total(seen), timed=timed
        )
        total = budget.total(found)
        each = (total - found.samples) / len(ids)
        plan = job.plan
        if (
            isinstance(plan, PilotPlan) and plan.pilot == replace(plan, pilot=0).pilot
        ):  # the default
            pilot = min(int(max(_PILOT_SHARE * each, _SMALLEST_PILOT)), plan.pilot)
            job = replace(job, plan=replace(plan, pilot=pilot))
        made = cls(job, ids, found, total, None if budget.minutes is None else budget.seconds_left)
        if each < made._least:
            raise budget.refuse(len(ids), made._least, found)
        return made

    @classmethod
    def resume(
        cls, budget: Budget, job: Job, manifest: Manifest, done: Iterable[Certificate]
    ) -> Spending:
        """Go on as recorded, without measuring again."""
        record = manifest.spending
        described = manifest.budget
        assert record is not None
        assert described is not None  # otherwise the budget of the run would differ
        votes = {id: (count, samples) for id, count, samples in record["votes"]}
        found = Survey(votes, record["survey"], record["rate"])
        job = replace(job, plan=replace(job.plan, samples=described["ceiling"]))  # type: ignore[type-var]
        made = cls(job, manifest.ids, found, record["total"], None, done)
        if budget.minutes is not None:
            made._end = time.perf_counter() + (made.total - made.spent) / found.rate
        return made

    def forecast(self, plan: Plan, inputs: int) -> Forecast:
        """What these inputs will cost: nearly all that is left, or less if this plan cannot use it."""
        found, rest = foresee(self.survey, plan, self.noise, inputs), self.total - self.spent
        if found.samples > 0.9 * rest or (isinstance(plan, Price) and plan.price > _PRICES[-1]):
            return replace(found, samples=rest, error=0.0 if self._end is None else None)
        return found

    def add(self, certificate: Certificate) -> None:
        """Count the samples of an input, and learn from its votes."""
        self.spent += certificate.samples
        if certificate.id in self._teachers:
            self._votes[votes_of(certificate, self.plan)] += 1

    def blocks(
        self, todo: Iterable[int], begun: SpendingEntry | None = None
    ) -> Iterator[tuple[list[int], Plan]]:
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
            now = time.perf_counter()
            if now - self._marks[-1][0] >= _RATE_SECONDS:
                self._marks.append((now, self.spent))
            size = max(len(left) // _PART_OF_REST, len(self._order) // _PART_OF_ALL, 1)
            if self._end is not None:
                size = max(
                    size, ceil(len(left) * _BLOCK_SECONDS / max(self._end - now, _BLOCK_SECONDS))
                )
            size = min(size, len(left))
            yield left[:size], self._next_plan(size, left)
            left = left[size:]

    def record(self, block: list[int], plan: Plan) -> SpendingEntry:
        """What a run needs to be resumed in this block."""
        votes = self.survey.votes
        return {
            "total": self.total,
            "rate": self._rate,
            "survey": self.survey.samples,
            "votes": [(id, *votes[id]) for id in sorted(votes)],
            "block": block,
            "plan": describe(plan),
        }

    @property
    def _rate(self) -> float:
        """Samples per second."""
        (since, before), (now, spent) = self._marks[-1 - _RATE_BLOCKS :][0], self._marks[-1]
        return (spent - before) / (now - since) if spent > before else self.survey.rate

    def _next_plan(self, size: int, left: Sequence[int]) -> Plan:
        """The plan of the next inputs: the dearest one with which all that are left cost what is left.

        Even if all of the next inputs cost its ceiling, there is enough for the others.
        """
        if self._end is not None:
            self.total = self.spent + self._rate * max(self._end - time.perf_counter(), 0)
        rest = self.total - self.spent
        most = int(
            max((rest - self._least * (len(left) - size)) / size, min(self._least, rest / size))
        )
        if most < self._least:  # only if the clock ran faster than expected
            return OneLook(1, self.plan.alpha)
        ceiling, weights = min(self.plan.samples, most - self.plan.pilot), self._expected(left)
        tried: list[dict[str, Any]] = [{"samples": int(size)} for size in _SIZES[ceiling > _SIZES]]
        tried.append({"samples": ceiling})
        if isinstance(self.plan, Price):
            tried = [{"samples": ceiling, "price": float(f"{price:.4g}")} for price in _PRICES]

        def cost(settings: dict[str, Any]) -> float:
            plan = self._with(settings)
            return 0.0 if plan is None else float(weights @ costs(plan, self.noise))

        found = self._with(tried[max(bisect_right(tried, rest / len(left), key=cost) - 1, 0)])
        return OneLook(1, self.plan.alpha) if found is None else found

    def _expected(self, left: Sequence[int]) -> Any:
        """The distribution of p over these inputs: what the survey says of each, and of all others what is usual."""
        usual = distribution(self._votes)
        known = [self.survey.votes[id] for id in left if id in self.survey.votes]
        own = posterior(known, usual).sum(axis=0)
        return (own + (len(left) - len(known)) * usual) / len(left)

    def _with(self, settings: dict[str, Any]) -> Plan | None:
        """The plan with other settings; None if it could prove nothing with them."""
        try:
            return replace(self.plan, **settings).for_noise(self.noise)  # type: ignore[type-var]
        except InvalidInput:
            return None


def plan_for_budget(plan: Plan | None) -> Plan:
    """The plan whose price or ceiling a budget will set."""
    if isinstance(plan, Price) and plan.price:
        raise InvalidInput(
            f"a budget sets the price: leave out {setting('price', plan.price)}, or the budget"
        )
    plan = plan_or_default(plan or Price(price=0))
    if "samples" not in {field.name for field in fields(plan)}:  # type: ignore[arg-type]
        raise InvalidInput(
            f"a budget cannot set the ceiling of {plan}: give another plan, or leave the budget out"
        )
    return plan


def as_recorded(plan: Plan, recorded: Plan) -> Plan:
    """The plan with what the budget has set in a recorded one."""
    if type(plan) is not type(recorded):
        return plan
    own = {field.name for field in fields(plan)}  # type: ignore[arg-type]
    return replace(
        plan,
        **{name: getattr(recorded, name) for name in ("samples", "pilot", "price") if name in own},
    )  # type: ignore[type-var]
