"""Find the classifier for a model name."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

from torch import nn

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.models import bundled
from smoothcert.models.architectures import ARCHITECTURES, NAMED_WEIGHTS
from smoothcert.models.base import Classifier, Source, Weights
from smoothcert.models.checkpoint import Checkpoint, read_checkpoint
from smoothcert.models.identity import state_hash

_SOURCES = {"hf": "huggingface", "onnx": "onnx", "timm": "timm", "torchvision": "torchvision"}
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
    if str(weights) == "none":
        chosen: Weights = "none"
    elif weights is None:
        chosen = "default"
    else:
        chosen = read_checkpoint(weights)
        if chosen.method == "denoiser":
            raise InvalidInput(f"{weights} holds a denoiser, not a classifier: give it as {setting('denoiser')}")
        classes = chosen.classes if classes is None else classes
        spec = _spec_of(chosen.architecture) if spec is None else spec
    if spec is None:
        missing = "the weights do not state their architecture" if weights else "no model is given"
        raise InvalidInput(f"{missing}: {_CHOICES}")
    source, name = _find(spec)
    if source is bundled and chosen == "default":
        chosen = bundled.default_weights(name, sigma)
    found = source.load(name, weights=chosen, classes=classes)
    if isinstance(chosen, Checkpoint):
        found = replace(found, trained_sigma=chosen.sigma, trained_noise=chosen.noise, trained_denoiser=chosen.denoiser)
    if not isinstance(found.module, nn.Module):
        return found
    if isinstance(chosen, Checkpoint):
        chosen.load_into(found.module, name=spec)
    if not stochastic:
        found.module.eval()
    return replace(found, weights_hash=found.weights_hash or state_hash(found.module))


def _spec_of(architecture: str | None) -> str | None:
    """The model name for the architecture of a file. A name that is not bundled is one of torchvision."""
    if architecture is not None and names_code(architecture):
        raise InvalidInput(
            f"the weights are for {architecture}, and code that a file names is not executed: give {setting('model')}"
        )
    if architecture is None or ":" in architecture or architecture.replace("_", "-") in ARCHITECTURES:
        return architecture
    return f"torchvision:{architecture}"


def names_code(spec: str) -> bool:
    """Whether a model or denoiser is named as code, such as `package.module:function`.

    Runs and weights may come from a stranger. So if they name code, it is not executed: the user has to give the model.
    """
    prefix, _, _ = spec.partition(":")
    return prefix not in ("", spec, *_SOURCES) and spec.rpartition(":")[2].isidentifier()


def _find(spec: str) -> tuple[Source, str]:
    """The source of a model, and the model's name there."""
    if spec.replace("_", "-").lower() in (*ARCHITECTURES, *NAMED_WEIGHTS):
        return bundled, spec
    prefix, _, name = spec.partition(":")
    source = "factory" if names_code(spec) else _SOURCES.get(prefix)
    if source is None or not name:
        raise InvalidInput(f"unknown model {spec!r}: {_CHOICES}")
    return cast(Source, import_module(f"smoothcert.models.{source}")), spec if source == "factory" else name
