"""A smoothed classifier that follows its model: after further training, or on another device, it is prepared anew."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.models.denoisers import load_denoiser
from smoothcert.noises import Noise
from smoothcert.plans import Fixed, InputSpecific, Plan
from smoothcert.tasks.smoothed import Smoothed

_FORMATS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}


class Current:
    """`Smoothed` for the model as it is now, by batch size.

    The classes of `compat` run the model in the number format that it has, as the programs do that they stand in for.

    Args:
        model: The base classifier.
        noise: The smoothing noise.
        classes: The number of classes.
        seed: The key of the noise.
        device: Where to run; None for where the model is.
        denoiser: Removes the noise before the model sees an input; see `load_denoiser`.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        *,
        noise: Noise,
        classes: int,
        seed: int,
        device: str | None = None,
        denoiser: str | Path | nn.Module | None = None,
    ) -> None:
        self._denoiser = None if denoiser is None else load_denoiser(denoiser)
        self._settings: dict[str, Any] = {"noise": noise, "classes": classes, "seed": seed, "denoiser": self._denoiser}
        self._model, self._device = model, device
        self._state: object = None
        self._smoothed: dict[int, Smoothed] = {}
        self._ids = count()

    def id(self) -> int:
        """The number of the next noise: no two calls share one, whatever their batch sizes."""
        return next(self._ids)

    def smoothed(self, batch: int, example: Any = None) -> Smoothed:
        """The smoothed classifier.

        Args:
            batch: Rows per forward pass.
            example: An input; its device is taken where the model has no parameters.
        """
        tensors = _tensors(self._model)
        watched = [*tensors, *_tensors(self._denoiser)]
        state = [(id(t), t.device, t.dtype, t._version) for t in watched]  # the version counts changes in place
        if state != self._state:
            self._state = state
            self._smoothed.clear()
        if batch not in self._smoothed:
            first = next(iter(tensors), None)
            device = self._device or str(getattr(example if first is None else first, "device", "cpu"))
            dtype = _FORMATS.get(getattr(first, "dtype", torch.float32), "float32")
            if isinstance(self._model, nn.Module):
                self._model.eval()
            self._smoothed[batch] = Smoothed(
                self._model, device=device, dtype=dtype, batch=batch, compile="none", **self._settings
            )
        return self._smoothed[batch]


def plan_for(samples: int, *, pilot: int, alpha: float, decline: float | None) -> Plan:
    """Fixed sampling, as published, or input-specific sampling with the same ceiling.

    Args:
        samples: n.
        pilot: n0.
        alpha: The probability of a wrong certificate, at most.
        decline: How much of the radius at n samples may be given up; None for fixed sampling.
    """
    if decline is None:
        return Fixed(samples, pilot=pilot, alpha=alpha)
    return InputSpecific(samples, pilot=pilot, alpha=alpha, decline=decline)


def _tensors(model: Callable[[Tensor], Tensor] | None) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
