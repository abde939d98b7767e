"""Find the classifier for what the caller has: the name of a model, a module or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._user_errors import import_users_module, user_errors
from smoothcert.errors import InvalidInput, did_you_mean
from smoothcert.models.architectures import ARCHITECTURES, NAMED_WEIGHTS, build, bundled_name
from smoothcert.models.base import (
    Classifier,
    Network,
    check_classes,
    copied,
    evaluation_mode,
    import_path,
    like_weights,
    not_loaded,
    state_hash,
)
from smoothcert.models.checkpoint import Checkpoint, read_checkpoint
from smoothcert.models.outputs import answer, unfit
from smoothcert.models.wrappers import SeededRows, ensemble

_SOURCES = {
    "hf": "huggingface:load",
    "onnx": "onnx:load",
    "timm": "vision:load_timm",
    "torchvision": "vision:load_torchvision",
}
"""Prefixes, and the module and function of this package that makes such a classifier."""
ASSETS = Path(__file__).parents[1] / "assets"
_DEFAULT_CLASSES = 10
_BUNDLED = (*ARCHITECTURES, *NAMED_WEIGHTS)
_CHOICES = (
    f"give one of {', '.join(_BUNDLED)}, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, "
    f"onnx:FILE, "
    "file.py:function or package.module:function"
)

Weights: TypeAlias = str | Path | Sequence[str | Path] | None


def load_classifier(
    spec: str | None,
    *,
    weights: Weights = None,
    classes: int | None = None,
    sigma: float | None = None,
    stochastic: bool = False,
) -> Classifier:
    """Load a classifier by name.

    If neither the caller nor the model tells the number of classes, it is 0.

    Args:
        spec: A bundled architecture, `fashion-cnn-clean`, `torchvision:NAME`, `timm:NAME`,
            `hf:NAME_OR_FOLDER`, `onnx:FILE`, `file.py:function` or `package.module:function`. None
            is allowed if the weights file states its architecture.
        weights: A weights file, or "none" for an untrained network, which certifies nothing but
            takes the same time. By default, the weights that come with the model: bundled, or
            published by its source. Several files, separated by commas or in a list, are an
            ensemble.
        classes: The number of classes, if the model does not determine it.
        sigma: The standard deviation of the noise of the certificates. Among bundled weights, those
            whose training noise is closest to it are taken.
        stochastic: Whether the model is random by design. A module of the user's own code then
            stays in the mode in which it is returned, because dropout is off in evaluation mode.
            Otherwise it is put into evaluation mode.

    Raises:
        InvalidInput: The name is unknown, or the weights do not fit.
        MissingExtra: The source needs a package that is not installed.

    >>> load_classifier("cifar-resnet20", weights="none").classes
    10
    """
    if classes is not None:
        classes = _check.whole("classes", classes, least=2)
    weights = named_weights(weights)
    if weights is not None and not Path(weights).is_file():
        files = weights.split(",")
        if len(files) > 1:
            return ensemble([_loaded(spec, file, classes, sigma, stochastic) for file in files])
    return _loaded(spec, weights, classes, sigma, stochastic)


def named_weights(weights: Weights) -> str | None:
    """The files with the weights, separated by commas; None if the user named none."""
    if weights is None:
        return None
    if isinstance(weights, str | Path):
        if Path(weights).is_file():  # also if its name has a comma
            return str(weights)
        weights = str(weights).split(",")
    files = ",".join(filter(None, [str(file).strip() for file in weights]))
    if not files:
        raise InvalidInput("no-weights-named", "`weights` names no file")
    return files


def _loaded(
    spec: str | None,
    weights: str | Path | None,
    classes: int | None,
    sigma: float | None,
    stochastic: bool,
) -> Classifier:
    """The classifier with the weights of one file; see `load_classifier`."""
    spec, checkpoint = _name_and_weights(spec, weights, sigma)
    if checkpoint is not None and classes is None:
        classes = checkpoint.classes
    classifier = _without_weights(spec, checkpoint, classes, published=weights is None)
    module = classifier.module
    if not isinstance(module, nn.Module):  # it takes no weights
        return classifier
    if not (stochastic and names_code(spec)):
        evaluation_mode(module)
    if checkpoint is not None:
        checkpoint.load_into(module, name=spec)
        classifier = replace(
            classifier,
            trained_sigma=checkpoint.sigma,
            trained_noise=checkpoint.noise,
            trained_denoiser=checkpoint.denoiser,
            trained_transformation=checkpoint.transformation,
        )
    return replace(classifier, weights_hash=classifier.weights_hash or state_hash(module))


def _name_and_weights(
    spec: str | None, weights: str | Path | None, sigma: float | None
) -> tuple[str, Checkpoint | None]:
    """The name of the model, and the file with its weights if there is one."""
    checkpoint = _given_weights(weights)
    if spec is None:
        spec = _spec_of(checkpoint)
    bundled = bundled_name(spec)
    if weights is None and bundled in _BUNDLED:
        checkpoint = _bundled_weights(bundled, sigma)
    return spec, checkpoint


def _without_weights(
    spec: str, checkpoint: Checkpoint | None, classes: int | None, *, published: bool
) -> Classifier:
    """The classifier from its source, with as many classes as a fine-tuned head has."""
    classifier = _made(spec, checkpoint, classes, published=published)
    module = classifier.module
    may_be_tuned = classes is None and not names_code(spec)
    if checkpoint is not None and may_be_tuned and isinstance(module, nn.Module):
        head = checkpoint.classes_of(module, classifier.classes)
        if head is not None:
            return _made(spec, checkpoint, head, published=False)
    check_classes(classifier.name, classifier.classes or classes, classes)
    return classifier


def _given_weights(weights: str | Path | None) -> Checkpoint | None:
    """The weights file that the caller names; None if there is none."""
    if weights is None or str(weights) == "none":
        return None
    if str(weights).endswith(".onnx"):
        raise InvalidInput(
            "weights-are-a-model",
            "{path} is a model with its weights: give it as `model={model}`",
            path=weights,
            model=f"onnx:{weights}",
        )
    checkpoint = read_checkpoint(weights)
    if checkpoint.method == "denoiser":
        raise InvalidInput(
            "weights-of-denoiser",
            "{path} holds a denoiser, not a classifier: give it as `denoiser`",
            path=weights,
        )
    return checkpoint


@contextmanager
def _fresh_weights() -> Iterator[None]:
    """Seed torch in this context.

    So an untrained network has the same weights every time, and a run can resume.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@_fresh_weights()
def _made(
    spec: str, checkpoint: Checkpoint | None, classes: int | None, *, published: bool
) -> Classifier:
    """The classifier from its source, with published weights or without weights."""
    if bundled_name(spec) in _BUNDLED:
        return _load_bundled(spec, checkpoint, classes)
    if names_code(spec):
        return _load_code(spec, checkpoint, classes)
    if spec.endswith(".onnx") and Path(spec).is_file():
        spec = f"onnx:{spec}"
    prefix, _, name = spec.partition(":")
    if prefix not in _SOURCES or not name:
        raise InvalidInput(
            "unknown-model",
            "unknown model {model!r}{hint}",
            model=spec,
            hint=did_you_mean(spec, _BUNDLED) or f": {_CHOICES}",
        )
    load: Callable[..., Classifier] = resolve_name(f"smoothcert.models.{_SOURCES[prefix]}")
    try:
        return load(name, published=published, classes=classes)
    except OSError as error:
        raise not_loaded(spec, error) from None


def _spec_of(checkpoint: Checkpoint | None) -> str:
    """The model name for the architecture that a file states.

    A name that is not bundled is one of torchvision.
    """
    architecture = checkpoint and checkpoint.architecture
    if not architecture:
        raise InvalidInput(
            "no-model",
            "no model is given, nor weights that state their architecture: {choices}",
            choices=_CHOICES,
        )
    if names_code(architecture):
        raise InvalidInput(
            "weights-name-code",
            "the weights are for {architecture}, and code that a file names is not executed: give "
            "`model`",
            architecture=architecture,
        )
    if ":" in architecture or bundled_name(architecture) in ARCHITECTURES:
        return architecture
    return f"torchvision:{architecture}"


def names_code(spec: str) -> bool:
    """Whether a model or denoiser is named as code, such as `package.module:function`.

    Runs and weights may come from a stranger. So if they name code, it is not executed: the user
    has to give the model.
    """
    prefix, _, _ = spec.partition(":")
    return prefix not in ("", spec, *_SOURCES) and spec.rpartition(":")[2].isidentifier()


def _load_bundled(name: str, checkpoint: Checkpoint | None, classes: int | None) -> Classifier:
    bundled = bundled_name(name)
    architecture = NAMED_WEIGHTS.get(bundled, bundled)
    shape: tuple[int, ...] = ARCHITECTURES[architecture].input_shape
    if checkpoint is not None and checkpoint.noise is not None:
        shape = checkpoint.noise.draw.output_shape(shape)
    classes = classes or _DEFAULT_CLASSES
    module = build(architecture, classes=classes, channels=shape[0])
    return Classifier(module=module, classes=classes, name=name, input_shape=shape)


def _bundled_weights(name: str, sigma: float | None) -> Checkpoint:
    """The bundled weights whose training noise is closest to `sigma`.

    By default, they are those with the least noise.
    """
    if name in NAMED_WEIGHTS:
        return read_checkpoint(ASSETS / f"{name}.safetensors")
    files = ASSETS.glob(f"{name}-[0-9]*.safetensors")
    by_sigma = {float(path.stem.removeprefix(f"{name}-")): path for path in files}
    if not by_sigma:
        raise InvalidInput(
            "no-bundled-weights",
            "{model} comes without weights: give `weights=FILE`, or `weights=none` for an "
            "untrained network",
            model=name,
        )
    wanted = sigma or 0.0
    closest = min(sorted(by_sigma), key=lambda trained_sigma: abs(trained_sigma - wanted))
    return read_checkpoint(by_sigma[closest])


def _load_code(name: str, checkpoint: Checkpoint | None, classes: int | None) -> Classifier:
    """A classifier from the user's own code: `package.module:factory` or `file.py:factory`.

    The name refers to a module, or to a function without arguments that returns one. Instead of a
    module, it may also return a function from batches to logits or labels. If the number of classes
    is not given, it is the attribute `classes` of what is returned, or else the number of its
    logits. The module stays in the mode in which the function returns it.
    """
    name, made = make(name)
    kind = type(made).__name__
    if checkpoint is not None and not isinstance(made, nn.Module):
        raise InvalidInput(
            "takes-no-weights",
            "{name} returned a {kind}, which cannot take the weights of {path}",
            name=name,
            kind=kind,
            path=checkpoint.path,
        )
    if isinstance(made, Classifier):
        return replace(made, name=name, classes=made.classes or classes or 0)
    if not callable(made):
        raise InvalidInput(
            "returned-no-model",
            "{name} returned a {kind}: expected a torch module or a function{hint}",
            name=name,
            kind=kind,
            hint=hint_for(made),
        )
    stated = classes or getattr(made, "classes", None)
    return Classifier(module=made, classes=stated if isinstance(stated, int) else 0, name=name)


def hint_for(model: object) -> str:
    """What to give instead of a model of scikit-learn, and of libraries like it."""
    if not hasattr(model, "predict_proba"):
        return ""
    return ": give lambda x: model.predict_proba(x.cpu().numpy())"


def make(spec: str, what: str = "model") -> tuple[str, Any]:
    """The name of the user's function, with a module instead of a file, and what it returns.

    The name may also refer to a module itself.
    """
    place, _, attribute = spec.rpartition(":")
    module = import_users_module(place)
    name = f"{module.__name__}:{attribute}"
    file = getattr(module, "__file__", None)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise InvalidInput(
            "no-function",
            "{place} ({file}) has no function {name!r}",
            place=place,
            file=file or "built in",
            name=attribute,
        )
    if isinstance(factory, nn.Module):
        return name, factory
    hint = f"it is called without arguments and must return the {what}"
    with _fresh_weights(), user_errors(f"calling {name}", near=file, hint=hint):
        return name, factory()


def as_classifier(
    model: Classifier | Network,
    *,
    classes: int | None,
    example: Tensor,
    stochastic: bool = False,
) -> Classifier:
    """A module or a function of the caller as a classifier, with its number of classes."""
    if isinstance(model, Classifier):
        classifier = model
    else:
        classifier = Classifier(
            module=model,
            classes=0,
            name=import_path(model),
            input_shape=tuple(example.shape),
            weights_hash=state_hash(model) if isinstance(model, nn.Module) else None,
        )
    if classes is not None:
        check_classes(classifier.name, classifier.classes or classes, classes)
        return replace(classifier, classes=classes)
    if classifier.classes:
        return classifier
    counted = _count_classes(classifier.module, example, stochastic=stochastic)
    return replace(classifier, classes=counted)


def _count_classes(model: Network, example: Tensor, *, stochastic: bool) -> int:
    """The number of logits for one input."""
    if stochastic:
        model = SeededRows(model)
    if isinstance(model, nn.Module):
        model = copied(model)  # a call may change the module
    with torch.inference_mode():
        output = answer(model, like_weights(example[None], model))
    if output.ndim == 1 and not output.is_floating_point():
        raise InvalidInput(
            "unknown-classes",
            "the model returns labels, so the number of classes is unknown: give `classes=N`",
        )
    if output.ndim != 2:
        raise unfit(output, 1, "classes")
    return int(output.shape[1])
