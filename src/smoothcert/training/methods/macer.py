"""MACER: maximising the certified radius (Zhai et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.training.methods.base import Objective, draw_noise, log_mean_probability, logits_of

_SMALLEST = 1e-7  # keeps quantiles finite; beyond it the radius exceeds every hinge in use, and has no gradient anyway


def radius_loss(logits: Tensor, labels: Tensor, *, sigma: float, inverse_temperature: float, hinge: float) -> Tensor:
    """How much the soft certified radius falls short of the hinge.

    With z the mean over copies of softmax(beta * logits), y the label and y' the best other class,

        xi = Phi^-1(z_y) - Phi^-1(z_y'),    sigma / 2 * max(gamma - xi, 0) where z_y > z_y', else 0,

    averaged over the batch.
    """
    z = (inverse_temperature * logits).softmax(-1).mean(0)
    of_label = labels[:, None] == torch.arange(z.shape[-1], device=z.device)
    own = z.masked_fill(~of_label, 0).amax(-1)
    other = z.masked_fill(of_label, 0).amax(-1)
    xi = torch.special.ndtri(_inside(own)) - torch.special.ndtri(_inside(other))
    return sigma / 2 * torch.where(own > other, (hinge - xi).relu(), 0).mean()


def _inside(probability: Tensor) -> Tensor:
    return probability.clamp(_SMALLEST, 1 - _SMALLEST)


@dataclass(frozen=True)
class Macer:
    """Cross-entropy of the smoothed soft classifier, plus lambda times the radius loss."""

    name: ClassVar[str] = "macer"
    learning_rate: ClassVar[float] = 0.01
    sigma: float
    weight: float
    """lambda"""
    copies: int = 16
    """k"""
    inverse_temperature: float = 16.0
    """beta"""
    hinge: float = 8.0
    """gamma"""

    def __post_init__(self) -> None:
        _check.between("sigma", self.sigma, 0)
        _check.at_least("weight", self.weight, 0)
        _check.whole("copies", self.copies, least=1)

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """As in the paper's CIFAR-10 experiments: k = 16, beta = 16, gamma = 8, lambda = 4 at sigma 0.5, else 12.

        (At sigma 1.0 the paper also holds the radius loss back until the learning rate first drops.)
        """
        return cls(sigma, **{"weight": 4.0 if sigma == 0.5 else 12.0} | constants)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        logits = logits_of(module, x + draw_noise(x, self.copies, self.sigma))
        shortfall = radius_loss(
            logits, labels, sigma=self.sigma, inverse_temperature=self.inverse_temperature, hinge=self.hinge
        )
        return Objective(functional.nll_loss(log_mean_probability(logits), labels) + self.weight * shortfall, logits)
