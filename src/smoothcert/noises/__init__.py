"""Noises: how an input is randomised, and which radius a probability proves. One file per family.

To add one, copy `gaussian.py` (or see `examples/own_noise.py` for a noise outside of this package).
"""

from smoothcert._registry import by_name, from_text, offered_subclasses
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.noises.base import Additive, Noise, dashed
from smoothcert.noises.base import Draw as Draw
from smoothcert.noises.gaussian import Gaussian, GridGaussian
from smoothcert.noises.l0 import Ablation, Discrete
from smoothcert.noises.l1 import Laplace, Splitting, Uniform
from smoothcert.noises.patches import Bands, Blocks
from smoothcert.noises.resolvable import (
    Blur,
    Brightness,
    Contrast,
    ContrastBrightness,
    Translation,
)
from smoothcert.noises.transformed import TRANSFORMATIONS, Rotation, Zoom
from smoothcert.noises.transformed import Transformed as Transformed

__all__ = [  # what is public, as smoothcert.NAME
    "Ablation",
    "Additive",
    "Bands",
    "Blocks",
    "Blur",
    "Brightness",
    "Contrast",
    "ContrastBrightness",
    "Discrete",
    "Gaussian",
    "GridGaussian",
    "Laplace",
    "Noise",
    "Rotation",
    "Splitting",
    "Translation",
    "Uniform",
    "Zoom",
]


def noise_from_text(text: str, *, option: str = "noise") -> Noise:
    """The noise with this name and these numbers, as in "gaussian:0.5".

    Args:
        text: The text.
        option: What has the text, for messages.
    """
    name = text.partition(":")[0]
    if name in TRANSFORMATIONS:
        raise InvalidInput(
            "noise-is-transformation",
            "{name} is no noise, but a transformation under one: give {sigma} and {transform}",
            name=name,
            sigma=setting("sigma", 0.25),
            transform=setting("transform", text),
        )
    classes = [cls for cls in offered_subclasses(Noise) if not issubclass(cls, Transformed)]
    known = by_name((dashed(cls.__name__), cls) for cls in classes)
    noise: Noise = from_text(option, text, known)
    return noise


def transformed(noise: Noise, transform: str) -> Transformed:
    """The noise on top of the transformation with this name, as in "rotation" or "rotation:45"."""
    if not isinstance(transform, str):
        raise InvalidInput(
            "not-a-transformation",
            'transform must be a text such as "rotation" or "zoom:25", got {value!r}; an object '
            "goes to noise=",
            value=transform,
        )
    option = either("transform", "--transform")
    result: Transformed = from_text(option, transform, TRANSFORMATIONS, noise, example="20")
    return result


def noise_of(noise: Noise | str | None, sigma: float | None) -> Noise:
    """The noise that the user asks for, by itself or by its sigma, before the device is known."""
    if (noise is None) == (sigma is None):
        raise InvalidInput(
            "noise-or-sigma",
            "give either `sigma` or `noise`, as in `noise=gaussian:0.5`",
        )
    if sigma is not None:
        return Gaussian(sigma)
    if isinstance(noise, str):
        return noise_from_text(noise)
    if not isinstance(noise, Noise):
        raise InvalidInput(
            "not-a-noise",
            'noise must be a noise such as "gaussian:0.5" or Gaussian(0.5), got {noise!r}{hint}',
            noise=noise,
            hint=f": did you mean sigma={noise}?" if isinstance(noise, int | float) else "",
        )
    return noise
