"""`Smoothed`: a classifier and a noise, from which every task starts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._agreement import Answer
from smoothcert._check import NO_CLASS
from smoothcert.data.base import Dataset, first_readable
from smoothcert.data.inputs import as_input, is_numbers
from smoothcert.device.runtime import Device, Dtype, Runtime, settle_dtype
from smoothcert.errors import InvalidInput, setting
from smoothcert.models import Classifier, load_classifier
from smoothcert.models.base import check_weights, snapshot
from smoothcert.models.denoisers import denoised, load_denoiser
from smoothcert.models.denoisers.base import check_estimates
from smoothcert.models.load import as_classifier
from smoothcert.models.outputs import SeededRows
from smoothcert.noises import Gaussian, GridGaussian, Noise
from smoothcert.noises.rounded_normal import LARGEST_DEVIATION
from smoothcert.sampling.streams import check_seed, key_for
from smoothcert.smoothed.prepare import COMPARED_INPUTS, settle_number_format
from smoothcert.smoothed.subject import Subject, check_shape

if TYPE_CHECKING:
    from smoothcert.plans import Plan
    from smoothcert.runs.results import Results
    from smoothcert.tasks.predict import Prediction


_Key: TypeAlias = tuple[tuple[int, ...], int | None, bool]
"""The shape of an input, the levels of its values, and whether batches may be smaller."""


class Settings(TypedDict, total=False):
    """The settings of `Smoothed`, for functions that make one."""

    noise: Noise | None
    sigma: float | None
    weights: str | Path | None
    classes: int | None
    denoiser: str | Path | nn.Module | None
    stochastic: bool
    seed: int
    device: Device
    dtype: Dtype
    batch: int | str
    compile: str


class Smoothed:
    """A smoothed classifier.

    Inputs are certified and classified in batches. Bytes and images stand for 0 to 255 and are divided by 255; other
    numbers are taken as they are. Every call draws new noise. If weights, hooks or attributes of the model change, the
    next call uses the new ones. The settings cannot be changed: make another `Smoothed`.

    Args:
        model: A name as on the command line (None if `weights` names the architecture), a module, or a function from a
            float batch to logits or labels. Tuples, dictionaries and arrays that hold the logits will do.
        noise: The smoothing noise. Give either this or `sigma`.
        sigma: The standard deviation of Gaussian noise. On CUDA, noise for 8-bit images is drawn on their grid, as
            `GridGaussian(sigma)`, which is exact in floating point and costs little there. Otherwise, this is
            `Gaussian(sigma)`. A run that is resumed keeps its noise.
        weights: A checkpoint for a model that is given by its name.
        classes: The number of classes. It is needed only where the model returns labels.
        denoiser: Removes the noise before the model sees an input; see `load_denoiser`. The certificates are about the
            denoiser and the model together.
        stochastic: Whether the model is random by design. Its random numbers then depend on the noisy input alone, and
            inputs are classified one at a time; see `SeededRows`.
        seed: The key of the noise: the same seed draws the same noise.
        device: "cpu", "cuda", "cuda:N", "mps", a `torch.device` or the number of a CUDA device. Default: the fastest.
        dtype: The number format of the classifier. Default: bfloat16 where the device has it, unless it gives other
            labels than float32 on noisy copies of the first inputs; else float32. A model in float64 stays in it.
        batch: Rows per forward pass. Default: chosen by measuring.
        compile: "none", "fast", "default" or "max". Default: "fast" on CUDA, else "none".

    >>> from smoothcert import InputSpecific
    >>> def halves(x):  # the class says whether the first number is above a half
    ...     return (x[:, 0] > 0.5).long()
    >>> smoothed = Smoothed(halves, sigma=0.5, classes=2, device="cpu", batch=1000)
    >>> results = smoothed.certify([[1.0, 0.0], [0.2, 1.0]], plan=InputSpecific(10_000, decline=0.05))
    >>> results.prediction.tolist(), 0.42 < results[0].radius < 0.5
    ([1, 0], True)
    """

    def __init__(
        self,
        model: str | Classifier | Callable[[Tensor], Any] | None,
        *,
        noise: Noise | None = None,
        sigma: float | None = None,
        weights: str | Path | None = None,
        classes: int | None = None,
        denoiser: str | Path | nn.Module | None = None,
        stochastic: bool = False,
        seed: int = 0,
        device: Device = "auto",
        dtype: Dtype = "auto",
        batch: int | str = "auto",
        compile: str = "auto",
    ) -> None:
        if weights is not None and not (model is None or isinstance(model, str)):
            raise InvalidInput(
                f"{setting('weights', weights)} is for a model given by its name: load them into the module before"
            )
        self.noise = _noise_given(noise, sigma)
        self.sigma = sigma
        self.seed = check_seed(_check.whole("seed", seed))
        self.stochastic = stochastic
        self.weights = None if weights is None else str(weights)
        self.classes = None if classes is None else _check.whole("classes", classes, least=2)
        self.device, self.dtype, self.batch, self.compile = device, dtype, batch, compile
        self.batch_at_most = False  # a model may take only batches of exactly the given size
        self.exact = False  # whether float32 and noise on the grid are the defaults on every device
        if model is None or isinstance(model, str):
            # Behind a denoiser, the weights with the least noise in training fit best.
            best = self.noise.deviation if denoiser is None else None
            model = load_classifier(
                model, weights=weights, classes=classes, sigma=best, stochastic=stochastic
            )
        elif not isinstance(model, Classifier):
            if not callable(model):
                raise InvalidInput(
                    f"model must be a name, a module or a function, got {type(model).__name__}"
                )
            check_weights(model)
        self.model = model
        self.denoiser = None if denoiser is None else load_denoiser(denoiser, stochastic=stochastic)
        if self.denoiser is not None:
            check_weights(self.denoiser, what=f"the denoiser {self.denoiser.name}")
        self._calls = count()
        self._kept = _Kept()

    def __setattr__(self, name: str, value: object) -> None:
        if "_kept" in vars(self):
            raise InvalidInput(
                "smoothed-is-frozen",
                "{name} of a Smoothed cannot be set: make another one, Smoothed(...)",
                name=name,
            )
        super().__setattr__(name, value)

    def certify(
        self, x: Any, labels: Any = None, *, plan: Plan | None = None, **options: Any
    ) -> Results:
        """Certify a batch of inputs, or all inputs of a data set. Different inputs share batches.

        Args:
            x: The inputs: an array of shape (n, ...), or any other data that `smoothcert.certify` takes.
            labels: The label of each input, None or -1 where it is unknown.
            plan: How many samples an input gets. Default: input-specific sampling with its defaults.
            **options: Further arguments of `smoothcert.certify`. With `out=DIR`, the certificates are kept in a folder,
                and the same call resumes.

        Returns:
            The results: in memory, or on disk if `out` is given.
        """
        from smoothcert.tasks.certify import certify

        return certify(self, self._batch_of(x), labels, plan=plan, **options)

    def predict(
        self,
        x: Any,
        *,
        samples: int = 1000,
        alpha: float = 0.001,
        milliseconds: float | None = None,
    ) -> list[Prediction]:
        """The class of each input, by as few noisy copies as a clear answer needs, else an abstention.

        Args:
            x: The inputs, as for `certify`.
            samples: The most noisy copies of each input.
            alpha: The largest probability of a wrong answer.
            milliseconds: The time after which inputs whose answer is not clear yet are abstentions, to the end of a
                batch. The first call also prepares the classifier.
        """
        from smoothcert.tasks.predict import predict

        return predict(
            self, self._batch_of(x), samples=samples, alpha=alpha, milliseconds=milliseconds
        )

    def __call__(self, x: ArrayLike | Tensor) -> Tensor:
        """The class of each input, -1 for an abstention; `predict` with its defaults.

        Args:
            x: The inputs, as for `certify`.
        """
        found = [NO_CLASS if one.prediction is None else one.prediction for one in self.predict(x)]
        return torch.tensor(found, device=x.device if isinstance(x, Tensor) else None)

    def __repr__(self) -> str:
        classifier = self.model if isinstance(self.model, Classifier) else None
        name = (
            classifier.name
            if classifier
            else getattr(self.model, "__name__", type(self.model).__name__)
        )
        classes = self.classes or (classifier.classes if classifier else 0)
        parts = [
            name if self.denoiser is None else f"{name} behind {self.denoiser.name}",
            f"{classes} classes" if classes else "",
            str(self.noise) if self.sigma is None else f"sigma={self.sigma}",
            *(
                f"{key}={value}"
                for key in ("device", "dtype")
                if (value := getattr(self, key)) != "auto"
            ),
        ]
        return f"<Smoothed: {', '.join(filter(None, parts))}>"

    def asking(self, **settings: Any) -> Self:
        """The same classifier with some settings replaced. It is not loaded again."""
        other = copy.copy(self)
        vars(other).update(settings, _kept=_Kept())
        return other

    def next_key(self, purpose: str) -> int:
        """The key of the noise of this call: every call draws noise of its own."""
        return key_for(self.seed, purpose, next(self._calls))

    def bind(
        self,
        dataset: Dataset,
        ids: Sequence[int],
        *,
        flexible: bool = False,
        resolve: Callable[[Device, Dtype, str, int | str], Runtime] | None = None,
    ) -> Subject:
        """The classifier as it is run on inputs like these: composed, checked and with its number format settled.

        Args:
            dataset: The inputs.
            ids: The inputs to certify. The first ones show whether a reduced number format changes labels.
            flexible: Whether batches that are not full may be smaller.
            resolve: Chooses the runtime on the machine where the classifier will run. Default: on this machine.
        """
        x = first_readable(dataset)
        levels = getattr(dataset, "levels", None)
        key = (tuple(x.shape), levels, flexible)
        if resolve is None:
            subject = self._kept.subject(key, snapshot(*self._modules()))
            if subject is not None:
                return subject
        classifier = self._classifier(x)
        dtype = settle_dtype(
            "float32" if self.exact and self.dtype == "auto" else self.dtype, classifier.module
        )
        runtime = (resolve or Runtime.resolve)(self.device, dtype, self.compile, self.batch)
        noise = self.noise
        if self.sigma is not None and levels is not None and (self.exact or _on_cuda(runtime)):
            # On a CPU, the grid can cost a third of the samples per second.
            noise = Gaussian(self.sigma)
            if self.sigma * levels <= LARGEST_DEVIATION:
                noise = GridGaussian(self.sigma, 1 / levels)
        noise = noise.for_shape(tuple(x.shape))
        runtime.check_noise(noise.deviation)
        check_shape(classifier, noise, tuple(x.shape), dataset.name)
        if dtype == "auto":
            few = []
            for id in ids[:COMPARED_INPUTS]:
                with suppress(
                    Exception
                ):  # an input that cannot be read is reported when its turn comes
                    few.append(dataset[id][0])
            runtime = settle_number_format(
                runtime, classifier.module, few, classes=classifier.classes, noise=noise
            )
        settings = {"stochastic": self.stochastic}
        flexible = flexible and (self.batch_at_most or not runtime.batch)
        subject = Subject(classifier, noise, runtime, x, self.seed, settings, flexible)
        if resolve is None:
            self._kept.add(key, subject)
        return subject

    def _classifier(self, x: Tensor) -> Classifier:
        """The base classifier behind its denoiser, with its number of classes."""
        model, front, noise = self.model, self.denoiser, self.noise.for_shape(tuple(x.shape))
        if front is not None:
            check_estimates(front, x, noise.deviation, stochastic=self.stochastic)
            model = denoised(as_classifier(model, classes=self.classes, example=x), front, noise)
        shape = noise.draw.output_shape(tuple(x.shape))
        example = x if shape == tuple(x.shape) else torch.zeros(shape)
        return as_classifier(
            model, classes=self.classes, example=example, stochastic=self.stochastic
        )

    def _modules(self) -> tuple[nn.Module | None, nn.Module | None]:
        """The modules that are copied when the classifier is prepared."""
        model = self.model.module if isinstance(self.model, Classifier) else self.model
        return model if isinstance(model, nn.Module) else None, self.denoiser

    def _batch_of(self, x: Any) -> Any:
        """The inputs, after a check that a single image has a batch axis. Nested lists of numbers are an array."""
        if is_numbers(x):
            x = as_input(x)
        if isinstance(x, (Tensor, np.ndarray)):
            expected = self.model.input_shape if isinstance(self.model, Classifier) else None
            image = (
                x.ndim == 3 and x.shape[0] in (1, 3) and (expected is None or len(expected) == 3)
            )
            known = any(tuple(x.shape[1:]) == shape for shape, *_ in self._kept.subjects)
            if tuple(x.shape) == expected or x.ndim < 2 or (image and not known):
                raise InvalidInput(
                    f"the inputs must be a batch, got one array of shape {tuple(x.shape)}: for one input give x[None]"
                    + (
                        f", for {x.shape[0]} without channels list(x)"
                        if image and expected is None
                        else ""
                    )
                )
        return x


class _Kept:
    """The subjects of a `Smoothed` from call to call, until its modules change or its function gives other answers."""

    def __init__(self) -> None:
        self.subjects: dict[_Key, tuple[Subject, list[Answer] | None]] = {}
        self._state: object = None

    def subject(self, key: _Key, state: object) -> Subject | None:
        """The subject for these inputs; None if there is none yet, or if the classifier has changed."""
        if state != self._state:
            self.subjects.clear()
            self._state = state
        subject, answers = self.subjects.get(key, (None, None))
        if subject is None or _answers_of_function(subject) != answers:
            return None
        return subject

    def add(self, key: _Key, subject: Subject) -> None:
        """Keep a subject for the next call."""
        self.subjects[key] = subject, _answers_of_function(subject)


def _answers_of_function(subject: Subject) -> list[Answer] | None:
    """What a function answers to a few inputs. Nothing else shows that it has changed, or has become random."""
    module = subject.classifier.module
    function = module.model if isinstance(module, SeededRows) else module
    return None if isinstance(function, nn.Module) else subject.answers()


def _on_cuda(runtime: Runtime) -> bool:
    return runtime.torch_device.type == "cuda"


def _noise_given(noise: Noise | None, sigma: float | None) -> Noise:
    """The noise that the caller asks for, before the device is known."""
    if (noise is None) == (sigma is None):
        raise InvalidInput(
            f"give either {setting('sigma')} or {setting('noise')}, as in Gaussian(0.5)"
        )
    if sigma is not None:
        return Gaussian(sigma)
    if not isinstance(noise, Noise):
        raise InvalidInput(f"noise must be a noise such as Gaussian(0.5), got {noise!r}")
    return noise
