"""Consistency regularisation (Jeong & Shin 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from smoothcert import _check
from smoothcert.training.methods.augmentation import natural_loss
from smoothcert.training.methods.base import Method, Objective, draw_noise, keep, log_mean_probability, logits_of


def consistency_loss(logits: Tensor, *, weight: float, entropy_weight: float) -> Tensor:
    """A loss that is small if the network gives the same, confident answer for all noisy copies of an input.

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

    Args:
        sigma: The standard deviation of the noise.
        weight: The weight lambda of the divergence.
        copies: The number m of noisy copies of each input.
        entropy_weight: The weight eta of the entropy.
    """

    name: ClassVar[str] = "consistency"
    learning_rate: ClassVar[float] = 0.1
    sigma: float
    weight: float
    copies: int = 2
    entropy_weight: float = 0.5

    def __post_init__(self) -> None:
        keep(
            self,
            sigma=_check.between("sigma", self.sigma, 0),
            weight=_check.at_least("weight", self.weight, 0),
            copies=_check.whole("copies", self.copies, least=2),
            entropy_weight=_check.at_least("entropy_weight", self.entropy_weight, 0),
        )

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """The constants of the CIFAR-10 experiments: m = 2, eta = 0.5, lambda = 20 at sigma 0.25 and 10 above.

        Args:
            sigma: The standard deviation of the noise.
            constants: Constants that replace those of the paper.
        """
        return cls(sigma, **{"weight": 20.0 if sigma <= 0.25 else 10.0} | constants)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = logits_of(module, x + draw_noise(x, self.copies, self.sigma))
        regularization = consistency_loss(logits, weight=self.weight, entropy_weight=self.entropy_weight)
        return Objective(natural_loss(logits, labels) + regularization, logits)
