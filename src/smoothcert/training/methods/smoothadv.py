"""SmoothAdv: adversarial training of the smoothed classifier by projected gradient ascent (Salman et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from smoothcert import _check
from smoothcert.training.methods.ascent import ascend, loss_gradient
from smoothcert.training.methods.augmentation import natural_loss
from smoothcert.training.methods.base import Method, Objective, draw_noise, keep, logits_of


@dataclass(frozen=True)
class SmoothAdv(Method):
    """Gaussian augmentation with m noisy copies of the adversarial input, with the noise that the attack used.

    Args:
        sigma: The standard deviation of the noise.
        epsilon: The largest l2 norm of the attack.
        copies: The number m of noisy copies of each input.
        steps: The number T of steps of the attack.
        warmup: Epochs in which epsilon grows to its full size.
    """

    name: ClassVar[str] = "smoothadv"
    learning_rate: ClassVar[float] = 0.1
    input_range: ClassVar[tuple[float, float]] = (0.0, 1.0)  # the attack stays in it
    sigma: float
    epsilon: float
    copies: int
    steps: int = 10
    warmup: int = 10

    def __post_init__(self) -> None:
        keep(
            self,
            sigma=_check.between("sigma", self.sigma, 0),
            copies=_check.whole("copies", self.copies, least=1),
            epsilon=_check.between("epsilon", self.epsilon, 0),
            steps=_check.whole("steps", self.steps, least=1),
            warmup=_check.whole("warmup", self.warmup, least=1),
        )

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """One of the paper's settings for CIFAR-10: epsilon = 1, m = 4 at sigma 0.25; epsilon = 2, m = 2 above.

        Args:
            sigma: The standard deviation of the noise.
            constants: Constants that replace those of the paper.
        """
        defaults = {"epsilon": 1.0, "copies": 4} if sigma <= 0.25 else {"epsilon": 2.0, "copies": 2}
        return cls(sigma, **defaults | constants)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        noise = draw_noise(x, self.copies, self.sigma)
        epsilon = self.epsilon * ((epoch + 1) / self.warmup).clamp(max=1)
        module.eval()  # the attack is on the network in evaluation mode and must not change its batch statistics
        adversarial = ascend(loss_gradient(module, labels, noise), x, epsilon=epsilon, steps=self.steps)
        module.train()
        logits = logits_of(module, adversarial + noise)
        return Objective(natural_loss(logits, labels), logits)
