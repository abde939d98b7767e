"""What `certify` is asked for, settled into a job and its manifest, also for a begun run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from smoothcert import _check
from smoothcert._registry import check_recordable
from smoothcert._settings import NAMES, PLAN_NAMES, PlanSettings, recorded_settings
from smoothcert.data import Dataset, find_dataset, in_memory, parse_shard, select_ids
from smoothcert.data.base import repeated_inputs
from smoothcert.errors import InvalidInput, setting
from smoothcert.executors import Executor, Job
from smoothcert.noises import Gaussian, Noise, Transformed, noise_of, transformed
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
from smoothcert.smoothed.checks import warn_about_columns, warn_about_training
from smoothcert.tasks.budget import Budget, as_recorded, plan_for_budget


class Request:
    """What `certify` is asked for.

    Args:
        function: The function that the user called.
        model: See `certify`, also for what follows.
    """

    def __init__(
        self,
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
    ) -> None:
        _check.names(function, settings, (*PLAN_NAMES, *NAMES))
        of_plan = PlanSettings(
            **{name: settings.pop(name) for name in PLAN_NAMES if name in settings}
        )
        self.radii = shown_radii(of_plan.radii)
        self.budget = Budget.of(budget, minutes, since)
        self._of_plan = of_plan
        noise = model.noise if isinstance(model, Subject) else _noise_given(settings)
        plan = self._plan_given(plan, noise)
        self.smoothed = subject_given(model, settings)
        if of_plan.protocol is not None:
            self.smoothed = _of_protocol(self.smoothed, of_plan.protocol)
        self.dataset = find_dataset(data, labels)
        self.data = str(data) if isinstance(data, (str, Path)) else self.dataset.name
        self.in_memory = in_memory(data, self.dataset)
        if self.in_memory == "labels":
            self.data += " with given labels"  # their results are not results for public labels
        if self.budget is not None and shard is not None:
            raise InvalidInput(
                "budget-of-shard",
                "`shard={shard}` has no budget of its own: give a plan instead of the budget",
                shard=shard,
            )
        self.everything = select_ids(len(self.dataset), ids=ids, skip=skip, limit=limit)
        """The inputs of all shards."""
        self.ids = select_ids(len(self.dataset), ids=self.everything, shard=shard)
        self.shard = None if shard is None else "{}/{}".format(*parse_shard(shard))
        self.joint = joint
        """Whether all certificates have to hold together: alpha is divided, and the defaults are
        float32 and noise on the grid.
        """
        self.plan = self._jointly(plan)

    def _plan_given(self, plan: Plan | None, noise: Noise | None) -> Plan:
        """The plan that the user gave, as an object or by settings, or the default."""
        settings = self._of_plan
        is_open = plan is None and settings.method is None and settings.protocol is None
        if is_open and isinstance(noise, Transformed):
            settings = self._of_plan = replace(settings, method=Walk.name)
        if settings.given:
            if plan is not None:
                raise InvalidInput(
                    "plan-and-settings",
                    "{names} and a plan exclude one another: give the settings to the plan",
                    names=" and ".join(map(setting, settings.given)),
                )
            plan = plan_from(settings, budget=self.budget is not None)
        return plan_or_default(plan) if self.budget is None else plan_for_budget(plan)

    def _jointly(self, plan: Plan) -> Plan:
        """The plan with its alpha divided over inputs, if all certificates have to hold together.

        This is the bound of Bonferroni.
        """
        if not self.joint:
            return plan
        if "alpha" not in {field.name for field in fields(plan)}:  # type: ignore[arg-type]
            raise InvalidInput(
                "no-alpha",
                "{plan} has no alpha of its own to divide: leave `joint=True` out",
                plan=plan,
            )
        alpha = plan.alpha / len(self.everything)
        rounded_down = Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(alpha))
        return replace(plan, alpha=float(rounded_down))  # type: ignore[type-var]

    def check_can_be_kept(self) -> None:
        """Refuse a run that its folder cannot hold, or a part that could not be merged."""
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
        """The job and its manifest. What the user left open is as in the run that is resumed."""
        smoothed = self.smoothed
        plan = self.plan
        budget = None
        if recorded is not None:
            smoothed = _as_begun(smoothed, recorded)
            # Version 1 took another plan where radii came without a method.
            former = None
            if self._of_plan.radii is not None:
                former = plan_of_version_1(self._of_plan, plan)
            if type(former) is type(recorded.plan):
                plan = self._jointly(former)
            if self.budget is not None:
                plan = as_recorded(plan, recorded.plan)
            plan = plan.continuing(recorded.plan)
        if self.budget is not None:
            budget = self.budget.described(self.plan, None if recorded is None else recorded.budget)
        # All shards are bound together, so that they agree.
        subject = smoothed.bind(
            self.dataset, self.everything, exact=self.joint, resolve=executor.resolve
        )
        job = job_for(subject, self.dataset, plan, self.ids)
        classifier = subject.classifier
        names = self.dataset.class_names
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
            settings=recorded_settings(subject),
            budget=budget,
            copies=tuple(repeated_inputs(self.dataset, self.everything)),
            in_memory=self.in_memory,
            shard=self.shard,
            class_names=None if names is None else list(names),
            circumstances={"comparison": subject.comparison} if subject.comparison else {},
        )


def _noise_given(settings: Mapping[str, Any]) -> Noise | None:
    """The noise of these settings, where it decides the plan."""
    noise: Noise | None = settings.get("noise")
    transform = settings.get("transform")
    if transform is None:
        return noise
    return transformed(noise_of(noise, settings.get("sigma")), transform)


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
            "the model is a Smoothed, which has its settings: give {names} to Smoothed(...)",
            names=", ".join(settings),
        )
    return model


def job_for(subject: Subject, dataset: Dataset, plan: Plan, ids: list[int]) -> Job:
    """What the executor gets, after the last checks before a run.

    Shapes and labels that are at hand are checked here: a user who corrects the data after the run
    has begun could not resume it.
    """
    is_other_plan = isinstance(plan, Plan) and not isinstance(plan, Walk)
    if is_other_plan and isinstance(subject.noise, Transformed):
        raise InvalidInput(
            "needs-walk",
            '{norm} is certified by a walk, not by the plan "{plan}": use `the plan '
            "Walk([...])|--method walk`",
            norm=subject.noise.norm,
            plan=plan,
        )
    job = Job(subject, dataset, plan.for_noise(subject.noise))
    check_top(job.plan, subject.answers_known)
    warn_about_training(subject.classifier, subject.noise)
    warn_about_columns(dataset, ids, subject.shape)
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
