"""Find the logits or labels in what a model returns: a tensor, an array, a tuple, a dictionary or a `ModelOutput`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, ModelFailed


def find_logits(output: Any, *, classes: int | None, device: torch.device) -> Tensor:
    """The logits or labels in the output of a model.

    A dictionary or an object with the entry `logits`, such as a `ModelOutput` of Hugging Face, gives this entry. Other
    dictionaries, tuples and lists give the only entry that can be logits: the only one at all, or the only one of shape
    (batch, classes).

    Raises:
        InvalidInput: There are no logits, or several entries may be the logits.
    """
    if isinstance(output, Tensor):
        return output if output.layout == torch.strided else output.to_dense()
    if isinstance(output, np.ndarray):
        if output.dtype.kind not in "biuf":
            raise InvalidInput(f"the model must return logits or labels, got an array of {output.dtype}")
        return torch.from_numpy(np.ascontiguousarray(output)).to(device)
    parts = enumerate(output) if isinstance(output, (tuple, list)) else output if isinstance(output, Mapping) else ()
    entries: dict[Any, Any] = dict(parts)
    logits = entries.get("logits", getattr(output, "logits", None))
    if isinstance(logits, (Tensor, np.ndarray)):
        return find_logits(logits, classes=classes, device=device)
    if not entries:
        raise InvalidInput(f"the model must return a tensor of logits or labels, got {type(output).__name__}")
    tensors = {key: value for key, value in entries.items() if isinstance(value, (Tensor, np.ndarray))}
    fitting = [v for v in tensors.values() if v.ndim == 2 and classes in (None, v.shape[1])]
    if len(tensors) == 1 or len(fitting) == 1:
        return find_logits(fitting[0] if fitting else next(iter(tensors.values())), classes=classes, device=device)
    found = ", ".join(f"{k}: {described(v)}" for k, v in entries.items())
    raise InvalidInput(
        f"the model returns a {type(output).__name__} ({found}), and it is unclear which part is the logits: return "
        'the logits alone, or name them, as in {"logits": ...}'
    )


class LabelClassifier(nn.Module):
    """Turns the output of a classifier into one class per row.

    A row with NaN, with +inf or with nothing but -inf gets the number `classes`, which is not a class: it is no vote. A
    single -inf is the logarithm of the probability 0, and another class can win.

    Args:
        module: The classifier: a batch of inputs to logits of shape (batch, classes) or to labels of shape (batch,),
            alone or in a form that `find_logits` takes.
        classes: The number of classes.
    """

    def __init__(self, module: Callable[[Tensor], Tensor], classes: int) -> None:
        super().__init__()
        self.module = module
        self.classes = classes

    def outputs(self, x: Tensor) -> Tensor:
        """The logits or labels of each row."""
        return find_logits(self.module(x), classes=self.classes, device=x.device)

    def forward(self, x: Tensor) -> Tensor:
        """The class of each row, as integers of shape (batch,)."""
        output = self.outputs(x)
        if tuple(output.shape) not in ((len(x),), (len(x), self.classes)):
            raise ModelFailed(
                f"the model returns shape {tuple(output.shape)} for {len(x)} inputs and {self.classes} classes"
            )
        if output.ndim == 1:
            return torch.where((output >= 0) & (output < self.classes), output.long(), self.classes)
        return torch.where(has_winner(output), output.argmax(1), self.classes)


def has_winner(logits: Tensor) -> Tensor:
    """Whether a class wins in each row: the largest logit is finite. The largest of NaN and anything else is NaN."""
    return logits.amax(1).isfinite()


def described(value: Any) -> str:
    """What a network returned, in words: "float32 of shape (8, 10)", or the type of what is no tensor."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
