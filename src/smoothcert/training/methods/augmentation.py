"""Gaussian augmentation (Cohen, Rosenfeld & Kolter 2019, section 3.3), also behind a denoiser (Carlini et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.noises import Noise
from smoothcert.training.methods.base import Method, Objective, keep, logits_of, noisy_copies
from smoothcert.training.trainee import Start, Trainee


def natural_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy -log f_y(x + delta) of noisy inputs, averaged over copies and batch."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


@dataclass(frozen=True)
class Augmentation(Method):
    """Minimise the cross-entropy at x + delta with delta ~ N(0, sigma^2 I), or at inputs under another noise.

    Args:
        sigma: The standard deviation of the noise; 0 trains without noise. With `noise`, this is its deviation.
        noise: Another noise than Gaussian noise.
    """

    name: ClassVar[str] = "gaussian"
    learning_rate: ClassVar[float] = 0.1
    sigma: float
    noise: Noise | None = None

    def __post_init__(self) -> None:
        keep(self, sigma=_check.at_least("sigma", self.sigma, 0))
        if self.noise is not None and self.sigma != self.noise.deviation:
            raise InvalidInput(f"sigma must be the deviation {self.noise.deviation} of {self.noise}, got {self.sigma}")

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = logits_of(module, noisy_copies(x, 1, sigma=self.sigma, noise=self.noise))
        return Objective(natural_loss(logits, labels), logits)


@dataclass(frozen=True)
class Finetune(Augmentation):
    """Minimise the cross-entropy of a trained classifier at D(x + delta), where the denoiser D stays fixed.

    This is Gaussian augmentation that starts from a trained classifier, with a lower learning rate. The other methods
    can also train behind a denoiser.
    """

    name: ClassVar[str] = "finetune"
    learning_rate: ClassVar[float] = 0.01

    def trainee(self, start: Start) -> Trainee:
        """The classifier behind the denoiser; see `Method.trainee`."""
        if start.classifier is None:
            model = either("classifier=", "--model or --weights")
            raise InvalidInput(f"method finetune needs a classifier to start from: give {model}")
        if start.denoiser is None:
            raise InvalidInput(f"method finetune needs a denoiser: give {setting('denoiser')}")
        return super().trainee(start)
