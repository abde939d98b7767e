"""`certify`: the main task. A model and inputs in, certificates out.

They stay in memory, or they are kept in a folder that can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from smoothcert._files import JOURNAL
from smoothcert._user_errors import naming_user_errors
from smoothcert.device.runtime import say_nothing
from smoothcert.errors import (
    InvalidInput,
    ModelFailed,
    UnreadableInput,
    either,
    number_of,
    phrase,
    setting,
    warn,
)
from smoothcert.executors import Executor, Job, LocalExecutor
from smoothcert.models import Classifier
from smoothcert.noises import Gaussian, GridGaussian
from smoothcert.plans import Certificate, Plan, SingleDraw
from smoothcert.plans.coverage import caveat
from smoothcert.plans.two_stage import Bound
from smoothcert.plans.votes import same_votes
from smoothcert.runs.progress import Progress, choose_progress
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run, RunWriter, continued, open_run, open_writer
from smoothcert.runs.summary import sensitive_place
from smoothcert.smoothed import Subject
from smoothcert.tasks.budget import Budget, Spending
from smoothcert.tasks.request import Request, job_for
from smoothcert.tasks.survey import Forecast, forecast_of

_REDUCED_FORMATS = ("bfloat16", "float16")
_FORECAST_SHARE = 0.1
"""How much of the cost of a run a forecast without the run may cost."""


@naming_user_errors()
def certify(
    model: str | Subject | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    labels: Any = None,
    *,
    plan: Plan | None = None,
    radii: Sequence[float] | None = None,
    method: str | None = None,
    protocol: Literal["cohen", "iss"] | None = None,
    samples: int | None = None,
    known_labels: bool = False,
    decline: float | None = None,
    bound: Bound | None = None,
    alpha: float | None = None,
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
    **settings: Any,
) -> Results:
    """Certify inputs. With `out`, certificates are kept in a folder; the same call again resumes.

    Args:
        model: A `Smoothed`, or a model from which one is made.
        data: A name as on the command line, arrays (X, Y), or anything that gives inputs or pairs
            (input, label) by number: a list, a torch data set, a `DataLoader`, a
            `datasets.Dataset`. See `as_dataset`.
        labels: The labels, if `data` holds only inputs, or others. To give both to `audit` again,
            write `data=(data, labels)`.
        plan: How many samples an input gets, as an object. The next arguments describe it in the
            words of the command line. Default: input-specific sampling, or `Price` with a budget.
        radii: Radii to decide. With a method or a budget, they are only shown.
        method: "radii", "input-specific", "fixed", "price" or "exact", as `--method`.
        protocol: "cohen" for what papers do, "iss" for input-specific sampling as published.
        samples: The ceiling: the most samples that a certificate rests on.
        known_labels: Whether to certify the label itself instead of the predicted class.
        decline: How much radius input-specific sampling may lose.
        bound: "binary" bounds the class alone, as papers do; "runner-up" certifies more.
        alpha: The largest probability that one certificate is wrong.
        budget: Samples for all inputs together. They set the price of a plan `Price`, or the
            ceiling of another plan.
        minutes: Minutes for all inputs together, start-up included. What is left of them before
            the first certificate becomes a budget of samples, which is recorded.
        since: When the minutes began, as returned by `time.perf_counter()`. Default: now.
        joint: Whether to divide the alpha of the plan by the number of inputs, so that all
            certificates hold together with its confidence. Inputs cannot be added later, because
            this would change their alpha. Unless you choose, 8-bit images get noise on their grid,
            and the model runs in float32.
        out: The run's folder. By default, the certificates stay in memory, and every call of a
            `Smoothed` draws new noise; what was selected in memory must be certified with `out`.
        ids: The inputs to certify, as numbers, as in "0,5,10-20", or as a mask of all inputs.
            Default: all.
        skip: Certify every `skip`-th input.
        limit: Certify at most this many inputs.
        shard: Of these inputs, certify the part of one job among several: "3/16" is the third of
            16 parts. `merge` puts the parts together. All parts need the same batch, so `batch`
            must be given.
        executor: Where to compute. Default: in this process.
        progress: Called with what happens. Default: a bar or lines on stderr; `Progress()` is
            silent. Trackers, alone or in a list, are called beside the default. It needs `out`.
        **settings: Further settings of the plan, such as `pilot=` and `give_up=`, and those of
            `Smoothed`, where `model` is not one: `noise=` or `sigma=`, `weights=`, `device=`.

    Returns:
        The results. With `out`, they are a `Run`.
    """
    request = Request(
        "certify",
        model,
        data,
        labels,
        plan=plan,
        radii=radii,
        method=method,
        protocol=protocol,
        samples=samples,
        known_labels=known_labels,
        decline=decline,
        bound=bound,
        alpha=alpha,
        budget=budget,
        minutes=minutes,
        since=since,
        joint=joint,
        ids=ids,
        skip=skip,
        limit=limit,
        shard=shard,
        **settings,
    )
    warning = caveat(request.plan)
    if warning is not None:
        warn(warning)
    if out is None:
        if progress is not None:
            raise InvalidInput(
                "progress-without-out",
                "`progress` is for certificates on disk: give `out=DIR` as well",
            )
        return _certify_in_memory(request, executor)
    request.check_can_be_kept()
    display = choose_progress(progress, radii=request.radii)
    with executor or LocalExecutor() as executor, open_writer(out) as run:
        job, manifest = request.settle(executor, run.recorded)
        run.begin(manifest)
        job = replace(job, begun=run.votes_to_continue(request.ids))
        left = run.left(request.ids)
        try:
            display.begin(run.finished_before(), total=len(run.ids.union(request.ids)))
            for message in _notices_before(request, job, run):
                display.say(phrase(message, command=display.command))
            if left:
                _certify_on_disk(request.budget, job, left, run, executor, display)
            run.finish()
        finally:
            display.close()
        results = run.results()
    display.end(results)
    return results


def _certify_in_memory(request: Request, executor: Executor | None) -> Results:
    """Certificates that nobody keeps on disk.

    Their noise is not that of a run with the same seed. The votes of one of several inputs are
    drawn again, to notice a classifier that changed on the way.
    """
    smoothed, dataset = request.smoothed, request.dataset
    resolve = None if executor is None else executor.resolve
    subject = smoothed.bind(
        dataset, request.ids, in_memory=True, exact=request.joint, resolve=resolve
    )
    other_noise = subject.with_settings(seed=smoothed.next_key("interactive"))
    job = job_for(other_noise, dataset, request.plan, request.ids)
    certificates: list[Certificate] = []
    with executor or LocalExecutor(subject.ready) as executor:
        batch = executor.start(job, say_nothing).batch
        spending = None
        if request.budget is not None:
            spending = Spending.begin(request.budget, job, request.ids, executor, batch=batch)
        for finished in _sample(executor, job.plan, spending, request.ids):
            certificates += finished
        results = Results.from_certificates(dataset.name, certificates)
        if len(certificates) > 1:
            _check_votes(executor, certificates[sensitive_place(results)])
    return results


def _notices_before(request: Request, job: Job, run: RunWriter) -> Iterator[str]:
    """What the user should know before the run."""
    others = len(run.ids.difference(request.ids))
    if others and request.shard is None:
        yield (
            f"{run.folder} also holds {others:,} inputs that were not asked for; its figures are "
            "about all"
        )
    if job.begun:
        yield f"going on with {number_of(len(job.begun), 'input')}: {job.plan}"
    if run.manifest.copies:
        copies = number_of(len(run.manifest.copies), "input")
        yield f"copies of other inputs, which prove nothing more about others: {copies}"
    if run.recorded is None:
        yield from _choices(request.smoothed, job.subject)


def _choices(smoothed: Subject, bound: Subject) -> Iterator[str]:
    """What was chosen for the user, who may choose otherwise."""
    dtype = bound.runtime.dtype
    if smoothed.dtype == "auto" and dtype in _REDUCED_FORMATS:
        yield f"the model runs in {dtype} (in full precision: {setting('dtype', 'float32')})"
    sigma = smoothed.sigma
    noise = bound.noise
    if sigma is not None and isinstance(noise, GridGaussian):
        plain = either(f"noise=Gaussian({sigma})", f"--noise {Gaussian(sigma).short}")
        yield (
            f"noise on the grid of 8-bit images, exact in floating point: {noise.short} "
            f"(off the grid: {plain})"
        )


def _certify_on_disk(
    budget: Budget | None,
    job: Job,
    left: list[int],
    run: RunWriter,
    executor: Executor,
    display: Progress,
) -> None:
    """Certify the inputs that are left, and keep their certificates.

    The votes of one input are drawn again, before and after, to notice a changed classifier.
    """
    runtime = executor.start(job, display.say)
    run.start(batch=runtime.batch, compile=runtime.compile)
    sensitive = None if run.recorded is None else run.sensitive_input()
    if sensitive is not None:
        _check_votes(executor, sensitive)
    spending = None
    if budget is not None:
        spending = _spending(budget, job, left, run, executor, display)
    display.start()
    try:
        for finished in _sample(executor, job.plan, spending, left, run):
            status = executor.status()
            run.keep(finished, status)
            for certificate in finished:
                display.update(certificate, status)
    except UnreadableInput as error:
        run.leave_out(error.id)
        raise
    except ModelFailed as error:
        raise ModelFailed(
            error.code,
            error.sentence + "; all finished inputs are saved, and the same command continues",
            **error.fields,
        ) from error.__cause__
    try:
        _check_votes(executor, sensitive or run.sensitive_input())
    except InvalidInput:
        run.record(answers=[])  # no classifier has these, so nobody goes on with this run
        raise


def _spending(
    budget: Budget,
    job: Job,
    left: list[int],
    run: RunWriter,
    executor: Executor,
    display: Progress,
) -> Spending:
    """What decides about the plan of each block, new or as recorded."""
    if run.manifest.spending is not None:
        return Spending.resume(run.manifest, run.certificates())
    spending = Spending.begin(budget, job, left, executor, batch=run.manifest.batch)
    # From here on, a budget of minutes is a number of samples.
    described = {**(run.manifest.budget or {}), "samples": spending.total}
    run.record(budget=described, forwarded=spending.spent)
    display.say(f"forecast: {spending.forecast(left)}")
    return spending


def _sample(
    executor: Executor,
    plan: Plan,
    spending: Spending | None,
    ids: list[int],
    run: RunWriter | None = None,
) -> Iterator[list[Certificate]]:
    """Certificates as they finish, with the time that they took.

    With a budget, they come block by block, and count for the next block after they are kept.
    """
    for block, block_plan in [(ids, plan)] if spending is None else spending.blocks(ids):
        if spending is not None and run is not None:
            run.record(**spending.record(block, block_plan, run.manifest))
        start = time.perf_counter()
        for finished in executor.certify(block, block_plan):
            now = time.perf_counter()
            seconds = (now - start) / len(finished)
            start = now
            yield [replace(certificate, seconds=seconds) for certificate in finished]
            if spending is not None:
                spending.add(finished)


def _check_votes(executor: Executor, before: Certificate) -> None:
    """Refuse to go on if an input gets other votes than before, more than rounding explains.

    A classifier may have changed, may adapt to its inputs, or may count its calls.
    """
    look = before.looks[0]
    [[again]] = executor.certify([before.id], SingleDraw(look.samples))
    votes = again.looks[0].votes
    if not same_votes(look.votes, votes):
        raise InvalidInput(
            "other-votes",
            "input {id} got the votes {before} before, and now gets {now}: the classifier, or the "
            "machine that runs it, has changed; certify all inputs again, on disk into another "
            "folder",
            id=before.id,
            before=look.votes,
            now=votes,
        )


def forecast(
    model: Any,
    data: Any,
    labels: Any = None,
    *,
    out: str | Path | None = None,
    executor: Executor | None = None,
    progress: Progress | Sequence[Progress] | None = None,
    **arguments: Any,
) -> Forecast:
    """What `certify` with the same arguments would cost, from a few noisy copies of some inputs.

    Args:
        model: As for `certify`.
        data: As for `certify`.
        labels: As for `certify`.
        out: The folder of a run whose rest is forecast.
        executor: Where to compute. Default: in this process.
        progress: Ignored.
        **arguments: All other arguments of `certify`.
    """
    request = Request("forecast", model, data, labels, **arguments)
    run = None
    if out is not None and (Path(out) / JOURNAL).is_file():
        run = open_run(out)
    with executor or LocalExecutor() as executor:
        # A run without certificates has no settings to keep.
        job, manifest = request.settle(executor, run.manifest if run else None)
        left = request.ids
        if run:
            manifest = continued(manifest, run.manifest, run.path, run.id.tolist())
            left = _without_certificate(left, run, job.plan)
        if not left:
            return Forecast(0, 0.0, 0.0, 0.0)
        runtime = executor.start(job, say_nothing)
        if request.budget is None:
            return forecast_of(executor, job, left, share=_FORECAST_SHARE)
        if run:
            spending = Spending.resume(manifest, run.certificates())
        else:
            spending = Spending.begin(request.budget, job, left, executor, batch=runtime.batch)
        return spending.forecast(left)


def _without_certificate(ids: list[int], run: Run, plan: Plan) -> list[int]:
    """Of these inputs, those that have no certificate, or only one of an earlier plan."""
    done = {c.id for c in run.certificates() if c.plan not in plan.earlier_plans}
    return [id for id in ids if id not in done]
