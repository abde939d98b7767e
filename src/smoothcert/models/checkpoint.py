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
from typing import Any, TypeAlias, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from smoothcert._registry import restore
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise

_WRAPPERS = ("module", "_orig_mod", "network", "model", "1")
"""Prefixes of wrapped networks: parallel, compiled, or the second part (number 1) after a
normalisation."""
_STATE_KEYS = ("state_dict", "model_state_dict", "model_state", "net", "model", "weights")
"""Entries under which a file may hold the weights."""
_PYTHON_OBJECT = re.compile(r"\bGLOBAL (\S+)")  # in the error of torch
_SHOWN_KEYS = 3
_MOST_CLASSES = 10**6
"""A file that states more is damaged."""
_FACTORIES = {
    "torchvision": ("from torchvision import models", "models.{name}()"),
    "timm": ("import timm", 'timm.create_model("{name}")'),
}
"""What a file of the user imports and calls to make a network."""

Found = TypeVar("Found")
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The shapes of tensors by name."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a weights file.

    Args:
        path: The file.
        state: The tensors by name.
        architecture: The architecture that the file states, if any.
        classes: The number of classes that the file states, if any.
        sigma: The standard deviation of the noise in training that the file states, if any.
        noise: The noise in training that the file states, if it is another one than Gaussian noise.
        method: The training method that the file states, if any.
        sigmas: For a denoiser: the smallest and the largest standard deviation of the noise in
            training.
        shape: For a denoiser: the shape of an input.
        denoiser: For a classifier: the hash of the denoiser that it was trained behind, if any.
        transformation: The transformation of pictures in training, if there was one.
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
    transformation: Noise | None = None

    def classes_of(self, module: nn.Module, classes: int) -> int | None:
        """The number of classes for which the weights have a head, if it is another one.

        Args:
            module: The network with a head for `classes`.
            classes: The number of classes.
        """
        target = shapes_of(_unwrapped(module.state_dict()))
        weights = shapes_of(_unwrapped(self.state))
        sizes = set()
        for key in target.keys() & weights.keys():
            wanted = target[key]
            shape = weights[key]
            if shape != wanted:
                is_head = wanted[:1] == (classes,) and shape[1:] == wanted[1:]
                sizes.add(shape[0] if is_head and shape else None)
        return sizes.pop() if len(sizes) == 1 else None

    def load_into(self, module: nn.Module, *, name: str) -> None:
        """Copy the weights into a module."""
        target = _unwrapped(module.state_dict())
        weights = _unwrapped(self.state)
        wanted = shapes_of(target)
        given = shapes_of(weights)
        problems = _misfits(wanted, given)
        if problems:
            raise InvalidInput(
                "weights-do-not-fit",
                "{path} does not fit {model}: {problems}{stated}{factory}",
                path=self.path,
                model=name,
                problems=", ".join(problems),
                stated=f"; the file is for {self.architecture}" if self.architecture else "",
                factory=_factory(name, wanted, given),
            )
        with torch.no_grad():
            for key, value in weights.items():
                if value.is_complex() and not target[key].is_complex():
                    raise InvalidInput(
                        "complex-weights",
                        "{path}: {key} is complex, and {model} has real weights",
                        path=self.path,
                        key=key,
                        model=name,
                    )
                target[key].copy_(value.to_dense())


def _factory(name: str, wanted: Shapes, given: Shapes) -> str:
    """How to write a function for a network that was changed after it was made."""
    source, _, network = name.partition(":")
    if source not in _FACTORIES:
        return ""
    module, call = _FACTORIES[source]
    layer = _changed_layer(wanted, given)
    changed = re.sub(r"\.(\d+)", r"[\1]", layer)  # as Python writes it: `classifier[6]`
    shapes = [shape for key, shape in given.items() if key.startswith(f"{layer}.")]
    matrices = [shape for shape in shapes if len(shape) == 2]
    outputs, inputs = matrices[-1] if matrices else (10, 512)
    return (
        f". If the network was changed for training, give {setting('model', 'own.py:model')} with "
        "a file own.py, and write into it what training had:\n\n"
        f"{module}\nfrom torch import nn\nfrom torchvision.transforms import Normalize\n\n"
        f"def model():\n    network = {call.format(name=network)}\n"
        f"    network.{changed} = nn.Linear({inputs}, {outputs})  # your layers\n"
        "    normalize = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])"
        "  # ImageNet's, or yours\n"
        "    return nn.Sequential(normalize, network)\n"
    )


def shapes_of(state: Mapping[str, Tensor]) -> Shapes:
    """The shapes of tensors by name."""
    return {key: tuple(value.shape) for key, value in state.items()}


def _changed_layer(wanted: Shapes, given: Shapes) -> str:
    """The first layer that differs, as in "classifier.6"."""
    first = next(key for key in (*wanted, *given) if wanted.get(key) != given.get(key))
    return first.rpartition(".")[0] or first


def _misfits(wanted: Shapes, given: Shapes) -> list[str]:
    """Why weights do not fit a network, in words."""
    # Files from before PyTorch 0.4.1 lack this counter. Evaluation does not use it.
    needed = [key for key in wanted if not key.endswith("num_batches_tracked")]
    missing = [key for key in needed if key not in given]
    unexpected = [key for key in given if key not in wanted]
    differing = [key for key in wanted if key in given and wanted[key] != given[key]]
    problems = []
    if missing:
        problems.append(f"{_some(missing)} missing")
    if unexpected:
        problems.append(f"{_some(unexpected)} unexpected")
    if differing:
        shapes = [f"{key} {given[key]} for {wanted[key]}" for key in differing]
        problems.append(f"other shapes: {_some(shapes)}")
    return problems


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a weights file in any of the common formats.

    Raises:
        InvalidInput: The file does not exist, is damaged, or holds something else than weights.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInput("no-weights-file", "no weights file at {path}", path=path)
    try:
        content, metadata = _read_safetensors(path)
    except SafetensorError as error:
        if path.suffix == ".safetensors":
            raise _damaged(path) from error
        content, metadata = _read_pickle(path)
    if "epochs_done" in metadata:
        raise InvalidInput(
            "training-checkpoint",
            "{path} is a training checkpoint: give the weights.safetensors that the finished "
            "training writes",
            path=path,
        )
    low = _find(metadata, _finite, "sigma_low")
    high = _find(metadata, _finite, "sigma_high")
    method = _find(metadata, str, "method")
    return Checkpoint(
        path=path,
        state=content,
        architecture=_find(metadata, str, "architecture", "arch"),
        classes=_find(metadata, _classes, "classes"),
        sigma=_find(metadata, _finite, "sigma", "noise_sd"),
        noise=_find(metadata, _noise, "noise"),
        method=method,
        sigmas=None if low is None or high is None else (low, high),
        shape=_find(metadata, lambda text: tuple(map(int, json.loads(text))), "shape"),
        denoiser=None if method == "denoiser" else _find(metadata, str, "denoiser"),
        transformation=_find(metadata, _noise, "transformation"),
    )


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _read_pickle(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        with warnings.catch_warnings():
            # The warning is about the version of the pickle. An error says more.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types of error
        raise _refused_pickle(path, error) from error
    entries = content if isinstance(content, Mapping) else {}
    nested = [entries[key] for key in _STATE_KEYS if isinstance(entries.get(key), Mapping)]
    state = nested[0] if nested else entries
    if not state or not all(map(_is_weight, state.items())):
        raise InvalidInput(
            "no-weights",
            "{path} holds no weights: expected tensors by name, directly or under {keys}; found a "
            "{kind} with {content}",
            path=path,
            keys=", ".join(_STATE_KEYS),
            kind=type(content).__name__,
            content=_some([str(key) for key in entries]) or "no entries",
        )
    return dict(state), entries


def _is_weight(entry: tuple[Any, Any]) -> bool:
    name, value = entry
    return isinstance(name, str) and isinstance(value, Tensor)


def _refused_pickle(path: Path, error: Exception) -> InvalidInput:
    """The error for a file that torch does not load, or that would run code."""
    python_object = _PYTHON_OBJECT.search(str(error))
    if isinstance(error, pickle.UnpicklingError) and python_object:
        return InvalidInput(
            "python-objects",
            "{path} holds Python objects ({object}), and loading them would run code; if you trust "
            "the file, save only its tensors with torch.save(torch.load(FILE, weights_only=False)"
            "['state_dict'], NEW_FILE), or with .state_dict() instead of ['state_dict'] if it "
            "holds a whole module",
            path=path,
            object=python_object[1],
        )
    if "TorchScript" in str(error):
        return InvalidInput(
            "torchscript-file",
            "{path} is a TorchScript model: write a function that returns torch.jit.load(FILE), "
            "and give it as `model=file.py:function` without `weights`",
            path=path,
        )
    return _damaged(path)


def _damaged(path: Path) -> InvalidInput:
    """The error for a file that cannot be read.

    The reasons that libraries give are about their code, not about the file.
    """
    return InvalidInput(
        "damaged-checkpoint",
        "{path} ({size:,} bytes) is not a checkpoint (a web page or a Git LFS pointer instead of "
        "the file?), or it is damaged: download it again, or save it with torch.save",
        path=path,
        size=path.stat().st_size,
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
    """The first entry under one of the keys that has the right form. A file may hold anything."""
    for key in keys:
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            return convert(metadata[key])
    return None


def _finite(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError
    return number


def _classes(value: Any) -> int:
    classes = int(_finite(value))
    if not 2 <= classes <= _MOST_CLASSES:
        raise ValueError
    return classes


def _noise(text: str) -> Noise:
    noise = restore(json.loads(text))
    if not isinstance(noise, Noise):
        raise TypeError
    return noise


def _some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else ""
    return ", ".join(names[:_SHOWN_KEYS]) + more
