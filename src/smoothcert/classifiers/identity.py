"""Which classifier it is: a run is only continued with the one that it was begun with."""

from __future__ import annotations

import dis
import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_LIBRARIES = ("builtins", "torch", "torchvision", "timm", "transformers", "smoothcert")
_SEEN_GLOBALS = (nn.Module, Tensor, np.ndarray, FunctionType, int, float, str)
_STORES = ("STORE_GLOBAL", "STORE_DEREF")  # what a function changes itself, a counter, is no part of it
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # where an object lies in memory is no part of it


def state_hash(module: nn.Module) -> str:
    """The `weights_hash` of a module."""
    digest = hashlib.sha256(_ADDRESS.sub("", repr(module)).encode())
    for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
        _add(digest, name, value)
    for name, layer in module.named_modules():
        if not _is_library(type(layer)):
            _add(digest, name, _written(layer))
    return digest.hexdigest()


def _written(layer: nn.Module) -> dict[str, Any]:
    """What somebody has written into a layer: methods and numbers."""
    own = [cls for cls in reversed(type(layer).__mro__) if not _is_library(cls)]
    methods = {name: value for cls in own for name, value in vars(cls).items() if isinstance(value, FunctionType)}
    numbers = {name: value for name, value in vars(layer).items() if isinstance(value, (int, float, tuple))}
    return {name: value for name, value in sorted((methods | numbers).items()) if name not in ("training", "__init__")}


def _is_library(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _LIBRARIES


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
    codes = list(_codes(value.__code__))
    names = {name for code in codes for name in code.co_names}
    found = {name: content for name in names if isinstance(content := value.__globals__.get(name), _SEEN_GLOBALS)}
    found |= {
        name: cell.cell_contents
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        if cell != CellType()  # an empty one
    }
    changed = {step.argval for code in codes for step in dis.get_instructions(code) if step.opname in _STORES}
    return {
        "code": value.__code__,
        "defaults": value.__defaults__,
        "named defaults": value.__kwdefaults__,
        "found": {name: content for name, content in sorted(found.items()) if name not in changed},
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions within."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
