"""The logits in what a model returns: a tensor, an array, or something that holds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import InvalidInput


def find_logits(output: Any, *, classes: int | None, device: torch.device) -> Tensor:
    """The logits or labels in the output of a model.

    The output is a tensor, an array, or a tuple, list, dictionary or object that holds one. An
    entry or attribute `logits`, as of a `ModelOutput` of Hugging Face, is taken. Otherwise, it is
    the only entry that can be logits: the only one at all, or the only one of shape (batch,
    classes).

    Raises:
        InvalidInput: There are no logits, or several entries may be the logits.
    """
    if isinstance(output, Tensor):
        return output if output.layout == torch.strided else output.to_dense()
    if isinstance(output, np.ndarray) and output.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(output)).to(device)
    return find_logits(_only_logits(output, classes), classes=classes, device=device)


def _only_logits(output: Any, classes: int | None) -> Any:
    """The part of a tuple, list, dictionary or object that can be the logits."""
    entries: dict[Any, Any] = {}
    if isinstance(output, (tuple, list)):
        entries = dict(enumerate(output))
    elif isinstance(output, Mapping):
        entries = dict(output)
    named = entries.get("logits", getattr(output, "logits", None))
    if named is not None:
        return named
    arrays = [value for value in entries.values() if isinstance(value, (Tensor, np.ndarray))]
    fitting = [array for array in arrays if array.ndim == 2 and classes in (None, array.shape[1])]
    for candidates in (fitting, arrays):
        if len(candidates) == 1:
            return candidates[0]
    _refuse_other_tasks(output)
    raise InvalidInput(
        "no-logits",
        "the model must return a tensor of logits or labels, and it returned a {kind}{entries}: "
        "return the logits alone, or name them, as in {example}",
        kind=type(output).__name__,
        entries="".join(f", {key}: {described(value)}" for key, value in entries.items()),
        example='{"logits": ...}',
    )


def _refuse_other_tasks(output: Any) -> None:
    """Refuse the output of a detector or of a pipeline in words that say so."""
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    if isinstance(first, Mapping) and "boxes" in first:
        raise other_task("boxes", "detection")
    if isinstance(first, Mapping) and "score" in first:
        raise InvalidInput(
            "names-and-scores",
            "the model returns names of classes with scores, as a pipeline does: give its network "
            "by name, as in {example}, which also normalises",
            example="hf:NAME",
        )
    if isinstance(first, str):
        raise other_task("text", "text")


def other_task(returned: str, task: str) -> InvalidInput:
    """The error for a model that is not a classifier.

    Args:
        returned: What it returns.
        task: What it is for.
    """
    return InvalidInput(
        "other-task",
        "smoothcert certifies one class per input; this model returns {returned}: {task} is not "
        "supported",
        returned=returned,
        task=task,
    )


def described(value: Any) -> str:
    """What a network returned, in words: "float32 of shape (8, 10)", or its type."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
