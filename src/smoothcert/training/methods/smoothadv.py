"""SmoothAdv: adversarial training of the smoothed classifier by projected gradient ascent (Salman et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.training.methods.base import Objective, draw_noise, log_mean_probability, logits_of
from smoothcert.training.methods.gaussian import natural_loss


def attack(module: nn.Module, x: Tensor, labels: Tensor, noise: Tensor, *, epsilon: Tensor, steps: int) -> Tensor:
    """An input x' in [0, 1] with ||x' - x||_2 <= epsilon that the smoothed soft classifier takes for another class.

    Ascends J(x') = -log mean_i F_y(x' + delta_i), for the same m draws delta_i in every step, by steps of length
    2 epsilon / T along the normalised gradient, each followed by a projection.
    """
    adversarial = x
    for _ in range(steps):
        adversarial = adversarial.detach().requires_grad_()
        logits = logits_of(module, adversarial + noise)
        loss = functional.nll_loss(log_mean_probability(logits), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, adversarial)
        moved = adversarial.detach() + 2 * epsilon / steps * gradient / _norm(gradient)
        change = moved.clamp(0, 1) - x
        adversarial = x + change * (epsilon / _norm(change)).clamp(max=1)
    return adversarial


def _norm(x: Tensor) -> Tensor:
    """Of each row, never zero, in a shape that divides `x`."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    return norm.clamp_min(1e-12)


@dataclass(frozen=True)
class SmoothAdv:
    """Gaussian augmentation of m copies around the attacked input, with the noise that was attacked.

    epsilon grows to its full size within the first `warmup` epochs.
    """

    name: ClassVar[str] = "smoothadv"
    learning_rate: ClassVar[float] = 0.1
    sigma: float
    epsilon: float
    copies: int
    """m"""
    steps: int = 10
    """T"""
    warmup: int = 10

    def __post_init__(self) -> None:
        _check.between("sigma", self.sigma, 0)
        _check.whole("copies", self.copies, least=1)
        _check.between("epsilon", self.epsilon, 0)
        _check.whole("steps", self.steps, least=1)
        _check.whole("warmup", self.warmup, least=1)

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """Among the paper's settings for CIFAR-10: epsilon = 1 and m = 4 at sigma 0.25, epsilon = 2 and m = 2 above."""
        usual = {"epsilon": 1.0, "copies": 4} if sigma <= 0.25 else {"epsilon": 2.0, "copies": 2}
        return cls(sigma, **usual | constants)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        noise = draw_noise(x, self.copies, self.sigma)
        epsilon = self.epsilon * ((epoch + 1) / self.warmup).clamp(max=1)
        module.eval()  # the attack is on the classifier as it would be used, and leaves its statistics alone
        adversarial = attack(module, x, labels, noise, epsilon=epsilon, steps=self.steps)
        module.train()
        logits = logits_of(module, adversarial + noise)
        return Objective(natural_loss(logits, labels), logits)
