"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from smoothcert import _check
from smoothcert.models.base import in_evaluation_mode
from smoothcert.training.methods.ascent import ascend, loss_gradient
from smoothcert.training.methods.base import (
    BY_SIGMA,
    Method,
    Objective,
    draw_noise,
    logits_of,
    natural_loss,
)


@dataclass(frozen=True)
class SmoothAdv(Method):
    """Gaussian augmentation with m noisy copies of the adversarial input.

    The copies have the noise that the attack used. The defaults are one of the paper's settings for
    CIFAR-10.

    Args:
        sigma: The standard deviation of the noise.
        epsilon: The largest l2 norm of the attack: by default 1 up to sigma 0.25, and 2 above.
        copies: The number m of noisy copies of each input: by default 4 up to sigma 0.25, and 2
            above.
        steps: The number T of steps of the attack.
        warmup: Epochs in which epsilon grows to its full size.
    """

    name: ClassVar[str] = "smoothadv"
    input_range: ClassVar[tuple[float, float]] = (0.0, 1.0)  # the attack stays in it
    sigma: float
    epsilon: float = BY_SIGMA
    copies: int = BY_SIGMA
    steps: int = 10
    warmup: int = 10

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "sigma", low=0)
        is_small = self.sigma <= 0.25
        self._by_sigma(epsilon=1.0 if is_small else 2.0, copies=4 if is_small else 2)
        _check.fields(self, _check.between, "epsilon", low=0)
        _check.fields(self, _check.whole, "copies", "steps", "warmup", least=1)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        noise = draw_noise(x, self.copies, self.sigma)
        epsilon = self.epsilon * ((epoch + 1) / self.warmup).clamp(max=1)
        with in_evaluation_mode(module):  # the attack must not change batch statistics
            gradient = loss_gradient(module, labels, noise)
            adversarial = ascend(gradient, x, epsilon=epsilon, steps=self.steps)
        logits = logits_of(module, adversarial + noise)
        return Objective(natural_loss(logits, labels), logits)
