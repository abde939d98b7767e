"""Copies of modules, so that those of the caller stay unchanged."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """A deep copy of a module.

    torch does not copy tensors that were computed from parameters. `torch.nn.utils.weight_norm` keeps such a weight in
    an attribute and computes it again in every forward pass, so its value is enough.

    Args:
        module: The module.
    """
    attributes = (value for part in module.modules() for value in vars(part).values())
    computed = (value for value in attributes if isinstance(value, Tensor) and not value.is_leaf)
    return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
