"""A copy of a classifier on the device and in the formats of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from smoothcert.device.runtime import CHECKED_ROWS, Runtime, blank
from smoothcert.models.modules import copied

_FINER_ROWS = 64  # at a time, because a finer format needs more memory


def place(module: Callable[[Tensor], Tensor], runtime: Runtime, shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """A copy of a module on the device and in the number format of a run; a function is returned unchanged.

    Images have their channels last, because that is faster. A module that calls `x.view(len(x), -1)` on its activations
    fails on them, and gets contiguous images instead.
    """
    if not isinstance(module, nn.Module):
        return module
    memory_format = runtime.memory_format(shape)
    placed = _converted(module, runtime, memory_format)
    if memory_format is torch.channels_last and _needs_contiguous(placed, blank(shape, runtime, CHECKED_ROWS)):
        placed = nn.Sequential(_Contiguous(), _converted(module, runtime, torch.contiguous_format))
    return placed


def in_finer_format(module: nn.Module, runtime: Runtime) -> Callable[[Tensor], Tensor]:
    """The outputs of a module in a finer number format than that of the run. The module is converted when needed."""
    coarse = runtime.torch_dtype in (torch.bfloat16, torch.float16) or runtime.torch_device.type == "mps"
    finer = replace(runtime, dtype="float32" if coarse else "float64")

    # Contiguous, because float32 with channels last is very slow in depthwise convolutions on CUDA.
    def outputs(x: Tensor) -> Tensor:
        exact = _converted(module, finer, torch.contiguous_format)
        parts = (part.to(finer.torch_dtype, copy=True).contiguous() for part in torch.split(x, _FINER_ROWS))
        return torch.cat([exact(part) for part in parts])

    return outputs


def _converted(module: nn.Module, runtime: Runtime, memory_format: torch.memory_format) -> nn.Module:
    module = copied(module).to(runtime.torch_device, runtime.torch_dtype)
    return module.to(memory_format=memory_format)  # type: ignore[no-any-return, call-overload]


@torch.no_grad()
def _needs_contiguous(module: nn.Module, x: Tensor) -> bool:
    try:
        module(x)
    except Exception as error:  # the check before the run names all others
        return "view size is not compatible" in str(error)
    return False


class _Contiguous(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()
