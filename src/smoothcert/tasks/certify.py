"""`certify`: the main task. A model and inputs in, certificates out: in memory, or in a folder that can be resumed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
from torch import Tensor

from smoothcert._agreement import same_votes
from smoothcert._files import exclusive
from smoothcert._registry import check_recordable
from smoothcert._user_errors import naming_user_errors
from smoothcert.errors import (
    InvalidInput,
    ModelFailed,
    SmoothcertError,
    UnreadableInput,
    either,
    phrase,
    setting,
)
from smoothcert.executors import Executor, Job, LocalExecutor
from smoothcert.executors.base import Status
from smoothcert.models import Classifier
from smoothcert.noises import Gaussian, GridGaussian
from smoothcert.plans import Certificate, OneLook, Plan
from smoothcert.plans.coverage import caveat
from smoothcert.runs.journal import FILE, Journal
from smoothcert.runs.manifest import Manifest, circumstances
from smoothcert.runs.progress import Progress, choose_progress
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run, open_run
from smoothcert.smoothed import Settings, Smoothed
from smoothcert.smoothed.subject import say_nothing
from smoothcert.tasks.budget import Budget, Spending
from smoothcert.tasks.request import Request, continued, job_for
from smoothcert.tasks.survey import Forecast, forecast_of, is_short

_MANY_SAMPLES = 1_000_000
"""A run that may take this many samples gets a forecast."""
_LONG = 30.0
"""The forecast is printed if the run takes at least this many seconds."""
_CHECKED_SHARE = 0.02
"""How much a run may cost more for the check that the classifier has not changed in the meantime."""


@naming_user_errors()
def certify(
    model: str | Smoothed | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    labels: Any = None,
    *,
    plan: Plan | None = None,
    budget: float | None = None,
    minutes: float | None = None,
    since: float | None = None,
    joint: bool = False,
    out: str | Path | None = None,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    shard: str | tuple[int, int] | None = None,
    executor: Executor | None = None,
    progress: Progress | Sequence[Progress] | None = None,
    **settings: Unpack[Settings],
) -> Results:
    """Certify inputs. With `out`, the certificates are kept in a folder, and the same call again resumes.

    Args:
        model: A `Smoothed`, or a model from which one is made.
        data: A name as on the command line, arrays (X, Y), or anything that gives inputs or pairs (input, label) by
            number: a list, a torch data set, a `DataLoader`, a `datasets.Dataset`. See `as_dataset`.
        labels: The labels, if `data` holds only inputs, or others. To give both to `audit` again, write
            `data=(data, labels)`.
        plan: How many samples an input gets. Default: input-specific sampling with its defaults, or `Price` with a
            budget.
        budget: Samples for all inputs together. They set the price of a plan `Price`, or the ceiling of another plan.
        minutes: Minutes for all inputs together, start-up included.
        since: When the minutes began, as returned by `time.perf_counter()`. Default: now.
        joint: Whether to divide the alpha of the plan by the number of inputs, so that all certificates hold together
            with its confidence. Inputs cannot be added later, because this would change their alpha. Unless you choose,
            8-bit images get noise on their grid, and the model runs in float32.
        out: The run's folder. By default, the certificates stay in memory, and every call of a `Smoothed` draws new
            noise; what was selected in memory must be certified with `out`.
        ids: The inputs to certify, as numbers, as in "0,5,10-20", or as a mask of all inputs. Default: all.
        skip: Certify every `skip`-th input.
        limit: Certify at most this many inputs.
        shard: Of these inputs, certify the part of one job among several: "3/16" is the third of 16 parts. `merge` puts
            the parts together. All parts need the same batch, so `batch` must be given.
        executor: Where to compute. Default: in this process.
        progress: Called with what happens. Default: a bar or lines on stderr; `Progress()` is silent. Trackers, alone
            or in a list, are called beside the default. It needs `out`.
        **settings: The settings of `Smoothed`, where `model` is not one: `noise=` or `sigma=`, `weights=`, `device=`
            and so on.

    Returns:
        The results. With `out`, they are a `Run`.
    """
    asked = Request.of(
        model,
        data,
        labels,
        settings,
        plan,
        budget,
        minutes,
        since,
        joint,
        ids=ids,
        skip=skip,
        limit=limit,
        shard=shard,
    )
    if (warning := caveat(asked.plan)) is not None:
        warnings.warn(warning, stacklevel=3)
    if out is None:
        if progress is not None:
            raise InvalidInput(
                f"{setting('progress')} is for certificates on disk: give {setting('out', 'DIR')} as well"
            )
        return _in_memory(asked, executor)
    check_recordable(asked.smoothed.noise)
    check_recordable(asked.plan)
    if shard is not None and asked.smoothed.batch == "auto":
        raise InvalidInput(
            f"{setting('shard', shard)} needs {setting('batch', 'N')}: the parts can only be merged if all were "
            "certified with the same one"
        )
    progress = choose_progress(progress)
    with (
        executor or LocalExecutor() as executor,
        exclusive(out) as folder,
        Journal(folder, write=True) as journal,
    ):
        done = journal.ids()
        recorded = (
            journal.manifest() if done else None
        )  # a run without certificates has no settings to keep
        job, manifest = asked.settle(executor, recorded)
        subject, chosen = job.subject, asked.ids
        if recorded is None:
            manifest = replace(manifest, circumstances=circumstances(), started=_now())
            journal.write_manifest(manifest.plain())
        else:
            manifest = continued(manifest, recorded, folder, done)
            if recorded.plan in job.plan.earlier_plans:
                journal.keep_plans(recorded.plan)
        earlier = _begun(journal, job)
        begun = {id: earlier[id] for id in chosen if id in earlier}
        job = replace(job, begun={id: c.looks for id, c in begun.items()})
        todo = [id for id in chosen if id not in done or id in begun]
        before = open_run(folder)
        progress.begin(before.only(~np.isin(before.id, list(begun))), total=len(done.union(chosen)))
        try:
            if shard is None and (others := len(done.difference(chosen))):
                progress.say(
                    f"{folder} also holds {others:,} inputs that were not asked for; its figures are about all"
                )
            if begun:
                progress.say(f"going on with {len(begun):,} inputs: {job.plan}")
            sigma = asked.smoothed.sigma
            if (
                todo
                and recorded is None
                and sigma is not None
                and isinstance(subject.noise, GridGaussian)
            ):
                plain = either(f"noise=Gaussian({sigma})", f"--noise {Gaussian(sigma).short}")
                said = (
                    f"noise on the grid of 8-bit images, exact in floating point: {subject.noise.short} "
                    f"(off the grid: {plain})"
                )
                progress.say(phrase(said, command=progress.command))
            if todo:
                known = _telling(before) if recorded is not None else None
                _on_disk(
                    job, todo, journal, manifest, executor, progress, asked.budget, known, begun
                )
            elif recorded is not None and recorded.unreadable:
                _finish(journal, manifest, job)
        finally:
            progress.close()
    run = open_run(folder)
    progress.end(run)
    return run


def forecast(
    model: Any, data: Any, labels: Any = None, *, executor: Executor | None = None, **asked: Any
) -> Forecast:
    """What `certify` with the same arguments would cost, from a few noisy copies of some inputs.

    Args:
        model: The model, as for `certify`.
        data: The data, as for `certify`.
        labels: The labels, if `data` holds only inputs.
        executor: Where to compute. Default: in this process.
        **asked: `plan=`, `budget=`, `minutes=`, `since=`, `joint=`, `ids=`, `skip=`, `limit=` and `shard=` as for
            `certify`, and the settings of `Smoothed`, where `model` is not one. Of a run in `out=`, it forecasts the
            rest; `progress=` is ignored.
    """
    asked.pop("progress", None)
    out, *given = (
        asked.pop(name, None) for name in ("out", "plan", "budget", "minutes", "since", "joint")
    )
    selection = {name: asked.pop(name, None) for name in ("ids", "skip", "limit", "shard")}
    request = Request.of(model, data, labels, cast(Settings, asked), *given, **selection)
    folder = None if out is None else Path(out)
    if folder is not None and folder.is_file():
        raise InvalidInput(
            f"cannot write into {folder}: it is a file; choose another {setting('out', 'DIR')}"
        )
    run = open_run(folder) if folder is not None and (folder / FILE).is_file() else None
    run = run if run is not None and len(run) else None
    with executor or LocalExecutor() as executor:
        job, manifest = request.settle(executor, None if run is None else run.manifest)
        left = request.ids
        if run is not None:
            manifest = continued(manifest, run.manifest, run.path, run.id.tolist())
            done = {c.id for c in run.certificates() if c.plan not in job.plan.earlier_plans}
            left = [id for id in left if id not in done]
        if not left:
            return Forecast(0, 0.0, 0.0, 0.0)
        executor.start(job, say_nothing)
        if request.budget is None:
            return forecast_of(executor, job, left, share=0.1)
        if run is None or manifest.spending is None:
            spending = Spending.begin(request.budget, job, left, executor)
        else:
            spending = Spending.resume(request.budget, job, manifest, run.certificates())
        _, first = next(spending.blocks(left, manifest.spending))
        return spending.forecast(first, len(left))


def _in_memory(asked: Request, executor: Executor | None) -> Results:
    """Certificates that nobody keeps on disk. Their noise is not that of a run with the same seed."""
    smoothed, dataset, ids = asked.smoothed, asked.dataset, asked.ids
    resolve = None if executor is None else executor.resolve
    subject = smoothed.bind(dataset, ids, flexible=True, resolve=resolve)
    job = job_for(replace(subject, seed=smoothed.next_key("interactive")), dataset, asked.plan, ids)
    with executor or LocalExecutor(subject.prepared) as executor:
        executor.start(job, say_nothing)
        spending = (
            None if asked.budget is None else Spending.begin(asked.budget, job, ids, executor)
        )
        blocks = [(ids, job.plan)] if spending is None else spending.blocks(ids)
        found = [
            c
            for block, own in blocks
            for timed in _follow(executor, block, own, spending)
            for c in timed
        ]
    return Results.from_certificates(dataset.name, found)


def _begun(journal: Journal, job: Job) -> dict[int, Certificate]:
    """The certificates of a run that is continued which rest on an earlier plan."""
    if not job.plan.earlier_plans:
        return {}
    found = journal.certificates(plan=job.plan, noise=job.subject.noise)
    return {c.id: c for c in found if c.plan != job.plan}


def _on_disk(
    job: Job,
    ids: list[int],
    journal: Journal,
    manifest: Manifest,
    executor: Executor,
    progress: Progress,
    budget: Budget | None,
    known: Certificate | None,
    begun: Mapping[int, Certificate],
) -> None:
    runtime = executor.start(job, progress.say)
    if manifest.batch and (runtime.batch, runtime.compile) != (manifest.batch, manifest.compile):
        raise InvalidInput(
            f"the run was begun with batch {manifest.batch}, compiled: {manifest.compile}, and would go on with batch "
            f"{runtime.batch}, compiled: {runtime.compile}; choose another {setting('out', 'DIR')}"
        )
    if known is not None:
        _check_votes(executor, known)
    spending: Spending | None = None
    if budget is None:
        if manifest.batch == 0 and len(ids) * job.plan.most_samples >= _MANY_SAMPLES:
            with suppress(
                SmoothcertError
            ):  # an input that cannot be read is reported when its turn comes
                if not is_short(executor, job, ids, _LONG):
                    foreseen = forecast_of(executor, job, ids, share=0.01)
                    if foreseen.seconds >= _LONG:
                        progress.say(f"forecast: {foreseen}")
    elif manifest.spending is None:
        spending = Spending.begin(budget, job, ids, executor)
        manifest = replace(manifest, forwarded=spending.spent)
    else:
        done = journal.certificates(plan=manifest.plan, noise=manifest.noise)
        spending = Spending.resume(budget, job, manifest, done)
    manifest = replace(manifest, batch=runtime.batch, compile=runtime.compile, finished=None)
    journal.write_manifest(manifest.plain())

    def keep(finished: list[Certificate], status: Status) -> None:
        low, high = manifest.values or (status.lowest, status.highest)
        values = [min(low, status.lowest), max(high, status.highest)]
        entries = {"forwarded": manifest.forwarded + status.forwarded, "values": values}
        with journal.transaction():
            for certificate in finished:
                if certificate.id in begun:
                    certificate = replace(
                        certificate, seconds=certificate.seconds + begun[certificate.id].seconds
                    )
                journal.add(
                    certificate,
                    entries,
                    own_plan=spending is not None or bool(job.plan.earlier_plans),
                )
        for certificate in finished:
            progress.update(certificate, status)

    progress.start()
    too_late = 0
    try:
        for block, plan in (
            [(ids, job.plan)] if spending is None else spending.blocks(ids, manifest.spending)
        ):
            if spending is not None:
                if manifest.spending is None:  # the first block
                    manifest = (
                        manifest if isinstance(plan, OneLook) else replace(manifest, plan=plan)
                    )
                    progress.say(f"forecast: {spending.forecast(plan, len(ids))}")
                too_late += len(block) if isinstance(plan, OneLook) else 0
                manifest = replace(manifest, spending=spending.record(block, plan))
                journal.write_manifest({key: manifest.plain()[key] for key in ("plan", "spending")})
            for finished in _follow(executor, block, plan, spending):
                keep(finished, executor.status())
    except UnreadableInput as error:
        journal.write_manifest({"unreadable": sorted({*manifest.unreadable, error.id})})
        raise
    except ModelFailed as error:
        raise ModelFailed(
            f"{error.message}; all finished inputs are saved, and the same command continues"
        ) from error.__cause__
    if too_late:
        progress.say(f"the time was over for {too_late:,} inputs: they are abstentions")
    known = known or _telling(open_run(journal.path.parent))
    if known.looks[0].samples <= _CHECKED_SHARE * executor.status().counted:
        try:
            _check_votes(
                executor, known
            )  # a classifier may adapt to its inputs, or count its calls
        except InvalidInput:
            journal.write_manifest(
                {"answers": []}
            )  # no classifier has these, so nobody goes on with this run
            raise
    _finish(journal, manifest, job)


def _finish(journal: Journal, manifest: Manifest, job: Job) -> None:
    """Record the inputs of the run and, if all have their certificates, when it was finished."""
    complete = journal.ids().issuperset(manifest.ids) and not _begun(journal, job)
    entries = replace(
        manifest, finished=(manifest.finished or _now()) if complete else None
    ).plain()
    journal.write_manifest({key: entries[key] for key in ("ids", "unreadable", "finished")})


def _follow(
    executor: Executor, ids: list[int], plan: Plan, spending: Spending | None
) -> Iterator[list[Certificate]]:
    """Certificates as they finish, with the time that they took. The budget is told after they are kept."""
    start = time.perf_counter()
    for finished in executor.certify(ids, plan):
        now = time.perf_counter()
        yield (
            timed := [
                replace(certificate, seconds=(now - start) / len(finished))
                for certificate in finished
            ]
        )
        start = now
        if spending is not None:
            for certificate in timed:
                spending.add(certificate)


def _telling(run: Run) -> Certificate:
    """An input that costs no more than most and whose votes are divided: a changed classifier gives it others."""
    cheap = run.samples <= np.median(run.samples)
    return run[int(run.id[cheap][np.argmin(np.nan_to_num(run.p[cheap], nan=1.0))])]


def _check_votes(executor: Executor, known: Certificate) -> None:
    """Refuse to go on with a classifier that gives other votes to a known input than rounding explains."""
    look = known.looks[0]
    [[again]] = executor.certify([known.id], OneLook(look.samples))
    if not same_votes(look.votes, again.looks[0].votes):
        raise InvalidInput(
            f"input {known.id} got the votes {look.votes} before, and now gets "
            f"{again.looks[0].votes}: the classifier, or the machine that runs it, has changed; choose another "
            f"{setting('out', 'DIR')}"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
