"""Which classifier it is: a run is only continued with the one that it was begun with."""

from __future__ import annotations

import dis
import hashlib
import inspect
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert.errors import InvalidInput

_CACHING = type(lru_cache(str))
_CODE = (FunctionType, MethodType, partial, _CACHING)
_DATA = (nn.Module, Tensor, np.ndarray, torch.dtype, tuple, list, dict, set, frozenset)
_SETTINGS = (bool, int, float, tuple, type(None))  # a text may be the place where weights were found
_PIECES = (int, float, complex, str, bytes, Enum)  # whoever has derived a class from them: they say what they are
_LIVE = {"_io", "_thread", "concurrent", "logging", "multiprocessing", "subprocess", "threading", "weakref"}
_LIBRARIES = {"smoothcert", "torch", "numpy", *sys.stdlib_module_names}
_OF_ANY_MODULE = {*vars(nn.Module()), "_compiled_call_impl"}
_CALLED = ("__call__", "forward", "predict")
_STORES = ("STORE_GLOBAL", "STORE_DEREF")  # what a function changes itself, a counter, is no part of it
_ATTRIBUTE = re.compile(r"\.(\w+)")
_ADDRESS = re.compile(r"( at |=)0x[0-9a-fA-F]+")  # where an object lies in memory is no part of it


def state_hash(module: nn.Module) -> str:
    """The `weights_hash` of a module."""
    seen = _Seen()
    seen.add_module(module)
    return seen.digest.hexdigest()


def model_hash(model: Callable[[Tensor], Tensor]) -> str | None:
    """The `weights_hash` of a module, a function or another object to call; None where there is no code to see."""
    if isinstance(model, nn.Module):
        return state_hash(model)
    called = model if isinstance(model, _CODE) else model.__call__  # type: ignore[operator]
    if not isinstance(called, _CODE):
        return None
    seen = _Seen()
    seen.add("model", called)
    return seen.digest.hexdigest()


class _Seen:
    """What has been seen of a classifier, as a digest."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._met: dict[int, tuple[int, Any]] = {}  # by address, and kept, so that no other object comes to lie there

    def add(self, name: str, value: Any) -> None:
        """Add what can be seen of a value, once."""
        if id(value) in self._met:
            return self._say(f"{name} is {self._met[id(value)][0]}")
        self._say(f"{name} {type(value).__name__}")
        if isinstance(value, Tensor):
            content = _dense(value).detach().cpu().contiguous()
            self._say(f"{content.dtype} {tuple(content.shape)}")
            self.digest.update(content.flatten().view(torch.uint8).numpy().data)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._say(f"{value.dtype} {value.shape}")
            self.digest.update(value.tobytes())
        elif isinstance(value, nn.Module):
            self.add_module(value)
        elif (parts := _parts(value)) is not None:
            if not isinstance(value, (tuple, frozenset, CodeType)):  # constants: which of them are one object can vary
                self._meet(value)
            for part, content in parts.items():
                self.add(f"{name}.{part}", content)
        elif isinstance(value, _PIECES) or not _is_live(value):
            self._say(repr(value))

    def add_module(self, module: nn.Module) -> None:
        self._say(repr(module), end="")
        for layer in module.modules():
            self._meet(layer)
        for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
            self.add(name, value)
        for name, layer in module.named_modules():
            if isinstance(layer, torch.jit.ScriptModule):
                code, constants = layer.code_with_constants
                named = [(key, getattr(layer, key, None)) for key in sorted(set(_ATTRIBUTE.findall(code)))]
                held = [
                    (key, value) for key, value in named if isinstance(value, (Tensor, list, dict, str, *_SETTINGS))
                ]
                self.add(name, [code, constants.const_mapping, held])
                continue
            if isinstance(layer, torch.fx.GraphModule):
                self.add(name, str(layer.code))
                continue
            if hooks := [*layer._forward_pre_hooks.values(), *layer._forward_hooks.values()]:
                self.add(f"{name} hooks", hooks)
            if not _is_library(type(layer).__module__):
                self.add(name, _written(layer))
            else:  # whose settings need not be in its `repr`
                own = {key: v for key, v in vars(layer).items() if not key.startswith("_") and key != "training"}
                self.add(name, {key: v for key, v in sorted(own.items()) if isinstance(v, (*_SETTINGS, *_CODE))})

    def _meet(self, value: Any) -> None:
        self._met.setdefault(id(value), (len(self._met), value))

    def _say(self, text: str, end: str = "\n") -> None:
        self.digest.update(f"{_ADDRESS.sub('', text)}{end}".encode())


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a value is made of, by name; None if it is one piece."""
    if isinstance(value, (tuple, list, deque)):
        return dict(enumerate(value))
    if isinstance(value, (set, frozenset)):
        return dict(enumerate(sorted(value, key=lambda item: _ADDRESS.sub("", repr(item)))))
    if isinstance(value, dict):
        return value
    if isinstance(value, partial):
        return {"function": value.func, "arguments": value.args, "named": value.keywords}
    if isinstance(value, MethodType):
        owner = value.__self__
        seen = isinstance(owner, nn.Module) or _is_own(owner)
        return {"function": value.__func__, "self": owner if seen else getattr(owner, "__dict__", {})}
    if isinstance(value, CodeType):
        return {"code": value.co_code, "names": value.co_names, "constants": value.co_consts}
    if isinstance(value, _CACHING):
        return {"function": value.__wrapped__}
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    return _written(value) if _is_own(value) else None


def _parts_of_function(function: FunctionType) -> dict[str, Any]:
    """Code, defaults, and the globals and outer variables that it names."""
    if _is_library(function.__globals__.get("__name__")):
        if hasattr(function, "__wrapped__"):  # by torch.no_grad() and the like
            return {"wrapped": function.__wrapped__}
        return {"library": f"{function.__module__}.{function.__qualname__}"}
    codes = list(_codes(function.__code__))
    names = {name for code in codes for name in code.co_names}
    found = _named(function.__globals__, names)
    for module in [function.__globals__.get(name) for name in sorted(names)]:
        if isinstance(module, ModuleType) and not _is_library(module.__name__):
            found |= {f"{module.__name__}.{name}": value for name, value in _named(vars(module), names).items()}
    found |= {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        if cell != CellType()  # an empty one
    }
    changed = {step.argval for code in codes for step in dis.get_instructions(code) if step.opname in _STORES}
    for name, value in found.items():
        if _is_own(value) and not isinstance(value, _DATA) and (left_out := _scratch(codes)):
            found[name] = {part: content for part, content in _written(value).items() if part not in left_out}
    return {
        "code": function.__code__,
        "defaults": function.__defaults__,
        "named defaults": function.__kwdefaults__,
        "found": {name: value for name, value in sorted(found.items()) if name not in changed},
    }


def _named(space: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if _is_seen(value := space.get(name))}


def _written(thing: Any) -> dict[str, Any]:
    """What somebody has written into a module, another object or a class: methods and attributes."""
    kind = thing if isinstance(thing, type) else type(thing)
    own = [cls for cls in reversed(kind.__mro__) if not _is_library(cls.__module__)]
    members = {name: value for cls in own for name, value in vars(cls).items() if name != "__init__"}
    methods = {name: _function(value) for name, value in members.items()}
    called = [name for name in _CALLED if name in methods]
    for name in called:  # which grows
        inner = {other for code in _codes(methods[name]) for other in code.co_names}
        called += sorted(inner & set(methods) - set(called))
    left_out = _scratch(code for name in called for code in _codes(methods[name]))
    cached = {name for name, value in members.items() if isinstance(value, cached_property)}
    values = {
        name: value
        for name, value in methods.items()
        if _is_seen(value) and (isinstance(value, _CODE) or not name.startswith("__"))
    }
    values |= {name: value for name, value in _held(thing).items() if name not in cached}
    return {name: value for name, value in sorted(values.items()) if name not in left_out}


def _held(thing: Any) -> dict[str, Any]:
    """The attributes of an object itself, less those that every module has."""
    if isinstance(thing, type):
        return {}
    state = object.__getstate__(thing)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    found = {**(attributes or {}), **(slots or {})}
    return {k: v for k, v in found.items() if not (isinstance(thing, nn.Module) and k in _OF_ANY_MODULE)}


def _scratch(codes: Iterable[CodeType]) -> set[str]:
    """Attributes that code writes and reads at most to write them again, such as a counter or the last features."""
    written, read = set(), set()
    for code in codes:
        steps = [(step.opname, step.positions and step.positions.lineno, step.argval) for step in dis.Bytecode(code)]
        stores = {(line, name) for kind, line, name in steps if kind == "STORE_ATTR"}
        written |= {name for _, name in stores}
        loads = {(line, name) for kind, line, name in steps if kind in ("LOAD_ATTR", "LOAD_METHOD")}
        read |= {name for _, name in loads - stores}
    return written - read


def _codes(code: Any) -> Iterator[CodeType]:
    """The code of a function, also of one that is decorated, and of the functions within."""
    if not isinstance(code, CodeType):
        code = getattr(inspect.unwrap(code), "__code__", None) if isinstance(code, _CODE) else None
    if code is not None:
        yield code
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from _codes(inner)


def _function(member: Any) -> Any:
    """The function behind a member of a class, if there is one."""
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else member


def _dense(value: Tensor) -> Tensor:
    if is_lazy(value):
        raise InvalidInput("the model has layers without weights yet (a lazy one?): call it on an input first")
    if value.is_meta:
        return torch.empty(0)
    value = value.dequantize() if value.is_quantized else value
    return (value if value.layout == torch.strided else value.to_dense()).resolve_conj().resolve_neg()


def _is_seen(value: Any) -> bool:
    """Whether a global or a member of a class is looked at."""
    return isinstance(value, (*_CODE, *_DATA, *_PIECES)) or _is_own(value)


def _is_own(value: Any) -> bool:
    """Whether it is a class of the user's or an object of one, or as plain as that."""
    if isinstance(value, _PIECES) or _is_live(value):
        return False
    kind = value if isinstance(value, type) else type(value)
    return kind is SimpleNamespace or not _is_library(kind.__module__)


def _is_live(value: Any) -> bool:
    """Whether it is of a process, such as a lock, a log or an open file, and no part of a classifier."""
    return any(str(cls.__module__).partition(".")[0] in _LIVE for cls in type(value).__mro__)


def _is_library(module: str | None) -> bool:
    """Whether what a module defines comes with Python, a package or smoothcert, and not from the user."""
    root = str(module).partition(".")[0]
    file = Path(getattr(sys.modules.get(str(module)), "__file__", None) or "")
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return root != "__main__" and (root in _LIBRARIES or bool(installed))
