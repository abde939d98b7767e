"""The subject of a certificate: a classifier as it is run on inputs of one shape.

A certificate is about the classifier with its denoiser, its noise, its number format and its batch size. All but the
batch size are settled before a `Subject` is made, so every task sees the same ones. The batch size is 0 until it is
measured, unless the caller gives it; `Subject.prepare` settles it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.base import Dataset
from smoothcert.device.runtime import Runtime
from smoothcert.device.setup import SetupClock
from smoothcert.device.setup import say_nothing as say_nothing
from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import Classifier, check_values
from smoothcert.models.outputs import answers
from smoothcert.noises import Gaussian, Noise
from smoothcert.noises.gaussian import is_gaussian
from smoothcert.plans import Rule
from smoothcert.sampling.engine import Engine, Input, window
from smoothcert.sampling.sampler import Sampler, VoteCounter
from smoothcert.sampling.streams import HostStream, Segment, key_for
from smoothcert.smoothed.prepare import prepare

Say = Callable[[str], None]
"""A function that shows a message to the user."""

_GRID_ROUNDING = 2.0**-22
"""How far a value up to 1 may be from a multiple of the step: four float32 roundings. Values that were scaled, or
normalised and scaled back, need half of that. The noise is added to the multiple, so the certificate is about it."""
_CHECKED_COPIES = 61  # of the example; a prime number, so that no pattern of rows repeats with them
_COARSEST = 1e-3
"""How far rounding may move an input, in the norm of the radius, and how far apart neighbouring numbers may be where
noise is added; as a share of the deviation of the noise."""
_ORDERS = {"l1": 1.0, "linf": inf}
"""Of the norms that are not l2. What rounding does is not a change of one kind (a shift, a brightness), so it is
measured in l2 if the radius is about such a change."""


@dataclass(frozen=True)
class Subject:
    """A classifier as it is run on inputs of one shape.

    Args:
        classifier: The base classifier, with the denoiser in front of it if there is one.
        noise: The smoothing noise, for this shape.
        runtime: How the classifier is run. The batch size is 0 until it is measured.
        example: An input. Its values matter only for `answers`.
        seed: The key of the noise.
        settings: Further settings that change what is certified, by name, as the manifest records them.
        flexible: Whether batches that are not full may be smaller, where the classifier can take them.
    """

    classifier: Classifier
    noise: Noise
    runtime: Runtime
    example: Tensor
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    flexible: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an input without noise."""
        return tuple(self.example.shape)

    @property
    def noisy_shape(self) -> tuple[int, ...]:
        """The shape of a noisy input, which is what the classifier takes."""
        return self.noise.draw.output_shape(self.shape)

    def read(self, dataset: Dataset, id: int, *, known_labels: bool = False) -> Input:
        """Read one input, and check that it can be certified."""
        try:
            x, label = dataset[id]
        except InvalidInput as error:
            raise InvalidInput(
                f"{error.message}; you can leave input {id} out with {setting('ids')}"
            ) from error
        which = f"input {id} of {dataset.name}"
        if tuple(x.shape) != self.shape:
            raise InvalidInput(
                f"{which} has shape {tuple(x.shape)}, but the first input has {self.shape}"
            )
        if not bool(x.isfinite().all()):
            raise InvalidInput(
                f"{which} has NaN or infinite values: leave it out with {setting('ids')}"
            )
        check_values(self.classifier.values, x, which)
        _check_grid(which, x, self.noise)
        _check_spacing(which, x, self.noise, double=self.runtime.dtype == "float64")
        _check_rounding(which, x, self.noise, self.runtime.dtype)
        self.check_label(dataset, id, label, needed=known_labels)
        return id, x, None if label < 0 else label

    def check_label(self, dataset: Dataset, id: int, label: int, *, needed: bool) -> None:
        """Refuse a label that the model does not know and, where one is needed, an unknown one."""
        if needed and label < 0:
            why = f"has no label, and {setting('known_labels', True)} needs one for every input"
        elif label >= self.classifier.classes:
            why = f"has label {label}, but the model knows only the classes 0 to {self.classifier.classes - 1}"
        else:
            return
        raise InvalidInput(f"input {id} of {dataset.name} {why}")

    def answers(self) -> list[tuple[int, float]] | None:
        """The answers of the classifier to a few fixed noisy inputs, by which a changed classifier is noticed."""
        shape = self.noisy_shape
        return answers(
            self.classifier.module,
            self.example if shape == self.shape else torch.zeros(shape),
            self.runtime.torch_device,
            self.runtime.torch_dtype,
            classes=self.classifier.classes,
        )

    @cached_property
    def prepared(self) -> Prepared:
        """This subject, prepared once: `Smoothed` keeps its subjects from call to call."""
        return self.prepare()

    def prepare(self, say: Say = say_nothing, clock: SetupClock | None = None) -> Prepared:
        """Check the classifier, move it to its device and make it fast; the batch size is chosen here."""
        classifier, runtime = self.classifier, self.runtime
        noisy = torch.empty((_CHECKED_COPIES, *self.noisy_shape))
        stream = HostStream(key_for(self.seed, "check"), self.noise.draw)
        stream.write(
            noisy, self.example[None].float(), [Segment(0, 0, 0, _CHECKED_COPIES)], torch.empty(0)
        )
        shape, draw = self.noisy_shape, self.noise.draw
        classify, runtime = prepare(
            classifier.module,
            classifier.classes,
            shape,
            runtime,
            say,
            clock,
            draw=draw,
            noisy=noisy,
        )
        # Compiled code and CUDA graphs take one batch size only.
        flexible = (
            self.flexible and runtime.compile == "none" and runtime.torch_device.type != "cuda"
        )
        return Prepared(replace(self, runtime=runtime, flexible=flexible), classify)


@dataclass(frozen=True)
class Prepared:
    """A subject that is ready to classify noisy batches.

    Args:
        subject: The subject, whose runtime says what really runs, and which is flexible only if `classify` is.
        classify: A function from a noisy batch to one class per row.
    """

    subject: Subject
    classify: Callable[[Tensor], Tensor]

    def engine(self, plan: Rule, *, seed: int | None = None) -> Engine:
        """An engine that certifies inputs by a plan; `seed` replaces the one of the subject."""
        subject, batch = self.subject, self.subject.runtime.batch
        counter = VoteCounter(
            self.classify,
            subject.runtime,
            noise=subject.noise,
            shape=subject.shape,
            classes=subject.classifier.classes,
            slots=window(plan.smallest_request or batch, batch, subject.shape),
            seed=subject.seed if seed is None else seed,
            flexible=subject.flexible,
        )
        return Engine(Sampler(counter), plan=plan, noise=subject.noise)


def check_shape(classifier: Classifier, noise: Noise, shape: tuple[int, ...], name: str) -> None:
    """Refuse inputs with another number of channels; warn about another size, which most networks accept.

    A grey image would pass through the normalisation of a colour model, with the same noise in all channels.
    """
    expected, given = classifier.input_shape, noise.draw.output_shape(shape)
    if expected is None or expected == given:
        return
    if given != shape:
        raise InvalidInput(
            f"{noise} turns inputs of shape {shape} into {given}, but {classifier.name} takes {expected}: use weights "
            "that were trained with this noise"
        )
    if (len(expected), expected[:1]) != (len(given), given[:1]):
        raise InvalidInput(
            f"{classifier.name} takes inputs of shape {expected}, but those of {name} have shape {given}"
            + (
                ": a batch of images has the shape (n, channels, height, width)"
                if len(given) < len(expected)
                else ""
            )
        )
    warnings.warn(
        f"{classifier.name} was made for inputs of shape {expected}, those of {name} have shape {given}",
        stacklevel=3,
    )


def warn_about_training(subject: Subject) -> None:
    """Warn if a classifier was trained for something else. Its radii are true, but often small."""
    classifier, noise, how = subject.classifier, subject.noise, None
    if (before := classifier.trained_noise) is not None:
        if not before.same_kind(noise) and not (
            isinstance(noise, Gaussian) and is_gaussian(before, noise.sigma)
        ):
            how = f"with {before} and is certified with {noise}"
    elif (trained := classifier.trained_sigma) is not None and abs(
        trained - noise.deviation
    ) > 1e-6:
        strength = f"with noise of deviation {trained:g}" if trained else "without noise"
        how = f"{strength} and is certified with {noise}"
    front = classifier.trained_denoiser
    if front is not None and front != (classifier.denoiser and classifier.denoiser["hash"]):
        how = f"behind a denoiser and is certified {'behind another one' if classifier.denoiser else 'without one'}"
    if how is not None:
        warnings.warn(
            f"{classifier.name} was trained {how}; radii are true, but often small", stacklevel=4
        )


def _check_grid(which: str, x: Tensor, noise: Noise) -> None:
    """Raise if a noise needs values on a grid and the input has others."""
    if noise.grid is None:
        return
    step, largest = noise.grid
    exact = x.double()
    off_grid = ((exact / step).round() * step - exact).abs() > _GRID_ROUNDING * exact.abs().clamp(
        min=1
    )
    if largest is not None:
        off_grid |= (x < 0) | (x > largest)
    if bool(off_grid.any()):
        top = "" if largest is None else f" from 0 to {largest:g}"
        raise InvalidInput(
            f"{which} has the value {float(x[off_grid][0]):g}, but {noise} needs multiples of 1/{1 / step:.6g}{top}: "
            "round the inputs, or use another noise"
        )


def too_far_rounded(x: Tensor, noise: Noise, dtype: str) -> float | None:
    """How far float32 moves an input, in the norm of the radius; None if that is negligible.

    Noise is added in float32 unless the classifier runs in float64, so a certificate is about the input as float32
    holds it. That is what users of 8-bit images mean: k / 255 has no last digit in any format. But the distance from
    the input that the caller gave is the norm over all of its numbers, and it must be negligible beside the noise.

    Noise on a grid is added to the exact multiple, and a noise that adds nothing to a value moves none.

    Args:
        x: The input as the caller gave it.
        noise: The noise.
        dtype: The number format of the run.
    """
    if x.dtype != torch.float64 or dtype == "float64" or noise.grid or not noise.deviation:
        return None
    change = x.float().double() - x
    order = _ORDERS.get(noise.norm, 2.0)
    moved = float(torch.linalg.vector_norm(change, order))
    return None if moved <= _COARSEST * noise.deviation else moved


def _check_rounding(which: str, x: Tensor, noise: Noise, dtype: str) -> None:
    moved = too_far_rounded(x, noise, dtype)
    if moved is not None:
        raise InvalidInput(
            "rounded-input",
            "{which} is in float64, and rounding it to float32 moves it by {moved:.2g} in {norm}, more "
            "than {allowed:.2g}, a thousandth of the deviation of {noise}: shift or scale the inputs, "
            "give {float64}, or certify the rounded inputs instead by giving them in float32",
            which=which,
            moved=moved,
            norm=noise.norm if noise.norm in _ORDERS else "l2",
            allowed=_COARSEST * noise.deviation,
            noise=noise,
            float64=setting("dtype", "float64"),
        )


def _check_spacing(which: str, x: Tensor, noise: Noise, *, double: bool) -> None:
    """Refuse an input with values so large that the number format cannot tell it from inputs that are not near.

    The certificate would be about the rounded input, and the noise would move it in steps of the rounding.
    """
    if not noise.deviation:  # it adds nothing to a value
        return
    largest = float(x.abs().max())
    name, kind = ("float64", np.float64) if double else ("float32", np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        spacing = float(np.spacing(kind(largest)))
    needed = _COARSEST * noise.deviation if noise.grid is None else noise.grid[0] / 2
    if not spacing <= needed:
        advice = "" if double else f", or give them in float64, with {setting('dtype', 'float64')}"
        raise InvalidInput(
            f"{which} has a value of size {largest:.9g}, where neighbouring numbers in {name} are {spacing:.2g} apart, "
            f"which is too coarse for {noise}: shift or scale the inputs{advice}"
        )
