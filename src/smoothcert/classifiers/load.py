"""From what a user types to a classifier."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from smoothcert import _check
from smoothcert.classifiers.architectures import ARCHITECTURES
from smoothcert.classifiers.base import Classifier, Source, Weights
from smoothcert.classifiers.checkpoint import read_checkpoint
from smoothcert.errors import InvalidInput

_SOURCES = {"hf": "huggingface", "onnx": "onnx", "timm": "timm", "torchvision": "torchvision"}
_CHOICES = (
    f"give one of {', '.join(ARCHITECTURES)}, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE or "
    "package.module:factory"
)


def load_classifier(
    spec: str | None,
    *,
    weights: str | Path | None = None,
    classes: int | None = None,
    sigma: float | None = None,
) -> Classifier:
    """The classifier that `spec` names.

    Without `weights`, the ones that come with it: bundled, or published by its source. `weights` is a file, or "none"
    for an untrained network, which certifies nothing but takes the same time. A file that tells its architecture needs
    no `spec`. Of bundled weights, those trained nearest to `sigma` are taken.

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
        classes = chosen.classes if classes is None else classes
        spec = _known(chosen.architecture) if spec is None else spec
    if spec is None:
        missing = "the weights do not tell their architecture" if weights else "no model was named"
        raise InvalidInput(f"{missing}: {_CHOICES}")
    source, name = _find(spec)
    return source.load(name, weights=chosen, classes=classes, sigma=sigma)


def _known(architecture: str | None) -> str | None:
    """What to type for the `architecture` of a file; names that are not bundled are torchvision's."""
    if architecture is None or ":" in architecture or architecture.replace("_", "-") in ARCHITECTURES:
        return architecture
    return f"torchvision:{architecture}"


def _find(spec: str) -> tuple[Source, str]:
    if spec.replace("_", "-").lower() in ARCHITECTURES:
        return _module("bundled"), spec
    prefix, colon, name = spec.partition(":")
    if not colon or not prefix or not name:
        raise InvalidInput(f"unknown model {spec!r}: {_CHOICES}")
    return (_module(_SOURCES[prefix]), name) if prefix in _SOURCES else (_module("factory"), spec)


def _module(name: str) -> Source:
    return cast(Source, import_module(f"smoothcert.classifiers.{name}"))
