"""`forecast`: what `certify` would cost, in samples and minutes, without certifying anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from torch import Tensor

from smoothcert.data import find_dataset, select_ids
from smoothcert.executors import Executor, LocalExecutor
from smoothcert.models import Classifier
from smoothcert.plans import Plan, plan_or_default
from smoothcert.smoothed import Settings, Smoothed
from smoothcert.smoothed.subject import say_nothing
from smoothcert.tasks.budget import Spending, budget_given, plan_for_budget
from smoothcert.tasks.certify import job_for, smoothed_given
from smoothcert.tasks.survey import Forecast, forecast_of


def forecast(
    model: str | Smoothed | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    labels: Any = None,
    *,
    plan: Plan | None = None,
    budget: float | None = None,
    minutes: float | None = None,
    since: float | None = None,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    **settings: Unpack[Settings],
) -> Forecast:
    """What `certify` with the same arguments would cost, from a few noisy copies of some inputs.

    Args:
        model: The model, as for `certify`.
        data: The data, as for `certify`.
        labels: The labels, if `data` holds only inputs.
        plan: The plan, as for `certify`.
        budget: Samples for all inputs together.
        minutes: Minutes for all inputs together, start-up included.
        since: When the minutes began, as `time.perf_counter()` tells it. Default: now.
        ids: The inputs, as for `certify`.
        skip: Take every `skip`-th input.
        limit: Take at most so many inputs.
        executor: Where to compute. Default: in this process.
        **settings: The settings of `Smoothed`, where `model` is not one.
    """
    allowed = budget_given(budget, minutes, since)
    plan = plan_or_default(plan) if allowed is None else plan_for_budget(plan)
    smoothed, dataset = smoothed_given(model, settings), find_dataset(data, labels)
    chosen = select_ids(len(dataset), ids=ids, skip=skip, limit=limit)
    with executor or LocalExecutor() as executor:
        job = job_for(smoothed.bind(dataset, chosen, resolve=executor.resolve), dataset, plan, chosen)
        executor.start(job, say_nothing)
        if allowed is None:
            return forecast_of(executor, job, chosen, share=0.1)
        spending = Spending.begin(allowed, job, chosen, executor)
        _, first = next(spending.blocks(chosen))
        return spending.forecast(first)
