"""What `certify` is asked for, settled into a job and its manifest, also for a run that was begun before."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from smoothcert._registry import check_settings
from smoothcert.data import Dataset, find_dataset, in_memory, parse_shard, select_ids
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.executors import Executor, Job
from smoothcert.noises.gaussian import is_gaussian
from smoothcert.plans import AtRadii, Plan, plan_or_default
from smoothcert.plans.at_radii import continuing
from smoothcert.runs.manifest import Manifest
from smoothcert.smoothed import Settings, Smoothed, Subject
from smoothcert.smoothed.subject import warn_about_training
from smoothcert.tasks.budget import Budget, as_recorded, plan_for_budget


@dataclass(frozen=True)
class Request:
    """What `certify` is asked for.

    Args:
        smoothed: The classifier.
        dataset: The data set.
        data: What its user calls it.
        in_memory: What of the data the user had in memory.
        plan: The plan.
        budget: The budget; None without one.
        everything: The inputs of all shards.
        ids: The inputs of this one.
        shard: The shard; None for all inputs.
    """

    smoothed: Smoothed
    dataset: Dataset
    data: str
    in_memory: str
    plan: Plan
    budget: Budget | None
    everything: list[int]
    ids: list[int]
    shard: str | None

    @classmethod
    def of(
        cls,
        model: Any,
        data: Any,
        labels: Any,
        settings: Settings,
        plan: Plan | None,
        samples: float | None,
        minutes: float | None,
        since: float | None,
        joint: bool | None,
        *,
        shard: str | tuple[int, int] | None,
        **selection: Any,
    ) -> Request:
        """The request, from the arguments of `certify`."""
        budget = None
        if samples is None and minutes is None:
            plan = plan_or_default(plan)
        else:
            budget = Budget(samples, minutes, time.perf_counter() if since is None else since)
            plan = plan_for_budget(plan)
        smoothed, dataset = smoothed_given(model, settings), find_dataset(data, labels)
        if budget is not None and shard is not None:
            raise InvalidInput(
                f"{setting('shard', shard)} has no budget of its own: give a plan instead of the budget"
            )
        everything = select_ids(len(dataset), **selection)
        if joint:
            plan, smoothed = _with_alpha_over(plan, len(everything)), smoothed.asking(exact=True)
        return cls(
            smoothed,
            dataset,
            str(data) if isinstance(data, (str, Path)) else dataset.name,
            in_memory(data, dataset),
            plan,
            budget,
            everything,
            select_ids(len(dataset), ids=everything, shard=shard),
            None if shard is None else "{}/{}".format(*parse_shard(shard)),
        )

    def settle(self, executor: Executor, recorded: Manifest | None) -> tuple[Job, Manifest]:
        """The job and its manifest. What the user left open is settled as a recorded run began."""
        smoothed, plan = self.smoothed, self.plan
        if recorded is not None:
            smoothed = _as_begun(smoothed, recorded)
            plan = (
                continuing(plan, recorded.plan)
                if self.budget is None
                else as_recorded(plan, recorded.plan)
            )
        # All shards together, so that they agree.
        subject = smoothed.bind(self.dataset, self.everything, resolve=executor.resolve)
        job = job_for(subject, self.dataset, plan, self.ids)
        classifier, runtime = subject.classifier, subject.runtime
        return job, Manifest(
            model=classifier.name,
            classes=classifier.classes,
            data=self.data,
            data_hash=self.dataset.fingerprint,
            ids=tuple(self.ids),
            noise=subject.noise,
            plan=job.plan,
            seed=subject.seed,
            device=runtime.torch_device.type,
            dtype=runtime.dtype,
            weights=smoothed.weights,
            weights_hash=classifier.weights_hash,
            denoiser=classifier.denoiser,
            answers=subject.answers(),
            settings=subject.settings,
            budget=None if self.budget is None else self.budget.described(self.plan),
            in_memory=self.in_memory,
            shard=self.shard,
        )


def smoothed_given(model: Any, settings: Settings) -> Smoothed:
    """The subject, from what the user gave."""
    if not isinstance(model, Smoothed):
        return Smoothed(model, **settings)
    if settings:
        raise InvalidInput(
            f"the model is a Smoothed already: give {', '.join(settings)} to Smoothed(...)"
        )
    return model


def _with_alpha_over(plan: Plan, inputs: int) -> Plan:
    """The plan with its alpha divided over inputs, so that all certificates hold together (Bonferroni)."""
    if "alpha" not in {field.name for field in fields(plan)}:  # type: ignore[arg-type]
        raise InvalidInput(
            f"{plan} has no alpha of its own to divide: leave {setting('joint', True)} out"
        )
    each = Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(plan.alpha / inputs))
    return replace(plan, alpha=float(each))  # type: ignore[type-var]


def job_for(subject: Subject, dataset: Dataset, plan: Plan, ids: list[int]) -> Job:
    """What the executor gets, after the last checks before a run."""
    job = Job(subject, dataset, plan.for_noise(subject.noise))
    warn_about_training(subject)
    # Where shapes and labels are at hand: a run whose data is put right in the middle of it could not go on.
    getattr(dataset, "check_shapes", lambda ids: None)(ids)
    labels, all_at_hand = getattr(dataset, "labels", None), getattr(dataset, "in_memory", False)
    for id in ids:
        if labels is not None:
            subject.check_label(dataset, id, labels[id], needed=job.plan.known_labels)
        if all_at_hand:
            job.read(id, job.plan)
    return job


def _as_begun(smoothed: Smoothed, recorded: Manifest) -> Smoothed:
    """The same classifier with everything that was left open settled as the run began: noise, format and batch."""
    begun: dict[str, Any] = {}
    if smoothed.sigma is not None and is_gaussian(recorded.noise, smoothed.sigma):
        begun |= {"noise": recorded.noise, "sigma": None}
    # The batch is part of the classifier as run, so it is measured once.
    known = {
        "dtype": recorded.dtype,
        "compile": recorded.compile and recorded.compile_request,
        "batch": recorded.batch,
    }
    open_ = {
        name: value for name, value in known.items() if value and getattr(smoothed, name) == "auto"
    }
    return smoothed.asking(**begun, **open_)


def continued(
    wanted: Manifest, recorded: Manifest, folder: Path, done: Collection[int]
) -> Manifest:
    """The manifest of a run that is resumed: where things are now, and all inputs that it has or will have.

    Inputs that could not be read are left out unless they are asked for again, or `done` already.
    """
    if recorded.plan in wanted.plan.earlier_plans:
        recorded = replace(recorded, plan=wanted.plan, finished=None)
    left_out = set(recorded.unreadable).difference(wanted.ids, done)
    kept = tuple(id for id in recorded.ids if id not in left_out)
    recorded = replace(recorded, ids=kept, unreadable=tuple(sorted(left_out)))
    found = wanted.differences(recorded)
    hint = ""
    found = [name for name in found if not name.startswith("plan.earlier")] or found
    if found and all(name.startswith(("plan.samples", "plan.radii")) for name in found):
        rule = either('AtRadii(..., bound="runner-up")', "--method radii --bound runner-up")
        goes_on = isinstance(wanted.plan, AtRadii) and wanted.plan.remembers
        rule = "this plan" if goes_on else f"only {rule}"
        hint = f" ({rule} goes on with more samples, or with radii above its largest)"
    check_settings(folder, found, what="run", hint=hint)
    moved = {name: getattr(wanted, name) for name in ("data", "in_memory", "weights", "denoiser")}
    moved |= {"shard": wanted.shard or recorded.shard}
    if wanted.budget is not None and set(recorded.ids) != set(wanted.ids):
        raise InvalidInput(
            f"{folder} has a budget for {len(recorded.ids):,} inputs: certify the same ones"
        )
    if wanted.budget is not None and recorded.spending is None:
        raise InvalidInput(
            "budget-without-spending",
            "{folder} is damaged: it has a budget, and does not say how much of it is spent; "
            "choose another {out}",
            folder=folder,
            out=setting("out", "DIR"),
        )
    more = len(set(recorded.ids).union(wanted.ids)) > len(wanted.ids)
    return replace(recorded, **moved, ids=recorded.ids if more else wanted.ids)
