"""ART's `PyTorchRandomizedSmoothing`, with our `certify` and `predict`.

It is the estimator of the Adversarial Robustness Toolbox: its attacks take it, and `fit` trains it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from art.estimators.certification import randomized_smoothing
from art.preprocessing.standardisation_mean_std.utils import broadcastable_mean_std
from numpy.typing import ArrayLike, NDArray
from torch import nn

from smoothcert import _check
from smoothcert.compat.cohen import SmoothedCache, plan_for, vote
from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.smoothed import Subject
from smoothcert.tasks.certify import certify


class PyTorchRandomizedSmoothing(randomized_smoothing.PyTorchRandomizedSmoothing):  # type: ignore[misc]
    """ART's estimator with our `certify` and `predict`.

    Noise is added before `preprocessing`, as ART does it.

    Args:
        *of_art: The arguments of ART's estimator. Defences are not supported.
        decline: How much of each radius may be given up, as in 0.05. `certify` then spends on an
            input only what it needs, and at most n samples. None spends n on every input, as ART
            does.
        seed: The key of the noise.
        denoiser: Removes the noise before `preprocessing`; see `smoothcert.load_denoiser`.
        **settings: The arguments of ART's estimator, by name.
    """

    def __init__(
        self,
        *of_art: Any,
        decline: float | None = None,
        seed: int = 0,
        denoiser: str | Path | nn.Module | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*of_art, **settings)
        if self.preprocessing_defences or self.postprocessing_defences:
            raise InvalidInput(
                "defences-not-supported",
                "defences are not supported: put what they do into the model, where they are "
                "certified",
            )
        self.decline = decline
        self._cache = SmoothedCache(seed=seed, denoiser=denoiser, device=str(self.device))
        self._network = self.model
        if self.preprocessing is not None:
            self._network = Normalized(self._normalize(), self.model)

    def _normalize(self) -> Normalize:
        """ART's preprocessing as a module."""
        example = np.empty((1, *self.input_shape))
        mean, deviation = broadcastable_mean_std(
            example, self.preprocessing.mean, self.preprocessing.std
        )
        normalize = Normalize((0.0,), (1.0,))
        normalize.mean = torch.from_numpy(mean)
        normalize.deviation = torch.from_numpy(deviation)
        return normalize

    def _smoothed(self, batch_size: int) -> Subject:
        self._cache.settle(self._network, self.scale, self.nb_classes)
        return self._cache.smoothed(batch_size, None, self.input_shape)

    def certify(
        self, x: ArrayLike, n: int, batch_size: int = 32
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The class of each input and a radius within which it does not change.

        Args:
            x: Inputs, with a batch dimension.
            n: Samples that bound the probability of the class.
            batch_size: Rows per forward pass; more for small inputs.

        Returns:
            Classes, -1 for an abstention, and radii.
        """
        pilot = _check.whole("sample_size", self.sample_size, least=1)
        plan = plan_for(n, pilot=pilot, alpha=self.alpha, decline=self.decline)
        smoothed = self._smoothed(batch_size)
        inputs = self._inputs(x)
        if not len(inputs):
            return np.empty(0, np.int64), np.empty(0)
        results = certify(smoothed, inputs, plan=plan)
        return results.prediction, results.radius

    def predict(
        self, x: ArrayLike, batch_size: int = 128, verbose: bool = False, *, is_abstain: bool = True
    ) -> NDArray[np.float64]:
        """The class of each input in one-hot form; zeros for an abstention.

        Args:
            x: Inputs, with a batch dimension.
            batch_size: Rows per forward pass; more for small inputs.
            verbose: Kept, and not used.
            is_abstain: Whether to abstain where the leading class may lead by chance.
        """
        smoothed = self._smoothed(batch_size)
        inputs = self._inputs(x)
        answers = np.zeros((len(inputs), self.nb_classes))
        if not len(inputs):
            return answers
        votes = vote(smoothed, inputs, samples=self.sample_size, alpha=self.alpha)
        for answer, (leader, is_significant) in zip(answers, votes, strict=True):
            if leader is not None and (is_significant or not is_abstain):
                answer[leader] = 1
        return answers

    def _inputs(self, x: ArrayLike) -> list[NDArray[np.float64]]:
        """The inputs as a list. In an array of images, `certify` may move the channels.

        They are in float64, so that an input that float32 would round by too much is refused.
        """
        inputs = np.asarray(_check.unmasked("x", x), np.float64)
        if inputs.shape[1:] != self.input_shape:
            raise InvalidInput(
                "other-shape",
                "inputs must have the shape (count, {expected}), got {shape}",
                expected=", ".join(map(str, self.input_shape)),
                shape=inputs.shape,
            )
        return list(inputs)
