"""Weights files: `.pth`, `.pth.tar`, `.safetensors`. Code in a file is never executed."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from smoothcert._registry import restore
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise

_WRAPPERS = ("module", "_orig_mod", "network", "model", "1")
"""Prefixes of wrapped networks: parallel, compiled, or the second part (number 1) after a normalisation."""
_STATE_KEYS = ("state_dict", "model_state_dict", "model_state", "net", "model", "weights")
"""Entries under which a file may hold the weights."""
_SIGMA_IN_NAME = re.compile(r"(?<![a-z])(?:noise|sigma)[_=-]?(\d*\.\d+|\d)(?!\d)", re.IGNORECASE)
_PYTHON_OBJECT = re.compile(r"\bGLOBAL (\S+)")  # in the error of torch
_SHOWN_KEYS = 3

Found = TypeVar("Found")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a weights file.

    Args:
        path: The file.
        state: The tensors by name.
        architecture: The architecture that the file states, if any.
        classes: The number of classes that the file states, if any.
        sigma: The standard deviation of the noise in training, from the file, its name or the name of a folder.
        noise: The noise in training that the file states, if it is another one than Gaussian noise.
        method: The training method that the file states, if any.
        sigmas: For a denoiser: the smallest and the largest standard deviation of the noise in training.
        shape: For a denoiser: the shape of an input.
        denoiser: For a classifier: the hash of the denoiser that it was trained behind, if any.
    """

    path: Path
    state: dict[str, Tensor]
    architecture: str | None = None
    classes: int | None = None
    sigma: float | None = None
    noise: Noise | None = None
    method: str | None = None
    sigmas: tuple[float, float] | None = None
    shape: tuple[int, ...] | None = None
    denoiser: str | None = None

    def load_into(self, module: nn.Module, *, name: str) -> None:
        """Copy the weights into a module."""
        own, given = _unwrapped(module.state_dict()), _unwrapped(self.state)
        problems = []
        # Files from before PyTorch 0.4.1 lack this counter. Evaluation does not use it.
        if missing := [
            key for key in own if key not in given and not key.endswith("num_batches_tracked")
        ]:
            problems.append(f"{_some(missing)} missing")
        if unexpected := [key for key in given if key not in own]:
            problems.append(f"{_some(unexpected)} unexpected")
        if other := [key for key in own if key in given and own[key].shape != given[key].shape]:
            shapes = [
                f"{key} {tuple(given[key].shape)} for {tuple(own[key].shape)}" for key in other
            ]
            problems.append(f"other shapes: {_some(shapes)}")
        if problems:
            stated = f"; the file is for {self.architecture}" if self.architecture else ""
            raise InvalidInput(f"{self.path} does not fit {name}: {', '.join(problems)}{stated}")
        with torch.no_grad():
            for key, value in given.items():
                own[key].copy_(value)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a weights file in any of the common formats.

    Raises:
        InvalidInput: The file does not exist, is damaged, or holds something else than weights.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"no weights file at {path}")
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    head = start.lstrip().lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"version https://git-lfs")):
        raise InvalidInput(
            f"{path} is a web page or a Git LFS pointer, not weights: download the file itself"
        )
    # A safetensors file starts with eight bytes for a length and then JSON.
    is_safetensors = path.suffix == ".safetensors" or start[8:10] == b'{"'
    content, metadata = _read_safetensors(path) if is_safetensors else _read_pickle(path)
    if "epochs_done" in metadata:
        raise InvalidInput(
            f"{path} is a training checkpoint: give the weights.safetensors that the finished training writes"
        )
    sigma = _find(metadata, _finite, "sigma", "noise_sd")
    low, high = _find(metadata, _finite, "sigma_low"), _find(metadata, _finite, "sigma_high")
    method = _find(metadata, str, "method")
    return Checkpoint(
        path=path,
        state=content,
        architecture=_find(metadata, str, "architecture", "arch"),
        classes=_find(metadata, lambda value: int(_finite(value)), "classes"),
        sigma=sigma_in_name(path) if sigma is None else sigma,
        noise=_find(metadata, _noise, "noise"),
        method=method,
        sigmas=None if low is None or high is None else (low, high),
        shape=_find(metadata, lambda text: tuple(map(int, json.loads(text))), "shape"),
        denoiser=None if method == "denoiser" else _find(metadata, str, "denoiser"),
    )


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path) from error


def _read_pickle(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # about the version of the pickle; an error says more
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types of error
        if isinstance(error, pickle.UnpicklingError) and (
            found := _PYTHON_OBJECT.search(str(error))
        ):
            raise InvalidInput(
                f"{path} holds Python objects ({found[1]}), and loading them would run code; if you trust the file, "
                "save only its tensors with torch.save(torch.load(FILE, weights_only=False)['state_dict'], NEW_FILE), "
                "or with .state_dict() instead of ['state_dict'] if it holds a whole module"
            ) from None
        if "TorchScript" in str(error):
            raise InvalidInput(
                f"{path} is a TorchScript model: write a function that returns torch.jit.load(FILE), and give it as "
                f"{setting('model', 'file.py:function')} without {setting('weights')}"
            ) from None
        raise _damaged(path) from error
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{path} holds a {type(content).__name__}, not a dictionary of weights")
    state = next(
        (content[key] for key in _STATE_KEYS if isinstance(content.get(key), Mapping)), content
    )
    if not state or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise InvalidInput(
            f"{path} holds no weights: expected tensors by name, directly or under {', '.join(_STATE_KEYS)}; "
            f"found {_some([str(key) for key in content]) or 'nothing'}"
        )
    return dict(state), content


def _damaged(path: Path) -> InvalidInput:
    """The error for a file that cannot be read. The reasons that libraries give are about their code, not the file."""
    return InvalidInput(
        f"{path} ({path.stat().st_size:,} bytes) is not a checkpoint, or it is damaged: download it again, or save it "
        "with torch.save"
    )


def _unwrapped(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The state without the prefixes that wrapping added to all names."""
    while state and all("." in key for key in state):
        first = {key.partition(".")[0] for key in state}
        if len(first) > 1 or not first <= set(_WRAPPERS):
            break
        state = {key.partition(".")[2]: value for key, value in state.items()}
    return state


def _find(metadata: Mapping[str, Any], convert: Callable[[Any], Found], *keys: str) -> Found | None:
    """The first entry under one of the keys that has the right form. A file may hold anything there."""
    for key in keys:
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            return convert(metadata[key])
    return None


def _finite(value: Any) -> float:
    if not isfinite(number := float(value)):
        raise ValueError
    return number


def _noise(text: str) -> Noise:
    if not isinstance(found := restore(json.loads(text)), Noise):
        raise TypeError
    return found


def sigma_in_name(path: Path) -> float | None:
    """The training noise that a path states. The name of the file counts first, then the nearest folder.

    >>> sigma_in_name(Path("cifar10/noise_0.50/checkpoint.pth.tar"))
    0.5
    """
    names = (path.name, *(parent.name for parent in path.absolute().parents))
    return next((float(found[1]) for name in names if (found := _SIGMA_IN_NAME.search(name))), None)


def _some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else ""
    return ", ".join(names[:_SHOWN_KEYS]) + more
