"""Whether a denoiser fits the noise and the inputs."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert._agreement import DENOISER, DENOISER_ROUNDINGS, Again, largest, repeats
from smoothcert.errors import InvalidInput, SmoothcertError, first_line, setting
from smoothcert.models.denoisers.base import Denoiser
from smoothcert.models.outputs import described
from smoothcert.noises import Noise
from smoothcert.noises.draws import Additive, AdditiveGrid

_ROUNDING = 1e-6


def check_noise(denoiser: Denoiser, noise: Noise) -> None:
    """Refuse noise that a denoiser is not made for."""
    draw = noise.draw
    if not (isinstance(draw, AdditiveGrid) or (isinstance(draw, Additive) and draw.law == "normal")):
        raise InvalidInput(f"a denoiser removes Gaussian noise, not {noise}: use Gaussian or GridGaussian noise")
    low, high = denoiser.sigmas
    if not low * (1 - _ROUNDING) <= noise.deviation <= high * (1 + _ROUNDING):
        raise InvalidInput(
            f"{denoiser.name} removes noise with {denoiser.span}, not {noise.deviation:g}: use another sigma or "
            "another denoiser"
        )


@torch.inference_mode()
def check_estimates(denoiser: Denoiser, x: Tensor, sigma: float, *, stochastic: bool) -> None:
    """Refuse a denoiser for other shapes, one that fails, or one whose estimate depends on chance or on the batch.

    The check of the classifier is not enough: a small random change often leaves all of its few labels as they are, but
    one that a whole batch shares makes the votes of this batch dependent.
    """
    if denoiser.shape not in (None, tuple(x.shape)):
        raise InvalidInput(
            f"{denoiser.name} denoises inputs of shape {denoiser.shape}, and the first input has shape {tuple(x.shape)}"
        )
    noisy = x.cpu() + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    # A copy in evaluation mode. The check of the classifier refuses training mode later, and says what to do.
    estimates = partial(_estimates, denoiser, copy.deepcopy(denoiser.at(sigma)).eval())
    # The same neighbour detects random numbers, the others detect statistics of the batch, such as its maximum. All
    # batches have the same shape, because another one may use other kernels, which round differently.
    neighbours = (noisy / 4, noisy / 4, 4 * noisy + 1, -4 * noisy)
    parameter = next(denoiser.parameters(), noisy)
    dtype = parameter.dtype if parameter.is_floating_point() else noisy.dtype
    first, *others = (torch.stack([noisy, other]).to(parameter.device, dtype) for other in neighbours)
    found = estimates(first)
    tolerance = max(DENOISER.numbers, DENOISER_ROUNDINGS * torch.finfo(found.dtype).eps)
    again = [Again(batch, [0], [0], tolerance) for batch in others]
    if not stochastic and not repeats(estimates, found, again, scale=max(largest(found[0]), largest(noisy))):
        raise InvalidInput(
            f"the denoiser {denoiser.name} changes its estimate for the same input (random numbers or batch "
            f"statistics?): give {setting('stochastic', True)} if it is random by design"
        )


def _estimates(denoiser: Denoiser, module: nn.Module, batch: Tensor) -> Tensor:
    """What a denoiser returns for a batch, which stays unchanged."""
    try:
        output: Any = module(batch.clone())
    except SmoothcertError:
        raise
    except Exception as error:  # code of the user may raise any error
        raise InvalidInput(
            f"the denoiser {denoiser.name} fails on a batch of shape {tuple(batch.shape)}: {first_line(error)}"
        ) from error
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.shape != batch.shape:
        raise InvalidInput(
            f"the denoiser {denoiser.name} must return a batch like the one that it gets, of shape "
            f"{tuple(batch.shape)}, and it returned {described(output)}"
        )
    return output


def check_values(values: tuple[float, float] | None, x: Tensor, which: str, taker: str = "the denoiser") -> None:
    """Refuse an input with values outside the range that a denoiser, or a method of training, is made for."""
    if values is None or not x.numel():
        return
    low, high = float(x.min()), float(x.max())
    if low < values[0] - _ROUNDING or high > values[1] + _ROUNDING:
        raise InvalidInput(
            f"{which} has values from {low:g} to {high:g}, and {taker} takes inputs with values from "
            f"{values[0]:g} to {values[1]:g}: scale the data"
        )
