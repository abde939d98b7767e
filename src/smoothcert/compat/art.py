"""`PyTorchRandomizedSmoothing`, as in the Adversarial Robustness Toolbox (ART).

Where ART is installed, it is ART's own estimator with our `certify` and `predict`: attacks take it, and `fit` trains
it. Without ART, it only certifies and predicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.compat._current import Current, plan_for, vote
from smoothcert.errors import InvalidInput
from smoothcert.noises import Gaussian
from smoothcert.smoothed import Smoothed
from smoothcert.tasks.certify import certify

try:
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing as _Estimator
except ImportError:
    _Estimator = object


class PyTorchRandomizedSmoothing(_Estimator):  # type: ignore[misc]
    """ART's estimator with our `certify` and `predict`, and the same constructor.

    Noise is added to the inputs before `preprocessing`, as ART does it.

    Args:
        model: The base classifier.
        loss: For training and for attacks, which need ART.
        input_shape: The shape of one input.
        nb_classes: The number of classes.
        optimizer: For training, which needs ART.
        channels_first: Whether the channels of an image come first; `preprocessing` with one number per channel needs
            it.
        clip_values: The range of the values, for attacks.
        preprocessing_defences: Not supported.
        postprocessing_defences: Not supported.
        preprocessing: What is subtracted from a noisy input, and what it is then divided by; None for neither.
        device_type: "gpu", which falls back to the CPU if there is none, or "cpu".
        sample_size: Samples that choose the class in `certify`, and samples of `predict`.
        scale: The standard deviation of the Gaussian noise.
        alpha: The probability of a wrong answer, at most.
        decline: How much of each radius may be given up, as in 0.05. `certify` then spends on an input only what it
            needs, and at most n samples. None spends n on every input, as ART does.
        seed: The key of the noise.
        denoiser: Removes the noise before `preprocessing`; see `smoothcert.load_denoiser`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        input_shape: tuple[int, ...],
        nb_classes: int,
        optimizer: Any = None,
        channels_first: bool = True,
        clip_values: Any = None,
        preprocessing_defences: Any = None,
        postprocessing_defences: Any = None,
        preprocessing: Any = (0.0, 1.0),
        device_type: str = "gpu",
        sample_size: int = 32,
        scale: float = 0.1,
        alpha: float = 0.001,
        *,
        decline: float | None = None,
        seed: int = 0,
        denoiser: str | Path | nn.Module | None = None,
    ) -> None:
        if preprocessing_defences or postprocessing_defences:
            raise InvalidInput("defences are not supported: put what they do into the model, where they are certified")
        _check.one_of("device_type", device_type, ("gpu", "cpu"))
        of_art = {
            "model": model,
            "loss": loss,
            "input_shape": tuple(input_shape),
            "nb_classes": nb_classes,
            "optimizer": optimizer,
            "channels_first": channels_first,
            "clip_values": clip_values,
            "sample_size": sample_size,
            "scale": scale,
            "alpha": alpha,
        }
        network = _Preprocessed(model, preprocessing, tuple(input_shape), channels_first=channels_first)
        if _Estimator is object:
            self.__dict__.update(of_art)
        else:
            super().__init__(**of_art, preprocessing=preprocessing, device_type=device_type)
        self.decline = decline
        self._settings: dict[str, Any] = {
            "classes": nb_classes,
            "seed": seed,
            "denoiser": denoiser,
            "device": "cuda" if device_type == "gpu" and torch.cuda.is_available() else "cpu",
        }
        self._network, self._by_scale = network, dict[float, Current]()

    def _smoothed(self, batch_size: int) -> Smoothed:
        """The classifier with the noise as it is now: ART lets its users change `scale`."""
        if self.scale not in self._by_scale:
            self._by_scale = {self.scale: Current(self._network, noise=Gaussian(self.scale), **self._settings)}
        return self._by_scale[self.scale].smoothed(batch_size, None, self.input_shape)

    def certify(self, x: ArrayLike, n: int, batch_size: int = 32) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
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
        found = certify(smoothed, inputs, plan=plan)
        return found.prediction, found.radius

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
        found = vote(smoothed, inputs, samples=self.sample_size, alpha=self.alpha)
        for row, (leader, settled) in zip(answers, found, strict=True):
            if leader is not None and (settled or not is_abstain):
                row[leader] = 1
        return answers

    def _inputs(self, x: ArrayLike) -> NDArray[np.float32]:
        inputs = np.asarray(x, np.float32)
        if inputs.shape[1:] != self.input_shape:
            raise InvalidInput(f"inputs must have the shape (count, {_listed(self.input_shape)}), got {inputs.shape}")
        return inputs


class _Preprocessed(nn.Module):
    """(x - subtrahend) / divisor, then the model."""

    subtrahend: Tensor
    divisor: Tensor

    def __init__(self, model: nn.Module, preprocessing: Any, shape: tuple[int, ...], *, channels_first: bool) -> None:
        super().__init__()
        self.model = model
        try:
            subtrahend, divisor = (0.0, 1.0) if preprocessing is None else preprocessing
            numbers = [np.asarray(part, np.float32) for part in (subtrahend, divisor)]
        except (TypeError, ValueError):
            raise InvalidInput(
                f"preprocessing must be a pair (subtrahend, divisor) of numbers, got {type(preprocessing).__name__}"
            ) from None
        for name, part in zip(("subtrahend", "divisor"), numbers, strict=True):
            channels = part.ndim == 1 and len(shape) == 3 and channels_first
            self.register_buffer(name, torch.from_numpy(part.reshape(-1, 1, 1) if channels else part), persistent=False)

    def forward(self, x: Tensor) -> Any:
        return self.model((x - self.subtrahend) / self.divisor)


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
