"""Training methods, one file each.

To add one, write a frozen dataclass with a `name` and an `objective`. List it in METHODS if it is
part of smoothcert; one of the user is found by its name.
"""

from __future__ import annotations

from typing import Any

from smoothcert import _check
from smoothcert._registry import class_named, named_subclasses
from smoothcert.errors import InvalidInput
from smoothcert.noises import Gaussian, Noise
from smoothcert.training.methods.augmentation import Augmentation, Finetune
from smoothcert.training.methods.base import Method
from smoothcert.training.methods.catrs import CatRs
from smoothcert.training.methods.consistency import Consistency
from smoothcert.training.methods.denoiser import Denoising
from smoothcert.training.methods.macer import Macer
from smoothcert.training.methods.smoothadv import SmoothAdv
from smoothcert.training.methods.smoothmix import SmoothMix

METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        Augmentation,
        Consistency,
        Macer,
        SmoothAdv,
        SmoothMix,
        CatRs,
        Finetune,
        Denoising,
    )
}
"""Our training methods by name."""


def method_named(
    name: str, *, sigma: float | None = None, noise: Noise | None = None, **constants: Any
) -> Method:
    """A training method by its name.

    Args:
        name: "gaussian", "consistency", "macer", "smoothadv", "smoothmix", "catrs", "finetune" or
            "denoiser", or the name of a subclass of `Method` in code of the user.
        sigma: The standard deviation of Gaussian noise. With 0, "gaussian" trains without noise.
        noise: The noise, instead of `sigma`. Only "gaussian" takes another one than Gaussian noise.
        constants: Constants of the method. Those that are missing or None have the values of the
            method's paper.

    >>> method_named("consistency", sigma=0.5, copies=4)
    Consistency(sigma=0.5, weight=10.0, copies=4, entropy_weight=0.5)
    """
    methods: dict[str, type[Method]] = named_subclasses(Method, METHODS)
    kind: type[Method] = class_named("method", name, methods)
    constants = {key: value for key, value in constants.items() if value is not None}
    for constant in constants:
        owners = [key for key, other in methods.items() if constant in other.__dataclass_fields__]
        if name not in owners:
            raise InvalidInput(
                "not-a-constant",
                "method {method} has no {constant}: that is for {owners}",
                method=name,
                constant=constant,
                owners=" or ".join(owners) or "no method",
            )
    if isinstance(noise, Gaussian):
        sigma = noise.sigma
    elif noise is not None:
        return _with_noise(name, noise)
    if sigma == 0 and kind is Augmentation:
        return Augmentation(0.0)
    return kind.published(_check.between("sigma", sigma, 0), **constants)


def _with_noise(method: str, noise: Noise) -> Augmentation:
    """Augmentation with another noise than Gaussian noise. The other methods do not take it."""
    if method != Augmentation.name:
        raise InvalidInput(
            "only-gaussian-noise",
            "method {method} trains with Gaussian noise only, not with {noise}: give `sigma`, or "
            "`method={other}`",
            method=method,
            noise=noise,
            other=Augmentation.name,
        )
    return Augmentation(noise.deviation, noise)
