"""Gaussian augmentation (Cohen, Rosenfeld & Kolter 2019, section 3.3).

`Finetune` is the same for a trained classifier behind a denoiser (Carlini et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.training.methods.base import Method, Objective, Start, Trainee, natural_loss


@dataclass(frozen=True)
class Augmentation(Method):
    """Minimise the cross-entropy at x + delta with delta ~ N(0, sigma^2 I), or under another noise.

    Args:
        sigma: The standard deviation of the noise; 0 trains without noise. With `noise`, this is
            its deviation.
        noise: Another noise than Gaussian noise.
    """

    name: ClassVar[str] = "gaussian"
    sigma: float
    noise: Noise | None = None

    def __post_init__(self) -> None:
        _check.fields(self, _check.at_least, "sigma", low=0)
        if self.noise is not None and self.sigma != self.noise.deviation:
            raise InvalidInput(
                "not-the-deviation",
                "sigma must be the deviation {deviation} of {noise}, got {sigma}",
                deviation=self.noise.deviation,
                noise=self.noise,
                sigma=self.sigma,
            )

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = self.noisy_logits(module, x)
        return Objective(natural_loss(logits, labels), logits)


@dataclass(frozen=True)
class Finetune(Augmentation):
    """Minimise the cross-entropy of a trained classifier at D(x + delta), with a fixed denoiser D.

    This is Gaussian augmentation that starts from a trained classifier, with a lower learning rate.
    The other methods can also train behind a denoiser.
    """

    name: ClassVar[str] = "finetune"
    learning_rate: ClassVar[float] = 0.01

    def trainee(self, start: Start) -> Trainee:
        """The classifier behind the denoiser; see `Method.trainee`."""
        if start.classifier is None:
            raise InvalidInput(
                "finetune-needs-classifier",
                "method finetune needs a classifier to start from: give `classifier=|--model or "
                "--weights`",
            )
        if start.denoiser is None:
            raise InvalidInput(
                "finetune-needs-denoiser",
                "method finetune needs a denoiser: give `denoiser`",
            )
        return super().trainee(start)
