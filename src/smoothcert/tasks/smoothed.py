"""`Smoothed`: a classifier and its settings, with the tasks as methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from smoothcert._check import NO_CLASS
from smoothcert.data.groups import GroupsSource
from smoothcert.data.inputs import as_input, is_numbers
from smoothcert.errors import InvalidInput
from smoothcert.models import Classifier
from smoothcert.plans import Plan
from smoothcert.runs.results import Results
from smoothcert.smoothed import Subject
from smoothcert.tasks.certify import certify
from smoothcert.tasks.predict import Prediction, predict

_IMAGE_CHANNELS = (1, 3)


class Smoothed(Subject):
    """A smoothed classifier.

    Inputs are certified and classified in batches. Bytes and images stand for 0 to 255 and are
    divided by 255; other numbers are taken as they are. Every call draws new noise. If weights,
    hooks or attributes of the model change, the next call uses the new ones. The settings cannot be
    changed: make another `Smoothed`.

    Args:
        model: A name as on the command line (None if `weights` names the architecture), a module,
            or a function from a float batch to logits or labels. Tuples, dictionaries and arrays
            that hold the logits will do.
        **settings: `noise=` or `sigma=`, `weights=`, `device=` and so on; see `Settings`.

    >>> def halves(x):  # the class says whether the first number is above a half
    ...     return (x[:, 0] > 0.5).long()
    >>> smoothed = Smoothed(halves, sigma=0.5, classes=2, device="cpu", batch=1000)
    >>> results = smoothed.certify([[1.0, 0.0], [0.2, 1.0]], samples=10_000)
    >>> results.prediction.tolist(), 0.42 < results[0].radius < 0.5
    ([1, 0], True)
    """

    def __setattr__(self, name: str, value: object) -> None:
        raise InvalidInput(
            "smoothed-is-frozen",
            "{name} of a Smoothed cannot be set: make another one, Smoothed(...)",
            name=name,
        )

    def certify(
        self,
        x: Any,
        labels: Any = None,
        *,
        plan: Plan | None = None,
        radii: Sequence[float] | None = None,
        method: str | None = None,
        samples: int | None = None,
        **options: Any,
    ) -> Results:
        """Certify a batch of inputs, or all inputs of a data set. Different inputs share batches.

        Args:
            x: The inputs: an array of shape (n, ...), or any other data that `smoothcert.certify`
                takes.
            labels: The label of each input, None or -1 where it is unknown.
            plan: How many samples an input gets, as an object.
            radii: Radii to decide. With a method or a budget, they are only shown.
            method: "radii", "input-specific", "fixed", "price" or "exact". Default: radii if there
                are any, else input-specific sampling.
            samples: The ceiling: the most samples that a certificate rests on.
            **options: Further arguments of `smoothcert.certify`, such as `bound=`, `budget=` or
                `protocol=`. With `out=DIR`, the certificates are kept in a folder, and the same
                call resumes.

        Returns:
            The results: in memory, or on disk if `out` is given.
        """
        return certify(
            self,
            self._batch_of(x),
            labels,
            plan=plan,
            radii=radii,
            method=method,
            samples=samples,
            **options,
        )

    def predict(
        self,
        x: Any,
        *,
        samples: int = 1000,
        alpha: float = 0.001,
        milliseconds: float | None = None,
        groups: GroupsSource | None = None,
    ) -> list[Prediction]:
        """The class of each input, by as few noisy copies as an answer needs; or an abstention.

        Args:
            x: The inputs, as for `certify`.
            samples: The most noisy copies of each input.
            alpha: The largest probability of a wrong answer.
            milliseconds: The time after which inputs whose answer is not clear yet are abstentions,
                to the end of a batch. The first call for a shape or number format also prepares the
                classifier, which does not count.
            groups: Groups of classes, in levels from coarse to fine, as for `smoothcert.ask`. Where
                no class is settled, the answer is the finest group that is.
        """
        return predict(
            self,
            self._batch_of(x),
            samples=samples,
            alpha=alpha,
            milliseconds=milliseconds,
            groups=groups,
        )

    def __call__(self, x: ArrayLike | Tensor) -> Tensor:
        """The class of each input, -1 for an abstention; `predict` with its defaults.

        Args:
            x: The inputs, as for `certify`.
        """
        answers = [prediction.prediction for prediction in self.predict(x)]
        labels = [NO_CLASS if answer is None else answer for answer in answers]
        return torch.tensor(labels, device=x.device if isinstance(x, Tensor) else None)

    def _batch_of(self, x: Any) -> Any:
        """The inputs, after a check that a single image has a batch axis.

        Nested lists of numbers are an array.
        """
        if is_numbers(x):
            x = as_input(x)
        if isinstance(x, (Tensor, np.ndarray)):
            self._check_batch_axis(tuple(x.shape))
        return x

    def _check_batch_axis(self, shape: tuple[int, ...]) -> None:
        expected = self.model.input_shape if isinstance(self.model, Classifier) else None
        takes_images = expected is None or len(expected) == 3
        looks_like_image = takes_images and len(shape) == 3 and shape[0] in _IMAGE_CHANNELS
        is_image = looks_like_image and shape[1:] not in self.bound_shapes
        if shape != expected and len(shape) >= 2 and not is_image:
            return
        raise InvalidInput(
            "no-batch-axis",
            "the inputs must be a batch, got one array of shape {shape}: for one input give "
            "x[None], for pictures without channels list(x)",
            shape=shape,
        )
