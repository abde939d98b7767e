"""Copies of modules, so that those of the caller stay unchanged."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, first_line

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


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
