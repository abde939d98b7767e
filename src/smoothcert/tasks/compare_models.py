"""Two models are certified on more and more inputs, until their difference is clear."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert import _check
from smoothcert._files import JOURNAL
from smoothcert._settings import NAMES
from smoothcert.data import find_dataset, select_ids
from smoothcert.device.runtime import Runtime, Say
from smoothcert.errors import InvalidInput
from smoothcert.executors import Job, LocalExecutor
from smoothcert.noises import Transformed
from smoothcert.plans import AtRadii, Plan, Walk
from smoothcert.plans.two_stage import Bound
from smoothcert.runs.comparison import Comparison, compare_runs
from smoothcert.runs.progress import Progress
from smoothcert.runs.run import locked_journal, open_run
from smoothcert.runs.words import duration
from smoothcert.sampling.streams import key_for
from smoothcert.smoothed import Subject
from smoothcert.statistics.metrics import CONFIDENCE
from smoothcert.tasks.certify import certify
from smoothcert.tasks.request import subject_given
from smoothcert.tasks.survey import order

_FIRST_INPUTS = 50
_GROWTH_PER_LOOK = 1.25
"""How many times as many inputs the next look at the difference has."""
_MOST_LOOKS = 80


def compare_models(
    a: Any,
    b: Any,
    data: Any,
    labels: Any = None,
    *,
    out: str | Path,
    radius: float | Sequence[float],
    margin: float = 0.0,
    confidence: float = CONFIDENCE,
    samples: int = 100_000,
    alpha: float = 0.001,
    bound: Bound | None = None,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    model: str | None = None,
    on_part: Callable[[Comparison], None] = lambda comparison: None,
    **settings: Any,
) -> Comparison:
    """Certify two models on the same data until their difference is clear.

    Models are certified at the radii, on more and more inputs in random order, until the difference
    is clear at every radius or the inputs are used up. The same call resumes. The intervals allow
    for the choice of when to stop.

    Args:
        a: A model as for `certify`, a `Smoothed`, or a checkpoint.
        b: The same for B.
        data: The data.
        labels: The labels, if `data` holds only inputs.
        out: The folder of both runs.
        radius: As for `compare`.
        margin: As for `compare`.
        confidence: As for `compare`.
        samples: The ceiling for each input. A low one is cheap, and compares what so few samples
            certify.
        alpha: The largest probability that one certificate is wrong.
        bound: "binary", or "runner-up", which certifies more. Default: "binary"; transformations
            always have the other.
        ids: The inputs to choose from, as for `certify`.
        skip: Choose from every `skip`-th input.
        limit: Choose from the first inputs.
        model: The architecture of checkpoints that do not state it.
        on_part: Called with the comparison so far whenever inputs were added.
        **settings: The settings of `Smoothed`, such as `sigma=`, for models that are not one.
    """
    _check.names("compare", settings, NAMES)
    if settings.get("weights") is not None:
        raise InvalidInput(
            "weights-for-both",
            "`weights` would be for both models: give the checkpoints as the two models",
        )
    radii = tuple(np.atleast_1d(radius))
    plan: Plan = AtRadii(radii, samples, alpha=alpha, bound=bound or "binary", known_labels=True)
    models = [_smoothed(one, model, settings) for one in (a, b)]
    if isinstance(models[0].noise, Transformed):
        if bound == "binary":
            raise InvalidInput(
                "binary-walk",
                "under a transformation, leave `bound=binary` out: only runner-up is there",
            )
        plan = Walk(radii, samples, alpha=alpha, known_labels=True)
    chosen = select_ids(len(find_dataset(data, labels)), ids=ids, skip=skip, limit=limit)
    shuffled = order(chosen, models[0].seed)
    folders = [Path(out) / name for name in _names(a, b)]
    executors = [_KeptClassifier(), _KeptClassifier()]
    for inputs in _sizes(folders, len(shuffled)):
        for smoothed, folder, executor in zip(models, folders, executors, strict=True):
            certify(
                smoothed,
                data,
                labels,
                plan=plan,
                ids=shuffled[:inputs],
                out=folder,
                executor=executor,
                progress=Progress(),
            )
            with locked_journal(folder) as journal:
                # Every later comparison of these runs allows for the choice of when to stop.
                journal.write_manifest({"until_clear": True})
        comparison = compare_runs(*folders, radius=radius, margin=margin, confidence=confidence)
        samples = comparison.a.samples.sum() + comparison.b.samples.sum()
        seconds = comparison.a.total_seconds + comparison.b.total_seconds
        note = (
            f"This took {inputs:,} of {len(shuffled):,} inputs in random order, {samples:,} "
            f"samples and {duration(seconds)}."
        )
        comparison = replace(comparison, notes=(*comparison.notes, note))
        on_part(comparison)
        if all(difference.verdict != "undecided" for difference in comparison.differences):
            break
    return comparison


def _sizes(folders: list[Path], most: int) -> list[int]:
    """How many inputs to look at, one number per look. Earlier looks are not repeated."""
    before = [open_run(f).asked if (f / JOURNAL).is_file() else 0 for f in folders]
    seen = min(most, *before)
    sizes = {min(int(_FIRST_INPUTS * _GROWTH_PER_LOOK**look), most) for look in range(_MOST_LOOKS)}
    return sorted(size for size in sizes if size >= seen)


class _KeptClassifier(LocalExecutor):
    """Prepares its classifier at the first start, and keeps it for more inputs."""

    def start(self, job: Job, say: Say) -> Runtime:
        self._ready_before = self._ready_before or job.subject.prepare(say)
        return super().start(job, say)


def _smoothed(model: Any, architecture: str | None, settings: dict[str, Any]) -> Subject:
    """One of the models, with a seed of its own, so that its noise is not that of `certify`."""
    if isinstance(model, (str, Path)) and Path(model).is_file():
        settings = settings | {"weights": model}
        model = architecture
    subject = subject_given(model, settings)
    return subject.with_settings(seed=key_for(subject.seed, "compare"))


def _names(a: Any, b: Any) -> list[str]:
    """Different names of two models that can be names of folders."""
    names = []
    for given in (a, b):
        model = given.model if isinstance(given, Subject) else given
        name = getattr(model, "name", type(model).__name__)
        if isinstance(model, (str, Path)):
            name = Path(model).stem if Path(model).is_file() else str(model)
        names.append(re.sub(r"[^\w.-]+", "-", name))
    if names[0] == names[1]:
        return [f"{names[0]}-a", f"{names[1]}-b"]
    return names
