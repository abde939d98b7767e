"""MNIST (LeCun et al. 1998), from its four original files."""

from __future__ import annotations

from pathlib import Path

from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.download import downloaded
from smoothcert.data.fashion_mnist import load_idx


def load(place: str | None, *, train: bool) -> ArrayDataset:
    """MNIST from a folder; without one, it is downloaded."""
    return load_idx(Path(place) if place else downloaded("mnist"), train=train, name="mnist")
