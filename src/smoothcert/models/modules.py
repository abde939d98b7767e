"""Torch modules of the caller: check that their weights are there, hash them, and copy them to leave them unchanged."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert.errors import InvalidInput, first_line

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_MEMORY_ADDRESS = re.compile(r"( at |=)0x[0-9a-fA-F]+")  # it changes from process to process


def check_weights(module: Callable[[Tensor], Any], *, what: str = "the model") -> None:
    """Refuse a module whose weights are not there yet, or are complex numbers."""
    tensors = chain(module.parameters(), module.buffers()) if isinstance(module, nn.Module) else ()
    for tensor in tensors:
        if is_lazy(tensor):
            raise InvalidInput(f"{what} has layers without weights yet (lazy layers?): call it on an input first")
        if tensor.is_meta:
            raise InvalidInput(f"{what} has no weights yet (it is on the meta device): load its weights first")
        if tensor.is_complex():  # torch would drop their imaginary parts in the number format of the run
            raise InvalidInput(f"{what} has complex weights: store them as pairs of real numbers (torch.view_as_real)")


def state_hash(module: nn.Module) -> str:
    """The SHA-256 hash of the layers and the state of a module.

    Args:
        module: The module.
    """
    check_weights(module)
    digest = hashlib.sha256(_MEMORY_ADDRESS.sub("", repr(module)).encode())
    for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
        if isinstance(value, Tensor):
            content = _dense(value).detach().cpu().contiguous()
            digest.update(f"{name} {content.dtype} {tuple(content.shape)}\n".encode())
            digest.update(content.flatten().view(torch.uint8).numpy().data)
        else:  # extra state may be any object
            digest.update(_MEMORY_ADDRESS.sub("", f"{name} {value!r}\n").encode())
    return digest.hexdigest()


def import_path(value: Any) -> str:
    """The module and the name of a function, or of the class of a torch module."""
    source = type(value) if isinstance(value, nn.Module) or not hasattr(value, "__qualname__") else value
    return f"{source.__module__}:{source.__qualname__}"


def like_weights(x: Tensor, module: Callable[[Tensor], Any]) -> Tensor:
    """A batch on the device and in the number format of the weights of a module; float32 for a function."""
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    parameter = next((p for p in parameters if p.is_floating_point()), None)
    return x.float() if parameter is None else x.to(parameter)


def copied(module: nn.Module) -> nn.Module:
    """A deep copy of a module, without what `torch.compile` and `DataParallel` put around it.

    torch does not copy tensors that were computed from parameters. `torch.nn.utils.weight_norm` keeps such a weight in
    an attribute and computes it again in every forward pass, so its value is enough.

    Raises:
        InvalidInput: The module holds something that cannot be copied, such as a lock or an open file.
    """
    while (compiled := hasattr(module, "_orig_mod")) or type(module) in _PARALLEL:
        if module._forward_hooks or module._forward_pre_hooks:
            raise InvalidInput(
                f"the hooks of {type(module).__name__} would be lost, and with them a part of the classifier: "
                "register them on the module inside of it"
            )
        module = getattr(module, "_orig_mod" if compiled else "module")
    attributes = (value for part in module.modules() for value in vars(part).values())
    computed = (value for value in attributes if isinstance(value, Tensor) and not value.is_leaf)
    try:
        return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # attributes may be any objects
        raise InvalidInput(
            f"{type(module).__name__} cannot be copied ({first_line(error)}): remove what cannot be copied from its "
            "attributes, or give a function that calls it"
        ) from error


def _dense(value: Tensor) -> Tensor:
    """A tensor whose bytes can be read: neither quantized nor sparse, with lazy operations applied."""
    value = value.dequantize() if value.is_quantized else value
    return (value if value.layout == torch.strided else value.to_dense()).resolve_conj().resolve_neg()
