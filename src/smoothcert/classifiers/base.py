"""What a base classifier is to smoothcert."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.classifiers.checkpoint import Checkpoint
from smoothcert.errors import InvalidInput

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # where an object lies in memory is no part of it


@dataclass(frozen=True)
class Classifier:
    """A function from inputs in [0, 1] to classes, and what is known about it."""

    module: Callable[[Tensor], Tensor]
    """From a float batch (b, ...) to logits (b, classes) or whole labels (b,); a module is in evaluation mode."""
    classes: int
    name: str
    """What the user typed."""
    input_shape: tuple[int, ...] | None = None
    weights_hash: str | None = None
    """SHA-256 over the layers and the names, types, shapes and bytes of the state; of a function, over its
    code and what it refers to."""
    trained_sigma: float | None = None
    """The noise it was trained with, where that is known."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InvalidInput(
                f"{self.name} has {self.classes} output, and a single one is no answer between two classes: return two "
                "logits, or labels"
            )


Weights: TypeAlias = Checkpoint | Literal["default", "none"]
"""A file's content, what the source itself provides, or fresh weights (an untrained network, for timing)."""


class Source(Protocol):
    """How each kind of classifier is loaded; `sigma` is the noise of the certificates to come."""

    def load(self, name: str, *, weights: Weights, classes: int | None, sigma: float | None) -> Classifier: ...


def state_hash(module: nn.Module) -> str:
    """The `weights_hash` of a module."""
    digest = hashlib.sha256(_ADDRESS.sub("", repr(module)).encode())
    for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
        _add(digest, name, value)
    return digest.hexdigest()


def model_hash(model: Callable[[Tensor], Tensor]) -> str | None:
    """The `weights_hash` of a module or a function; None where there is no code to see."""
    if isinstance(model, nn.Module):
        return state_hash(model)
    if not isinstance(model, (FunctionType, MethodType, partial)):
        return None
    digest = hashlib.sha256()
    _add(digest, "model", model)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, value: Any, within: tuple[Any, ...] = ()) -> None:
    """Add what can be seen of a value; `within` is what it was found in."""
    if any(value is outer for outer in within):
        return
    if isinstance(value, Tensor):
        content = (value.dequantize() if value.is_quantized else value).detach().cpu().contiguous()
        digest.update(f"{name} {content.dtype} {tuple(content.shape)}\n".encode())
        digest.update(content.flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
        digest.update(value.tobytes())
    elif isinstance(value, nn.Module):
        digest.update(f"{name} {state_hash(value)}\n".encode())
    elif (parts := _parts(value, within)) is not None:
        for part, content in parts.items():
            _add(digest, f"{name}.{part}", content, (*within, value))
    else:
        digest.update(f"{name} {_ADDRESS.sub('', repr(value))}\n".encode())


def _parts(value: Any, within: tuple[Any, ...]) -> dict[Any, Any] | None:
    """What a value is made of, by name; None if it is one piece."""
    if isinstance(value, (tuple, list)):
        return dict(enumerate(value))
    if isinstance(value, (set, frozenset)):
        return dict(enumerate(sorted(value, key=repr)))
    if isinstance(value, dict):
        return value
    if isinstance(value, partial):
        return {"function": value.func, "arguments": value.args, "named": value.keywords}
    if isinstance(value, MethodType):
        return {"function": value.__func__, "self": value.__self__}
    if isinstance(value, CodeType):
        return {"code": value.co_code, "names": value.co_names, "constants": value.co_consts}
    if not isinstance(value, FunctionType):
        return None
    if any(isinstance(outer, FunctionType) and outer.__globals__ is not value.__globals__ for outer in within):
        return {"library": f"{value.__module__}.{value.__qualname__}"}
    used = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
    seen = (nn.Module, Tensor, np.ndarray, FunctionType, int, float, str)
    return {
        "code": value.__code__,
        "defaults": value.__defaults__,
        "named defaults": value.__kwdefaults__,
        "closure": [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()],  # but empty ones
        "globals": {name: content for name, content in sorted(used.items()) if isinstance(content, seen)},
    }


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


@contextmanager
def fresh_weights() -> Iterator[None]:
    """Networks built within have the same weights every time, so that an untrained one can be resumed, too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def unknown_name(source: str, name: str, known: Sequence[str]) -> InvalidInput:
    """The error for a name that a source does not have, with the nearest ones it has."""
    near = difflib.get_close_matches(name, known)
    return InvalidInput(f"{source} has no classifier {name!r}" + (f": did you mean {', '.join(near)}?" if near else ""))


def not_loaded(spec: str, error: Exception) -> InvalidInput:
    """The error for published weights that could not be had."""
    reason = " ".join(str(error).split())[:200].rstrip(".")
    return InvalidInput(
        f"cannot get the weights of {spec} ({reason}): check the name and the connection, give --weights FILE, or "
        "--weights none for an untrained network"
    )


def checked_classes(classifier: Classifier, wanted: int | None) -> Classifier:
    """A classifier knows its number of classes, so another one is a mistake."""
    if wanted not in (None, classifier.classes):
        raise InvalidInput(f"{classifier.name} has {classifier.classes} classes, not {wanted}: leave out the number")
    return classifier


def published_classes(spec: str, wanted: int | None, published: int) -> int:
    """The number of classes of published weights, which cannot be chosen."""
    if wanted not in (None, published):
        raise InvalidInput(
            f"the weights of {spec} have {published} classes, not {wanted}: give --weights FILE for others"
        )
    return published
