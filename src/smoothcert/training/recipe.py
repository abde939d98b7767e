"""What determines the weights that a training run ends with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

from smoothcert import _check
from smoothcert.classifiers.architectures import canonical_name
from smoothcert.training.methods import Method
from smoothcert.training.schedule import SCHEDULES


@dataclass(frozen=True)
class Recipe:
    """How to train; the data and the machine aside.

    >>> from smoothcert.training import Consistency, Recipe
    >>> Recipe("cifar_resnet110", Consistency.published(0.5), epochs=60).architecture
    'cifar-resnet110'
    """

    architecture: str
    method: Method
    epochs: int
    batch: int = 256
    learning_rate: float | None = None
    """The highest. Default: the method's own."""
    schedule: str = "cosine"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "architecture", canonical_name(self.architecture))
        _check.whole("epochs", self.epochs, least=1)
        _check.whole("batch", self.batch, least=1)
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", self.method.learning_rate)
        _check.between("learning_rate", self.learning_rate, 0)
        _check.one_of("schedule", self.schedule, tuple(SCHEDULES))
        _check.between("momentum", self.momentum, 0, 1)
        _check.at_least("weight_decay", self.weight_decay, 0)
        _check.whole("seed", self.seed)

    def settings(self) -> dict[str, Any]:
        """All of it, flat: a method is its name and its constants."""
        return asdict(self) | {"method": self.method.name} | asdict(self.method)

    def rate(self, done: float) -> float:
        """The learning rate when a share `done` of the steps is done."""
        return cast(float, self.learning_rate) * SCHEDULES[self.schedule](done)
