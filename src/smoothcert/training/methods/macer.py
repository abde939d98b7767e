"""MACER: maximising the certified radius (Zhai et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.training.methods.base import BY_SIGMA, Method, Objective, log_mean_probability

# Probabilities are clamped to this distance from 0 and 1, so that their quantiles are finite. This
# changes no gradient: with such probabilities, the radius exceeds every hinge in use.
_MARGIN = 1e-7


def radius_loss(
    logits: Tensor, labels: Tensor, *, sigma: float, inverse_temperature: float, hinge: float
) -> Tensor:
    """The amount by which the soft certified radius is smaller than the hinge.

    With z the mean over copies of softmax(beta * logits), y the label and y' the best other class,

        xi = Phi^-1(z_y) - Phi^-1(z_y'),    sigma / 2 * max(gamma - xi, 0) where z_y > z_y', else 0,

    averaged over the batch.
    """
    z = (inverse_temperature * logits).softmax(-1).mean(0)
    is_label = labels[:, None] == torch.arange(z.shape[-1], device=z.device)
    z_label = z.masked_fill(~is_label, 0).amax(-1)
    z_other = z.masked_fill(is_label, 0).amax(-1)
    xi = _normal_quantile(z_label) - _normal_quantile(z_other)
    return sigma / 2 * torch.where(z_label > z_other, (hinge - xi).relu(), 0).mean()


def _normal_quantile(probability: Tensor) -> Tensor:
    quantile: Tensor = torch.special.ndtri(probability.clamp(_MARGIN, 1 - _MARGIN))
    return quantile


@dataclass(frozen=True)
class Macer(Method):
    """The cross-entropy of the smoothed soft classifier, plus lambda times the radius loss.

    The defaults are the constants of the CIFAR-10 experiments. At sigma 1.0, the paper also leaves
    out the radius loss until the learning rate first drops. We do not.

    Args:
        sigma: The standard deviation of the noise.
        weight: The weight lambda of the radius loss: by default 4 at sigma 0.5, otherwise 12.
        copies: The number k of noisy copies of each input.
        inverse_temperature: The factor beta on the logits.
        hinge: The largest radius gamma that the loss still rewards, in units of sigma / 2.
    """

    name: ClassVar[str] = "macer"
    learning_rate: ClassVar[float] = 0.01
    sigma: float
    weight: float = BY_SIGMA
    copies: int = 16
    inverse_temperature: float = 16.0
    hinge: float = 8.0

    def __post_init__(self) -> None:
        self._by_sigma(weight=4.0 if self.sigma == 0.5 else 12.0)
        _check.fields(self, _check.between, "sigma", "inverse_temperature", low=0)
        _check.fields(self, _check.at_least, "weight", "hinge", low=0)
        _check.fields(self, _check.whole, "copies", least=1)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = self.noisy_logits(module, x, self.copies)
        shortfall = radius_loss(
            logits,
            labels,
            sigma=self.sigma,
            inverse_temperature=self.inverse_temperature,
            hinge=self.hinge,
        )
        smoothed_loss = functional.nll_loss(log_mean_probability(logits), labels)
        return Objective(smoothed_loss + self.weight * shortfall, logits)
