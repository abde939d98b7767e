"""Make a classifier from a module or a function of the caller."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import Classifier, check_classes
from smoothcert.models.check import answer, unfit
from smoothcert.models.identity import state_hash
from smoothcert.models.seeded import SeededRows


def as_classifier(
    model: Classifier | Callable[[Tensor], Any], *, classes: int | None, example: Tensor, stochastic: bool = False
) -> Classifier:
    """Make a classifier from a module or a function."""
    found = model if isinstance(model, Classifier) else _described(model, example)
    if classes is not None:
        check_classes(found.name, found.classes or classes, classes)
        found = replace(found, classes=_check.whole("classes", classes, least=2))
    if stochastic:
        seeded = SeededRows(found.module, classes=found.classes or None)
        # Without the seeds, the same weights are another classifier.
        own = found.weights_hash and hashlib.sha256(f"{found.weights_hash} seeded by row".encode()).hexdigest()
        found = replace(found, module=seeded, weights_hash=own)
    return found if found.classes else replace(found, classes=_count_classes(found.module, example))


def _described(model: Any, example: Tensor) -> Classifier:
    """A module or function of the caller as a classifier with an unknown number of classes."""
    if not callable(model):
        raise InvalidInput(f"model must be a name, a module or a function, got {type(model).__name__}")
    if not isinstance(model, nn.Module) and type(model).__module__.startswith("transformers."):
        raise InvalidInput(
            f"a {type(model).__name__} does not take batches of floats: give {setting('model', 'hf:NAME')} or hf:FOLDER"
        )
    return Classifier(
        module=model,
        classes=0,
        name=_name(model),
        input_shape=tuple(example.shape),
        weights_hash=state_hash(model) if isinstance(model, nn.Module) else None,
    )


def _count_classes(model: Callable[[Tensor], Any], example: Tensor) -> int:
    """The number of logits for one input."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    parameter = next((p for p in parameters if p.is_floating_point()), None)
    with torch.inference_mode():
        output = answer(model, example[None].float() if parameter is None else example[None].to(parameter))
    if output.ndim == 1 and not output.is_floating_point():
        raise InvalidInput(
            f"the model returns labels, so the number of classes is unknown: give {setting('classes', 'N')}"
        )
    if output.ndim != 2:
        raise unfit(output, 1, "classes")
    return int(output.shape[1])


def _name(model: Any) -> str:
    """The import path of a function or of the class of a module."""
    source = type(model) if isinstance(model, nn.Module) or not hasattr(model, "__qualname__") else model
    return f"{source.__module__}:{source.__qualname__}"
