"""Operations of layers.cu for torch. On a CPU they have the same results by torch's own operations."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from smoothcert.kernels.layers.convolution import FUSED_DTYPES
from smoothcert.kernels.nvrtc import Kernel, defines

VECTOR = 8
"""Numbers that a thread reads at once; channel counts must be multiples of it."""
_VECTOR_BYTES = 16
_THREADS = 256
_WARP = 32

_library = torch.library.Library("smoothcert", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "space_to_depth(Tensor x, int block, int padding, int[] size, int channels, float[] factor, float[] offset)"
    " -> Tensor"
)
_library.define("max_pool(Tensor x, int size, int stride, int padding) -> Tensor")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "add_layer_norm(Tensor x, Tensor? y, Tensor weight, Tensor bias, float epsilon) -> (Tensor, Tensor)"
)
_library.define("depth_to_space_add_relu(Tensor x, Tensor added, int block) -> Tensor")  # type: ignore[no-untyped-call]


class _Arguments(ctypes.Structure):
    """The parameter of layers.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "y", "weight", "bias", "out", "sum")),
        ("count", ctypes.c_uint64),
        ("epsilon", ctypes.c_float),
    )


def _launch(name: str, like: Tensor, threads: int, constants: dict[str, Any], **arguments: Any) -> None:
    """Run a kernel of layers.cu with so many threads."""
    arguments.setdefault("count", threads)
    tensors = [value for value in arguments.values() if isinstance(value, Tensor)]
    if like.dtype not in FUSED_DTYPES or any(tensor.dtype != like.dtype for tensor in tensors):
        raise TypeError(f"{name} takes tensors in bfloat16 or in float16, not in {like.dtype} or in several formats")
    common = {name.upper(): 1, "THREADS": _THREADS, "HALF_IS_BFLOAT16": int(like.dtype == torch.bfloat16)}
    kernel = _kernel(name, tuple(defines(**common, **constants)), like.device)
    pointers = {key: value.data_ptr() if isinstance(value, Tensor) else value for key, value in arguments.items()}
    kernel.launch(-(-threads // _THREADS), _THREADS, _Arguments(**pointers))


@lru_cache(maxsize=256)
def _kernel(name: str, options: tuple[str, ...], device: torch.device) -> Kernel:
    folder = Path(__file__).parent
    source = "\n".join(path.read_text() for path in (folder.parent / "instructions.cu", folder / "layers.cu"))
    return Kernel(source, name, options, device)


def _literals(values: list[float]) -> str:
    """Numbers as they are written in C++."""
    return ",".join(f"{value!r}f" for value in values)


def _aligned(tensor: Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    """The tensor without gaps, and at an address from which a thread can read 16 bytes at once."""
    tensor = tensor.contiguous(memory_format=memory_format)
    return tensor.clone(memory_format=memory_format) if tensor.data_ptr() % _VECTOR_BYTES else tensor


def _images(like: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Memory for images with their channels last."""
    return torch.empty(
        (len(like), channels, height, width), dtype=like.dtype, device=like.device, memory_format=torch.channels_last
    )


def _sizes(x: Tensor, out: Tensor) -> dict[str, Any]:
    """The sizes of images before and after an operation, as constants of its kernel."""
    sizes = {"CHANNELS": x.shape[1], "HEIGHT": x.shape[2], "WIDTH": x.shape[3]}
    return sizes | {"OUT_HEIGHT": out.shape[2], "OUT_WIDTH": out.shape[3]}


@torch.library.impl(_library, "space_to_depth", "CompositeExplicitAutograd")
def _space_to_depth(
    x: Tensor, block: int, padding: int, size: list[int], channels: int, factor: list[float], offset: list[float]
) -> Tensor:
    exact = x.double() * x.new_tensor(factor, dtype=torch.float64).view(-1, 1, 1)
    x = (exact + x.new_tensor(offset, dtype=torch.float64).view(-1, 1, 1)).to(x.dtype)
    height, width = (block * length for length in size)
    x = F.pad(x, (padding, width - padding - x.shape[3], padding, height - padding - x.shape[2]))
    cells = x.view(len(x), x.shape[1], size[0], block, size[1], block).permute(0, 3, 5, 1, 2, 4)
    cells = cells.reshape(len(x), -1, *size)
    return F.pad(cells, (0, 0, 0, 0, 0, channels - cells.shape[1])).contiguous(memory_format=torch.channels_last)


@torch.library.impl(_library, "space_to_depth", "CUDA")
def _space_to_depth_on_cuda(
    x: Tensor, block: int, padding: int, size: list[int], channels: int, factor: list[float], offset: list[float]
) -> Tensor:
    x = x.contiguous(memory_format=torch.channels_last)
    out = _images(x, channels, *size)
    constants = _sizes(x, out) | {"BLOCK": block, "PADDING": padding, "OUT_CHANNELS": channels}
    constants |= {"FACTOR": _literals(factor), "OFFSET": _literals(offset)}
    _launch("space_to_depth", x, out.numel() // VECTOR, constants, x=x, out=out)
    return out


@torch.library.impl(_library, "max_pool", "CompositeExplicitAutograd")
def _max_pool(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
    return F.max_pool2d(x, size, stride, padding)


@torch.library.impl(_library, "max_pool", "CUDA")
def _max_pool_on_cuda(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
    x = _aligned(x, torch.channels_last)
    height, width = ((length + 2 * padding - size) // stride + 1 for length in x.shape[2:])
    out = _images(x, x.shape[1], height, width)
    constants = _sizes(x, out) | {"SIZE": size, "STRIDE": stride, "PADDING": padding}
    _launch("max_pool", x, out.numel() // VECTOR, constants, x=x, out=out)
    return out


@torch.library.impl(_library, "add_layer_norm", "CompositeExplicitAutograd")
def _add_layer_norm(x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    added = x.clone() if y is None else x + y
    return added, F.layer_norm(added, weight.shape, weight, bias, epsilon)


@torch.library.impl(_library, "add_layer_norm", "CUDA")
def _add_layer_norm_on_cuda(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    x, weight, bias = (_aligned(tensor) for tensor in (x, weight, bias))
    out = torch.empty_like(x)
    added = torch.empty_like(x) if y is not None else x.new_empty(0)
    y = y if y is None else _aligned(y)
    rows, constants = x.numel() // len(weight), {"WIDTH": len(weight), "ADDS": int(y is not None)}
    arguments = {"x": x, "y": y, "weight": weight, "bias": bias, "out": out, "sum": added, "epsilon": epsilon}
    _launch("add_layer_norm", x, rows * _WARP, constants, **arguments, count=rows)
    return added, out


@torch.library.impl(_library, "depth_to_space_add_relu", "CompositeExplicitAutograd")
def _depth_to_space_add_relu(x: Tensor, added: Tensor, block: int) -> Tensor:
    rows, channels, height, width = x.shape
    cells = x.view(rows, block, block, channels // block**2, height, width).permute(0, 3, 4, 1, 5, 2)
    images = cells.reshape(rows, -1, block * height, block * width)
    return torch.relu(images.contiguous(memory_format=torch.channels_last) + added)


@torch.library.impl(_library, "depth_to_space_add_relu", "CUDA")
def _depth_to_space_add_relu_on_cuda(x: Tensor, added: Tensor, block: int) -> Tensor:
    x, added = (_aligned(tensor, torch.channels_last) for tensor in (x, added))
    out = torch.empty_like(added)
    constants = {"CHANNELS": added.shape[1], "HEIGHT": x.shape[2], "WIDTH": x.shape[3], "BLOCK": block}
    _launch("depth_to_space", x, out.numel() // VECTOR, constants, x=x, y=added, out=out)
    return out
