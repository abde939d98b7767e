"""Consistency regularisation (Jeong & Shin 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from smoothcert import _check
from smoothcert.training.methods.base import (
    BY_SIGMA,
    Method,
    Objective,
    log_mean_probability,
    natural_loss,
)


def consistency_loss(logits: Tensor, *, weight: float, entropy_weight: float) -> Tensor:
    """A loss that is small if all noisy copies of an input get the same, confident answer.

    With F_i = softmax(logits of copy i) and F the mean of the F_i over the copies,

        lambda * mean_i KL(F || F_i) + eta * H(F),

    averaged over the batch.
    """
    log_each = logits.log_softmax(-1)
    log_mean = log_mean_probability(logits)
    mean = log_mean.exp()
    divergence = (mean * (log_mean - log_each)).sum(-1).mean(0)
    entropy = -(mean * log_mean).sum(-1)
    return (weight * divergence + entropy_weight * entropy).mean()


@dataclass(frozen=True)
class Consistency(Method):
    """Gaussian augmentation with m noisy copies of each input, plus the consistency loss.

    The defaults are the constants of the CIFAR-10 experiments.

    Args:
        sigma: The standard deviation of the noise.
        weight: The weight lambda of the divergence: by default 20 up to sigma 0.25, and 10 above.
        copies: The number m of noisy copies of each input.
        entropy_weight: The weight eta of the entropy.
    """

    name: ClassVar[str] = "consistency"
    sigma: float
    weight: float = BY_SIGMA
    copies: int = 2
    entropy_weight: float = 0.5

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "sigma", low=0)
        self._by_sigma(weight=20.0 if self.sigma <= 0.25 else 10.0)
        _check.fields(self, _check.at_least, "weight", "entropy_weight", low=0)
        _check.fields(self, _check.whole, "copies", least=2)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = self.noisy_logits(module, x, self.copies)
        regularization = consistency_loss(
            logits, weight=self.weight, entropy_weight=self.entropy_weight
        )
        return Objective(natural_loss(logits, labels) + regularization, logits)
