"""Whether a denoiser fits the noise and the inputs."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn

from smoothcert._agreement import DENOISER, DENOISER_ROUNDINGS, Again, largest, repeats
from smoothcert.errors import InvalidInput, SmoothcertError, first_line, setting
from smoothcert.models.denoisers.base import Denoiser
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


def check_input(denoiser: Denoiser, x: Tensor, which: str) -> None:
    """Refuse an input of another shape, or with other values, than a denoiser is made for."""
    if denoiser.shape not in (None, tuple(x.shape)):
        raise InvalidInput(
            f"{denoiser.name} denoises inputs of shape {denoiser.shape}, and {which} has shape {tuple(x.shape)}"
        )
    check_values(denoiser.values, x, which)


@torch.inference_mode()
def check_output(denoiser: Denoiser, x: Tensor, sigma: float) -> None:
    """Refuse a denoiser that fails, or that returns something else than an input of the same shape."""
    _estimates(denoiser, _copied(denoiser, sigma), _batch_for(denoiser, x[None]))


@torch.inference_mode()
def check_repeatable(denoiser: Denoiser, x: Tensor, sigma: float) -> None:
    """Refuse a denoiser whose estimate for an input depends on chance, or on the other inputs of the batch.

    The check of the classifier is not enough: a small random change often leaves all of its few labels as they are, but
    one that a whole batch shares makes the votes of this batch dependent.
    """
    noisy = x.cpu() + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    module = _copied(denoiser, sigma)
    # The same neighbour detects random numbers, the others detect statistics of the batch, such as its maximum. All
    # batches have the same shape, because another one may use other kernels, which round differently.
    batches = [
        _batch_for(denoiser, torch.stack([noisy, other])) for other in (noisy / 4, noisy / 4, 4 * noisy + 1, -4 * noisy)
    ]
    estimates = partial(_estimates, denoiser, module)
    first = estimates(batches[0])
    tolerance = max(DENOISER.numbers, DENOISER_ROUNDINGS * torch.finfo(first.dtype).eps)
    again = [Again(batch, [0], [0], tolerance) for batch in batches[1:]]
    if not repeats(estimates, first, again, scale=max(largest(first[0]), largest(noisy))):
        raise InvalidInput(
            f"the denoiser {denoiser.name} changes its estimate for the same input (random numbers or batch "
            f"statistics?): give {setting('stochastic', True)} if it is random by design"
        )


def _copied(denoiser: Denoiser, sigma: float) -> nn.Module:
    """A copy in evaluation mode. The check of the classifier refuses training mode later, and says what to do."""
    return copy.deepcopy(denoiser.at(sigma)).eval()


def _batch_for(denoiser: Denoiser, batch: Tensor) -> Tensor:
    """A batch on the device and in the number format of a denoiser."""
    parameter = next(denoiser.parameters(), batch)
    return batch.to(parameter.device, parameter.dtype if parameter.is_floating_point() else batch.dtype)


def _estimates(denoiser: Denoiser, module: nn.Module, batch: Tensor) -> Tensor:
    """What a denoiser returns for a batch, which stays unchanged."""
    try:
        output = module(batch.clone())
    except SmoothcertError:
        raise
    except Exception as error:  # code of the user may raise any error
        raise InvalidInput(
            f"the denoiser {denoiser.name} fails on a batch of shape {tuple(batch.shape)}: {first_line(error)}"
        ) from error
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.shape != batch.shape:
        found = type(output).__name__
        if isinstance(output, Tensor):
            found = f"{str(output.dtype).removeprefix('torch.')} of shape {tuple(output.shape)}"
        raise InvalidInput(
            f"the denoiser {denoiser.name} must return a batch like the one that it gets, of shape "
            f"{tuple(batch.shape)}, and it returned {found}"
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
