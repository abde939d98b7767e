"""Training methods. To add one, write a frozen dataclass with an `objective` and list it in METHODS."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Gaussian, Noise
from smoothcert.training.methods.base import Method
from smoothcert.training.methods.classifiers import (
    Augmentation,
    Consistency,
    Finetune,
    Macer,
    SmoothAdv,
)
from smoothcert.training.methods.denoiser import Denoising

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (Augmentation, Consistency, Macer, SmoothAdv, Finetune, Denoising)
}
"""The training methods by name."""


def method_named(
    name: str, *, sigma: float | None = None, noise: Noise | None = None, **constants: Any
) -> Method:
    """A training method by its name.

    Args:
        name: "gaussian", "consistency", "macer", "smoothadv", "finetune" or "denoiser".
        sigma: The standard deviation of Gaussian noise. With 0, "gaussian" trains without noise.
        noise: The noise, instead of `sigma`. Only "gaussian" takes another one than Gaussian noise.
        constants: Constants of the method. Those that are missing or None have the values of the method's paper.

    >>> method_named("consistency", sigma=0.5, copies=4)
    Consistency(sigma=0.5, weight=10.0, copies=4, entropy_weight=0.5)
    """
    kind = METHODS[_check.one_of("method", name, tuple(METHODS))]
    given = {key: value for key, value in constants.items() if value is not None}
    for key in given:
        having = [
            other.name
            for other in METHODS.values()
            if key in {field.name for field in fields(other)}
        ]
        if name not in having:
            owners = f": that is for {' or '.join(having)}" if having else ""
            raise InvalidInput(f"method {name} has no {key}{owners}")
    if noise is None and sigma == 0 and kind is Augmentation:
        return Augmentation(0.0)
    if noise is None or isinstance(noise, Gaussian):
        return kind.published(
            _check.between("sigma", sigma if noise is None else noise.sigma, 0), **given
        )
    if kind is not Augmentation:
        others = f"{setting('sigma')}, or {setting('method', 'gaussian')}"
        raise InvalidInput(
            f"method {name} trains with Gaussian noise only, not with {noise}: give {others}"
        )
    return Augmentation(noise.deviation, noise)
