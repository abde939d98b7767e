"""The settings that determine the weights of a training run, and schedules of the learning rate."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

from smoothcert import _check
from smoothcert._registry import describe
from smoothcert.models.architectures import bundled_name
from smoothcert.noises.transformed import Transformed
from smoothcert.training.methods.base import Method

_ONECYCLE_WARM_UP = 0.3  # the share of the steps in which the rate rises
_ONECYCLE_START = 1 / 25  # the factor at the first step


def cosine(done: float) -> float:
    """Fall from 1 to 0 along half a cosine.

    >>> cosine(0.5)
    0.5
    """
    return (1 + math.cos(math.pi * done)) / 2


def step(done: float) -> float:
    """Divide by ten after each third of the training, as in the usual 30 of 90 epochs.

    >>> step(0.5)
    0.1
    """
    return 0.1 ** math.floor(3 * done)


def onecycle(done: float) -> float:
    """Rise from 1/25 to 1 and fall to 0, along half a cosine each (Smith & Topin 2018).

    >>> onecycle(0.3)
    1.0
    """
    if done < _ONECYCLE_WARM_UP:
        return 1 - (1 - _ONECYCLE_START) * cosine(done / _ONECYCLE_WARM_UP)
    return cosine((done - _ONECYCLE_WARM_UP) / (1 - _ONECYCLE_WARM_UP))


SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": cosine,
    "step": step,
    "onecycle": onecycle,
}
"""The schedules by name. Each takes the share of the steps that are done, in [0, 1)."""


@dataclass(frozen=True)
class Recipe:
    """How to train a network, apart from the data and the machine.

    Args:
        architecture: A bundled architecture, such as "cifar-resnet110", or "unet-small" for a
            denoiser. Training that starts from a given classifier takes any model name, as in
            "torchvision:resnet50".
        method: The training method, with its constants and the noise.
        epochs: How often training goes through the data.
        batch: Inputs per step.
        learning_rate: The highest learning rate. By default, the one of the method's paper.
        schedule: How the learning rate changes: "cosine", "step" or "onecycle". By default, the one
            of the method.
        momentum: The momentum of SGD, or of the first moment of AdamW.
        weight_decay: The factor of the L2 penalty of SGD, or of the weight decay of AdamW.
        seed: Determines the first weights, the order of the inputs, the augmentation and the noise.
        transformation: Each picture is turned or zoomed by a random amount up to its largest one,
            and masked, before noise is added. Its own noise is that of the method.

    >>> from smoothcert.training import Consistency, Recipe
    >>> Recipe("cifar_resnet110", Consistency.published(0.5), epochs=60).architecture
    'cifar-resnet110'
    """

    architecture: str
    method: Method
    epochs: int
    batch: int = 256
    learning_rate: float | None = None
    schedule: str | None = None
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0
    transformation: Transformed | None = None

    def __post_init__(self) -> None:
        if ":" not in self.architecture:  # a bundled network; others come as a classifier
            name = bundled_name(self.architecture)
            _check.one_of("architecture", name, tuple(self.method.architectures))
            object.__setattr__(self, "architecture", name)
        for default in ("learning_rate", "schedule"):
            if getattr(self, default) is None:
                object.__setattr__(self, default, getattr(self.method, default))
        _check.fields(self, _check.whole, "epochs", "batch", least=1)
        _check.fields(self, _check.whole, "seed")
        _check.fields(self, _check.between, "learning_rate", low=0)
        _check.fields(self, _check.between, "momentum", low=0, high=1)
        _check.fields(self, _check.at_least, "weight_decay", low=0)
        _check.one_of("schedule", self.schedule, tuple(SCHEDULES))

    def settings(self) -> dict[str, Any]:
        """All settings in one flat dictionary, with the name and the constants of the method."""
        settings = asdict(self) | {"method": self.method.name} | asdict(self.method)
        for name, noise in (("noise", self.method.noise), ("transformation", self.transformation)):
            settings.pop(name, None)
            if noise is not None:
                settings[name] = json.dumps(describe(noise))
        return settings

    def rate(self, done: float) -> float:
        """The learning rate at some point of the training.

        Args:
            done: The share of all steps that are done, from 0 to 1.
        """
        return cast(float, self.learning_rate) * SCHEDULES[cast(str, self.schedule)](done)
