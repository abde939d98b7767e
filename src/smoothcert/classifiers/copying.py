"""Copies of modules, so that those of the caller stay unchanged."""

from __future__ import annotations

import copy

from torch import Tensor, nn

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def copied(module: nn.Module) -> nn.Module:
    """A deep copy of a module, without what `torch.compile` and `DataParallel` put around it.

    torch does not copy tensors that were computed from parameters. `torch.nn.utils.weight_norm` keeps such a weight in
    an attribute and computes it again in every forward pass, so its value is enough.

    Args:
        module: The module.
    """
    while (compiled := hasattr(module, "_orig_mod")) or isinstance(module, _PARALLEL):
        module = getattr(module, "_orig_mod" if compiled else "module")
    attributes = (value for part in module.modules() for value in vars(part).values())
    computed = (value for value in attributes if isinstance(value, Tensor) and not value.is_leaf)
    return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
