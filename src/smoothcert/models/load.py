"""Find the classifier for what the caller has: the name of a model, a module or a function."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._user_errors import import_users_module, user_errors
from smoothcert.errors import InvalidInput, did_you_mean, setting
from smoothcert.models.architectures import ARCHITECTURES, NAMED_WEIGHTS, build, bundled_name
from smoothcert.models.base import (
    Classifier,
    check_classes,
    copied,
    evaluation_mode,
    import_path,
    like_weights,
    not_loaded,
    state_hash,
)
from smoothcert.models.checkpoint import Checkpoint, read_checkpoint
from smoothcert.models.outputs import SeededRows, answer, unfit

_SOURCES = {
    "hf": "huggingface:load",
    "onnx": "onnx:load",
    "timm": "vision:load_timm",
    "torchvision": "vision:load_torchvision",
}
"""Prefixes, and the module and function of this package that makes such a classifier."""
ASSETS = Path(__file__).parents[1] / "assets"
_DEFAULT_CLASSES = 10
_CHOICES = (
    f"give one of {', '.join([*ARCHITECTURES, *NAMED_WEIGHTS])}, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, "
    "onnx:FILE, file.py:function or package.module:function"
)


def load_classifier(
    spec: str | None,
    *,
    weights: str | Path | None = None,
    classes: int | None = None,
    sigma: float | None = None,
    stochastic: bool = False,
) -> Classifier:
    """Load a classifier by name. If neither the caller nor the model tells the number of classes, it is 0.

    Args:
        spec: A bundled architecture, `fashion-cnn-clean`, `torchvision:NAME`, `timm:NAME`, `hf:NAME_OR_FOLDER`,
            `onnx:FILE`, `file.py:function` or `package.module:function`. None is allowed if the weights file states its
            architecture.
        weights: A weights file, or "none" for an untrained network, which certifies nothing but takes the same time. By
            default, the weights that come with the model: bundled, or published by its source.
        classes: The number of classes, if the model does not determine it.
        sigma: The standard deviation of the noise of the certificates. Among bundled weights, those whose training
            noise is closest to it are taken.
        stochastic: Whether the model is random by design. A module of the user's own code then stays in the mode in
            which it is returned, because dropout is off in evaluation mode. Otherwise it is put into evaluation mode.

    Raises:
        InvalidInput: The name is unknown, or the weights do not fit.
        MissingExtra: The source needs a package that is not installed.

    >>> load_classifier("cifar-resnet20", weights="none").classes
    10
    """
    if classes is not None:
        classes = _check.whole("classes", classes, least=2)
    published, checkpoint = weights is None, None
    if weights is not None and str(weights) != "none":
        checkpoint = read_checkpoint(weights)
        if checkpoint.method == "denoiser":
            raise InvalidInput(
                f"{weights} holds a denoiser, not a classifier: give it as {setting('denoiser')}"
            )
        classes = checkpoint.classes if classes is None else classes
        spec = _spec_of(checkpoint.architecture) if spec is None else spec
    if spec is None:
        missing = "the weights do not state their architecture" if weights else "no model is given"
        raise InvalidInput(f"{missing}: {_CHOICES}")
    with _fresh_weights():
        if (bundled := bundled_name(spec)) in (*ARCHITECTURES, *NAMED_WEIGHTS):
            checkpoint = _bundled_weights(bundled, sigma) if published else checkpoint
            found = replace(_load_bundled(bundled, checkpoint, classes), name=spec)
        elif names_code(spec):
            found = _load_code(spec, checkpoint, classes)
        else:
            prefix, _, name = spec.partition(":")
            if prefix not in _SOURCES or not name:
                hint = did_you_mean(spec, (*ARCHITECTURES, *NAMED_WEIGHTS)) or f": {_CHOICES}"
                raise InvalidInput(f"unknown model {spec!r}{hint}")
            load: Callable[..., Classifier] = resolve_name(f"smoothcert.models.{_SOURCES[prefix]}")
            try:
                found = load(name, published=published, classes=classes)
            except OSError as error:
                raise not_loaded(spec, error) from None
    check_classes(found.name, found.classes or classes, classes)
    module = found.module
    if not isinstance(module, nn.Module):  # it takes no weights
        return found
    if checkpoint is not None:
        checkpoint.load_into(module, name=spec)
        sigma, noise, denoiser = checkpoint.sigma, checkpoint.noise, checkpoint.denoiser
        found = replace(found, trained_sigma=sigma, trained_noise=noise, trained_denoiser=denoiser)
    if not (stochastic and names_code(spec)):
        evaluation_mode(module)
    return replace(found, weights_hash=found.weights_hash or state_hash(module))


def _spec_of(architecture: str | None) -> str | None:
    """The model name for the architecture of a file. A name that is not bundled is one of torchvision."""
    if architecture is not None and names_code(architecture):
        raise InvalidInput(
            f"the weights are for {architecture}, and code that a file names is not executed: give {setting('model')}"
        )
    if architecture is None or ":" in architecture or bundled_name(architecture) in ARCHITECTURES:
        return architecture
    return f"torchvision:{architecture}"


def names_code(spec: str) -> bool:
    """Whether a model or denoiser is named as code, such as `package.module:function`.

    Runs and weights may come from a stranger. So if they name code, it is not executed: the user has to give the model.
    """
    prefix, _, _ = spec.partition(":")
    return prefix not in ("", spec, *_SOURCES) and spec.rpartition(":")[2].isidentifier()


def _load_bundled(name: str, checkpoint: Checkpoint | None, classes: int | None) -> Classifier:
    architecture = NAMED_WEIGHTS.get(name, name)
    shape: tuple[int, ...] = ARCHITECTURES[architecture].input_shape
    if checkpoint is not None and checkpoint.noise is not None:
        shape = checkpoint.noise.draw.output_shape(shape)
    module = build(architecture, classes=classes or _DEFAULT_CLASSES, channels=shape[0])
    return Classifier(
        module=module, classes=classes or _DEFAULT_CLASSES, name=name, input_shape=shape
    )


def _bundled_weights(name: str, sigma: float | None) -> Checkpoint:
    """The bundled weights whose training noise is closest to `sigma`; by default those with the least noise."""
    if name in NAMED_WEIGHTS:
        return read_checkpoint(ASSETS / f"{name}.safetensors")
    found = ASSETS.glob(f"{name}-[0-9]*.safetensors")
    trained = {float(path.stem.removeprefix(f"{name}-")): path for path in found}
    if not trained:
        raise InvalidInput(
            f"{name} comes without weights: give {setting('weights', 'FILE')}, or "
            f"{setting('weights', 'none')} for an untrained network"
        )
    return read_checkpoint(
        trained[min(sorted(trained), key=lambda trained_sigma: abs(trained_sigma - (sigma or 0)))]
    )


def _load_code(name: str, checkpoint: Checkpoint | None, classes: int | None) -> Classifier:
    """A classifier from the user's own code: `package.module:factory` or `file.py:factory`.

    The name refers to a module, or to a function without arguments that returns one. Instead of a module, it may also
    return a function from batches to logits or labels. If the number of classes is not given, it is the attribute
    `classes` of what is returned, or else the number of its logits. The module stays in the mode in which the function
    returns it.
    """
    name, made = make(name)
    kind = type(made).__name__
    if checkpoint is not None and not isinstance(made, nn.Module):
        raise InvalidInput(
            f"{name} returned a {kind}, which cannot take the weights of {checkpoint.path}"
        )
    if isinstance(made, Classifier):
        return replace(made, name=name, classes=made.classes or classes or 0)
    if not callable(made):
        raise InvalidInput(f"{name} returned a {kind}: expected a torch module or a function")
    known = classes or getattr(made, "classes", None)
    return Classifier(module=made, classes=known if isinstance(known, int) else 0, name=name)


def make(spec: str, what: str = "model") -> tuple[str, Any]:
    """What a function of the user returns, or a module of the user itself; and its name with a module, not a file."""
    place, _, attribute = spec.rpartition(":")
    module = import_users_module(place)
    name, file = f"{module.__name__}:{attribute}", getattr(module, "__file__", None)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise InvalidInput(f"{place} ({file or 'built in'}) has no function {attribute!r}")
    hint = f"it is called without arguments and must return the {what}"
    with _fresh_weights(), user_errors(f"calling {name}", near=file, hint=hint):
        return name, factory if isinstance(factory, nn.Module) else factory()


@contextmanager
def _fresh_weights() -> Iterator[None]:
    """Seed torch in this context, so that an untrained network has the same weights every time and a run can resume."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def as_classifier(
    model: Classifier | Callable[[Tensor], Any],
    *,
    classes: int | None,
    example: Tensor,
    stochastic: bool = False,
) -> Classifier:
    """Make a classifier from a module or a function."""
    found = model if isinstance(model, Classifier) else _described(model, example)
    if classes is not None:
        check_classes(found.name, found.classes or classes, classes)
        found = replace(found, classes=_check.whole("classes", classes, least=2))
    if stochastic:
        seeded = SeededRows(found.module, classes=found.classes or None)
        # Without the seeds, the same weights are another classifier.
        own = (
            found.weights_hash
            and hashlib.sha256(f"{found.weights_hash} seeded by row".encode()).hexdigest()
        )
        found = replace(found, module=seeded, weights_hash=own)
    return found if found.classes else replace(found, classes=_count_classes(found.module, example))


def _described(model: Any, example: Tensor) -> Classifier:
    """A module or function of the caller as a classifier with an unknown number of classes."""
    if not isinstance(model, nn.Module) and type(model).__module__.startswith("transformers."):
        raise InvalidInput(
            f"a {type(model).__name__} does not take batches of floats: give {setting('model', 'hf:NAME')} or hf:FOLDER"
        )
    return Classifier(
        module=model,
        classes=0,
        name=import_path(model),
        input_shape=tuple(example.shape),
        weights_hash=state_hash(model) if isinstance(model, nn.Module) else None,
    )


def _count_classes(model: Callable[[Tensor], Any], example: Tensor) -> int:
    """The number of logits for one input."""
    if isinstance(model, nn.Module):
        model = copied(model)  # a call may change the module
    with torch.inference_mode():
        output = answer(model, like_weights(example[None], model))
    if output.ndim == 1 and not output.is_floating_point():
        raise InvalidInput(
            f"the model returns labels, so the number of classes is unknown: give {setting('classes', 'N')}"
        )
    if output.ndim != 2:
        raise unfit(output, 1, "classes")
    return int(output.shape[1])
