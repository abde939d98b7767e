"""The type of a base classifier, and what its sources share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from smoothcert.errors import InvalidInput, first_line, setting
from smoothcert.noises import Noise

_ROUNDING = 1e-6


@dataclass(frozen=True)
class Classifier:
    """A function from inputs in [0, 1] to classes, and what is known about it.

    Args:
        module: The function. It takes a batch of floats of shape (b, ...) and returns logits of shape (b, classes) or
            integer labels of shape (b,). A torch module must be in evaluation mode, unless it is random by design.
        classes: The number of classes; 0 if it is not known yet.
        name: What the user gave as the model.
        input_shape: The shape of one input, if it is known.
        weights_hash: The SHA-256 hash of the weights, which identifies the classifier. For a torch module it covers the
            layers and the names, types, shapes and bytes of their state; for a file, its content. None for a function.
        trained_sigma: The standard deviation of the noise in training, if it is known.
        trained_noise: The noise in training, if it is known.
        values: The smallest and the largest value of an input; None if it may have any.
        denoiser: Name, hash and description of the denoiser in front of it, if there is one. The hash of the weights
            then covers both.
        trained_denoiser: The hash of the denoiser in front of it in training, if there was one.
    """

    module: Callable[[Tensor], Tensor]
    classes: int
    name: str
    input_shape: tuple[int, ...] | None = None
    weights_hash: str | None = None
    trained_sigma: float | None = None
    trained_noise: Noise | None = None
    values: tuple[float, float] | None = None
    denoiser: Mapping[str, str] | None = None
    trained_denoiser: str | None = None

    def __post_init__(self) -> None:
        if self.classes < 2 and self.classes != 0:
            raise InvalidInput(
                f"{self.name} has {self.classes} output, and a classifier needs at least two classes: return two "
                "logits, or labels"
            )


def not_loaded(spec: str, error: Exception) -> InvalidInput:
    """The error for published weights that could not be downloaded or read."""
    return InvalidInput(
        f"cannot get the weights of {spec} ({first_line(error).rstrip('.')}): check the name and the connection, give "
        f"{setting('weights', 'FILE')}, or {setting('weights', 'none')} for an untrained network"
    )


def check_classes(name: str, own: int | None, wanted: int | None) -> None:
    """Refuse another number of classes than a classifier or its published weights have."""
    if wanted not in (None, own):
        raise InvalidInput(
            f"{name} has {own} classes, not {wanted}: leave out {setting('classes')}, or give other weights"
        )


def check_values(values: tuple[float, float] | None, x: Tensor, which: str, taker: str = "the denoiser") -> None:
    """Refuse an input with values outside the range that a denoiser, or a method of training, is made for."""
    if values is None or not x.numel():
        return
    low, high = float(x.min()), float(x.max())
    if low < values[0] - _ROUNDING or high > values[1] + _ROUNDING:
        raise InvalidInput(
            f"{which} has values from {low:g} to {high:g}, and {taker} takes inputs with values from "
            f"{values[0]:g} to {values[1]:g}: scale the data"
        )
