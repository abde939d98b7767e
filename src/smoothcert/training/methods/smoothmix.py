"""SmoothMix: mixup with an adversarial input far away (Jeong et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.models.base import in_evaluation_mode
from smoothcert.training.methods.ascent import Gradient, loss_gradient, steepest
from smoothcert.training.methods.base import (
    BY_SIGMA,
    Method,
    Objective,
    divergence,
    draw_noise,
    log_mean_probability,
    logits_of,
    natural_loss,
)


def unrestricted_adversary(gradient: Gradient, x: Tensor, *, epsilon: float, steps: int) -> Tensor:
    """Follow the gradient g of a loss, with x~ <- x~ + epsilon / T * g / ||g||_2, for T steps.

    Unlike `ascend`, nothing limits the result but the length epsilon of the way.
    """
    adversarial = x
    for _ in range(steps):
        slope = gradient(adversarial)
        adversarial = adversarial + epsilon / steps * steepest(slope, "l2")
    return adversarial


@dataclass(frozen=True)
class SmoothMix(Method):
    """Gaussian augmentation with m noisy copies of each input, plus a loss between it and x~.

    With F the mean of softmax(logits) over the copies of x, C classes, an adversarial input x~ of
    the smoothed classifier, and lambda uniform on [0, 1/2],

        x_mix = (1 - lambda) x + lambda x~,    y_mix = (1 - lambda) F(x) + lambda / C,

    and eta times mean_i KL(y_mix || softmax(logits of copy i of x_mix)) is added where F(x) has the
    right class. All inputs have the noise that the attack used. y_mix has no gradient.

    The defaults are the constants of the CIFAR-10 experiments.

    Args:
        sigma: The standard deviation of the noise.
        epsilon: The length T alpha of the way from x to x~, whose T steps have the length alpha; by
            default 8 sigma.
        weight: The weight eta of the second loss.
        copies: The number m of noisy copies of each input.
        steps: The number T of steps of the attack.
    """

    name: ClassVar[str] = "smoothmix"
    sigma: float
    epsilon: float = BY_SIGMA
    weight: float = 5.0
    copies: int = 2
    steps: int = 4

    def __post_init__(self) -> None:
        self._by_sigma(epsilon=8 * self.sigma)
        _check.fields(self, _check.between, "sigma", "epsilon", low=0)
        _check.fields(self, _check.at_least, "weight", low=0)
        _check.fields(self, _check.whole, "copies", "steps", least=1)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        noise = draw_noise(x, self.copies, self.sigma)
        with in_evaluation_mode(module):  # the attack must not change batch statistics
            gradient = loss_gradient(module, labels, noise)
            adversarial = unrestricted_adversary(
                gradient, x, epsilon=self.epsilon, steps=self.steps
            )
        logits = logits_of(module, x + noise)
        smoothed = log_mean_probability(logits).exp().detach()
        share = torch.rand(len(x), device=x.device) / 2
        x_mix = torch.lerp(x, adversarial, share.view(-1, *[1] * (x.ndim - 1)))
        y_mix = torch.lerp(
            smoothed, torch.full_like(smoothed, 1 / smoothed.shape[-1]), share[:, None]
        )
        mixed = divergence(y_mix, logits_of(module, x_mix + noise)).mean(0)
        is_right = smoothed.argmax(-1) == labels
        loss = natural_loss(logits, labels) + self.weight * (is_right * mixed).mean()
        return Objective(loss, logits)
