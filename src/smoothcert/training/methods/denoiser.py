"""Denoisers for denoised smoothing (Salman et al. 2020), for a range of noise."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.models.denoisers import UNETS, UNet, build_unet
from smoothcert.training.methods.base import Frozen, Method, Objective, Start, Trainee, module_of

_SECOND_MOMENT = 0.99


def squared_errors(denoised: Tensor, x: Tensor) -> Tensor:
    """The mean squared error of each input."""
    return (denoised.float() - x).square().flatten(1).mean(1)


def stability_loss(denoised: Tensor, clean: Tensor) -> Tensor:
    """KL(F(x) || F(D(x + delta))) for a classifier F = softmax(logits), averaged over the batch.

    Salman et al. (2020) take the cross-entropy with the label that the classifier gives x. This
    loss also compares the other probabilities. It is zero where the denoiser changes none of them.
    """
    target = clean.float().log_softmax(-1)
    return functional.kl_div(
        denoised.float().log_softmax(-1), target, log_target=True, reduction="batchmean"
    )


class Judged(nn.Module):
    """A denoiser, together with the fixed classifier of its stability loss."""

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.classifier = Frozen(classifier)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The denoised inputs."""
        denoised: Tensor = self.denoiser(x, sigma)
        return denoised


@dataclass(frozen=True)
class Denoising(Method):
    """Train a denoiser D: minimise the squared error of D(x + delta) with delta ~ N(0, sigma^2 I).

    The standard deviation is drawn for each input, with a uniform logarithm. Errors are divided by
    c_out(sigma)^2, so that all standard deviations count alike (Karras et al. 2022). This needs no
    labels. With a classifier, lambda times the stability loss is added.

    Args:
        sigma: The largest standard deviation of the noise.
        sigma_low: The smallest one. By default, there is just one.
        stability: The weight lambda of the stability loss; 0 trains on images alone.
    """

    name: ClassVar[str] = "denoiser"
    learning_rate: ClassVar[float] = 2e-3
    schedule: ClassVar[str] = "onecycle"
    measure: ClassVar[Literal["accuracy", "psnr"]] = "psnr"
    needs_labels: ClassVar[bool] = False
    keeps_mean: ClassVar[bool] = True
    architectures: ClassVar[Collection[str]] = UNETS
    sigma: float
    sigma_low: float | None = None
    stability: float = 0.0

    def __post_init__(self) -> None:
        if self.sigma_low is None:
            object.__setattr__(self, "sigma_low", self.sigma)
        _check.fields(self, _check.between, "sigma", "sigma_low", low=0)
        _check.fields(self, _check.at_least, "stability", low=0)
        if self._low > self.sigma:
            raise InvalidInput(
                "sigmas-not-in-order",
                "sigma_low must be at most sigma, got {sigma_low:g} and {sigma:g}",
                sigma_low=self._low,
                sigma=self.sigma,
            )

    @property
    def noisy_psnr(self) -> float:
        """The mean PSNR of the noisy inputs in dB."""
        return -10 * math.log10(self._low * self.sigma)

    @property
    def _low(self) -> float:
        return self.sigma if self.sigma_low is None else self.sigma_low

    def trainee(self, start: Start) -> Trainee:
        """A U-Net; see `Method.trainee`."""
        network = build_unet(start.architecture, shape=start.shape, sigmas=(self._low, self.sigma))
        if start.denoiser is not None:
            try:
                network.load_state_dict(start.denoiser.state_dict())
            except RuntimeError:
                raise InvalidInput(
                    "other-denoiser",
                    "the denoiser to start from is not a {architecture} for these images",
                    architecture=start.architecture,
                ) from None
        facts = {"shape": json.dumps(start.shape), "sigma_high": self.sigma}
        if (start.classifier is None) != (self.stability == 0):
            raise InvalidInput(
                "stability-needs-both",
                "the stability loss of a denoiser needs a classifier and a weight above 0: give "
                "`classifier= and stability=1.0|--stability, and --model or --weights`",
            )
        if start.classifier is None:
            return Trainee(network, network, facts)
        return Trainee(Judged(network, module_of(start.classifier)), network, facts)

    def optimizer(
        self, parameters: list[nn.Parameter], *, momentum: float, **settings: Any
    ) -> AdamW:
        """AdamW (Loshchilov & Hutter 2019); see `Method.optimizer`."""
        betas = (momentum, _SECOND_MOMENT)
        on_cuda = parameters[0].is_cuda
        return AdamW(parameters, betas=betas, foreach=False, capturable=on_cuda, **settings)

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch; see `Method.objective`."""
        sigma = self._sigmas(x)
        denoised = self._denoised(module, x, sigma)
        loss = (squared_errors(denoised, x) / UNet.output_scale(sigma).square()).mean()
        if isinstance(module, Judged):
            with torch.no_grad():
                clean = module.classifier(x)
            loss = loss + self.stability * stability_loss(module.classifier(denoised), clean)
        return Objective(loss, denoised)

    def outputs(self, module: nn.Module, x: Tensor) -> Tensor:
        """The denoised inputs; see `Method.outputs`."""
        return self._denoised(module, x, self._sigmas(x))

    def score(self, outputs: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        """The peak signal-to-noise ratio (PSNR) in dB; see `Method.score`."""
        return -10 * squared_errors(outputs, x).clamp(min=1e-10).log10()

    def _sigmas(self, x: Tensor) -> Tensor:
        """A standard deviation for each input."""
        return self._low * (self.sigma / self._low) ** torch.rand(len(x), device=x.device)

    def _denoised(self, module: nn.Module, x: Tensor, sigma: Tensor) -> Tensor:
        noise = sigma.view(-1, 1, 1, 1) * torch.randn_like(x)
        denoised: Tensor = module(x + noise, sigma)
        return denoised
