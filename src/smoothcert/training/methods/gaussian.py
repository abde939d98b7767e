"""Gaussian augmentation (Cohen, Rosenfeld & Kolter 2019, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.training.methods.base import Objective, draw_noise, logits_of


def natural_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy -log f_y(x + delta) of noisy inputs, averaged over copies and batch.

    Args:
        logits: Logits of shape (copies, batch, classes).
        labels: The class y of each input.
    """
    return functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


@dataclass(frozen=True)
class Gaussian:
    """Minimise the cross-entropy at x + delta with delta ~ N(0, sigma^2 I).

    Args:
        sigma: The standard deviation of the noise.
    """

    name: ClassVar[str] = "gaussian"
    learning_rate: ClassVar[float] = 0.1
    sigma: float

    def __post_init__(self) -> None:
        _check.between("sigma", self.sigma, 0)

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """The method; it has no constants apart from the noise.

        Args:
            sigma: The standard deviation of the noise.
            constants: Must be empty.
        """
        return cls(sigma, **constants)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = logits_of(module, x + draw_noise(x, 1, self.sigma))
        return Objective(natural_loss(logits, labels), logits)
