"""Which classifier it is: a run is only continued with the one that it was begun with."""

from __future__ import annotations

import dis
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_SEEN_GLOBALS = (nn.Module, Tensor, np.ndarray, FunctionType, partial, int, float, str, tuple, list, dict)
_STORES = ("STORE_GLOBAL", "STORE_DEREF")  # what a function changes itself, a counter, is no part of it
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # where an object lies in memory is no part of it


def state_hash(module: nn.Module) -> str:
    """The `weights_hash` of a module."""
    digest = hashlib.sha256()
    _add_module(digest, module, ())
    return digest.hexdigest()


def model_hash(model: Callable[[Tensor], Tensor]) -> str | None:
    """The `weights_hash` of a module, a function or another object to call; None where there is no code to see."""
    if isinstance(model, nn.Module):
        return state_hash(model)
    seen = model if isinstance(model, (FunctionType, MethodType, partial)) else model.__call__  # type: ignore[operator]
    if not isinstance(seen, (FunctionType, MethodType, partial)):
        return None
    digest = hashlib.sha256()
    _add(digest, "model", seen, ())
    return digest.hexdigest()


def _add_module(digest: hashlib._Hash, module: nn.Module, within: tuple[Any, ...]) -> None:
    digest.update(_ADDRESS.sub("", repr(module)).encode())
    within = (*within, *module.modules())
    for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
        _add(digest, name, value, within)
    for name, layer in module.named_modules():
        if isinstance(layer, (torch.jit.ScriptModule, torch.fx.GraphModule)):
            _add(digest, name, str(layer.code), within)
        elif not _is_library(type(layer)):
            _add(digest, name, _written(layer), within)


def _written(layer: nn.Module) -> dict[str, Any]:
    """What somebody has written into a layer: methods and attributes."""
    own = [cls for cls in reversed(type(layer).__mro__) if not _is_library(cls)]
    methods = {name: value for cls in own for name, value in vars(cls).items() if isinstance(value, FunctionType)}
    kept = {name: value for name, value in vars(layer).items() if not name.startswith("_") and name != "training"}
    return {name: value for name, value in sorted((methods | kept).items()) if name != "__init__"}


def _is_library(thing: Any) -> bool:
    """Whether a class or function comes with Python, a package or smoothcert, and not from the user."""
    root = str(thing.__module__).partition(".")[0]
    file = Path(getattr(sys.modules.get(thing.__module__), "__file__", None) or "")
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return root != "__main__" and (root in ("smoothcert", *sys.stdlib_module_names) or bool(installed))


def _add(digest: hashlib._Hash, name: str, value: Any, within: tuple[Any, ...]) -> None:
    """Add what can be seen of a value; `within` is what it was found in."""
    if any(value is outer for outer in within):
        return
    digest.update(f"{name} {type(value).__name__}\n".encode())
    if isinstance(value, Tensor):
        content = (value.dequantize() if value.is_quantized else value).detach().cpu().contiguous()
        digest.update(f"{content.dtype} {tuple(content.shape)}\n".encode())
        digest.update(content.flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype} {value.shape}\n".encode())
        digest.update(value.tobytes())
    elif isinstance(value, nn.Module):
        _add_module(digest, value, within)
    elif (parts := _parts(value)) is not None:
        for part, content in parts.items():
            _add(digest, f"{name}.{part}", content, (*within, value))
    else:
        digest.update(f"{_ADDRESS.sub('', repr(value))}\n".encode())


def _parts(value: Any) -> dict[Any, Any] | None:
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
        owner = value.__self__
        return {
            "function": value.__func__,
            "self": owner if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {}),
        }
    if isinstance(value, CodeType):
        return {"code": value.co_code, "names": value.co_names, "constants": value.co_consts}
    if not isinstance(value, FunctionType):
        return None
    value = inspect.unwrap(value)
    if _is_library(value):
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
