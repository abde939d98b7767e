"""How a classifier is run: device, number format, compilation, batch size.

All of this is part of the base classifier that a certificate speaks of, so it is resolved once, recorded, and the
same for every batch of a run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.errors import InvalidInput

Compile = Literal["none", "default", "max"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h


@dataclass(frozen=True)
class Runtime:
    """`batch` 0 stands for "choose by measuring"."""

    device: str
    dtype: str
    compile: Compile
    batch: int = 0

    @classmethod
    def resolve(
        cls, device: str = "auto", dtype: str = "auto", compile: str = "auto", batch: int | str = "auto"
    ) -> Runtime:
        """Fill in what is left to smoothcert: the fastest device; bfloat16 where it is native; compiled on CUDA."""
        device = str(device)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        _check_device(device)
        if dtype == "auto":
            dtype = "bfloat16" if _has_bfloat16(device) else "float32"
        if compile == "auto":
            compile = "default" if device.startswith("cuda") else "none"
        _check.one_of("dtype", dtype, tuple(_DTYPES))
        return cls(
            device,
            dtype,
            _check.one_of("compile", compile, get_args(Compile)),
            0 if batch == "auto" else _check.whole("batch", _number(batch), least=1),
        )

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype:
        return _DTYPES[self.dtype]

    def memory_format(self, shape: tuple[int, ...]) -> torch.memory_format:
        """Channels last for images, where there are several: with one, a network on the CPU is slower for it."""
        several = len(shape) == 3 and shape[0] > 1
        return torch.channels_last if several and self.torch_device.type != "mps" else torch.contiguous_format


def settle_dtype(dtype: str, module: Callable[[Tensor], Tensor]) -> str:
    """Only parameters can be converted: what has none is called with float32 unless the caller wants otherwise.

    What computes in a format of its own, as an ONNX graph does, says so by `own_dtype`.
    """
    if own := getattr(module, "own_dtype", None):
        if dtype not in ("auto", own):
            raise InvalidInput(f"the model computes in {own}, whatever its inputs are: leave out --dtype {dtype}")
        return str(own)
    convertible = isinstance(module, nn.Module) and any(p.is_floating_point() for p in module.parameters())
    return dtype if convertible or dtype != "auto" else "float32"


@torch.inference_mode(False)  # as the sampler's batch is: for tensors of another kind it would be compiled anew
def blank(shape: tuple[int, ...], runtime: Runtime, rows: int | None = None) -> Tensor:
    """An all-zero batch as the classifier will see it."""
    x = torch.zeros((rows or runtime.batch, *shape), device=runtime.torch_device, dtype=runtime.torch_dtype)
    return x.to(memory_format=runtime.memory_format(shape))


def keep_freed_memory(device: torch.device) -> None:
    """On a CPU, have the C library keep what one batch frees for the next one.

    By default glibc hands large blocks back to the system, and gets them anew, page by page, for every layer of every
    batch: half of a small network's time.
    """
    if device.type == "cpu":
        with suppress(OSError, AttributeError, TypeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, 2**30)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _has_bfloat16(device: str) -> bool:
    """On CUDA, and on CPUs that have it in hardware; elsewhere it is emulated and slow."""
    native = (getattr(torch.cpu, f"_is_{name}_supported", lambda: False) for name in ("avx512_bf16", "amx_tile"))
    kind = torch.device(device).type
    return kind == "cuda" or (kind == "cpu" and any(has() for has in native))


def _number(text: int | str) -> int | str:
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise InvalidInput(f"unknown device {device!r}: give auto, cpu, cuda, cuda:N or mps") from None
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (kind.index or 0) >= here.get(kind.type, 0):
        known = [f"{name}:{i}" if name == "cuda" else name for name, count in here.items() for i in range(count)]
        raise InvalidInput(f"device {device!r} is not available here; there is {', '.join(known)}")
