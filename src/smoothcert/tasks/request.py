"""What `certify` is asked for, settled into a job and its manifest, also for a begun run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from smoothcert import _check
from smoothcert._registry import check_recordable
from smoothcert._settings import NAMES, PLAN_NAMES, PlanSettings
from smoothcert.data import Dataset, find_dataset, in_memory, parse_shard, select_ids
from smoothcert.data.base import repeated_inputs
from smoothcert.errors import InvalidInput, setting
from smoothcert.executors import Executor, Job
from smoothcert.noises import Gaussian, Transformed
from smoothcert.noises.gaussian import is_gaussian
from smoothcert.plans import Plan, Walk, plan_or_default
from smoothcert.plans.base import check_top
from smoothcert.plans.from_settings import (
    contradicts_protocol,
    plan_from,
    plan_of_version_1,
    shown_radii,
)
from smoothcert.runs.manifest import Manifest
from smoothcert.smoothed import Subject
from smoothcert.smoothed.checks import warn_about_training
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
        former_plan: The plan that version 1 had for the same arguments, if it had another one.
        radii: The radii to show; None for the usual ones.
        budget: The budget; None without one.
        everything: The inputs of all shards.
        ids: The inputs of this one.
        shard: The shard; None for all inputs.
        exact: Whether the defaults are float32 and noise on the grid.
    """

    smoothed: Subject
    dataset: Dataset
    data: str
    in_memory: str
    plan: Plan
    former_plan: Plan | None
    radii: list[float] | None
    budget: Budget | None
    everything: list[int]
    ids: list[int]
    shard: str | None
    exact: bool

    @classmethod
    def of(
        cls,
        function: str,
        model: Any,
        data: Any,
        labels: Any,
        *,
        plan: Plan | None = None,
        budget: float | None = None,
        minutes: float | None = None,
        since: float | None = None,
        joint: bool = False,
        shard: str | tuple[int, int] | None = None,
        ids: str | Sequence[int] | None = None,
        skip: int | None = None,
        limit: int | None = None,
        **settings: Any,
    ) -> Request:
        """The request, from the arguments of `certify`."""
        _check.names(function, settings, (*PLAN_NAMES, *NAMES))
        of_plan = PlanSettings(
            **{name: settings.pop(name) for name in PLAN_NAMES if name in settings}
        )
        spendable = Budget.of(budget, minutes, since)
        noise = model.noise if isinstance(model, Subject) else settings.get("noise")
        if plan is None and of_plan.method is None and isinstance(noise, Transformed):
            of_plan = replace(of_plan, method=Walk.name)
        former_plan = None
        if of_plan.given:
            _check_no_plan(plan, of_plan)
            plan = plan_from(of_plan, budget=spendable is not None)
            former_plan = plan_of_version_1(of_plan, plan)
        plan = plan_or_default(plan) if spendable is None else plan_for_budget(plan)
        smoothed = subject_given(model, settings)
        if of_plan.protocol is not None:
            smoothed = _of_protocol(smoothed, of_plan.protocol)
        dataset = find_dataset(data, labels)
        if spendable is not None and shard is not None:
            raise InvalidInput(
                "budget-of-shard",
                "`shard={shard}` has no budget of its own: give a plan instead of the budget",
                shard=shard,
            )
        everything = select_ids(len(dataset), ids=ids, skip=skip, limit=limit)
        if joint:
            plan = _with_alpha_over(plan, len(everything))
            if former_plan is not None:
                former_plan = _with_alpha_over(former_plan, len(everything))
        name = str(data) if isinstance(data, (str, Path)) else dataset.name
        kept_in_memory = in_memory(data, dataset)
        if kept_in_memory == "labels":
            name += " with given labels"  # results for them are not results for the public labels
        return cls(
            smoothed,
            dataset,
            name,
            kept_in_memory,
            plan,
            former_plan,
            shown_radii(of_plan.radii),
            spendable,
            everything,
            select_ids(len(dataset), ids=everything, shard=shard),
            None if shard is None else "{}/{}".format(*parse_shard(shard)),
            exact=joint,
        )

    def check_can_be_kept(self) -> None:
        """Refuse what could not be read again from a folder, or not be merged."""
        if not isinstance(self.plan, Plan):
            raise InvalidInput(
                "rule-without-proof",
                'a run on disk holds certificates, and "{rule}" proves nothing: give a plan',
                rule=self.plan,
            )
        check_recordable(self.smoothed.noise)
        check_recordable(self.plan)
        if self.shard is not None and self.smoothed.batch == "auto":
            raise InvalidInput(
                "shard-without-batch",
                "`shard={shard}` needs `batch=N`: the parts can only be merged if all were "
                "certified with the same one",
                shard=self.shard,
            )

    def settle(self, executor: Executor, recorded: Manifest | None) -> tuple[Job, Manifest]:
        """The job and its manifest. What the user left open is settled as a recorded run began."""
        smoothed = self.smoothed
        plan = self.plan
        budget = None
        if recorded is not None:
            smoothed = _as_begun(smoothed, recorded)
            if self.former_plan is not None and type(self.former_plan) is type(recorded.plan):
                plan = self.former_plan
            if self.budget is not None:
                plan = as_recorded(plan, recorded.plan)
            plan = plan.continuing(recorded.plan)
        if self.budget is not None:
            budget = self.budget.described(self.plan, None if recorded is None else recorded.budget)
        # All shards are bound together, so that they agree.
        subject = smoothed.bind(
            self.dataset, self.everything, exact=self.exact, resolve=executor.resolve
        )
        job = job_for(subject, self.dataset, plan, self.ids)
        classifier = subject.classifier
        return job, Manifest(
            model=classifier.name,
            classes=classifier.classes,
            data=self.data,
            data_hash=self.dataset.fingerprint,
            ids=tuple(self.ids),
            noise=subject.noise,
            plan=job.plan,
            seed=subject.seed,
            device=subject.runtime.torch_device.type,
            dtype=subject.runtime.dtype,
            weights=None if smoothed.weights is None else str(smoothed.weights),
            weights_hash=classifier.weights_hash,
            denoiser=classifier.denoiser,
            answers=subject.fingerprint(),
            settings=subject.recorded,
            budget=budget,
            copies=tuple(repeated_inputs(self.dataset, self.everything)),
            in_memory=self.in_memory,
            shard=self.shard,
            circumstances={"comparison": subject.comparison} if subject.comparison else {},
        )


def _check_no_plan(plan: Plan | None, settings: PlanSettings) -> None:
    """Refuse a plan and settings that describe one."""
    if plan is not None:
        raise InvalidInput(
            "plan-and-settings",
            "{names} and a plan exclude one another: give the settings to the plan",
            names=" and ".join(setting(name) for name in settings.given),
        )


def _of_protocol(smoothed: Subject, protocol: str) -> Subject:
    """The classifier as published protocols have it: float32 and plain Gaussian noise."""
    dtype = "float32" if smoothed.dtype == "auto" else smoothed.dtype
    if str(dtype).removeprefix("torch.") != "float32":
        raise contradicts_protocol(protocol, setting("dtype", str(dtype)))
    if not isinstance(smoothed.noise, Gaussian):
        raise contradicts_protocol(protocol, f"the noise {smoothed.noise.short}")
    return smoothed.with_settings(dtype=dtype, noise=smoothed.noise, sigma=None)


def subject_given(model: Any, settings: dict[str, Any]) -> Subject:
    """The subject, from what the user gave."""
    if not isinstance(model, Subject):
        return Subject(model, **settings)
    if settings:
        raise InvalidInput(
            "settings-of-smoothed",
            "the model is a Smoothed already: give {names} to Smoothed(...)",
            names=", ".join(settings),
        )
    return model


def _with_alpha_over(plan: Plan, inputs: int) -> Plan:
    """The plan with its alpha divided over inputs, so that all certificates hold together.

    This is the bound of Bonferroni.
    """
    if "alpha" not in {field.name for field in fields(plan)}:  # type: ignore[arg-type]
        raise InvalidInput(
            "no-alpha",
            "{plan} has no alpha of its own to divide: leave `joint=True` out",
            plan=plan,
        )
    each = Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(plan.alpha / inputs))
    return replace(plan, alpha=float(each))  # type: ignore[type-var]


def job_for(subject: Subject, dataset: Dataset, plan: Plan, ids: list[int]) -> Job:
    """What the executor gets, after the last checks before a run.

    Shapes and labels that are at hand are checked before the run. If the user corrected the data
    later, the run could not be resumed.
    """
    if isinstance(subject.noise, Transformed) and isinstance(plan, Plan):
        _check_is_walk(plan, subject.noise)
    job = Job(subject, dataset, plan.for_noise(subject.noise))
    check_top(job.plan, subject.answers_known)
    warn_about_training(subject.classifier, subject.noise)
    check_shapes = getattr(dataset, "check_shapes", None)
    if check_shapes is not None:
        check_shapes(ids)
    labels = getattr(dataset, "labels", None)
    if labels is not None:
        for id in ids:
            subject.check_label(dataset, id, labels[id], needed=job.plan.known_labels)
    if getattr(dataset, "in_memory", False):
        for id in ids:
            job.read(id, job.plan)
    return job


def _check_is_walk(plan: Plan, noise: Transformed) -> None:
    if not isinstance(plan, Walk):
        raise InvalidInput(
            "needs-walk",
            '{norm} is certified by a walk, not by the plan "{plan}": use `the plan '
            "Walk([...])|--method walk`",
            norm=noise.norm,
            plan=plan,
        )


def _as_begun(smoothed: Subject, recorded: Manifest) -> Subject:
    """The classifier with noise, format and batch as a run began, where they were left open."""
    settled: dict[str, Any] = {}
    if smoothed.sigma is not None and is_gaussian(recorded.noise, smoothed.sigma):
        settled |= {"noise": recorded.noise, "sigma": None}
    if smoothed.dtype == "auto" and recorded.dtype:
        settled["dtype"] = recorded.dtype
    if smoothed.compile == "auto" and recorded.compile:
        settled["compile"] = recorded.compile_request
    # The batch is part of the classifier as run, so it is measured once.
    if smoothed.batch == "auto" and recorded.batch:
        settled["batch"] = recorded.batch
    return smoothed.with_settings(**settled)
