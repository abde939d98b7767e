"""Explain certificates in pictures: the input, its noisy copies, the votes, and the radius beside other distances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.data import Dataset
from smoothcert.device.placement import place
from smoothcert.device.runtime import Runtime, blank
from smoothcert.errors import InvalidInput
from smoothcert.models import Classifier
from smoothcert.models.denoisers.denoised import Denoised, DenoisedFunction
from smoothcert.models.seeded import SeededRows
from smoothcert.plans import Certificate
from smoothcert.report.charts import evenly
from smoothcert.report.distances import NORMS, distance
from smoothcert.report.explained import Explained, check_picture, explained
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import Run, open_run
from smoothcert.sampling.packing import Segment
from smoothcert.sampling.streams import stream_for
from smoothcert.smoothed.prepare import prepare
from smoothcert.tasks.certify import load_again

_MOST_COMPARED = 500
"""Inputs among which the nearest one with another label is searched."""


def explain(
    run: Run | str | Path,
    ids: Sequence[int],
    *,
    model: str | Classifier | Callable[..., Any] | None = None,
    weights: str | Path | None = None,
    data: Any = None,
    stochastic: bool = False,
    denoiser: str | Path | nn.Module | None = None,
    copies: int = 6,
) -> list[Explained]:
    """Explain certificates of a run in pictures, for `write_report`.

    The noisy copies are the first samples of the run itself, if this machine has a device of the same kind. Of a noise
    whose outcomes are counted one by one, they are spread over all outcomes, because neighbours look alike.

    Args:
        run: The run, or its folder.
        ids: The inputs to explain.
        model: The model, if it is not where the manifest says, or if it is the user's own code, because code that a
            run names is never executed.
        weights: Its weights, if they are not where the manifest says.
        data: The data, if it is not where the manifest says.
        stochastic: The value that `certify` had.
        denoiser: The denoiser in front of the model, for the same reasons as `model`.
        copies: Noisy copies to show for each input.

    Raises:
        InvalidInput: The run has no such input, its model or data is not available, or its inputs are no pictures.
    """
    run = run if isinstance(run, Run) else open_run(run)
    copies = _check.whole("copies", copies, least=1)
    if not len(run):
        raise InvalidInput(f"{run.path} has no certificates yet, so there is nothing to explain")
    if unknown := [id for id in ids if id not in run]:
        raise InvalidInput(
            f"{run.path} has no certificate of input {unknown[0]}; it has {len(run)}, for inputs "
            f"{run.id.min()} to {run.id.max()}"
        )
    classifier, dataset = load_again(
        run.manifest,
        model=model,
        weights=weights,
        data=data,
        stochastic=stochastic,
        denoiser=denoiser,
        purpose="explain",
    )
    inputs = {id: _picture(dataset, id) for id in dict.fromkeys(ids)}
    if not inputs:
        raise InvalidInput("there is nothing to explain: give the ids of some inputs")
    drawer = _Drawer(run.manifest, classifier, copies, next(iter(inputs.values())))
    certificates = [run[id] for id in inputs]
    nearest = _nearest(dataset, certificates, inputs)
    made = []
    for certificate in certificates:
        x = inputs[certificate.id]
        noisy, answers, denoised = drawer.draw(certificate.id, x)
        made.append(
            explained(
                certificate,
                x.double().numpy(),
                run=run.name,
                noisy=noisy,
                answers=answers,
                rounded=x.to(drawer.noisy.dtype).double().numpy(),
                denoised=denoised,
                class_names=dataset.class_names,
                nearest=nearest.get(certificate.id),
                same_noise=drawer.same_noise,
            )
        )
    return made


class _Drawer:
    """Draws some samples of a run again.

    Args:
        manifest: The manifest of the run.
        classifier: Its classifier.
        copies: Samples of each input.
        example: One of the inputs.
    """

    def __init__(self, manifest: Manifest, classifier: Classifier, copies: int, example: Tensor) -> None:
        m = manifest
        available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        here = available.get(m.device, True)
        self.same_noise = here or m.device != "cuda"  # only CUDA draws its noise in another way
        self.shape = tuple(example.shape)
        noise = m.noise.for_shape(self.shape)
        copies = min(copies, noise.outcomes or copies)
        self.samples = [i * (noise.outcomes or copies) // copies for i in range(copies)]
        runtime = Runtime.resolve(m.device if here else "cpu", m.dtype, "none", copies)
        output = noise.draw.output_shape(self.shape)
        self.classify, self.runtime = prepare(classifier.module, classifier.classes, output, runtime)
        self.stream = stream_for(runtime.torch_device, m.seed, noise.draw)
        self.noisy = blank(output, runtime)
        self.denoiser: Callable[[Tensor], Tensor] | None = None
        module = classifier.module
        inner = module.model if isinstance(module, SeededRows) else module
        if isinstance(inner, (Denoised, DenoisedFunction)):
            # The denoiser runs first, so on the seed of the row it draws the same random numbers as in the run.
            front = SeededRows(inner.denoiser) if isinstance(module, SeededRows) else inner.denoiser
            self.denoiser = place(front, runtime, output)

    @torch.inference_mode()
    def draw(self, id: int, x: Tensor) -> tuple[list[NDArray[np.float64]], list[int], list[NDArray[np.float64]]]:
        """Noisy copies, the answers of the classifier to them, and the denoised copies if there is a denoiser."""
        inputs = x[None].to(self.runtime.torch_device).contiguous(memory_format=self.runtime.memory_format(self.shape))
        rows = torch.zeros((3, len(self.samples)), dtype=torch.int32, device=self.noisy.device)  # slot, id and sample
        rows[1], rows[2] = id, torch.tensor(self.samples)
        self.stream.write(self.noisy, inputs, [Segment(0, id, sample, 1) for sample in self.samples], rows)
        noisy = [copy[: len(x)] for copy in _arrays(self.noisy)]  # a noise may add channels, which mark missing pixels
        denoised = [] if self.denoiser is None else _arrays(self.denoiser(self.noisy.clone()))  # it may work in place
        return noisy, self.classify(self.noisy).tolist(), denoised


def _arrays(batch: Tensor) -> list[NDArray[np.float64]]:
    return list(batch.cpu().to(torch.float64, copy=True).numpy())


def _picture(dataset: Dataset, id: int) -> Tensor:
    x, _ = dataset[id]
    check_picture(x.numpy(), id)
    return x


def _nearest(
    dataset: Dataset, certificates: Sequence[Certificate], inputs: Mapping[int, Tensor]
) -> dict[int, tuple[float, int]]:
    """By id: the distance to the nearest input with another label, and how many inputs were compared."""
    asked = {c.id: c for c in certificates if c.label is not None and not c.abstained and c.noise.norm in NORMS}
    found: dict[int, list[float]] = {id: [] for id in asked}
    for number in evenly(len(dataset), _MOST_COMPARED) if asked else ():
        other, label = dataset[int(number)]
        for id, c in asked.items():
            if label not in (c.label, NO_CLASS) and other.numel() == inputs[id].numel():
                picture = other.double().numpy().reshape(inputs[id].shape)
                found[id].append(distance(picture, inputs[id].double().numpy(), c.noise.norm))
    return {id: (min(lengths), len(lengths)) for id, lengths in found.items() if lengths}
