"""The subject of certificates: a classifier with its settings, as it is certified.

A subject has two stages. A `Subject` is what the user describes: a model and its settings. `bind`
replaces everything that the settings leave open by values for some inputs; such a subject can be
sent to a worker. `prepare` makes it a `ReadySubject`, which counts votes on a device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Self, TypeAlias, cast

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._settings import DEFAULTS, NAMES, Settings
from smoothcert.data.base import Dataset, first_readable
from smoothcert.data.groups import as_text, read_level
from smoothcert.device.runtime import (
    Compiled,
    Device,
    Dtype,
    Runtime,
    Say,
    say_nothing,
    settle_dtype,
)
from smoothcert.errors import InvalidInput
from smoothcert.models import Classifier, load_classifier
from smoothcert.models.base import Network, check_values, check_weights, snapshot
from smoothcert.models.denoisers import Denoiser, denoised, load_denoiser
from smoothcert.models.denoisers.base import check_estimates
from smoothcert.models.load import as_classifier, hint_for, named_weights
from smoothcert.models.outputs import fingerprint
from smoothcert.models.wrappers import (
    Fit,
    fitted,
    locally_smoothed,
    seeded_by_row,
    unseeded,
)
from smoothcert.noises import GridGaussian, Noise, noise_of, transformed
from smoothcert.noises.base import Shape
from smoothcert.noises.rounded_normal import LARGEST_DEVIATION
from smoothcert.plans.groups import Groups
from smoothcert.plans.votes import Answer
from smoothcert.sampling.engine import Input
from smoothcert.sampling.streams import HostStream, Segment, check_seed, key_for
from smoothcert.smoothed.checks import check_shape, check_values_of_input
from smoothcert.smoothed.local import checked_local, local_noises
from smoothcert.smoothed.number_format import settle_number_format
from smoothcert.smoothed.prepare import ReadySubject, prepare

Resolve: TypeAlias = Callable[[Device, Dtype, str, int | str], Runtime]
"""Chooses the runtime from device, number format, compilation and batch size."""

_COMPARED_INPUTS = 8
"""The most inputs whose labels are compared between number formats."""
_CHECKED_COPIES = 61
"""Noisy copies of the example in a check. The number is prime, so no pattern of rows repeats."""
_NOT_OF_THE_CLASSIFIER = {"device", "dtype", "compile", "batch", "seed", "pad"}
"""Settings that leave the network and its noise as they are."""
_SHOWN_IN_WORDS = ("noise", "sigma", "transform", "classes", "denoiser", "weights")
"""Settings that `repr` shows in words, or by the name of the model."""


@dataclass(frozen=True, repr=False, eq=False)
class Subject(Settings):
    """A classifier and its settings.

    Args:
        model: A name as on the command line (None if `weights` names the architecture), a module,
            or a function from a float batch to logits or labels. Tuples, dictionaries and arrays
            that hold the logits will do.
        **settings: See `Settings`.
    """

    model: str | Classifier | Network | None
    example: Tensor = field(init=False)
    """An input like those that are certified. A subject has it when it is bound."""
    classifier: Classifier = field(init=False)
    """The model behind its denoiser, with its number of classes; also of a bound subject."""
    answer_groups: Groups | None = field(init=False)
    """The groups that a bound subject answers with; None for classes."""
    comparison: str = field(init=False)
    """How the number format of a bound subject was chosen, in words, if labels were compared."""
    _fit: Fit | None = field(init=False)
    """What brings noisy inputs to the shape that the network takes."""
    _calls: Iterator[int] = field(init=False)
    _bound: _BoundSubjects = field(init=False)

    def __post_init__(self) -> None:
        is_named = self.model is None or isinstance(self.model, str)
        if self.weights is not None and not is_named:
            raise InvalidInput(
                "weights-without-name",
                "`weights={weights}` is for a model given by its name: load them into the module "
                "before",
                weights=self.weights,
            )
        noise = noise_of(self.noise, self.sigma)
        sigma = self.sigma
        if self.transform is not None:
            noise = transformed(noise, self.transform)
            sigma = None  # a transformation needs noise off the grid
        seed = check_seed(_check.whole("seed", self.seed))
        classes = self.classes
        if classes is not None:
            classes = _check.whole("classes", classes, least=2)
        fit = Fit.of(None if self.resize is None else str(self.resize), self.channels)
        vars(self).update(
            noise=noise,
            sigma=sigma,
            seed=seed,
            classes=classes,
            resize=fit and fit.resize,
            model=self._loaded_model(noise),
            weights=named_weights(self.weights),
            denoiser=self._loaded_denoiser(),
            local=None if self.local is None else checked_local(self.local),
            groups=None if self.groups is None else as_text(self.groups),
            _fit=fit,
            _calls=count(),
            _bound=_BoundSubjects(),
        )

    def _loaded_model(self, noise: Noise) -> Classifier | Network:
        model = self.model
        if model is None or isinstance(model, str):
            # Behind a denoiser, the weights with the least noise in training fit best.
            sigma = noise.deviation if self.denoiser is None else None
            return load_classifier(
                model,
                weights=self.weights,
                classes=self.classes,
                sigma=sigma,
                stochastic=self.stochastic,
            )
        if isinstance(model, Classifier):
            return model
        if not callable(model):
            raise InvalidInput(
                "not-a-model",
                "model must be a name, a module or a function, got {kind}{hint}",
                kind=type(model).__name__,
                hint=hint_for(model),
            )
        check_weights(model)
        return model

    def _loaded_denoiser(self) -> Denoiser | None:
        if self.denoiser is None:
            return None
        denoiser = load_denoiser(self.denoiser, stochastic=self.stochastic)
        check_weights(denoiser, what=f"the denoiser {denoiser.name}")
        return denoiser

    def __repr__(self) -> str:
        name = getattr(self.model, "__name__", type(self.model).__name__)
        classes = self.classes
        if isinstance(self.model, Classifier):
            name = self.model.name
            classes = classes or self.model.classes
        if self._denoiser is not None:
            name = f"{name} behind {self._denoiser.name}"
        parts = [name]
        if classes:
            parts.append(f"{classes} classes")
        parts.append(str(self.noise) if self.sigma is None else f"sigma={self.sigma}")
        others = {name: getattr(self, name) for name in NAMES if name not in _SHOWN_IN_WORDS}
        parts += [f"{key}={value}" for key, value in others.items() if value != DEFAULTS[key]]
        return f"<{type(self).__name__}: {', '.join(parts)}>"

    def __getstate__(self) -> dict[str, Any]:
        """The state of copies, also in other processes: they prepare the classifier themselves."""
        state = {**vars(self), "_bound": _BoundSubjects()}
        state.pop("ready", None)
        return state

    def with_settings(self, **settings: Any) -> Self:
        """The same model with some settings replaced. It is not loaded again.

        Args:
            **settings: Settings by name, with valid values.
        """
        other = copy.copy(self)
        vars(other).update(settings)
        if not _NOT_OF_THE_CLASSIFIER.issuperset(settings):
            vars(other).pop("classifier", None)
        return other

    def at(self, runtime: Runtime) -> Self:
        """The same model in another runtime.

        Args:
            runtime: The runtime. A batch size of 0 is measured.
        """
        return self.with_settings(
            device=runtime.device,
            dtype=runtime.dtype,
            compile=runtime.compile,
            batch=runtime.batch or "auto",
        )

    def next_key(self, purpose: str) -> int:
        """The key of the noise of this call: every call draws noise of its own."""
        return key_for(self.seed, purpose, next(self._calls))

    def bind(
        self,
        dataset: Dataset,
        ids: Sequence[int],
        *,
        in_memory: bool = False,
        exact: bool = False,
        resolve: Resolve | None = None,
    ) -> Self:
        """The subject for inputs like these: composed, checked, and with nothing left open.

        Only the batch size is left open if it has to be measured; `prepare` does that. Without
        `resolve`, a subject keeps what it has bound from call to call, until its modules change or
        its function gives other answers.

        Args:
            dataset: The inputs.
            ids: The inputs to certify. The first ones show whether a reduced number format changes
                labels.
            in_memory: Whether the certificates stay in memory. Then batches may be smaller.
            exact: Whether the defaults are float32 and noise on the grid on every device.
            resolve: Chooses the runtime on the machine where the classifier will run. Default: on
                this machine.
        """
        example = first_readable(dataset)
        if resolve is not None:
            return self._bind(dataset, ids, example, in_memory, exact, resolve)
        levels = getattr(dataset, "levels", None)
        key = (tuple(example.shape), levels, in_memory, exact)
        bound = self._bound.find(key, snapshot(*self._modules()))
        if bound is None:
            bound = self._bind(dataset, ids, example, in_memory, exact, Runtime.resolve)
            self._bound.add(key, bound)
        return cast(Self, bound)

    def _bind(
        self,
        dataset: Dataset,
        ids: Sequence[int],
        example: Tensor,
        in_memory: bool,
        exact: bool,
        resolve: Resolve,
    ) -> Self:
        """The subject for inputs like this example; see `bind`."""
        classifier = self._composed(example)
        dtype = "float32" if exact and self.dtype == "auto" else self.dtype
        dtype = settle_dtype(dtype, classifier.module)
        runtime = resolve(self.device, dtype, self.compile, self.batch)
        wants_grid = exact or runtime.prefers_grid
        levels = getattr(dataset, "levels", None) if wants_grid else None
        noise = self._noise_for(tuple(example.shape), levels)
        check_shape(classifier, noise, tuple(example.shape), dataset.name, self._fit)
        if self._denoiser is not None:
            check_estimates(
                self._denoiser,
                example,
                noise.deviation,
                device=runtime.device_here,
                stochastic=self.stochastic,
            )
        comparison = ""
        if dtype == "auto":
            inputs = _first_inputs(dataset, ids)
            runtime, comparison = settle_number_format(
                runtime, classifier.module, inputs, classes=classifier.classes, noise=noise
            )
        may_be_smaller = in_memory and (not self.pad or not runtime.batch)
        groups = self._groups_of(classifier.classes, dataset.class_names)
        bound = self.at(runtime).with_settings(
            noise=noise,
            sigma=None,
            pad=not may_be_smaller,
            groups=groups and groups.text,
        )
        vars(bound).update(
            classifier=classifier, example=example, comparison=comparison, answer_groups=groups
        )
        return bound

    def _groups_of(self, classes: int, class_names: Sequence[str] | None) -> Groups | None:
        if self.groups is None:
            return None
        return read_level(cast(str, self.groups), classes, class_names)

    @property
    def bound_shapes(self) -> set[Shape]:
        """The shapes of inputs that this subject was bound to."""
        return {shape for shape, *_ in self._bound.subjects}

    def _noise_for(self, shape: Shape, levels: int | None) -> Noise:
        """The noise for inputs of a shape.

        If the user gave `sigma`, Gaussian noise is drawn on the grid of these levels, unless it is
        too large for that.
        """
        if self.sigma is None or levels is None or self.sigma * levels > LARGEST_DEVIATION:
            return self.noise.for_shape(shape)
        return GridGaussian(self.sigma, 1 / levels).for_shape(shape)

    def _composed(self, example: Tensor) -> Classifier:
        """The base classifier behind its denoiser, with its local noises and its classes."""
        noise = self.noise.for_shape(tuple(example.shape))
        noisy = _noisy_example(example, noise)
        shape = tuple(noisy.shape)
        taken = noisy if self._fit is None else torch.zeros(self._fit.shape(shape))
        classifier = as_classifier(
            cast("Classifier | Network", self.model),
            classes=self.classes,
            example=taken,
            stochastic=self.stochastic,
        )
        if self._fit is not None:
            classifier = fitted(classifier, self._fit)
        if self.local is not None:
            local = cast(str, self.local)
            classifier = locally_smoothed(classifier, local_noises(local, shape), local)
        if self._denoiser is not None:
            classifier = denoised(classifier, self._denoiser, noise)
        return seeded_by_row(classifier) if self.stochastic else classifier

    @property
    def _denoiser(self) -> Denoiser | None:
        """The denoiser, which was loaded at the beginning."""
        return cast("Denoiser | None", self.denoiser)

    def _modules(self) -> tuple[nn.Module | None, nn.Module | None]:
        """The modules that are copied when the classifier is prepared."""
        model = self.model.module if isinstance(self.model, Classifier) else self.model
        return model if isinstance(model, nn.Module) else None, self._denoiser

    @property
    def runtime(self) -> Runtime:
        """How a bound subject is run."""
        batch = 0 if self.batch == "auto" else int(self.batch)
        return Runtime(str(self.device), str(self.dtype), cast(Compiled, self.compile), batch)

    @property
    def shape(self) -> Shape:
        """The shape of an input without noise."""
        return tuple(self.example.shape)

    @property
    def noisy_shape(self) -> Shape:
        """The shape of a noisy input, which is what the classifier takes."""
        return self.noise.draw.output_shape(self.shape)

    @property
    def answers_known(self) -> int:
        """How many answers a bound subject can give: its groups, or the classes."""
        return self.classifier.classes if self.answer_groups is None else self.answer_groups.count

    def read(self, dataset: Dataset, id: int, *, known_labels: bool = False) -> Input:
        """Read one input, and check that it can be certified."""
        try:
            x, label = dataset[id]
        except InvalidInput as error:
            raise InvalidInput(
                "unreadable-input",
                "{why}; you can leave input {id} out with `ids`",
                why=error.message,
                id=id,
            ) from error
        which = f"input {id} of {dataset.name}"
        if tuple(x.shape) != self.shape:
            raise InvalidInput(
                "other-shape",
                "{which} has shape {shape}, but the first input has {first}",
                which=which,
                shape=tuple(x.shape),
                first=self.shape,
            )
        check_values_of_input(which, x, self.noise, self.runtime.dtype)
        check_values(self.classifier.values, x, which)
        self.check_label(dataset, id, label, needed=known_labels)
        if self.answer_groups is not None:
            label = self.answer_groups.label(label)
        return id, x, None if label < 0 else label

    def check_label(self, dataset: Dataset, id: int, label: int, *, needed: bool) -> None:
        """Refuse a label that the model does not know and, where one is needed, an unknown one."""
        if needed and label < 0:
            raise InvalidInput(
                "no-label",
                "input {id} of {data} has no label, and `known_labels=True` needs one for every "
                "input",
                id=id,
                data=dataset.name,
            )
        if label >= self.classifier.classes:
            raise InvalidInput(
                "unknown-label",
                "input {id} of {data} has label {label}, but the model knows only the classes 0 to "
                "{last}",
                id=id,
                data=dataset.name,
                label=label,
                last=self.classifier.classes - 1,
            )

    def fingerprint(self) -> list[Answer] | None:
        """The answers to a few fixed noisy inputs, by which a changed classifier is noticed."""
        runtime = self.runtime
        return fingerprint(
            self.classifier.module,
            _noisy_example(self.example, self.noise),
            runtime.torch_device,
            runtime.torch_dtype,
            classes=self.classifier.classes,
        )

    @cached_property
    def ready(self) -> ReadySubject:
        """This subject, prepared once: subjects that are bound here are kept from call to call."""
        return self.prepare()

    def prepare(self, say: Say = say_nothing) -> ReadySubject:
        """Check the classifier, move it to its device and make it fast; choose the batch size.

        Args:
            say: Shows messages to the user.
        """
        noisy = torch.empty((_CHECKED_COPIES, *self.noisy_shape))
        stream = HostStream(key_for(self.seed, "check"), self.noise.draw)
        copies = Segment(0, 0, 0, _CHECKED_COPIES)
        stream.write(noisy, self.example[None].float(), [copies], torch.empty(0))
        classify, runtime = prepare(
            self.classifier.module,
            self.classifier.classes,
            self.noisy_shape,
            self.runtime,
            say,
            draw=self.noise.draw,
            noisy=noisy,
        )
        return ReadySubject(
            classify,
            runtime,
            noise=self.noise,
            shape=self.shape,
            classes=self.classifier.classes,
            seed=self.seed,
            pad=self.pad,
            groups=self.answer_groups,
        )


_Key: TypeAlias = tuple[tuple[int, ...], int | None, bool, bool]
"""The shape of an input, the levels of its values, and the choices of `bind`."""


class _BoundSubjects:
    """What a subject has bound, until its modules change or its function gives other answers."""

    def __init__(self) -> None:
        self.subjects: dict[_Key, tuple[Subject, list[Answer] | None]] = {}
        self._state: object = None

    def find(self, key: _Key, state: object) -> Subject | None:
        """The subject for these inputs; None if there is none, or if the classifier has changed."""
        if state != self._state:
            self.subjects.clear()
            self._state = state
        if key not in self.subjects:
            return None
        subject, before = self.subjects[key]
        return subject if _fingerprint_of_function(subject) == before else None

    def add(self, key: _Key, subject: Subject) -> None:
        """Keep a subject for the next call."""
        self.subjects[key] = (subject, _fingerprint_of_function(subject))


def _fingerprint_of_function(subject: Subject) -> list[Answer] | None:
    """What a function answers to a few inputs.

    Nothing else shows that it has changed, or has become random.
    """
    module = subject.classifier.module
    if isinstance(unseeded(module), nn.Module):
        return None
    return subject.fingerprint()


def _noisy_example(example: Tensor, noise: Noise) -> Tensor:
    """An input of the shape that the classifier takes: the example, or zeros of another shape."""
    shape = tuple(example.shape)
    noisy_shape = noise.draw.output_shape(shape)
    return example if noisy_shape == shape else torch.zeros(noisy_shape)


def _first_inputs(dataset: Dataset, ids: Sequence[int]) -> list[Tensor]:
    inputs = []
    for id in ids[:_COMPARED_INPUTS]:
        with suppress(Exception):  # an input that cannot be read is reported when its turn comes
            inputs.append(dataset[id][0])
    return inputs


# Users call `Smoothed`. Python names this in its error about an unknown argument.
Subject.__init__.__qualname__ = "Smoothed"
