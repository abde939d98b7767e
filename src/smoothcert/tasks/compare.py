"""`compare`: is B as robust as A? For two runs, or for two models that are certified until the answer is clear."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from smoothcert._files import write_output
from smoothcert.data import find_dataset, select_ids
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, setting
from smoothcert.executors import Job, LocalExecutor
from smoothcert.plans import AtRadii
from smoothcert.plans.pilot import Bound
from smoothcert.runs.comparison import Comparison, compare_runs
from smoothcert.runs.journal import FILE, Journal
from smoothcert.runs.progress import Progress
from smoothcert.runs.run import open_run
from smoothcert.runs.table import duration
from smoothcert.sampling.streams import key_for
from smoothcert.smoothed import Settings, Smoothed
from smoothcert.smoothed.subject import Say
from smoothcert.statistics.metrics import CONFIDENCE
from smoothcert.tasks.certify import certify
from smoothcert.tasks.request import smoothed_given
from smoothcert.tasks.survey import order

_FIRST_INPUTS = 50
_GROWTH_PER_LOOK = 1.25
"""How many times as many inputs the next look at the difference has."""
_MOST_LOOKS = 80


def compare(
    a: Any,
    b: Any,
    data: Any = None,
    labels: Any = None,
    *,
    radius: float | Sequence[float] | None = None,
    margin: float = 0.0,
    confidence: float = CONFIDENCE,
    out: str | Path | None = None,
    samples: int = 100_000,
    alpha: float = 0.001,
    bound: Bound = "binary",
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    model: str | None = None,
    on_part: Callable[[Comparison], None] = lambda comparison: None,
    **settings: Unpack[Settings],
) -> Comparison:
    """Compare two runs on their common inputs, or two models on the same data.

    Models are certified at the radii, on more and more inputs in random order, until the difference is clear at every
    radius or the inputs are used up. Both runs are kept in `out`, and the same call resumes. The intervals allow for
    the choice of when to stop.

    Args:
        a: What B is compared with: results or their folder or file; with `data`, a model as for `certify`, a
            `Smoothed`, or a checkpoint.
        b: The same for B.
        data: The data, for models.
        labels: The labels, if `data` holds only inputs.
        radius: The radius of certified accuracy, or several. The intervals then hold together. Default for runs: those
            that the plans decide, or those of a table.
        margin: How many points of certified accuracy B may lose and still count as not worse. Default: 0, which asks
            for a difference in either direction.
        confidence: The confidence of the intervals. It has nothing to do with the alpha of a certificate.
        out: models: The folder of both runs.
        samples: models: The ceiling for each input. With few samples, what so few certify is compared.
        alpha: models: The largest probability that one certificate is wrong.
        bound: models: "binary", or "runner-up", which certifies more.
        ids: models: The inputs to choose from, as for `certify`.
        skip: models: Choose from every `skip`-th input.
        limit: models: Choose from the first inputs.
        model: models: The architecture of checkpoints that do not state it.
        on_part: models: Called with the comparison so far whenever inputs were added.
        **settings: models: The settings of `Smoothed`, such as `sigma=`, for those that are not one.

    Returns:
        The comparison. `write_report` makes a page of it.
    """
    about: dict[str, Any] = {"radius": radius, "margin": margin, "confidence": confidence}
    if data is None:
        if settings or any(given is not None for given in (out, ids, skip, limit, model)):
            raise InvalidInput(
                f"to compare models, give {setting('data')} as well; runs need no such settings"
            )
        return compare_runs(a, b, **about)
    if radius is None or out is None:
        missing = setting("radius", "R") if radius is None else setting("out", "DIR")
        raise InvalidInput(f"to compare models, give {missing} as well")
    if settings.get("weights") is not None:
        raise InvalidInput(
            f"{setting('weights')} would be for both models: give the checkpoints as the two models"
        )
    plan = AtRadii(
        tuple(np.atleast_1d(radius)), samples=samples, alpha=alpha, bound=bound, known_labels=True
    )
    dataset = find_dataset(data, labels)
    models = [_smoothed(one, model, settings) for one in (a, b)]
    chosen = select_ids(len(dataset), ids=ids, skip=skip, limit=limit)
    shuffled = order(chosen, models[0].seed)
    folders = [Path(out) / name for name in _names(a, b)]
    jobs = list(zip(models, folders, (_Kept(), _Kept()), strict=True))
    before = min(
        len(shuffled), *(open_run(f).asked if (f / FILE).is_file() else 0 for f in folders)
    )
    sizes = sorted(
        {
            min(int(_FIRST_INPUTS * _GROWTH_PER_LOOK**part), len(shuffled))
            for part in range(_MOST_LOOKS)
        }
    )
    for size in (size for size in sizes if size >= before):
        part: dict[str, Any] = {"plan": plan, "ids": shuffled[:size], "progress": Progress()}
        for smoothed, folder, executor in jobs:
            certify(smoothed, data, labels, out=folder, executor=executor, **part)
            with Journal(folder, write=True) as journal:
                journal.write_manifest({"until_clear": True})
        found = compare_runs(*folders, **about)
        spent, took = (
            sum(r.samples.sum() for r in (found.a, found.b)),
            found.a.total_seconds + found.b.total_seconds,
        )
        costs = f"{len(found.a):,} of {len(shuffled):,} inputs in random order, {spent:,} samples and {duration(took)}"
        found = replace(found, notes=(*found.notes, f"This took {costs}."))
        write_output(Path(out) / "comparison.json", json.dumps(found.plain(), indent=1).encode())
        on_part(found)
        if all(difference.verdict != "undecided" for difference in found.differences):
            break
    return found


class _Kept(LocalExecutor):
    """Prepares its classifier at the first start, and keeps it for more inputs."""

    def start(self, job: Job, say: Say) -> Runtime:
        self._prepared_before = self._prepared_before or job.subject.prepare(say)
        return super().start(job, say)


def _smoothed(model: Any, architecture: str | None, settings: Settings) -> Smoothed:
    """One of the models, with a noise of its own for this purpose."""
    if isinstance(model, (str, Path)) and Path(model).is_file():
        model, settings = architecture, settings | {"weights": model}
    smoothed = smoothed_given(model, settings)
    return smoothed.asking(seed=key_for(smoothed.seed, "compare"))


def _names(a: Any, b: Any) -> list[str]:
    """Different names of two models that can be names of folders."""
    models = [m.model if isinstance(m, Smoothed) else m for m in (a, b)]
    words = [
        str(m) if isinstance(m, (str, Path)) else getattr(m, "name", type(m).__name__)
        for m in models
    ]
    plain = [
        re.sub(r"[^\w.-]+", "-", Path(word).stem if Path(word).is_file() else word)
        for word in words
    ]
    return (
        plain
        if plain[0] != plain[1]
        else [f"{name}-{letter}" for name, letter in zip(plain, "ab", strict=True)]
    )
