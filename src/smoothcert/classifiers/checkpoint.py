"""Weights as they are published: `.pth`, `.pth.tar`, `.safetensors`. Nothing in a file is ever run as code."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from smoothcert.errors import InvalidInput

_WRAPPERS = ("module", "_orig_mod", "network", "model", "1")
"""Names that wrapping puts before a network's own: parallel, compiled, behind a normalisation (as number 1)."""
_STATE_KEYS = ("state_dict", "net", "model")
_SIGMA_IN_NAME = re.compile(r"(?<![a-z])(?:noise|sigma)[_=-]?(\d*\.\d+|\d)(?!\d)", re.IGNORECASE)
_SHOWN_KEYS = 3


@dataclass(frozen=True)
class Checkpoint:
    """The content of a weights file."""

    path: Path
    state: dict[str, Tensor]
    architecture: str | None = None
    classes: int | None = None
    sigma: float | None = None
    """The noise that the weights were trained with: as the file says, or else its name or a folder's."""

    def load_into(self, module: nn.Module, *, name: str) -> None:
        """Fill a module; prefixes that come from wrapping are of no account, any other difference is an error."""
        own = _unwrapped(module.state_dict())
        given = _unwrapped(self.state)
        problems = []
        # Files from before PyTorch 0.4.1 lack this counter, which evaluation does not use.
        if missing := [key for key in own if key not in given and not key.endswith("num_batches_tracked")]:
            problems.append(f"{_some(missing)} missing")
        if unexpected := [key for key in given if key not in own]:
            problems.append(f"{_some(unexpected)} unexpected")
        if other := [key for key in own if key in given and own[key].shape != given[key].shape]:
            shapes = (f"{key} {tuple(given[key].shape)} for {tuple(own[key].shape)}" for key in other)
            problems.append(f"other shapes: {_some(list(shapes))}")
        if problems:
            says = f"; the file is of a {self.architecture}" if self.architecture else ""
            raise InvalidInput(f"{self.path} does not fit {name}: {', '.join(problems)}{says}")
        with torch.no_grad():
            for key, value in given.items():
                own[key].copy_(value)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a weights file of any of the forms in use."""
    path = Path(path)
    try:
        if not path.is_file():
            raise InvalidInput(f"no weights file at {path}")
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    head = start.lstrip().lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise InvalidInput(f"{path} is a web page, not weights: the download went wrong, download it again")
    if head.startswith(b"version https://git-lfs"):
        raise InvalidInput(f"{path} is a Git LFS pointer, not weights: fetch them with git lfs pull")
    # A safetensors file of any name: eight bytes of length, then JSON.
    safe = path.suffix == ".safetensors" or start[8:10] == b'{"'
    content, about = _read_safetensors(path) if safe else _read_pickle(path)
    if "epochs_done" in about:
        raise InvalidInput(
            f"{path} is of a training that goes on from it: give the weights.safetensors that it ends with"
        )
    sigma = _number(about, "sigma", "noise_sd")
    classes = _number(about, "classes")
    architecture = about.get("architecture", about.get("arch"))
    return Checkpoint(
        path=path,
        state=content,
        architecture=architecture if isinstance(architecture, str) else None,
        classes=None if classes is None else int(classes),
        sigma=sigma_in_name(path) if sigma is None else sigma,
    )


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, error) from None


def _read_pickle(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if found := re.search(r"GLOBAL (\S+)", str(error)):
            raise InvalidInput(
                f"{path} holds Python objects ({found[1]}), and loading these would run code; if you trust the file, "
                "save its tensors alone with torch.save(torch.load(FILE, weights_only=False)['state_dict'], NEW_FILE), "
                "or with .state_dict() in place of ['state_dict'] if it holds a whole module"
            ) from None
        raise _damaged(path, error) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise _damaged(path, error) from None
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{path} holds a {type(content).__name__}, not a dictionary of weights")
    state = next((content[key] for key in _STATE_KEYS if isinstance(content.get(key), Mapping)), content)
    if not state or not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()):
        raise InvalidInput(
            f"{path} holds no weights: expected names with tensors, or these under {', '.join(_STATE_KEYS)}; "
            f"found {_some([str(key) for key in content]) or 'nothing'}"
        )
    return dict(state), content


def _damaged(path: Path, error: Exception) -> InvalidInput:
    reason = str(error).strip().split("\n")[0].split(". ")[0][:120]
    return InvalidInput(
        f"{path} ({path.stat().st_size:,} bytes) is no checkpoint, or a damaged one: download it again, or save it "
        f"with torch.save ({reason})"
    )


def _unwrapped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state under the network's own names."""
    state = dict(state)
    while state:
        first = {key.partition(".")[0] for key in state if "." in key}
        if len(first) != 1 or not first <= set(_WRAPPERS) or not all("." in key for key in state):
            break
        state = {key.partition(".")[2]: value for key, value in state.items()}
    return state


def _number(about: Mapping[str, Any], *keys: str) -> float | None:
    for key in keys:
        with suppress(KeyError, TypeError, ValueError):
            if isfinite(value := float(about[key])):
                return value
    return None


def sigma_in_name(path: Path) -> float | None:
    """As in `noise_0.50/checkpoint.pth.tar`: the file's name counts first, then the nearest folder's."""
    for name in (path.name, *(parent.name for parent in path.absolute().parents)):
        if found := _SIGMA_IN_NAME.search(name):
            return float(found[1])
    return None


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else ""
    return ", ".join(names[:_SHOWN_KEYS]) + more
