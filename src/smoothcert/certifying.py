"""`certify`: the main job. A model and inputs in, a folder of certificates out; the same call again resumes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from smoothcert import _check
from smoothcert._files import exclusive
from smoothcert.classifiers import Classifier, load_classifier
from smoothcert.classifiers.identity import answers
from smoothcert.classifiers.wrap import as_classifier
from smoothcert.datasets import Dataset, load_dataset, select_ids
from smoothcert.datasets.wrap import as_dataset
from smoothcert.errors import InvalidInput
from smoothcert.executors import Executor, Job, LocalExecutor
from smoothcert.noise import Gaussian, check_drawn
from smoothcert.plans import PilotPlan, Plan
from smoothcert.plans.base import describe
from smoothcert.plans.input_specific import plan_or_default
from smoothcert.progress import Progress, progress_here
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import check_same, circumstances, compact_ids, expand_ids
from smoothcert.runs.run import Run, open_run
from smoothcert.sampler.runtime import settle_dtype


def certify(
    model: str | Classifier | Callable[[Tensor], Tensor] | None,
    data: str | Path | Dataset | Sequence[Any],
    *,
    noise: Gaussian,
    out: str | Path,
    plan: Plan | None = None,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    weights: str | Path | None = None,
    classes: int | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    batch: int | str = "auto",
    compile: str = "auto",
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Run:
    """Certify `data` and keep the certificates in the folder `out`; the same call again resumes, also with more inputs.

    `model` is a name as on the command line (None if `weights` tell it), a module, or a function from a float batch to
    logits or labels; `data` a name, or anything that gives (input, label) by number. All inputs are certified, or those
    that `ids`, `skip` and `limit` choose. Without a plan, input-specific sampling with its defaults. Progress goes to
    stderr; `progress=Progress()` is silent.
    """
    check_drawn(noise)
    plan = plan_or_default(plan)
    if weights is not None and not (model is None or isinstance(model, str)):
        raise InvalidInput(f"weights ({weights}) are for a model given by its name: load them into the module before")
    classifier, dataset = load(model, data, weights=weights, classes=classes, noise=noise)
    with executor or LocalExecutor() as executor:
        job = Job(
            classifier=classifier,
            dataset=dataset,
            noise=noise,
            plan=plan,
            runtime=executor.resolve(device, settle_dtype(dtype, classifier.module), compile, batch),
            seed=_check.whole("seed", seed),
        )
        job.plan.check(noise)
        if classifier.trained_sigma is not None and abs(classifier.trained_sigma - noise.sigma) > 1e-6:
            warnings.warn(
                f"{classifier.name} was trained with noise {classifier.trained_sigma:g} and is certified with sigma "
                f"{noise.sigma:g}; radii are true, but often small",
                stacklevel=2,
            )
        certifying = job.plan.certifying
        if isinstance(certifying, PilotPlan) and certifying.pilot_use == "reuse":
            warnings.warn(
                f"the pilot is counted again, as published: a certificate can be wrong more often than alpha "
                f"({certifying.alpha:g}) says; `smoothcert coverage --pilot-use reuse` computes how often",
                stacklevel=2,
            )
        chosen = select_ids(len(dataset), ids=ids, skip=skip, limit=limit)
        check_shape(classifier, dataset)
        _check_labels(classifier, dataset, chosen)
        progress = progress or progress_here()
        with exclusive(out) as folder, Journal(folder, write=True) as journal:
            identity = _identity(job, chosen) | ({"data": str(data)} if isinstance(data, (str, Path)) else {})
            about: dict[str, Any] = {"data": identity["data"], "weights": None if weights is None else str(weights)}
            done = journal.ids()
            recorded = journal.read_manifest() if done else {}  # a run that never certified anything binds nobody
            if recorded:
                check_same(recorded, identity, folder)
                asked = set(expand_ids(recorded["ids"])).union(chosen)
                about["ids"] = recorded["ids"] if len(asked) > len(chosen) else identity["ids"]
            else:
                journal.write_manifest(identity | about | {"circumstances": circumstances(), "started": _now()})
            todo = [id for id in chosen if id not in done]
            progress.begin(open_run(folder), total=len(done.union(chosen)))
            try:
                if todo:
                    _run(job, todo, journal, recorded, about, executor, progress)
            finally:
                progress.close()
    run = open_run(folder)
    progress.end(run)
    return run


def load(
    model: str | Classifier | Callable[[Tensor], Tensor] | None,
    data: str | Path | Dataset | Sequence[Any],
    *,
    weights: str | Path | None,
    classes: int | None,
    noise: Gaussian,
) -> tuple[Classifier, Dataset]:
    """Model and data as `certify` takes them, loaded or wrapped."""
    dataset = load_dataset(str(data)) if isinstance(data, (str, Path)) else as_dataset(data)
    if model is None or isinstance(model, str):
        model = load_classifier(model, weights=weights, classes=classes, sigma=noise.sigma)
    return as_classifier(model, classes=classes, example=dataset[0][0]), dataset


def _run(
    job: Job,
    ids: list[int],
    journal: Journal,
    recorded: dict[str, Any],
    about: dict[str, Any],
    executor: Executor,
    progress: Progress,
) -> None:
    if not job.runtime.batch:  # what was measured once stays: the batch is part of the classifier as run
        job = replace(job, runtime=replace(job.runtime, batch=recorded.get("batch", 0)))
    forwarded = recorded.get("forwarded", 0)
    runtime = executor.start(job, progress.say)
    settled = {"batch": runtime.batch, "compiled": runtime.compile}
    if "batch" in recorded and settled != {key: recorded.get(key) for key in settled}:
        raise InvalidInput(
            f"the run was begun with batch {recorded['batch']}, compiled: {recorded['compiled']}, and would go on "
            f"with batch {runtime.batch}, compiled: {runtime.compile}; choose another --out"
        )
    journal.write_manifest(settled | about | {"finished": None})
    progress.start()
    start = time.perf_counter()
    for finished in executor.certify(ids):
        now = time.perf_counter()
        status = executor.status()
        seconds = (now - start) / len(finished)
        with journal.transaction():
            for certificate in finished:
                journal.add(replace(certificate, seconds=seconds), {"forwarded": forwarded + status.forwarded})
        start = now
        for certificate in finished:
            progress.update(certificate, status)
    if journal.ids().issuperset(expand_ids(journal.read_manifest()["ids"])):
        journal.write_manifest({"finished": _now()})


def _identity(job: Job, ids: list[int]) -> dict[str, Any]:
    """Settings that must agree for a run to be continued. The batch size is taken over from the manifest."""
    classifier, dataset, runtime = job.classifier, job.dataset, job.runtime
    return {
        "model": classifier.name,
        "weights_hash": classifier.weights_hash,
        "answers": answers(classifier.module, dataset[0][0], runtime.torch_device, runtime.torch_dtype),
        "classes": classifier.classes,
        "data": dataset.name,
        "data_hash": dataset.fingerprint,
        "ids": compact_ids(ids),
        "noise": describe(job.noise),
        "plan": describe(job.plan),
        "seed": job.seed,
        "device": runtime.torch_device.type,
        "dtype": runtime.dtype,
        "compile": runtime.compile,
    }


def check_shape(classifier: Classifier, dataset: Dataset) -> None:
    """A grey image would pass through the normalisation of a model for colours, with the same noise in all of them.

    Images of another size are only worth a warning: most networks take them.
    """
    expected, given = classifier.input_shape, tuple(dataset[0][0].shape)
    if expected is not None and (len(expected), expected[0]) != (len(given), given[0]):
        raise InvalidInput(
            f"{classifier.name} takes inputs of shape {expected}, but those of {dataset.name} have shape {given}"
        )
    if expected not in (None, given):
        warnings.warn(
            f"{classifier.name} was made for inputs of shape {expected}, those of {dataset.name} have shape {given}",
            stacklevel=3,
        )


def _check_labels(classifier: Classifier, dataset: Dataset, ids: list[int]) -> None:
    """Where labels are at hand, refuse a wrong one now rather than when its turn comes."""
    labels = getattr(dataset, "labels", {})
    wrong = [id for id in ids if len(labels) and labels[id] >= classifier.classes]
    if wrong:
        raise InvalidInput(
            f"input {wrong[0]} of {dataset.name} has label {labels[wrong[0]]}, but {classifier.name} knows only the "
            f"classes 0 to {classifier.classes - 1}"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
