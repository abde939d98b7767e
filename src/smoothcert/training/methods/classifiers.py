"""Methods that train classifiers, in the order of their papers.

Gaussian augmentation (Cohen, Rosenfeld & Kolter 2019, section 3.3), also behind a denoiser (Carlini et al. 2023);
SmoothAdv: adversarial training of the smoothed classifier (Salman et al. 2019);
consistency regularisation (Jeong & Shin 2020);
MACER: maximising the certified radius (Zhai et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.models.base import in_evaluation_mode
from smoothcert.noises import Noise
from smoothcert.training.methods.ascent import ascend, loss_gradient
from smoothcert.training.methods.base import (
    Method,
    Objective,
    Start,
    Trainee,
    draw_noise,
    log_mean_probability,
    logits_of,
)

# Probabilities are clamped to this distance from 0 and 1, so that their quantiles are finite. This changes no gradient:
# with such probabilities, the radius exceeds every hinge in use.
_MARGIN = 1e-7


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
        _check.fields(self, _check.at_least, "sigma", low=0)
        if self.noise is not None and self.sigma != self.noise.deviation:
            raise InvalidInput(
                f"sigma must be the deviation {self.noise.deviation} of {self.noise}, got {self.sigma}"
            )

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        logits = self.noisy_logits(module, x)
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
        _check.fields(self, _check.between, "sigma", "epsilon", low=0)
        _check.fields(self, _check.whole, "copies", "steps", "warmup", least=1)

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
        with in_evaluation_mode(module):  # the attack must not change batch statistics
            adversarial = ascend(
                loss_gradient(module, labels, noise), x, epsilon=epsilon, steps=self.steps
            )
        logits = logits_of(module, adversarial + noise)
        return Objective(natural_loss(logits, labels), logits)


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
        _check.fields(self, _check.between, "sigma", low=0)
        _check.fields(self, _check.at_least, "weight", "entropy_weight", low=0)
        _check.fields(self, _check.whole, "copies", least=2)

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
        logits = self.noisy_logits(module, x, self.copies)
        regularization = consistency_loss(
            logits, weight=self.weight, entropy_weight=self.entropy_weight
        )
        return Objective(natural_loss(logits, labels) + regularization, logits)


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
    own = z.masked_fill(~is_label, 0).amax(-1)
    other = z.masked_fill(is_label, 0).amax(-1)
    xi = torch.special.ndtri(_clamped(own)) - torch.special.ndtri(_clamped(other))
    return sigma / 2 * torch.where(own > other, (hinge - xi).relu(), 0).mean()


def _clamped(probability: Tensor) -> Tensor:
    return probability.clamp(_MARGIN, 1 - _MARGIN)


@dataclass(frozen=True)
class Macer(Method):
    """The cross-entropy of the smoothed soft classifier, plus lambda times the radius loss.

    Args:
        sigma: The standard deviation of the noise.
        weight: The weight lambda of the radius loss.
        copies: The number k of noisy copies of each input.
        inverse_temperature: The factor beta on the logits.
        hinge: The largest radius gamma that the loss still rewards, in units of sigma / 2.
    """

    name: ClassVar[str] = "macer"
    learning_rate: ClassVar[float] = 0.01
    sigma: float
    weight: float
    copies: int = 16
    inverse_temperature: float = 16.0
    hinge: float = 8.0

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "sigma", "inverse_temperature", low=0)
        _check.fields(self, _check.at_least, "weight", "hinge", low=0)
        _check.fields(self, _check.whole, "copies", least=1)

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """The constants of the CIFAR-10 experiments: k = 16, beta = 16, gamma = 8, lambda = 4 at sigma 0.5, else 12.

        At sigma 1.0, the paper also leaves out the radius loss until the learning rate first drops. We do not.

        Args:
            sigma: The standard deviation of the noise.
            constants: Constants that replace those of the paper.
        """
        return cls(sigma, **{"weight": 4.0 if sigma == 0.5 else 12.0} | constants)

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
        return Objective(
            functional.nll_loss(log_mean_probability(logits), labels) + self.weight * shortfall,
            logits,
        )
