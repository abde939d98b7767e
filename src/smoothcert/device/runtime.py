"""How a classifier is run: device, number format, compilation, batch size.

A certificate is about the classifier as it was run, so these settings are part of what is
certified. They are resolved once, recorded in the manifest, and the same for every batch of a run.
This module also makes batches and modules in these formats, and has what the steps before a run
share: messages and memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._agreement import Outputs
from smoothcert.errors import InvalidInput
from smoothcert.models.base import Network, copied
from smoothcert.noises.base import Shape

Compile = Literal["none", "fast", "default", "max"]
Compiled = Literal[Compile, "stages"]
Device: TypeAlias = str | int | torch.device
Dtype: TypeAlias = str | torch.dtype
Say: TypeAlias = Callable[[str], None]
"""A function that shows a message to the user."""

CHECKED_ROWS = 8
"""The rows of all trials before the batch size is known, because libraries prepare their kernels
for every new size."""
_COMPARED_DEVIATION = 0.5
"""The standard deviation of the noise in comparisons before a run."""
_FINER_ROWS = 64
"""Rows at a time in a finer number format, which needs more memory."""
_FLOAT16_CAPABILITY = (7, 0)
"""CUDA devices from this compute capability on are fast in float16."""
_BFLOAT16_CAPABILITY = (8, 0)
"""CUDA devices from this compute capability on have bfloat16 in hardware."""
_BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_tile")
"""CPUs with one of these have bfloat16 in hardware."""
# Constants of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BLOCK_BYTES = 2**30
_KEPT_HEAP_BYTES = 2**31 - 1
_OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "out of memory")
_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Runtime:
    """How a classifier is run. `Runtime.resolve` fills in defaults.

    Args:
        device: "cpu", "cuda", "cuda:N" or "mps".
        dtype: The number format of weights and inputs: "float32", "bfloat16", "float16" or
            "float64".
        compile: "none"; "fast", which fuses operations without a compiler; "default", which
            compiles the classifier; or "max", which also tunes its kernels. In the runtime of a
            prepared classifier, this is what runs: "stages" if "fast" recognised a CIFAR ResNet,
            which has one kernel per stage.
        batch: Rows per batch; 0 means that the batch size is measured when the classifier is
            prepared.
    """

    device: str
    dtype: str
    compile: Compiled
    batch: int = 0

    @classmethod
    def resolve(
        cls,
        device: Device = "auto",
        dtype: Dtype = "auto",
        compile: str = "auto",
        batch: int | str = "auto",
    ) -> Runtime:
        """Check the settings and replace every "auto" by a value for this machine.

        >>> Runtime.resolve("cpu", dtype="float32", batch=64)
        Runtime(device='cpu', dtype='float32', compile='none', batch=64)
        """
        device = _device_name(device)
        if device == "auto":
            device = _default_device()
        _check_device(device)
        dtype = _dtype_name(dtype)
        if dtype == "auto":
            dtype = _formats(device)[0]
        if compile == "auto":
            compile = "fast" if device.startswith("cuda") else "none"
        _check.one_of("dtype", dtype, tuple(_DTYPES))
        if dtype == "float64" and device.startswith("mps"):
            raise InvalidInput(
                "float64-on-mps",
                "mps does not support float64: give `device=cpu` or `dtype=float32`",
            )
        return cls(
            device,
            dtype,
            _check.one_of("compile", compile, get_args(Compile)),
            _check.number_or_auto("batch", batch),
        )

    @property
    def formats(self) -> list[str]:
        """The number format of this runtime, and those to try instead, before float32."""
        others = [dtype for dtype in _formats(self.device) if dtype not in (self.dtype, "float32")]
        return [self.dtype, *others]

    @property
    def torch_device(self) -> torch.device:
        """The device as torch has it."""
        return torch.device(self.device)

    @property
    def device_here(self) -> torch.device:
        """The device, or the CPU where only workers have a GPU."""
        if self.torch_device.type == "cuda" and not torch.cuda.is_available():
            return torch.device("cpu")
        return self.torch_device

    @property
    def prefers_grid(self) -> bool:
        """Whether noise on a grid costs little: on a CPU, it can cost a third of the speed."""
        return self.torch_device.type == "cuda"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The number format as torch has it."""
        return _DTYPES[self.dtype]

    def memory_format(self, shape: Shape) -> torch.memory_format:
        """The memory format of a batch: channels last for images with several channels.

        Images with one channel stay contiguous, because channels last makes networks slower for
        them on a CPU.
        """
        several_channels = len(shape) == 3 and shape[0] > 1
        if several_channels and self.torch_device.type != "mps":
            return torch.channels_last
        return torch.contiguous_format


def settle_dtype(dtype: Dtype, module: Network) -> str:
    """The number format for a classifier, where the classifier decides it.

    Only parameters can be converted, so "auto" becomes "float32" for a function and for a module
    without parameters. A module with parameters in float64 keeps float64 unless the caller asks for
    something else. A model that computes in a fixed format, such as an ONNX graph, has it in the
    attribute `own_dtype`. A quantized layer takes float32, and a traced module may contain
    constants in float32.
    """
    dtype = _dtype_name(dtype)
    fixed_dtype = getattr(module, "own_dtype", None)
    if fixed_dtype:
        if dtype not in ("auto", fixed_dtype):
            raise InvalidInput(
                "fixed-dtype",
                "the model always computes in {dtype}: leave out `dtype={setting}`",
                dtype=fixed_dtype,
                setting=dtype,
            )
        return str(fixed_dtype)
    if dtype != "auto":
        return dtype
    if isinstance(module, nn.Module) and any(map(_prefers_float32, module.modules())):
        return "float32"
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    formats = {parameter.dtype for parameter in parameters if parameter.is_floating_point()}
    if not formats:
        return "float32"
    return "float64" if torch.float64 in formats else "auto"


def _prefers_float32(part: nn.Module) -> bool:
    """Whether a part of a module is TorchScript, or a quantized layer of torch."""
    package = type(part).__module__
    quantized = package.startswith("torch.ao.nn.") and ".quantized" in package
    return quantized or isinstance(part, torch.jit.ScriptModule)


# The batches of the sampler are not inference tensors, for which torch would compile the classifier
# a second time.
@torch.inference_mode(False)
def blank(shape: Shape, runtime: Runtime, rows: int | None = None) -> Tensor:
    """A batch of zeros on the device and in the formats of a run."""
    x = torch.zeros(
        (rows or runtime.batch, *shape), device=runtime.torch_device, dtype=runtime.torch_dtype
    )
    return x.to(memory_format=runtime.memory_format(shape))


def noisy_images(shape: Shape, runtime: Runtime, rows: int | None = None) -> Tensor:
    """Random images in [0, 1] with noise, the same in every call, for comparisons before a run."""
    x = blank(shape, runtime, rows)
    # A CPU takes seconds for a full batch of large images, so CUDA devices draw their own.
    device = torch.device("cpu") if x.device.type == "mps" else x.device
    generator = torch.Generator(device).manual_seed(1)
    noise = _COMPARED_DEVIATION * torch.randn(x.shape, generator=generator, device=device)
    x += (torch.rand(x.shape, generator=generator, device=device) + noise).to(x)
    return x


def place(module: Outputs, runtime: Runtime, shape: Shape) -> Outputs:
    """A copy of a module on the device and in the number format of a run.

    A function is returned unchanged. Images have their channels last, because that is faster. A
    module that calls `x.view(len(x), -1)` on its activations fails on them, and gets contiguous
    images instead.
    """
    if not isinstance(module, nn.Module):
        return module
    memory_format = runtime.memory_format(shape)
    placed = _converted(module, runtime, memory_format)
    if memory_format is torch.channels_last:
        x = blank(shape, runtime, CHECKED_ROWS)
        if _needs_contiguous(placed, x):
            contiguous = _converted(module, runtime, torch.contiguous_format)
            return nn.Sequential(_Contiguous(), contiguous)
    return placed


def in_finer_format(module: nn.Module, runtime: Runtime) -> Outputs:
    """The outputs of a module in a finer number format than that of the run.

    The module is converted when it is called.
    """
    is_reduced = runtime.torch_dtype in (torch.bfloat16, torch.float16)
    has_float64 = runtime.torch_device.type != "mps"
    finer = replace(runtime, dtype="float64" if has_float64 and not is_reduced else "float32")

    # Contiguous, because float32 with channels last is very slow in depthwise convolutions on CUDA.
    def outputs(x: Tensor) -> Tensor:
        exact = _converted(module, finer, torch.contiguous_format)
        parts = (
            part.to(finer.torch_dtype, copy=True).contiguous()
            for part in torch.split(x, _FINER_ROWS)
        )
        return torch.cat([exact(part) for part in parts])

    return outputs


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _formats(device: str) -> list[str]:
    """The number formats that the hardware computes in, the best one first."""
    return [name for name, has in _HARDWARE.items() if has(torch.device(device))] + ["float32"]


def _has_float16(device: torch.device) -> bool:
    return device.type == "cuda" and _capability(device) >= _FLOAT16_CAPABILITY


def _has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware supports bfloat16; other devices emulate it, which is slow."""
    if device.type == "cuda":
        return _capability(device) >= _BFLOAT16_CAPABILITY
    if device.type != "cpu":
        return False
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in _BFLOAT16_INSTRUCTIONS)
    return any(is_supported() for is_supported in checks if is_supported is not None)


_HARDWARE = {"float16": _has_float16, "bfloat16": _has_bfloat16}
"""Reduced number formats, and whether a device has them in hardware."""


def _capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a CUDA device; that of workers if this process has none."""
    if not torch.cuda.is_available():
        return _BFLOAT16_CAPABILITY
    return torch.cuda.get_device_capability(device)


def _device_name(device: Device) -> str:
    """1 as "cuda:1"."""
    if type(device) is int:
        return f"cuda:{device}"
    return str(device)


def _dtype_name(dtype: Dtype) -> str:
    """torch.float32 as "float32"."""
    return str(dtype).removeprefix("torch.")


def _default_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def _check_device(device: str) -> None:
    try:
        torch_device = torch.device(device)
    except RuntimeError:
        raise InvalidInput(
            "unknown-device",
            "unknown device {device!r}: give auto, cpu, cuda, cuda:N or mps",
            device=device,
        ) from None
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if (torch_device.index or 0) < counts.get(torch_device.type, 0):
        return
    available = ["cpu", *(f"cuda:{index}" for index in range(counts["cuda"]))]
    if counts["mps"]:
        available.append("mps")
    raise InvalidInput(
        "device-not-available",
        "device {device!r} is not available here; available: {available}",
        device=device,
        available=", ".join(available),
    )


def _converted(
    module: nn.Module, runtime: Runtime, memory_format: torch.memory_format
) -> nn.Module:
    module = copied(module).to(runtime.torch_device, runtime.torch_dtype)
    return module.to(memory_format=memory_format)  # type: ignore[no-any-return, call-overload]


@torch.no_grad()
def _needs_contiguous(module: nn.Module, x: Tensor) -> bool:
    try:
        module(x)
    except Exception as error:  # the check before the run reports all other errors
        return "view size is not compatible" in str(error)
    return False


class _Contiguous(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()


# Constants of malloc.h.
def tune_process(device: torch.device) -> None:
    """Make the C library keep freed memory for the next batch, if the device is a CPU.

    By default, glibc returns large blocks to the operating system and requests them again, page by
    page, for every layer of every batch. That takes up to half of the time of a small network.
    """
    if device.type != "cpu":
        return
    with suppress(OSError, AttributeError, TypeError):  # other C libraries have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_HEAP_BYTES)


def say_nothing(message: str) -> None:
    """Show no message."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out.

    torch has no error type for the memory of the host, and the compiler wraps errors in its own
    type, so this function also reads the message.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return any(message in str(error) for message in _OUT_OF_MEMORY_MESSAGES)
