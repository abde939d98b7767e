"""CAT-RS: confidence-aware training for randomized smoothing (Jeong, Kim & Shin 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.models.base import in_evaluation_mode
from smoothcert.training.methods.ascent import ascend
from smoothcert.training.methods.base import (
    BY_SIGMA,
    Method,
    Objective,
    divergence,
    draw_noise,
    log_mean_probability,
    logits_of,
)


def easiest_copies_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the K easiest of M noisy copies, where K copies get the right class.

    With the losses of the copies in increasing order and K+ = max(K, 1),

        L_low = 1 / M sum_{i <= K+} loss_i.

    Args:
        logits: The logits of the copies, of shape (M, batch, classes).
        labels: The class of each input.

    Returns:
        L_low, averaged over the batch, and the number K of each input.
    """
    copies = len(logits)
    losses = functional.cross_entropy(
        logits.flatten(0, 1), labels.repeat(copies), reduction="none"
    ).view(copies, -1)
    right = (logits.argmax(-1) == labels).sum(0)
    rank = torch.arange(copies, device=logits.device)[:, None]
    is_easy = rank < right.clamp(min=1)
    return (losses.sort(0).values * is_easy).mean(0).mean(), right


@dataclass(frozen=True)
class CatRs(Method):
    """Train on the easiest noisy copies of hard inputs, and on the worst noise of easy inputs.

    M copies with the noise delta_i show how confident the classifier is: K of them get the right
    class. With F the mean of softmax(logits) over the copies, without a gradient, the loss is

        L_low + lambda 1[K = M] max_i max_delta KL(F(x) || softmax(logits of x + delta))

    over all delta with ||delta - delta_i||_2 <= epsilon; see `easiest_copies_loss` for L_low. The
    paper draws K from Bin(M, p), where p is measured with another, Gaussian classifier. We count
    it: with p of the classifier in training, this is a draw from Bin(M, p).

    The defaults are the constants of the CIFAR-10 experiments.

    Args:
        sigma: The standard deviation of the noise.
        weight: The weight lambda of the worst noise, by default 2 sigma.
        epsilon: The largest l2 norm of the attack on the noise.
        copies: The number M of noisy copies of each input.
        steps: The number T of steps of the attack.
    """

    name: ClassVar[str] = "catrs"
    sigma: float
    weight: float = BY_SIGMA
    epsilon: float = 256 / 255
    copies: int = 4
    steps: int = 4

    def __post_init__(self) -> None:
        self._by_sigma(weight=2 * self.sigma)
        _check.fields(self, _check.between, "sigma", "epsilon", low=0)
        _check.fields(self, _check.at_least, "weight", low=0)
        _check.fields(self, _check.whole, "copies", least=2)
        _check.fields(self, _check.whole, "steps", least=1)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        noisy = x + draw_noise(x, self.copies, self.sigma)
        logits = logits_of(module, noisy)
        low, right = easiest_copies_loss(logits, labels)
        smoothed = log_mean_probability(logits).exp().detach()
        worst = divergence(smoothed, logits_of(module, self._worst(module, noisy, smoothed)))
        is_confident = right == self.copies
        high = (is_confident * worst.amax(0)).mean()
        return Objective(low + self.weight * high, logits)

    def _worst(self, module: nn.Module, noisy: Tensor, smoothed: Tensor) -> Tensor:
        """Noisy inputs near those given, whose answers differ most from the smoothed one."""

        def gradient(inputs: Tensor) -> Tensor:
            inputs = inputs.detach().requires_grad_()
            loss = divergence(smoothed, logits_of(module, inputs.view_as(noisy))).sum()
            return torch.autograd.grad(loss, inputs)[0]

        epsilon = torch.full((), self.epsilon, device=noisy.device)
        with in_evaluation_mode(module):  # the attack must not change batch statistics
            found = ascend(
                gradient, noisy.flatten(0, 1), epsilon=epsilon, steps=self.steps, values=None
            )
        return found.view_as(noisy)
