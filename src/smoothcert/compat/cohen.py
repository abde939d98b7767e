"""`Smooth`, as in the code of Cohen et al. (2019) and in many programs that copied it.

Write `from smoothcert.compat.cohen import Smooth` in place of `from core import Smooth`. The rest
of the program stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from heapq import nlargest
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.device.runtime import Dtype
from smoothcert.errors import warn
from smoothcert.models.base import evaluation_mode
from smoothcert.noises import Gaussian
from smoothcert.plans import Fixed, InputSpecific, Plan, SingleDraw
from smoothcert.smoothed import Subject
from smoothcert.statistics.comparison import mcnemar
from smoothcert.tasks.certify import certify

# Small inputs get larger batches than the caller asks for: there, calls cost more than rows.
_LARGEST_BATCH = 8192  # rows
_SMALL_BATCH = 2**18  # numbers in all rows together
_FORMATS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}


class Smooth:
    """A smoothed classifier with the interface of Cohen et al. (2019).

    It draws as many samples as theirs, and its certificates are theirs with bounds rounded outward.
    Noise is keyed: the same seed and the same order of calls give the same answers.

    Args:
        base_classifier: A module or function from a batch of inputs to logits. It runs where its
            parameters are.
        num_classes: The number of classes.
        sigma: The standard deviation of the Gaussian noise.
        decline: How much of each radius may be given up, as in 0.05. `certify` then spends on an
            input only what it needs, and at most n samples. None spends n on every input, as theirs
            does.
        seed: The key of the noise.
        denoiser: Removes the noise before the classifier sees an input; see
            `smoothcert.load_denoiser`.
        dtype: The number format of the classifier. By default, it stays in the format of its
            weights, as theirs does. With "auto", it runs as in `Smoothed`, in a reduced format if
            that hardly changes labels, and the batch size is measured.

    >>> import torch
    >>> from smoothcert.compat.cohen import Smooth
    >>> model = lambda x: torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)
    >>> smooth = Smooth(model, num_classes=2, sigma=0.25)
    >>> x = torch.tensor([1.0, 0.0])
    >>> prediction, radius = smooth.certify(x, n0=100, n=10_000, alpha=0.001, batch_size=1000)
    >>> prediction, 0.45 < radius < 0.5
    (1, True)
    """

    ABSTAIN: ClassVar[int] = -1
    """What is returned instead of a class that the votes do not settle."""

    def __init__(
        self,
        base_classifier: Callable[[Tensor], Tensor],
        num_classes: int,
        sigma: float,
        *,
        decline: float | None = None,
        seed: int = 0,
        denoiser: str | Path | nn.Module | None = None,
        dtype: Dtype | None = None,
    ) -> None:
        self.base_classifier = base_classifier
        self.num_classes = num_classes
        self.sigma = sigma
        self.decline = decline
        self._cache = SmoothedCache(seed=seed, denoiser=denoiser, dtype=dtype)
        self._cache.settle(base_classifier, sigma, num_classes)

    def _smoothed(self, x: Tensor, batch_size: int) -> Subject:
        self._cache.settle(self.base_classifier, self.sigma, self.num_classes)
        smoothed = self._cache.smoothed(batch_size, x, x.shape)
        on_cuda = str(smoothed.device).startswith("cuda")
        if on_cuda and smoothed.dtype == "float32" and isinstance(self.base_classifier, nn.Module):
            _recommend_auto()
        return smoothed

    def certify(
        self, x: Tensor, n0: int, n: int, alpha: float, batch_size: int
    ) -> tuple[int, float]:
        """The class of the smoothed classifier and a radius within which it does not change.

        Args:
            x: One input, without a batch dimension.
            n0: Samples that choose the class.
            n: Samples that bound its probability.
            alpha: The largest probability of a wrong certificate.
            batch_size: Rows per forward pass; more for small inputs.

        Returns:
            The class and the radius; `ABSTAIN` and 0.0 if nothing is proved.
        """
        pilot = _check.whole("n0", n0, least=1)
        plan = plan_for(n, pilot=pilot, alpha=alpha, decline=self.decline)
        [certificate] = certify(self._smoothed(x, batch_size), [x], plan=plan)
        if certificate.prediction is None:
            return self.ABSTAIN, 0.0
        return certificate.prediction, certificate.radius

    def predict(self, x: Tensor, n: int, alpha: float, batch_size: int) -> int:
        """The class of the smoothed classifier, or `ABSTAIN` if it does not lead beyond chance.

        Args:
            x: One input, without a batch dimension.
            n: Samples.
            alpha: The largest probability of a wrong answer.
            batch_size: Rows per forward pass; more for small inputs.
        """
        smoothed = self._smoothed(x, batch_size)
        [(leader, is_significant)] = vote(smoothed, [x], samples=n, alpha=alpha)
        if leader is None or not is_significant:
            return self.ABSTAIN
        return leader


@cache
def _recommend_auto() -> None:
    """Say once how to be faster."""
    warn(
        "Smooth computes in float32, as the code of 2019 does: "
        'Smooth(..., dtype="auto") is several times as fast, if it hardly changes labels'
    )


class SmoothedCache:
    """The `Smoothed` objects of one model, which programs may move and change between calls.

    Args:
        device: Where the model runs; None for where its weights are.
        dtype: Its number format, for batches of a measured size; None for the format of its
            weights and batches of the size that the caller asks for.
        **settings: Further settings of `Smoothed`.
    """

    def __init__(
        self, *, device: str | None = None, dtype: Dtype | None = None, **settings: Any
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._settings = settings
        self._subject: tuple[Any, float, int] | None = None

    def settle(self, model: Any, sigma: float, classes: int) -> None:
        """Take model, sigma and classes as they are now: programs change these attributes."""
        if self._subject == (model, sigma, classes):
            return
        settings = {"noise": Gaussian(sigma), "classes": classes, **self._settings}
        self._settled = Subject(model, device="cpu", pad=False, **settings)
        self._smoothed: dict[tuple[int | str, str, Dtype], Subject] = {}
        self._model = model
        self._subject = (model, sigma, classes)

    def smoothed(self, batch: int, example: Any, shape: Sequence[int]) -> Subject:
        """The smoothed classifier for batches of this size, or more for small inputs.

        Args:
            batch: The rows that the caller asks for.
            example: An input. It tells the device if the model has no weights.
            shape: The shape of an input.
        """
        _check.whole("batch_size", batch, least=1)
        rows: int | str = max(batch, min(_LARGEST_BATCH, _SMALL_BATCH // prod(shape)))
        weight = None
        if isinstance(self._model, nn.Module):
            evaluation_mode(self._model)
            weight = next(chain(self._model.parameters(), self._model.buffers()), None)
        place = example if weight is None else weight
        device = self._device or str(getattr(place, "device", "cpu"))
        dtype = self._dtype
        if dtype is None:
            dtype = _FORMATS.get(getattr(weight, "dtype", torch.float32), "float32")
        else:
            rows = "auto"
        key = (rows, device, dtype)
        if key not in self._smoothed:
            self._smoothed[key] = self._settled.with_settings(
                batch=rows, device=device, dtype=dtype
            )
        return self._smoothed[key]


@cache
def plan_for(samples: int, *, pilot: int, alpha: float, decline: float | None) -> Plan:
    """Fixed sampling, as published, or input-specific sampling with the same ceiling."""
    if decline is None:
        return Fixed(samples, pilot=pilot, alpha=alpha)
    return InputSpecific(samples, pilot=pilot, alpha=alpha, decline=decline)


def vote(smoothed: Subject, x: Any, *, samples: int, alpha: float) -> list[tuple[int | None, bool]]:
    """The class with most votes among `samples` for each input, and whether it leads beyond chance.

    This is the test of Cohen et al.: if the two leading classes were equally likely, they would
    share their votes as they do with a probability of at most alpha.
    """
    rule: Any = SingleDraw(_check.whole("samples", samples, least=1))
    alpha = _check.alpha("alpha", alpha)
    answers: list[tuple[int | None, bool]] = []
    for certificate in certify(smoothed, x, plan=rule):
        [look] = certificate.looks
        first, second = nlargest(2, [0, 0, *look.votes.values()])
        answers.append((look.top, mcnemar(first, second) <= alpha))
    return answers
