"""Explain certificates in pictures.

They show the input, its noisy copies, the votes, and the radius beside other distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from smoothcert import _check
from smoothcert._settings import PLACE_NAMES
from smoothcert.data.base import values_of
from smoothcert.device.runtime import Runtime, place
from smoothcert.errors import InvalidInput
from smoothcert.models.denoisers.base import Denoised, DenoisedFunction
from smoothcert.models.wrappers import SeededRows, unseeded
from smoothcert.noises import Transformed
from smoothcert.noises.base import VERSION
from smoothcert.plans import SingleDraw
from smoothcert.report.explained import Explained
from smoothcert.report.pictures import Picture, check_picture
from smoothcert.runs.journal import Journal
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.run import Run, check_has_certificates, open_run
from smoothcert.sampling.streams import Segment
from smoothcert.smoothed import Subject
from smoothcert.tasks.recorded_subject import Places, recorded_subject
from smoothcert.transformations.pictures import transform


def explain(
    run: Run | str | Path, ids: int | Sequence[int], *, copies: int = 6, **places: Unpack[Places]
) -> list[Explained]:
    """Explain certificates of a run in pictures, for `write_report`.

    The noisy copies are the first samples of the run itself, if this machine has a device of the
    same kind. Of a noise whose outcomes are counted one by one, they are spread over all outcomes,
    because neighbours look alike.

    Args:
        run: The run, or its folder.
        ids: The input to explain, or several.
        copies: Noisy copies to show for each input.
        **places: `model=`, `weights=`, `denoiser=` and `data=`: where these are now, as for
            `audit`.

    Raises:
        InvalidInput: The run has no such input, its model or data is not available, or its inputs
            are no pictures.
    """
    _check.names("explain", places, PLACE_NAMES)
    run = open_run(run)
    chosen = _check.ids(np.atleast_1d(ids))
    copies = _check.whole("copies", copies, least=1)
    check_has_certificates(run, chosen)
    if not chosen:
        raise InvalidInput("no-ids", "there is nothing to explain: give the ids of some inputs")
    manifest = run.manifest
    if places.get("data") is None:
        _check_recorded_pictures(run, chosen)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    has_device = available.get(manifest.device, True)
    device = manifest.device if has_device else "cpu"
    plain = replace(manifest, compile="none", batch=copies, device=device)
    _, subject, dataset = recorded_subject(plain, places, purpose="explain")
    inputs = {id: _as_voted_on(dataset[id][0], subject) for id in dict.fromkeys(chosen)}
    for id, x in inputs.items():
        check_picture(x.numpy(), id)
    # Only CUDA draws its noise in another way.
    same_device = has_device or manifest.device != "cuda"
    groups = manifest.groups
    return [
        Explained(
            run.name,
            run[id],
            x.double().numpy(),
            *drawn,
            class_names=dataset.class_names if groups is None else groups.names,
            values=manifest.values,
            attack=_attacked(run, id, x),
            same_noise=same_device and manifest.drawing == VERSION,
        )
        for (id, x), drawn in zip(inputs.items(), _draw(subject, inputs, copies), strict=True)
    ]


def _check_recorded_pictures(run: Run, ids: Sequence[int]) -> None:
    """Refuse inputs that are no pictures, before the user has to give a model."""
    dataset = dataset_of([run.manifest])
    if dataset is not None:
        for id in ids:
            check_picture(values_of(dataset, id).astype(np.float64), id)


def _as_voted_on(x: Tensor, subject: Subject) -> Tensor:
    """The input without noise: under a transformation, the masked picture at amount 0."""
    if not isinstance(subject.noise, Transformed):
        return x
    return transform(x[None], subject.noise, torch.zeros(1, dtype=torch.float64))[0].to(x.dtype)


def _draw(
    subject: Subject, inputs: Mapping[int, Tensor], copies: int
) -> Iterator[tuple[list[Picture], list[int], Picture, list[Picture]]]:
    """For each input: noisy copies, the answers, the rounded input, and the denoised copies."""
    outcomes = subject.noise.outcomes or copies
    copies = min(copies, outcomes)
    samples = [i * outcomes // copies for i in range(copies)]
    ready = subject.prepare()
    counter = ready.engine(SingleDraw(copies)).sampler.counter
    noisy = counter.noisy[:copies]
    denoiser = _denoiser(subject, ready.runtime)
    for id, x in inputs.items():
        with torch.inference_mode():
            counter.draw(x, [Segment(0, id, sample, 1) for sample in samples], noisy)
            # A noise may add channels, which mark missing pixels.
            pictures = [copy[: len(x)] for copy in _arrays(noisy)]
            denoised = []
            if denoiser is not None:
                denoised = _arrays(denoiser(noisy.clone()))  # it may work in place
            answers = counter.classify(noisy).tolist()
        yield pictures, answers, x.to(noisy.dtype).double().numpy(), denoised


def _denoiser(subject: Subject, runtime: Runtime) -> Callable[[Tensor], Tensor] | None:
    """The denoiser in front of a classifier, on the device of the run."""
    module = subject.classifier.module
    composed = unseeded(module)
    if not isinstance(composed, (Denoised, DenoisedFunction)):
        return None
    denoiser: Callable[[Tensor], Tensor] = composed.denoiser
    if isinstance(module, SeededRows):
        # The denoiser runs first, so on the seed of a row it draws the same numbers as in the run.
        denoiser = SeededRows(denoiser)
    return place(denoiser, runtime, subject.noisy_shape)


def _arrays(batch: Tensor) -> list[Picture]:
    return list(batch.cpu().to(torch.float64, copy=True).numpy())


def _attacked(run: Run, id: int, x: Tensor) -> tuple[Picture, int, float] | None:
    """The changed input that an attack found, the answer to it, and the length of the change."""
    with Journal(run.path) as journal:
        attack = journal.attack(run.noise.norm, id)
    if attack is None or attack.changed is None or attack.prediction is None or not attack.distance:
        return None  # no attack succeeded, or the answer is wrong without a change
    changed = np.frombuffer(attack.changed, np.float32).astype(np.float64)
    return changed.reshape(tuple(x.shape)), attack.prediction, attack.distance
