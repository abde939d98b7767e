"""`certify`: the main job. A model and inputs in, a folder of certificates out; the same call again resumes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._files import exclusive
from smoothcert._registry import check_recordable, naming_users_code
from smoothcert.data import Dataset, load_dataset, select_ids
from smoothcert.data.base import first_readable
from smoothcert.data.selection import parse_shard
from smoothcert.data.wrap import as_dataset
from smoothcert.device.runtime import Compile, Device, Dtype, Runtime, settle_dtype
from smoothcert.errors import InvalidInput, ModelFailed
from smoothcert.executors import Executor, Job, LocalExecutor
from smoothcert.models import Classifier, load_classifier
from smoothcert.models.denoisers import denoised, load_denoiser
from smoothcert.models.denoisers.check import check_input, check_output, check_repeatable
from smoothcert.models.denoisers.load import names_code as denoiser_is_code
from smoothcert.models.identity import answers
from smoothcert.models.load import names_code
from smoothcert.models.wrap import as_classifier, seeded_hash
from smoothcert.noises import Gaussian, GridGaussian, Noise
from smoothcert.noises.grid_gaussian import is_gaussian
from smoothcert.noises.rounded_normal import LARGEST_DEVIATION
from smoothcert.plans import Plan, plan_or_default
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest, circumstances
from smoothcert.runs.progress import Progress, choose_progress
from smoothcert.runs.run import Run, open_run
from smoothcert.sampling.number_format import COMPARED_INPUTS, without_doubt
from smoothcert.sampling.streams import check_seed


@naming_users_code()
def certify(
    model: str | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    *,
    noise: Noise | None = None,
    sigma: float | None = None,
    out: str | Path,
    plan: Plan | None = None,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    shard: str | tuple[int, int] | None = None,
    weights: str | Path | None = None,
    classes: int | None = None,
    seed: int = 0,
    stochastic: bool = False,
    denoiser: str | Path | nn.Module | None = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    batch: int | str = "auto",
    compile: str = "auto",
    executor: Executor | None = None,
    progress: Progress | Sequence[Progress] | None = None,
) -> Run:
    """Certify inputs and keep the certificates in a folder; the same call again resumes, also with more inputs.

    Args:
        model: A name as on the command line (None if `weights` names the architecture), a module, or a function from a
            float batch to logits or labels. Tuples, dictionaries and arrays that hold the logits will do.
        data: A name as on the command line, arrays (X, Y), or anything that gives inputs or pairs (input, label) by
            number: a list, a torch data set, a `DataLoader`, a `datasets.Dataset`. See `as_dataset`.
        noise: The smoothing noise. Give either this or `sigma`.
        sigma: The standard deviation of Gaussian noise. On CUDA, noise for 8-bit images is drawn on their grid, as
            `GridGaussian(sigma)`, which is exact in floating point and costs little there. Otherwise, this is
            `Gaussian(sigma)`. A run that is resumed keeps its noise.
        out: The run's folder.
        plan: How many samples an input gets. Default: input-specific sampling with its defaults.
        ids: The inputs to certify, as numbers or as in "0,5,10-20". Default: all.
        skip: Certify every `skip`-th input.
        limit: Certify at most so many inputs.
        shard: Of these inputs, certify the part of one job among several: "3/16" is the third of 16 parts. `merge` puts
            the parts together. All parts need the same batch, so `batch` must be given.
        weights: A checkpoint for a model that is given by its name.
        classes: The number of classes, where the model does not tell.
        seed: The key of the noise: the same seed draws the same noise.
        stochastic: Whether the model is random by design. Its random numbers then depend on the noisy input alone, and
            inputs are classified one at a time; see `SeededRows`.
        denoiser: Removes the noise before the model sees an input; see `load_denoiser`. The certificates are about the
            denoiser and the model together.
        device: "cpu", "cuda", "cuda:N", "mps", a `torch.device` or the number of a CUDA device. Default: the fastest.
        dtype: The number format of the classifier. Default: bfloat16 where the device has it, unless it gives other
            labels than float32 on noisy copies of the first inputs; else float32. A model in float64 stays in it.
        batch: Rows per forward pass. Default: chosen by measuring.
        compile: "none", "fast", "stages", "default" or "max". Default: "fast" on CUDA, else "none".
        executor: Where to compute. Default: in this process.
        progress: Told what happens. Default: a bar or lines on stderr; `Progress()` is silent. Trackers, alone or in a
            list, are told beside the default.
    """
    smoothing = _noise_given(noise, sigma)
    plan = plan_or_default(plan)
    check_recordable(smoothing)
    check_recordable(plan)
    seed = check_seed(_check.whole("seed", seed))
    classifier, dataset = load(
        model, data, weights=weights, classes=classes, noise=smoothing, stochastic=stochastic, denoiser=denoiser
    )
    dtype = settle_dtype(dtype, classifier.module)
    with executor or LocalExecutor() as executor:
        runtime = executor.resolve(device, dtype, compile, batch)
        if sigma is not None and _on_cuda(runtime):
            smoothing = _on_grid(sigma, dataset)
        smoothing = smoothing.for_shape(tuple(first_readable(dataset).shape))
        plan = plan.for_noise(smoothing)
        job = Job(classifier=classifier, dataset=dataset, noise=smoothing, plan=plan, runtime=runtime, seed=seed)
        plan.check(smoothing)
        job.runtime.check_noise(smoothing.deviation)
        _warn(classifier, smoothing, plan)
        chosen = select_ids(len(dataset), ids=ids, skip=skip, limit=limit, shard=shard)
        if shard is not None and not job.runtime.batch:
            raise InvalidInput(
                f"shard={shard} needs batch=N: the parts can only be merged if all were certified with the same one"
            )
        check_shape(classifier, dataset, smoothing)
        _check_labels(classifier, dataset, chosen, known=plan.known_labels)
        progress = choose_progress(progress)
        with exclusive(out) as folder, Journal(folder, write=True) as journal:
            done = journal.ids()
            recorded = journal.manifest() if done else None  # a run without certificates binds nobody
            if recorded is not None and sigma is not None and is_gaussian(recorded.noise, sigma):
                job = replace(job, noise=recorded.noise)
            first = select_ids(len(dataset), ids=ids, skip=skip, limit=limit)  # of all shards, so that they agree
            job = replace(job, runtime=_settle(job, recorded, first, dtype=dtype, compile=compile))
            if compile == "auto" and recorded is None and shard is None:  # shards must all run the same way
                work = round(len(chosen) * plan.usual_samples)
                job = replace(job, runtime=replace(job.runtime, work=work))
            wanted = replace(
                _manifest(job, chosen),
                data=str(data) if isinstance(data, (str, Path)) else dataset.name,
                weights=None if weights is None else str(weights),
                stochastic=stochastic,
                shard=None if shard is None else "{}/{}".format(*parse_shard(shard)),
            )
            if recorded is None:
                manifest = replace(wanted, circumstances=circumstances(), started=_now())
                journal.write_manifest(manifest.plain())
            else:
                wanted.check_continues(recorded, folder)
                more = len(set(recorded.ids).union(chosen)) > len(chosen)
                moved = {name: getattr(wanted, name) for name in ("data", "weights", "denoiser", "shard")}
                manifest = replace(recorded, **moved)
                manifest = manifest if more else manifest.with_ids(chosen)
            todo = [id for id in chosen if id not in done]
            progress.begin(open_run(folder), total=len(done.union(chosen)))
            try:
                if todo and recorded is None and sigma is not None and isinstance(job.noise, GridGaussian):
                    progress.say(
                        f"noise on the grid of 8-bit images, exact in floating point: {job.noise.short} "
                        f"(off the grid: --noise {Gaussian(sigma).short})"
                    )
                if todo:
                    _run(job, todo, journal, manifest, executor, progress)
            finally:
                progress.close()
    run = open_run(folder)
    progress.end(run)
    return run


def _noise_given(noise: Noise | None, sigma: float | None) -> Noise:
    """The noise that the caller asks for, before the device is known."""
    if noise is None and sigma is None:
        raise InvalidInput("the noise is missing: give sigma=, or noise= as in Gaussian(0.5)")
    if noise is not None and sigma is not None:
        raise InvalidInput(f"noise={noise} and sigma={sigma} exclude one another: give one of them")
    if sigma is not None:
        return Gaussian(sigma)
    if not isinstance(noise, Noise):
        raise InvalidInput(f"noise must be a noise such as Gaussian(0.5), got {noise!r}")
    return noise


def _on_cuda(runtime: Runtime) -> bool:
    """Whether a grid costs little. On a CPU, it can cost a third of the samples per second."""
    return runtime.torch_device.type == "cuda"


def _on_grid(sigma: float, dataset: Dataset) -> Noise:
    """Gaussian noise on the grid of the data, if the data is known to have one."""
    levels: int | None = getattr(dataset, "levels", None)
    if levels is None or sigma * levels > LARGEST_DEVIATION:
        return Gaussian(sigma)
    return GridGaussian(sigma, 1 / levels)


def load(
    model: str | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    *,
    weights: str | Path | None,
    classes: int | None,
    noise: Noise,
    stochastic: bool = False,
    denoiser: str | Path | nn.Module | None = None,
) -> tuple[Classifier, Dataset]:
    """Model and data as `certify` takes them, loaded or wrapped."""
    if weights is not None and not (model is None or isinstance(model, str)):
        raise InvalidInput(f"weights={weights} is for a model given by its name: load them into the module before")
    dataset = load_dataset(str(data)) if isinstance(data, (str, Path)) else as_dataset(data)
    if model is None or isinstance(model, str):
        # Behind a denoiser, the weights with the least noise in training fit best.
        sigma = noise.deviation if denoiser is None else None
        model = load_classifier(model, weights=weights, classes=classes, sigma=sigma, stochastic=stochastic)
    x = first_readable(dataset)
    if denoiser is not None:
        front = load_denoiser(denoiser, stochastic=stochastic)
        check_input(front, x, f"the first input of {dataset.name}")
        check_output(front, x, noise.deviation)
        if not stochastic:
            check_repeatable(front, x, noise.deviation)
        known = model if isinstance(model, Classifier) else as_classifier(model, classes=classes, example=x)
        model = denoised(known, front, noise)
    return as_classifier(model, classes=classes, example=example(dataset, noise), stochastic=stochastic), dataset


def load_again(
    manifest: Manifest,
    *,
    model: str | Classifier | Callable[[Tensor], Any] | None,
    weights: str | Path | None,
    data: Any,
    stochastic: bool,
    denoiser: str | Path | nn.Module | None,
    purpose: str,
    instead: str = "",
) -> tuple[Classifier, Dataset]:
    """The model and the data of a run, after a check that they have not changed."""
    m = manifest
    if stochastic and m.stochastic is False:
        raise InvalidInput(f"cannot {purpose}: the run was made without stochastic=True: leave it out")
    has_denoiser = isinstance(model, Classifier) and model.denoiser is not None
    code = {"model": m.model} if model is None and names_code(m.model) else {}
    if denoiser is None and m.denoiser is not None and not has_denoiser:
        denoiser = m.denoiser["name"]
        code |= {"denoiser": denoiser} if denoiser_is_code(denoiser) else {}
    if code:
        named = " and ".join(f"the {what} {name}" for what, name in code.items())
        wanted = " and ".join(f"{what}=" for what in code)
        raise InvalidInput(
            f"cannot {purpose}: the run was made with {named}, and code that a run names is not executed: give "
            f"{wanted}{instead}"
        )
    try:
        classifier, dataset = load(
            m.model if model is None else model,
            m.data if data is None else data,
            weights=weights or (m.weights if model is None or isinstance(model, str) else None),
            classes=m.classes,
            noise=m.noise,
            stochastic=stochastic or bool(m.stochastic),
            denoiser=denoiser,
        )
    except InvalidInput as error:
        places = "model=, weights= and data=" if m.denoiser is None else "model=, weights=, denoiser= and data="
        raise InvalidInput(f"cannot {purpose}: {error}; give the model and the data with {places}{instead}") from None
    for what, recorded, found in (
        ("denoiser's weights", _denoiser_hash(m), _denoiser_hash(classifier)),
        ("weights", m.weights_hash, classifier.weights_hash),
        ("data", m.data_hash, dataset.fingerprint),
    ):
        if recorded != found:
            if what == "weights" and recorded is not None and recorded == seeded_hash(classifier):
                raise InvalidInput(f"cannot {purpose}: the run was made with stochastic=True: give it here as well")
            raise InvalidInput(f"cannot {purpose}: the {what} are not those that the run was made with")
    return classifier, dataset


def _denoiser_hash(source: Manifest | Classifier) -> str | None:
    return None if source.denoiser is None else source.denoiser["hash"]


def _settle(job: Job, recorded: Manifest | None, ids: list[int], *, dtype: Dtype, compile: str) -> Runtime:
    """The runtime after "auto" has been replaced: by what the run was begun with, or after a check of the format."""
    runtime = job.runtime
    if recorded is not None:
        begun = Runtime(runtime.device, recorded.dtype, cast(Compile, recorded.compiled), runtime.batch)
        return replace(
            runtime,
            dtype=begun.dtype if dtype == "auto" and begun.dtype else runtime.dtype,
            compile=begun.compile if compile == "auto" and begun.compile else runtime.compile,
        )
    if dtype != "auto":
        return runtime
    few = []
    for id in ids[:COMPARED_INPUTS]:
        with suppress(Exception):  # an input that cannot be read is reported when its turn comes
            few.append(job.dataset[id][0])
    return without_doubt(runtime, job.classifier.module, few, classes=job.classifier.classes, noise=job.noise)


def _run(
    job: Job, ids: list[int], journal: Journal, manifest: Manifest, executor: Executor, progress: Progress
) -> None:
    if not job.runtime.batch:  # the batch size is part of the classifier as run, so it is measured once
        job = replace(job, runtime=replace(job.runtime, batch=manifest.batch))
    runtime = executor.start(job, progress.say)
    fallback = None if runtime.compile == manifest.compile else runtime.compile
    settled = replace(manifest, batch=runtime.batch, fallback=fallback, finished=None)
    if manifest.batch and (settled.batch, settled.compiled) != (manifest.batch, manifest.compiled):
        raise InvalidInput(
            f"the run was begun with batch {manifest.batch}, compiled: {manifest.compiled}, and would go on "
            f"with batch {settled.batch}, compiled: {settled.compiled}; choose another out=DIR"
        )
    journal.write_manifest(settled.plain())
    progress.start()
    start = time.perf_counter()
    try:
        for finished in executor.certify(ids):
            now = time.perf_counter()
            status = executor.status()
            seconds = (now - start) / len(finished)
            with journal.transaction():
                for certificate in finished:
                    forwarded = manifest.forwarded + status.forwarded
                    journal.add(replace(certificate, seconds=seconds), {"forwarded": forwarded})
            start = now
            for certificate in finished:
                progress.update(certificate, status)
    except ModelFailed as error:
        raise ModelFailed(
            f"{error}; all finished inputs are saved, and the same command continues"
        ) from error.__cause__
    if journal.ids().issuperset(manifest.ids):
        journal.write_manifest({"finished": _now()})


def _manifest(job: Job, ids: list[int]) -> Manifest:
    classifier, dataset, runtime = job.classifier, job.dataset, job.runtime
    return Manifest(
        model=classifier.name,
        classes=classifier.classes,
        data=dataset.name,
        data_hash=dataset.fingerprint,
        ids=tuple(ids),
        noise=job.noise,
        plan=job.plan,
        seed=job.seed,
        device=runtime.torch_device.type,
        dtype=runtime.dtype,
        compile=runtime.compile,
        weights_hash=classifier.weights_hash,
        denoiser=classifier.denoiser,
        answers=answers(
            classifier.module,
            example(job.dataset, job.noise),
            runtime.torch_device,
            runtime.torch_dtype,
            classes=classifier.classes,
        ),
    )


def example(dataset: Dataset, noise: Noise) -> Tensor:
    """An input in the form that the classifier takes."""
    x = first_readable(dataset)
    shape = noise.draw.output_shape(tuple(x.shape))
    return x if shape == tuple(x.shape) else torch.zeros(shape)


def _warn(classifier: Classifier, noise: Noise, plan: Plan) -> None:
    if (before := classifier.trained_noise) is not None:
        same = before.same_kind(noise) or (isinstance(noise, Gaussian) and is_gaussian(before, noise.sigma))
        if not same:
            warnings.warn(
                f"{classifier.name} was trained with {before} and is certified with {noise}; radii are true, but often "
                "small",
                stacklevel=3,
            )
        trained = None
    else:
        trained = classifier.trained_sigma
    if trained is not None and abs(trained - noise.deviation) > 1e-6:
        how = f"with noise of deviation {trained:g}" if trained else "without noise"
        warnings.warn(
            f"{classifier.name} was trained {how} and is certified with {noise}; radii are true, but often small",
            stacklevel=3,
        )
    front = classifier.trained_denoiser
    if front is not None and front != _denoiser_hash(classifier):
        how = "without one" if classifier.denoiser is None else "behind another one"
        warnings.warn(
            f"{classifier.name} was trained behind a denoiser and is certified {how}; radii are true, but often small",
            stacklevel=3,
        )
    if plan.caveat:
        warnings.warn(plan.caveat, stacklevel=3)


def check_shape(classifier: Classifier, dataset: Dataset, noise: Noise | None = None) -> None:
    """Refuse inputs with another number of channels; warn about another size, which most networks accept.

    A grey image would pass through the normalisation of a colour model, with the same noise in all channels.
    """
    expected, plain = classifier.input_shape, tuple(first_readable(dataset).shape)
    given = plain if noise is None else noise.draw.output_shape(plain)
    if given != plain and expected is not None and expected != given:
        raise InvalidInput(
            f"{noise} turns inputs of shape {plain} into {given}, but {classifier.name} takes {expected}: use weights "
            "that were trained with this noise"
        )
    if expected is not None and (len(expected), expected[:1]) != (len(given), given[:1]):
        raise InvalidInput(
            f"{classifier.name} takes inputs of shape {expected}, but those of {dataset.name} have shape {given}"
        )
    if expected not in (None, given):
        warnings.warn(
            f"{classifier.name} was made for inputs of shape {expected}, those of {dataset.name} have shape {given}",
            stacklevel=3,
        )


def _check_labels(classifier: Classifier, dataset: Dataset, ids: list[int], *, known: bool) -> None:
    """Where all labels are at hand, refuse a wrong one before the run instead of in the middle of it."""
    labels = getattr(dataset, "labels", {})
    if known and (without := [id for id in ids if len(labels) and labels[id] < 0]):
        raise InvalidInput(
            f"input {without[0]} of {dataset.name} has no label, and known_labels=True needs one for every input"
        )
    wrong = [id for id in ids if len(labels) and labels[id] >= classifier.classes]
    if wrong:
        raise InvalidInput(
            f"input {wrong[0]} of {dataset.name} has label {labels[wrong[0]]}, but {classifier.name} knows only the "
            f"classes 0 to {classifier.classes - 1}"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
