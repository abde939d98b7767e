"""Explain certificates in pictures: the input, its noisy copies, the votes, and the radius beside other distances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.data import Dataset
from smoothcert.device.runtime import place
from smoothcert.errors import InvalidInput
from smoothcert.models.denoisers.base import Denoised, DenoisedFunction
from smoothcert.models.outputs import SeededRows
from smoothcert.noises.base import VERSION
from smoothcert.plans import Certificate, SingleDraw
from smoothcert.report.explained import Explained
from smoothcert.report.pictures import NORMS, Picture, check_picture, distance
from smoothcert.runs.journal import Journal
from smoothcert.runs.run import Run, open_run
from smoothcert.sampling.streams import Segment
from smoothcert.smoothed import Subject
from smoothcert.statistics.metrics import evenly
from smoothcert.tasks.recorded_subject import Places, recorded_subject

_MOST_COMPARED = 500
"""Inputs among which the nearest one with another label is searched."""


def explain(
    run: Run | str | Path, ids: int | Sequence[int], *, copies: int = 6, **places: Unpack[Places]
) -> list[Explained]:
    """Explain certificates of a run in pictures, for `write_report`.

    The noisy copies are the first samples of the run itself, if this machine has a device of the same kind. Of a noise
    whose outcomes are counted one by one, they are spread over all outcomes, because neighbours look alike.

    Args:
        run: The run, or its folder.
        ids: The input to explain, or several.
        copies: Noisy copies to show for each input.
        **places: `model=`, `weights=`, `denoiser=` and `data=`: where these are now, as for `audit`.

    Raises:
        InvalidInput: The run has no such input, its model or data is not available, or its inputs are no pictures.
    """
    run = open_run(run)
    chosen = _check.ids(np.atleast_1d(ids))
    copies = _check.whole("copies", copies, least=1)
    if not len(run):
        raise InvalidInput(f"{run.path} has no certificates yet, so there is nothing to explain")
    if unknown := [id for id in chosen if id not in run]:
        raise InvalidInput(
            f"{run.path} has no certificate of input {unknown[0]}; it has {len(run)}, for inputs "
            f"{run.id.min()} to {run.id.max()}"
        )
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    device = run.manifest.device
    if not available.get(device, True):
        device = "cpu"
    plain = replace(run.manifest, compile="none", batch=copies, device=device)
    _, subject, dataset = recorded_subject(plain, places, purpose="explain")
    inputs = {id: dataset[id][0] for id in dict.fromkeys(chosen)}
    for id, x in inputs.items():
        check_picture(x.numpy(), id)
    if not inputs:
        raise InvalidInput("there is nothing to explain: give the ids of some inputs")
    # Only CUDA draws its noise in another way.
    same_device = device == run.manifest.device or run.manifest.device != "cuda"
    same_noise = same_device and run.manifest.drawing == VERSION
    certificates = {id: run[id] for id in inputs}
    nearest = _nearest(dataset, certificates.values(), inputs)
    return [
        Explained(
            run.name,
            certificates[id],
            x.double().numpy(),
            *drawn,
            class_names=dataset.class_names,
            nearest=nearest.get(id),
            values=run.manifest.values,
            attack=_attacked(run, id, x),
            same_noise=same_noise,
        )
        for (id, x), drawn in zip(inputs.items(), _draw(subject, inputs, copies), strict=True)
    ]


def _draw(
    subject: Subject, inputs: Mapping[int, Tensor], copies: int
) -> Iterator[tuple[list[Picture], list[int], Picture, list[Picture]]]:
    """For each input: noisy copies, the answers to them, the rounded input, and the copies after the denoiser."""
    outcomes = subject.noise.outcomes or copies
    copies = min(copies, outcomes)
    samples = [i * outcomes // copies for i in range(copies)]
    ready = subject.prepare()
    counter = ready.engine(SingleDraw(copies)).sampler.counter
    noisy = counter.noisy[:copies]
    denoiser: Callable[[Tensor], Tensor] | None = None
    module = subject.classifier.module
    inner = module.model if isinstance(module, SeededRows) else module
    if isinstance(inner, (Denoised, DenoisedFunction)):
        # The denoiser runs first, so on the seed of the row it draws the same random numbers as in the run.
        front = SeededRows(inner.denoiser) if isinstance(module, SeededRows) else inner.denoiser
        denoiser = place(front, ready.runtime, subject.noisy_shape)
    for id, x in inputs.items():
        with torch.inference_mode():
            counter.draw(x, [Segment(0, id, sample, 1) for sample in samples], noisy)
            shown = [
                copy[: len(x)] for copy in _arrays(noisy)
            ]  # a noise may add channels, which mark missing pixels
            denoised = (
                [] if denoiser is None else _arrays(denoiser(noisy.clone()))
            )  # it may work in place
            answers = counter.classify(noisy).tolist()
        yield shown, answers, x.to(noisy.dtype).double().numpy(), denoised


def _arrays(batch: Tensor) -> list[Picture]:
    return list(batch.cpu().to(torch.float64, copy=True).numpy())


def _attacked(run: Run, id: int, x: Tensor) -> tuple[Picture, int, float] | None:
    """The changed input that an attack found, the answer to it, and the length of the change."""
    with Journal(run.path) as journal:
        found = journal.attack(run.noise.norm, id)
    if found is None or found.changed is None or found.prediction is None or not found.distance:
        return None
    changed = np.frombuffer(found.changed, np.float32).astype(np.float64).reshape(tuple(x.shape))
    return changed, found.prediction, found.distance


def _nearest(
    dataset: Dataset, certificates: Iterable[Certificate], inputs: Mapping[int, Tensor]
) -> dict[int, tuple[float, int]]:
    """By id: the distance to the nearest input with another label, and how many inputs were compared."""
    asked = {
        c.id: c
        for c in certificates
        if c.label is not None and not c.abstained and c.noise.norm in NORMS
    }
    found: dict[int, list[float]] = {id: [] for id in asked}
    for number in evenly(len(dataset), _MOST_COMPARED) if asked else ():
        other, label = dataset[int(number)]
        for id, c in asked.items():
            if label not in (c.label, NO_CLASS) and other.numel() == inputs[id].numel():
                picture = other.double().numpy().reshape(inputs[id].shape)
                found[id].append(distance(picture, inputs[id].double().numpy(), c.noise.norm))
    return {id: (min(lengths), len(lengths)) for id, lengths in found.items() if lengths}
