"""The fused operations: those of layers.cu, and one of cuDNN."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from math import lcm
from typing import Any

import torch
from torch import Tensor

from smoothcert.kernels.nvrtc import Kernel, defines, read_source

CHANNEL_MULTIPLE = 8
"""Tensor cores need channel counts that are multiples of this."""
FUSED_DTYPES = (torch.bfloat16, torch.float16)
"""The number formats for which there are fused kernels."""
VECTOR = 8
"""Numbers that a thread reads at once; channel counts must be multiples of it."""
_VECTOR_BYTES = 16
_THREADS = 256
"""Threads per block."""
_WARP = 32
"""Threads per warp."""
_FEWEST_CHANNELS = 32
"""Channels of a pixel that a block reads at least: 64 bytes."""
_FLOAT_BYTES = 4


class _Arguments(ctypes.Structure):
    """The parameter of layers.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "y", "weight", "bias", "out", "sum")),
        ("count", ctypes.c_uint64),
        ("epsilon", ctypes.c_float),
    )


def _launch(
    name: str,
    like: Tensor,
    threads: int,
    constants: dict[str, Any],
    shared_memory: int = 0,
    **arguments: Any,
) -> None:
    """Run a kernel of layers.cu with this many threads.

    Args:
        name: The kernel.
        like: A tensor with the device and the number format of all others.
        threads: How many threads.
        constants: Constants of the source, by name.
        shared_memory: Bytes of a block.
        **arguments: The members of `_Arguments`. The default of `count` is the number of threads.
    """
    arguments.setdefault("count", threads)
    pointers = {}
    dtypes = {like.dtype}
    for key, value in arguments.items():
        if isinstance(value, Tensor):
            dtypes.add(value.dtype)
            value = value.data_ptr()
        pointers[key] = value
    if len(dtypes) > 1 or like.dtype not in FUSED_DTYPES:
        raise TypeError(f"{name} takes tensors in bfloat16 or in float16, not in {dtypes}")
    common = {
        name.upper(): 1,
        "THREADS": _THREADS,
        "HALF_IS_BFLOAT16": int(like.dtype == torch.bfloat16),
    }
    options = tuple(defines(**common, **constants))
    kernel = _kernel(name, options, like.device, shared_memory)
    kernel.launch(-(-threads // _THREADS), _THREADS, _Arguments(**pointers))


@lru_cache(maxsize=256)
def _kernel(
    name: str, options: tuple[str, ...], device: torch.device, shared_memory: int
) -> Kernel:
    return Kernel(read_source("layers"), name, options, device, shared_memory)


def _literals(values: list[float]) -> str:
    """Numbers as they are written in C++."""
    return ",".join(f"{value!r}f" for value in values)


def _aligned(
    tensor: Tensor, memory_format: torch.memory_format = torch.contiguous_format
) -> Tensor:
    """The tensor without gaps, and at an address from which a thread can read 16 bytes at once."""
    tensor = tensor.contiguous(memory_format=memory_format)
    if tensor.data_ptr() % _VECTOR_BYTES:
        tensor = tensor.clone(memory_format=memory_format)
    return tensor


def _images(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Memory for images with their channels last."""
    return torch.empty(
        (len(like), channels, height, width),
        dtype=like.dtype,
        device=like.device,
        memory_format=torch.channels_last,
    )


def _sizes(x: Tensor, out: Tensor) -> dict[str, Any]:
    """The sizes of images before and after an operation, as constants of its kernel."""
    sizes = {"CHANNELS": x.shape[1], "HEIGHT": x.shape[2], "WIDTH": x.shape[3]}
    return sizes | {"OUT_HEIGHT": out.shape[2], "OUT_WIDTH": out.shape[3]}


def space_to_depth(
    x: Tensor,
    block: int,
    padding: int,
    size: list[int],
    channels: int,
    factor: list[float],
    offset: list[float],
) -> Tensor:
    """Cells of block x block pixels as channels.

    The inputs are first scaled and shifted channel by channel.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    out = _images(x, channels, *size)
    constants = _sizes(x, out) | {
        "BLOCK": block,
        "PADDING": padding,
        "OUT_CHANNELS": channels,
        "FACTOR": _literals(factor),
        "OFFSET": _literals(offset),
    }
    _launch("space_to_depth", x, out.numel() // VECTOR, constants, x=x, out=out)
    return out


def max_pool(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
    """The largest value of each window."""
    x = _aligned(x, torch.channels_last)
    height, width = ((length + 2 * padding - size) // stride + 1 for length in x.shape[2:])
    out = _images(x, x.shape[1], height, width)
    constants = _sizes(x, out) | {"SIZE": size, "STRIDE": stride, "PADDING": padding}
    _launch("max_pool", x, out.numel() // VECTOR, constants, x=x, out=out)
    return out


def add_layer_norm(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The sum of two tensors, and its layer normalisation. Without `y`, the sum is empty."""
    x = _aligned(x)
    weight = _aligned(weight)
    bias = _aligned(bias)
    out = torch.empty_like(x)
    total = x.new_empty(0)
    if y is not None:
        y = _aligned(y)
        total = torch.empty_like(x)
    rows = x.numel() // len(weight)
    _launch(
        "add_layer_norm",
        x,
        rows * _WARP,
        {"WIDTH": len(weight), "ADDS": int(y is not None)},
        x=x,
        y=y,
        weight=weight,
        bias=bias,
        out=out,
        sum=total,
        epsilon=epsilon,
        count=rows,
    )
    return total, out


def can_normalise_groups(channels: int, groups: int) -> bool:
    """Whether `group_norm` takes images with so many channels."""
    whole = channels % VECTOR == 0 and channels % groups == 0
    return whole and _block_channels(channels, groups) <= VECTOR * _THREADS


def _block_channels(channels: int, groups: int) -> int:
    """How many channels a block normalises: whole groups, and enough to read memory in one go."""
    step = lcm(VECTOR, channels // groups)
    sizes = range(step, channels, step)
    return next((n for n in sizes if n >= _FEWEST_CHANNELS and channels % n == 0), channels)


def group_norm(
    x: Tensor,
    shift: Tensor | None,
    groups: int,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    activates: bool,
) -> Tensor:
    """The group normalisation of images, whose channels are shifted before it, and SiLU after it.

    Args:
        x: The images.
        shift: What each channel gets before; None for nothing.
        groups: The number of groups.
        weight: The factor of each channel.
        bias: What each channel gets after.
        epsilon: What the variance gets.
        activates: Whether SiLU follows.
    """
    x = _aligned(x, torch.channels_last)
    out = torch.empty_like(x)
    rows, channels, height, width = x.shape
    block_channels = _block_channels(channels, groups)
    constants = {
        "CHANNELS": channels,
        "PIXELS": height * width,
        "GROUP": channels // groups,
        "SLICE": block_channels,
        "SHIFTS": int(shift is not None),
        "ACTIVATES": int(activates),
    }
    sums = _THREADS // (block_channels // VECTOR) + 1  # rows of sums, and one of results
    _launch(
        "group_norm",
        x,
        rows * (channels // block_channels) * _THREADS,
        constants,
        2 * sums * block_channels * _FLOAT_BYTES,
        x=x,
        y=None if shift is None else _aligned(shift),
        weight=_aligned(weight),
        bias=_aligned(bias),
        out=out,
        epsilon=epsilon,
    )
    return out


def add_bias(x: Tensor, y: Tensor, bias: Tensor) -> Tensor:
    """The sum of images and of a bias for each channel."""
    x = _aligned(x, torch.channels_last)
    y = _aligned(y, torch.channels_last)
    out = torch.empty_like(x)
    constants = {"CHANNELS": len(bias)}
    _launch("add_bias", x, x.numel() // VECTOR, constants, x=x, y=y, bias=_aligned(bias), out=out)
    return out


def depth_to_space_add_relu(x: Tensor, added: Tensor, block: int) -> Tensor:
    """The inverse of `space_to_depth`, followed by an addition and a ReLU."""
    x = _aligned(x, torch.channels_last)
    added = _aligned(added, torch.channels_last)
    out = torch.empty_like(added)
    constants = {
        "CHANNELS": added.shape[1],
        "HEIGHT": x.shape[2],
        "WIDTH": x.shape[3],
        "BLOCK": block,
    }
    _launch("depth_to_space", x, out.numel() // VECTOR, constants, x=x, y=added, out=out)
    return out


def convolution_relu(
    x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *geometry: Any
) -> Tensor:
    """A convolution, an addition and a ReLU.

    `geometry` stands for stride, padding, dilation and groups.
    """
    if x.is_cuda:
        try:
            if added is None:
                return torch.cudnn_convolution_relu(x, weight, bias, *geometry)
            return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, *geometry)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # cuDNN has no such kernel for this shape or this device
            pass
    y = torch.conv2d(x, weight, bias, *geometry)
    if added is not None:
        y = y + added
    return y.relu()
