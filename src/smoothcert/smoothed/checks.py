"""Checks of the inputs, before a classifier is certified on them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.base import Dataset
from smoothcert.errors import InvalidInput, setting, warn
from smoothcert.models.base import Classifier
from smoothcert.models.wrappers import Fit
from smoothcert.noises import Gaussian, Noise, Transformed
from smoothcert.noises.base import Shape
from smoothcert.noises.gaussian import is_gaussian
from smoothcert.statistics.metrics import evenly
from smoothcert.transformations.pictures import check_pictures

_GRID_ROUNDING = 2.0**-22
"""How far a value up to 1 may be from a multiple of the step: four float32 roundings. Values that
were scaled, or normalised and scaled back, need half of that. The noise is added to the multiple,
so the certificate is about it."""
_COARSEST = 1e-3
"""How far rounding may move an input, in the norm of the radius, and how far apart neighbouring
numbers may be where noise is added; as a share of the deviation of the noise."""
_ORDERS = {"l1": 1.0, "linf": inf}
"""Of the norms that are not l2. What rounding does is not a change of one kind (a shift, a
brightness), so it is measured in l2 if the radius is about such a change."""
_SAME_SIGMA = 1e-6
_FEWEST_ROWS = 20
_COMPARED_ROWS = 100
"""Rows of a table that are compared. Fewer do not tell how much a column varies."""
_MOST_UNEVEN = 20
"""How many times as much one column of a table may vary as another one, before we warn."""


def check_shape(
    classifier: Classifier, noise: Noise, shape: Shape, name: str, fit: Fit | None
) -> None:
    """Refuse inputs with another number of channels; warn about another size.

    Most networks accept another size. But a grey image would pass through the normalisation of a
    colour model, with the same noise in all channels.
    """
    if isinstance(noise, Transformed):
        check_pictures(shape, noise)
    expected = classifier.input_shape
    noisy = noise.draw.output_shape(shape)
    taken = noisy if fit is None else fit.shape(noisy)
    if expected is None or expected == taken:
        return
    if noisy != shape:
        raise InvalidInput(
            "other-noise-in-training",
            "{noise} turns inputs of shape {shape} into {noisy}, but {model} takes {expected}: use "
            "weights that were trained with this noise",
            noise=noise,
            shape=shape,
            noisy=noisy,
            model=classifier.name,
            expected=expected,
        )
    given = str(shape) if fit is None else f"{shape} ({taken} in the classifier)"
    same_channels = len(expected) == len(taken) and expected[:1] == taken[:1]
    if not same_channels:
        raise InvalidInput(
            "other-channels",
            "{model} takes inputs of shape {expected}, but those of {data} have shape "
            "{given}{hint}",
            model=classifier.name,
            expected=expected,
            data=name,
            given=given,
            hint=_channels_hint(expected, taken),
        )
    warn(
        f"{classifier.name} was made for inputs of shape {expected}, those of {name} have shape "
        f"{given}: {setting('resize', _size(expected))} resizes them inside of the classifier"
    )


def _channels_hint(expected: Shape, shape: Shape) -> str:
    """What to do about other channels."""
    if len(shape) < len(expected):
        return ": a batch of images has the shape (n, channels, height, width)"
    if {expected[0], shape[0]} != {1, 3}:
        return ""
    given = setting("channels", expected[0])
    if expected[1:] != shape[1:]:
        given += f" and {setting('resize', _size(expected))}"
    return f": {given} changes that inside of the classifier, and radii stay about the given input"


def _size(shape: Shape) -> int | str:
    """Height and width, as the setting `resize` takes them."""
    height, width = shape[-2:]
    return height if height == width else f"{height}x{width}"


def check_values_of_input(which: str, x: Tensor, noise: Noise, dtype: str) -> None:
    """Refuse an input that the noise or the number format of the run cannot hold.

    Args:
        which: The input, in words.
        x: The input, as the caller gave it.
        noise: The noise.
        dtype: The number format of the run.
    """
    if not bool(x.isfinite().all()):
        raise InvalidInput(
            "not-finite",
            "{which} has NaN or infinite values: leave it out with `ids`",
            which=which,
        )
    _check_grid(which, x, noise)
    _check_spacing(which, x, noise, double=dtype == "float64")
    _check_rounding(which, x, noise, dtype)


def _check_grid(which: str, x: Tensor, noise: Noise) -> None:
    """Refuse an input beside the grid of a noise that needs one."""
    if noise.grid is None:
        return
    step, largest = noise.grid
    exact = x.double()
    distance = ((exact / step).round() * step - exact).abs()
    off_grid = distance > _GRID_ROUNDING * exact.abs().clamp(min=1)
    if largest is not None:
        off_grid |= (x < 0) | (x > largest)
    if bool(off_grid.any()):
        raise InvalidInput(
            "off-grid",
            "{which} has the value {value:g}, but {noise} needs multiples of "
            "1/{levels:.6g}{range}: round the inputs, or use another noise",
            which=which,
            value=float(x[off_grid][0]),
            noise=noise,
            levels=1 / step,
            range="" if largest is None else f" from 0 to {largest:g}",
        )


def _check_spacing(which: str, x: Tensor, noise: Noise, *, double: bool) -> None:
    """Refuse an input with values so large that the number format rounds them coarsely.

    The certificate would be about the rounded input, and the noise would move it in steps of the
    rounding.
    """
    if not noise.deviation:  # it adds nothing to a value
        return
    largest = float(x.abs().max())
    number = np.float64 if double else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        spacing = float(np.spacing(number(largest)))
    needed = _COARSEST * noise.deviation if noise.grid is None else noise.grid[0] / 2
    if spacing <= needed:
        return
    advice = "" if double else f", or give them and the model in {setting('dtype', 'float64')}"
    raise InvalidInput(
        "value-too-large",
        "{which} has a value of size {value:.9g}, where neighbouring numbers in {dtype} are "
        "{spacing:.2g} apart, which is too coarse for {noise}: scale or shift the inputs{advice}",
        which=which,
        value=largest,
        dtype=number.__name__,
        spacing=spacing,
        noise=noise,
        advice=advice,
    )


def too_far_rounded(x: Tensor, noise: Noise, dtype: str) -> float | None:
    """How far float32 moves an input, in the norm of the radius; None if that is negligible.

    Noise is added in float32 unless the classifier runs in float64, so a certificate is about the
    input as float32 holds it. That is what users of 8-bit images mean: k / 255 has no last digit in
    any format. But the distance from the input that the caller gave is the norm over all of its
    numbers, and it must be negligible beside the noise.

    Noise on a grid is added to the exact multiple, and a noise that adds nothing to a value moves
    none.

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
            "{which} is in float64, and rounding it to float32 moves it by {moved:.2g} in {norm}, "
            "more than {allowed:.2g}, a thousandth of the deviation of {noise}: scale or shift "
            "the inputs, give `dtype=float64`, or certify the rounded inputs instead by giving "
            "them in float32",
            which=which,
            moved=moved,
            norm=noise.norm if noise.norm in _ORDERS else "l2",
            allowed=_COARSEST * noise.deviation,
            noise=noise,
        )


def warn_about_columns(dataset: Dataset, ids: Sequence[int], shape: Shape) -> bool:
    """Warn if columns of a table vary too differently for one sigma; return whether they do.

    Values in [0, 1] were scaled already, or they are pixels.
    """
    if len(shape) != 1 or not getattr(dataset, "in_memory", True):
        return False  # what the user's own data set reads is read once, when its turn comes
    rows: list[Tensor] = []
    for place in evenly(len(ids), _COMPARED_ROWS):
        with suppress(Exception):  # an input that cannot be read is reported when its turn comes
            rows.append(dataset[ids[place]][0])
    if len(rows) < _FEWEST_ROWS or any(tuple(x.shape) != shape for x in rows):
        return False
    table = torch.stack(rows).double()
    spread = table.std(0)
    varies = spread > 0  # not so for a column with NaN
    widest = int(torch.where(varies, spread, 0).argmax())
    narrowest = int(torch.where(varies, spread, inf).argmin())
    is_scaled = bool(((table >= 0) & (table <= 1)).all())
    if is_scaled or spread[widest] <= _MOST_UNEVEN * spread[narrowest]:
        return False
    warn(
        "uneven-columns",
        "{data}: the values of column {widest} have a standard deviation of {most:,g}, those of "
        "column {narrowest} one of {least:,g}, and one sigma is for all columns: scale them",
        data=dataset.name,
        widest=widest,
        most=float(f"{spread[widest]:.2g}"),
        narrowest=narrowest,
        least=float(f"{spread[narrowest]:.2g}"),
    )
    return True


def warn_about_training(classifier: Classifier, noise: Noise) -> None:
    """Warn if a classifier was trained for something else. Its radii are true, but often small."""
    difference = _difference_from_training(classifier, noise)
    if difference is not None:
        warn(f"{classifier.name} was trained {difference}; radii are true, but often small")


def _difference_from_training(classifier: Classifier, noise: Noise) -> str | None:
    """How a classifier was trained, in words, if it is certified for something else."""
    denoiser_hash = classifier.denoiser and classifier.denoiser["hash"]
    if classifier.trained_denoiser not in (None, denoiser_hash):
        other = "behind another one" if classifier.denoiser else "without one"
        return f"behind a denoiser and is certified {other}"
    transformation = classifier.trained_transformation
    if transformation is not None and type(transformation) is not type(noise):
        return f"for {transformation.norm} and is certified for {noise.norm}"
    trained = _other_noise_in_training(classifier, noise)
    return None if trained is None else f"{trained} and is certified with {noise}"


def _other_noise_in_training(classifier: Classifier, noise: Noise) -> str | None:
    """The noise in training, in words, if it is known and was another one."""
    trained_noise = classifier.trained_noise
    if trained_noise is not None:
        is_on_grid = isinstance(noise, Gaussian) and is_gaussian(trained_noise, noise.sigma)
        is_same = is_on_grid or trained_noise.same_kind(noise)
        return None if is_same else f"with {trained_noise}"
    sigma = classifier.trained_sigma
    if sigma is None or abs(sigma - noise.deviation) <= _SAME_SIGMA:
        return None
    return f"with noise of deviation {sigma:g}" if sigma else "without noise"
