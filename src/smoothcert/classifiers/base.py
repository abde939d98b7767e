"""What a base classifier is to smoothcert."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from smoothcert.classifiers.checkpoint import Checkpoint
from smoothcert.errors import InvalidInput


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
    """SHA-256 over a module's layers, and names, types, shapes and bytes of their state; or over a file."""
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
