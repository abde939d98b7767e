"""Denoisers estimate clean inputs. A classifier that never saw noise can be smoothed behind one."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert._agreement import SAME_BATCH
from smoothcert.errors import InvalidInput
from smoothcert.models.base import (
    Classifier,
    Network,
    evaluation_mode,
    import_path,
    like_weights,
    state_hash,
)
from smoothcert.models.outputs import floats
from smoothcert.noises import Noise
from smoothcert.noises.base import Additive, AdditiveGrid, Shape

_ROUNDING = 1e-6


class Denoiser(nn.Module, ABC):
    """Estimates clean inputs from noisy ones, for a range of noise.

    Noisy inputs are x + N(0, sigma^2 I), where x is in the units of the data ([0, 1] for images). A
    subclass does all conversion to its own units in `denoise`.

    Args:
        sigmas: The smallest and the largest standard deviation that it can remove.
        values: The smallest and the largest value of a clean input.
        shape: The shape of an input; None if it takes any.
    """

    def __init__(
        self,
        sigmas: tuple[float, float],
        values: tuple[float, float] = (0.0, 1.0),
        shape: Shape | None = None,
    ) -> None:
        super().__init__()
        self.sigmas = sigmas
        self.values = values
        self.shape = shape
        self.name = import_path(self)
        """What the user gave as the denoiser."""

    @abstractmethod
    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Estimates of the clean inputs.

        Args:
            x: Noisy inputs of shape (batch, channels, height, width).
            sigma: The standard deviation of the noise: one for all inputs, or one for each of them.
        """

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """See `denoise`."""
        return self.denoise(x, sigma)

    @property
    def config(self) -> str:
        """A hash of what determines the answers and is neither in the weights nor in `repr`."""
        return ""

    @property
    def span(self) -> str:
        """The range of sigma in words."""
        low, high = self.sigmas
        return f"sigma {low:g}" if low == high else f"sigma from {low:g} to {high:g}"

    def at(self, sigma: float) -> nn.Module:
        """A module from noisy inputs to estimates of the clean ones, for one noise level.

        Args:
            sigma: The standard deviation of the noise.
        """
        return FixedSigma(self, sigma)

    def describe(self, sigma: float) -> str:
        """How it removes noise of one level, for the record of a run.

        Args:
            sigma: The standard deviation of the noise.
        """
        return f"for {self.span}"


class FixedSigma(nn.Module):
    """A denoiser for one noise level: a module from noisy inputs to estimates of the clean ones.

    Args:
        denoiser: The denoiser.
        sigma: The standard deviation of the noise.
    """

    sigma: Tensor

    def __init__(self, denoiser: Denoiser, sigma: float) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.register_buffer("sigma", torch.tensor([sigma]))

    def forward(self, x: Tensor) -> Tensor:
        """Estimates of the clean inputs.

        Args:
            x: Noisy inputs.
        """
        estimate: Tensor = self.denoiser(x, self.sigma)
        return estimate


class ModuleDenoiser(Denoiser):
    """A module from noisy inputs to estimates of the clean ones, of which nothing else is known."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(sigmas=(0.0, inf), values=(-inf, inf))
        self.module = module
        self.name = import_path(module)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """What the module returns, which is not told the noise level; see `Denoiser.denoise`."""
        estimate: Tensor = self.module(x)
        return estimate

    def describe(self, sigma: float) -> str:
        """See `Denoiser.describe`."""
        return "a module that does not state its range of sigma"


class Denoised(nn.Module):
    """A classifier behind a denoiser.

    Args:
        denoiser: A module from noisy inputs to estimates of the clean ones, in the units of the
            classifier.
        classifier: The classifier.
    """

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.classifier = classifier
        self.own_dtype = getattr(classifier, "own_dtype", None)

    def forward(self, x: Tensor) -> Any:
        """What the classifier returns for the denoised inputs.

        Args:
            x: Noisy inputs.
        """
        return self.classifier(self.denoiser(x))


class DenoisedFunction:
    """A function behind a denoiser.

    The function may do anything, so this is not a module, which could be traced.
    """

    def __init__(self, denoiser: nn.Module, function: Network) -> None:
        self.denoiser = denoiser
        self.function = function
        self._placed: dict[tuple[torch.device, torch.dtype], nn.Module] = {}

    def __call__(self, x: Tensor) -> Any:
        """What the function returns for the denoised inputs."""
        place = (x.device, x.dtype)
        if place not in self._placed:
            self._placed[place] = copy.deepcopy(self.denoiser).to(*place)
        return self.function(self._placed[place](x))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_placed": {}}  # another process makes its own copies


def denoised(classifier: Classifier, denoiser: Denoiser, noise: Noise) -> Classifier:
    """A classifier behind a denoiser, as one classifier.

    Args:
        classifier: The classifier, which takes clean inputs.
        denoiser: The denoiser.
        noise: The smoothing noise. The denoiser removes noise of its deviation.

    Raises:
        InvalidInput: The denoiser is for other noise, or the classifier has one already.
    """
    if classifier.denoiser is not None:
        raise InvalidInput(
            "second-denoiser",
            "{model} is behind a denoiser already: leave out `denoiser`",
            model=classifier.name,
        )
    sigma = noise.deviation
    denoiser_hash = state_hash(denoiser)
    module = compose(classifier.module, denoiser, noise)
    return replace(
        classifier.inside(module, f"behind {denoiser_hash} for sigma {sigma}"),
        input_shape=classifier.input_shape or denoiser.shape,
        trained_sigma=None,
        trained_noise=None,
        values=denoiser.values,
        denoiser={
            "name": denoiser.name,
            "hash": denoiser_hash,
            "description": denoiser.describe(sigma),
            **({"config": denoiser.config} if denoiser.config else {}),
        },
    )


def compose(model: Network, denoiser: Denoiser, noise: Noise) -> Denoised | DenoisedFunction:
    """A module or function behind a denoiser.

    Args:
        model: A module or function from clean batches to logits or labels.
        denoiser: The denoiser.
        noise: The smoothing noise.
    """
    check_noise(denoiser, noise)
    front = denoiser.at(noise.deviation)
    if not isinstance(model, nn.Module):
        return DenoisedFunction(front, model)
    weight = next(model.parameters(), None)
    front_weight = next(front.parameters(), None)
    if weight is not None and front_weight is not None and weight.device != front_weight.device:
        front = copy.deepcopy(front).to(weight.device)
    return Denoised(front, model)


def check_noise(denoiser: Denoiser, noise: Noise) -> None:
    """Refuse noise that a denoiser is not made for."""
    draw = noise.draw
    is_normal = isinstance(draw, Additive) and draw.law == "normal"
    if not is_normal and not isinstance(draw, AdditiveGrid):
        raise InvalidInput(
            "denoiser-without-gaussian",
            "a denoiser removes Gaussian noise, not {noise}: use Gaussian or GridGaussian noise",
            noise=noise,
        )
    low, high = denoiser.sigmas
    if not low * (1 - _ROUNDING) <= noise.deviation <= high * (1 + _ROUNDING):
        raise InvalidInput(
            "sigma-of-denoiser",
            "{denoiser} removes noise with {span}, not {sigma:g}: use another sigma or another "
            "denoiser",
            denoiser=denoiser.name,
            span=denoiser.span,
            sigma=noise.deviation,
        )


@torch.inference_mode()
def check_estimates(
    denoiser: Denoiser, x: Tensor, sigma: float, *, device: torch.device, stochastic: bool
) -> None:
    """Refuse a denoiser for other shapes, one that fails, or one that depends on chance or batch.

    The check of the classifier is not enough: a small random change often leaves all of its few
    labels as they are, but one that a whole batch shares makes the votes of this batch dependent.
    Estimates are compared in l2 with the deviation of the noise, because that is what moves the
    classifier: many small changes add up, and one large value in an input says nothing about the
    others.
    """
    if denoiser.shape not in (None, tuple(x.shape)):
        raise InvalidInput(
            "shape-of-denoiser",
            "{denoiser} denoises inputs of shape {expected}, and the first input has shape {shape}",
            denoiser=denoiser.name,
            expected=denoiser.shape,
            shape=tuple(x.shape),
        )
    noisy = x.cpu() + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    # A copy in evaluation mode. The check of the classifier refuses training mode later, and says
    # what to do.
    module = copy.deepcopy(denoiser.at(sigma)).to(device)
    evaluation_mode(module)

    def estimates(batch: Tensor) -> Tensor:
        what = f"the denoiser {denoiser.name}"
        kind = "a batch like the one that it gets,"
        return floats(module, batch.to(device), tuple(batch.shape), what=what, kind=kind).cpu()

    # The same neighbour detects random numbers, the others detect statistics of the batch, such as
    # its maximum. All batches have the same shape, because another one may use other kernels, which
    # round differently.
    neighbours = (noisy / 4, noisy / 4, 4 * noisy + 1, -4 * noisy)
    first, *others = (like_weights(torch.stack([noisy, other]), denoiser) for other in neighbours)
    estimate = estimates(first)[0].double()
    if not bool(estimate.isfinite().all()):
        raise InvalidInput(
            "no-finite-estimate",
            "the denoiser {name} returns NaN or infinite values: check its weights and its sigma",
            name=denoiser.name,
        )
    if stochastic:
        return
    half_a_rounding = torch.finfo(first.dtype).eps / 2 * estimate.norm()
    allowed = SAME_BATCH.in_format(first.dtype) * sigma + half_a_rounding
    for batch in others:
        if not (estimates(batch)[0].double() - estimate).norm() <= allowed:
            raise InvalidInput(
                "estimate-changes",
                "the denoiser {name} changes its estimate for the same input (random numbers or "
                "batch statistics?): give `stochastic=True` if it is random by design",
                name=denoiser.name,
            )
