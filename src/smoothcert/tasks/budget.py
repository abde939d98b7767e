"""Spend a budget on a set of inputs.

A budget is a number of samples. Minutes become one before the run: what is left of them after the
survey, times the measured rate. The clock decides nothing else.

The inputs are certified in random order and in blocks, the first an eighth of all. A block has one
plan, which is recorded before its first sample is drawn: for a `Price`, the budget sets the price,
for every other plan the ceiling. What is left after a block decides about the next one. This
depends on votes alone, so an interrupted run ends with the same certificates.
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
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan, Price, TwoStagePlan, plan_or_default
from smoothcert.runs.manifest import BudgetEntry, Manifest, SpendingEntry
from smoothcert.statistics.empirical_bayes import distribution, posterior
from smoothcert.tasks.survey import Forecast, Survey, Votes, costs, foresee, order, survey, votes_of

_PART_OF_REST = 8
"""A block has an eighth of the inputs that are left,"""
_PART_OF_ALL = 64
"""or a 64th of all inputs if that is more."""
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
"""The prices that are tried, from the cheapest run to the most expensive one."""
_CEILINGS = np.unique(np.rint(np.geomspace(10, 1e9, 240)).astype(int))
"""The ceilings that are tried."""
_SET_BY_BUDGET = ("samples", "pilot", "price")
"""The settings of a plan that a budget may change."""


@dataclass(frozen=True)
class Budget:
    """How much a whole set of inputs may cost. Either samples or minutes are given.

    Args:
        samples: Forward passes.
        minutes: Minutes, start-up included.
        since: When the minutes began, as returned by `time.perf_counter()`.
    """

    samples: int | None
    minutes: float | None
    since: float

    @classmethod
    def of(cls, samples: float | None, minutes: float | None, since: float | None) -> Budget | None:
        """The budget that the user gave; None if there is none."""
        if samples is None and minutes is None:
            return None
        if samples is not None and minutes is not None:
            raise InvalidInput(
                "two-budgets",
                "`budget={budget}` and `minutes={minutes}` exclude one another: give one of them",
                budget=samples,
                minutes=minutes,
            )
        began = time.perf_counter() if since is None else since
        if samples is not None:
            return cls(_check.whole("budget", samples, least=1), None, began)
        return cls(None, _check.between("minutes", minutes, 0), began)

    def described(self, plan: Plan, recorded: BudgetEntry | None) -> BudgetEntry:
        """What a manifest compares: the budget, and the settings of the plan that it may change.

        In a recorded run, minutes were turned into samples. It goes on with the same minutes, or
        with the same samples.
        """
        samples = self.samples
        minutes = self.minutes
        if recorded is not None and minutes is not None and minutes == recorded["minutes"]:
            samples = recorded["samples"]
        if recorded is not None and samples is not None and samples == recorded["samples"]:
            minutes = recorded["minutes"]
        return {
            "samples": samples,
            "minutes": minutes,
            "ceiling": plan.samples,
            "pilot": plan.pilot,
        }

    def total(self, seen: Survey, padding: int) -> int:
        """All samples that may be spent, those of the survey included.

        Args:
            seen: The survey.
            padding: Rows of batches that will not be full. They take time, but are no samples.
        """
        if self.samples is not None:
            return self.samples
        rows = int(seen.rate * self._seconds_left)
        return seen.samples + max(rows - padding, 0)

    @property
    def _seconds_left(self) -> float:
        planned = 60 * _PLANNED_SHARE * (self.minutes or 0) - _ENDING_SECONDS
        return self.since + planned - time.perf_counter()

    def too_small(self, inputs: int, least: int, seen: Survey, padding: int) -> InvalidInput:
        """The error for a budget that is too small; `least` is what every input needs."""
        # A larger budget may have a larger survey.
        with_survey = ceil(inputs * least / (1 - _SURVEY_SHARE))
        enough = setting("budget", max(seen.samples + inputs * least, with_survey))
        if self.minutes is not None:
            missing = (inputs * least + padding) / seen.rate - self._seconds_left
            minutes = self.minutes + missing / 60 / _PLANNED_SHARE
            enough = setting("minutes", ceil(110 * minutes) / 100)
        return InvalidInput(
            "budget-too-small",
            "the budget is too small for {inputs:,} inputs: give at least {enough}",
            inputs=inputs,
            enough=enough,
        )


class Spending:
    """What was spent of a budget, and the plan of the next block.

    Everything follows from the survey, the total and the certificates, so a run can be continued,
    and its plans can be derived again.

    Args:
        plan: The plan with the settings that the budget does not change.
        noise: The smoothing noise.
        seed: The key of the noise, which gives the order of the inputs.
        ids: The inputs of the run.
        survey: What is known about them.
        total: All samples that may be spent.
    """

    _interrupted: tuple[Sequence[int], Plan] | None = None
    """The block that was being certified when the run stopped, and its plan."""

    def __init__(
        self, plan: Plan, noise: Noise, seed: int, ids: Sequence[int], survey: Survey, total: int
    ) -> None:
        self.plan = _with_small_pilot(plan, (total - survey.samples) / max(len(ids), 1))
        self.noise = noise
        self.survey = survey
        self.total = total
        self.spent = survey.samples
        self._votes = Counter(survey.votes.values())
        self.order = order(ids, seed)
        self._teachers = set(self.order[:_TEACHERS])
        plans = (self._with(samples=int(ceiling)) for ceiling in _CEILINGS)
        self._cheapest = next(plan for plan in plans if plan is not None)
        """The plan with the lowest ceiling that can prove something."""
        self._least = self._cheapest.most_samples
        """What an input costs at least, so that it can have a certificate."""

    @classmethod
    def begin(
        cls, budget: Budget, job: Job, ids: Sequence[int], executor: Executor, *, batch: int
    ) -> Spending:
        """Survey the inputs, and choose the size of the pilot. Too small a budget is an error."""
        padding = _padding(job.plan, len(ids), batch)
        seen = survey(
            executor,
            job,
            ids,
            lambda seen: _SURVEY_SHARE * budget.total(seen, padding),
            timed=budget.minutes is not None,
        )
        total = budget.total(seen, padding)

        def spending_of(total: int) -> Spending:
            return cls(job.plan, job.subject.noise, job.subject.seed, ids, seen, total)

        spending = spending_of(total)
        least = spending._least
        if total >= seen.samples + least * len(ids):
            return spending
        # More samples may mean a larger pilot, which needs more samples.
        while spending_of(seen.samples + least * len(ids))._least > least:
            least = spending_of(seen.samples + least * len(ids))._least
        raise budget.too_small(len(ids), least, seen, padding)

    @classmethod
    def recorded(cls, manifest: Manifest) -> Spending:
        """The budget of a recorded run, as it was before the first block."""
        entry = manifest.spending
        if entry is None:
            raise InvalidInput("no-spending", "the run does not say how its budget was spent")
        assert manifest.budget is not None
        total = manifest.budget["samples"]
        assert total is not None  # it is None only in runs of version 1.0 with minutes
        seen = Survey(surveyed_votes(manifest), entry["survey"], entry["rate"])
        # Inputs that could not be read keep their place in the order.
        ids = [*{*manifest.ids, *manifest.unreadable}]
        plan = manifest.requested_plan
        return cls(plan, manifest.noise, manifest.seed, ids, seen, total)

    @classmethod
    def resume(cls, manifest: Manifest, done: Iterable[Certificate]) -> Spending:
        """Go on as recorded, without measuring again."""
        if manifest.timed or not manifest.survey_known:
            raise InvalidInput(
                "budget-of-version-1",
                "the run has a budget of version 1.0, whose plans cannot be derived here, so only "
                "that version can go on with it; choose another `out=DIR`",
            )
        spending = cls.recorded(manifest)
        entry = manifest.spending
        assert entry is not None
        spending._interrupted = entry["block"], restore(entry["plan"])
        spending.add(done)
        return spending

    def add(self, certificates: Iterable[Certificate]) -> None:
        """Count the samples of inputs, and learn from their votes."""
        for certificate in certificates:
            self.spent += certificate.samples
            if certificate.id in self._teachers:
                self._votes[votes_of(certificate, self.plan)] += 1

    def blocks(self, ids: Iterable[int]) -> Iterator[tuple[list[int], Plan]]:
        """The next inputs and their plan, until all inputs without a certificate are certified.

        Between two blocks, `add` all certificates.
        """
        waiting = set(ids)
        if self._interrupted is not None:
            interrupted, plan = self._interrupted
            block = [id for id in interrupted if id in waiting]
            if block:
                yield block, plan
                waiting.difference_update(block)
        left = [id for id in self.order if id in waiting]
        while left:
            size = _block_size(len(left), len(self.order))
            yield left[:size], self._next_plan(size, left)
            left = left[size:]

    def record(self, block: Sequence[int], plan: Plan, manifest: Manifest) -> dict[str, Any]:
        """The entries of the manifest with which a run can be resumed in this block."""
        first_plan = plan if manifest.spending is None else manifest.plan
        votes = self.survey.votes
        spending: SpendingEntry = {
            "total": self.total,
            "rate": self.survey.rate,
            "survey": self.survey.samples,
            "votes": [(id, *votes[id]) for id in sorted(votes)],
            "block": list(block),
            "plan": describe(plan),
        }
        return {"plan": first_plan, "spending": spending}

    def forecast(self, ids: Sequence[int]) -> Forecast:
        """What these inputs will cost: nearly all that is left, or less if plans cannot use it."""
        _, plan = next(self.blocks(ids))
        forecast = foresee(self.survey, plan, self.noise, len(ids))
        rest = self.total - self.spent
        could_cost_more = isinstance(plan, Price) and plan.price > _PRICES[-1]
        if forecast.samples > 0.9 * rest or could_cost_more:
            return replace(forecast, samples=rest, error=0.0)
        return forecast

    def _next_plan(self, size: int, left: Sequence[int]) -> Plan:
        """The plan of the next inputs, so many of those that are left.

        It is the most expensive plan that the rest of the budget allows for all inputs that are
        left. Even if all of the next inputs cost its ceiling, there is enough for the others.
        """
        rest = self.total - self.spent
        most = int((rest - self._least * (len(left) - size)) / size)
        ceiling = min(self.plan.samples, most - self.plan.pilot)
        weights = self._expected_p(left)

        def cost(settings: dict[str, Any]) -> float:
            plan = self._with(**settings)
            return 0.0 if plan is None else float(weights @ costs(plan, self.noise))

        choices = self._choices(ceiling)
        place = bisect_right(choices, rest / len(left), key=cost) - 1
        return self._with(**choices[max(place, 0)]) or self._cheapest

    def _choices(self, ceiling: int) -> list[dict[str, Any]]:
        """The settings of the plan that are tried, from the cheapest to the most expensive."""
        if isinstance(self.plan, Price):
            return [{"samples": ceiling, "price": float(f"{price:.4g}")} for price in _PRICES]
        smaller = _CEILINGS[ceiling > _CEILINGS].tolist()
        return [{"samples": samples} for samples in (*smaller, ceiling)]

    def _expected_p(self, left: Sequence[int]) -> Any:
        """The distribution of p over these inputs.

        It is what the survey says of its inputs, and what is usual of the others.
        """
        usual = distribution(self._votes)
        surveyed = [self.survey.votes[id] for id in left if id in self.survey.votes]
        total = posterior(surveyed, usual).sum(axis=0)
        return (total + (len(left) - len(surveyed)) * usual) / len(left)

    def _with(self, **settings: Any) -> Plan | None:
        """The plan with other settings; None if it could prove nothing with them."""
        try:
            return replace(self.plan, **settings).for_noise(self.noise)  # type: ignore[type-var]
        except InvalidInput:
            return None


def surveyed_votes(manifest: Manifest) -> dict[int, Votes]:
    """The votes of the survey by input; empty if they are not known."""
    if manifest.spending is None or not manifest.survey_known:
        return {}
    return {id: (count, samples) for id, count, samples in manifest.spending["votes"]}


def _block_size(left: int, all_inputs: int) -> int:
    return max(left // _PART_OF_REST, all_inputs // _PART_OF_ALL, 1)


def _padding(plan: Plan, inputs: int, batch: int) -> int:
    """About how many rows of batches stay empty in a run with a budget.

    The inputs of a block wait for one another. Small looks at few inputs do not fill a batch.
    """
    looks = [plan.pilot]
    if isinstance(plan, Price):
        looks += np.diff(plan.looks, prepend=0).tolist()
    rows = 0
    left = inputs
    while left > 0:
        size = _block_size(left, inputs)
        rows += sum(max(batch - size * look, 0) for look in looks if look)
        left -= size
    return rows


def _with_small_pilot(plan: Plan, samples: float) -> Plan:
    """The plan with a pilot of a small part of the samples of an input, unless it was chosen."""
    if not isinstance(plan, TwoStagePlan):
        return plan
    default = replace(plan, pilot=0).pilot
    if plan.pilot != default:
        return plan
    return replace(plan, pilot=min(int(max(_PILOT_SHARE * samples, _SMALLEST_PILOT)), default))


def plan_for_budget(plan: Plan | None) -> Plan:
    """The plan whose price or ceiling a budget will set."""
    if isinstance(plan, Price) and plan.price:
        raise InvalidInput(
            "price-and-budget",
            "a budget sets the price: leave out `price={price}`, or the budget",
            price=plan.price,
        )
    plan = plan_or_default(plan or Price(price=0))
    if "samples" not in _settings_of(plan):
        raise InvalidInput(
            "no-ceiling",
            "a budget cannot set the ceiling of {plan}: give another plan, or leave the budget out",
            plan=plan,
        )
    return plan


def as_recorded(plan: Plan, recorded: Plan) -> Plan:
    """The plan with what the budget has set in a recorded one."""
    if type(plan) is not type(recorded):
        return plan
    names = _settings_of(plan).intersection(_SET_BY_BUDGET)
    settings = {name: getattr(recorded, name) for name in names}
    return replace(plan, **settings)  # type: ignore[type-var]


def _settings_of(plan: Plan) -> set[str]:
    return {field.name for field in fields(plan)}  # type: ignore[arg-type]
