"""How a classifier is run: device, number format, compilation, batch size; and batches and modules in these formats.

A certificate is about the classifier as it was run, so these settings are part of what is certified. They are resolved
once, recorded in the manifest, and the same for every batch of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import copied

Compile = Literal["none", "fast", "default", "max"]
Compiled = Literal[Compile, "stages"]
Device: TypeAlias = str | int | torch.device
Dtype: TypeAlias = str | torch.dtype

CHECKED_ROWS = 8
"""The rows of all trials before the batch size is known: libraries prepare their kernels for every new size."""
_FARTHEST = 100  # standard deviations; no noise is drawn farther out than that
_COMPARED_DEVIATION = 0.5
_FINER_ROWS = 64  # at a time, because a finer format needs more memory
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
        dtype: The number format of weights and inputs: "float32", "bfloat16", "float16" or "float64".
        compile: "none"; "fast", which fuses operations without a compiler; "default", which compiles the classifier;
            or "max", which also tunes its kernels. Of a prepared classifier, this is what runs: "stages" if "fast"
            found a CIFAR ResNet, which has one kernel per stage.
        batch: Rows per batch; 0 means that the batch size is measured when the classifier is prepared.
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
        device = f"cuda:{device}" if type(device) is int else str(device)
        dtype = _dtype_name(dtype)
        if device == "auto":
            device = (
                "cuda"
                if torch.cuda.is_available()
                else "mps"
                if torch.backends.mps.is_available()
                else "cpu"
            )
        _check_device(device)
        if dtype == "auto":
            dtype = "bfloat16" if _has_bfloat16(device) else "float32"
        if compile == "auto":
            compile = "fast" if device.startswith("cuda") else "none"
        _check.one_of("dtype", dtype, tuple(_DTYPES))
        if dtype == "float64" and device.startswith("mps"):
            raise InvalidInput(
                f"mps does not support float64: give {setting('device', 'cpu')} or {setting('dtype', 'float32')}"
            )
        return cls(
            device,
            dtype,
            _check.one_of("compile", compile, get_args(Compile)),
            _check.number_or_auto("batch", batch),
        )

    @property
    def torch_device(self) -> torch.device:
        """The device as torch has it."""
        return torch.device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The number format as torch has it."""
        return _DTYPES[self.dtype]

    def check_noise(self, deviation: float) -> None:
        """Refuse noise that the number format cannot hold."""
        largest = torch.finfo(self.torch_dtype).max / _FARTHEST
        if deviation > largest:
            raise InvalidInput(
                f"noise with the standard deviation {deviation:g} is too large for {self.dtype}: give at most "
                f"{largest:.2g}"
            )

    def memory_format(self, shape: tuple[int, ...]) -> torch.memory_format:
        """The memory format of a batch: channels last for images with several channels.

        Images with one channel stay contiguous, because channels last makes networks slower for them on a CPU.
        """
        several_channels = len(shape) == 3 and shape[0] > 1
        if several_channels and self.torch_device.type != "mps":
            return torch.channels_last
        return torch.contiguous_format


def settle_dtype(dtype: Dtype, module: Callable[[Tensor], Any]) -> str:
    """The number format for a classifier, where the classifier decides it.

    Only parameters can be converted, so "auto" becomes "float32" for a function and for a module without parameters. A
    module with parameters in float64 keeps float64 unless the caller asks for something else. A model that computes in
    a fixed format, such as an ONNX graph, has it in the attribute `own_dtype`. A quantized layer takes float32, and a
    traced module may contain constants in float32.
    """
    dtype = _dtype_name(dtype)
    if own := getattr(module, "own_dtype", None):
        if dtype not in ("auto", own):
            raise InvalidInput(
                f"the model always computes in {own}: leave out {setting('dtype', dtype)}"
            )
        return str(own)
    if dtype != "auto":
        return dtype
    if isinstance(module, nn.Module) and any(map(_prefers_float32, module.modules())):
        return "float32"
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    formats = {parameter.dtype for parameter in parameters if parameter.is_floating_point()}
    return "float64" if torch.float64 in formats else "auto" if formats else "float32"


def _prefers_float32(part: nn.Module) -> bool:
    """Whether a part of a module is TorchScript, or a quantized layer of torch."""
    package = type(part).__module__
    quantized = package.startswith("torch.ao.nn.") and ".quantized" in package
    return quantized or isinstance(part, torch.jit.ScriptModule)


# The batches of the sampler are not inference tensors. torch would compile the classifier again for the other kind.
@torch.inference_mode(False)
def blank(shape: tuple[int, ...], runtime: Runtime, rows: int | None = None) -> Tensor:
    """A batch of zeros on the device and in the formats of a run."""
    x = torch.zeros(
        (rows or runtime.batch, *shape), device=runtime.torch_device, dtype=runtime.torch_dtype
    )
    return x.to(memory_format=runtime.memory_format(shape))


def noisy_images(shape: tuple[int, ...], runtime: Runtime, rows: int | None = None) -> Tensor:
    """A batch of random images in [0, 1] with noise, the same every time, for comparisons before a run."""
    x = blank(shape, runtime, rows)
    drawn_there = (
        "cpu" if x.device.type == "mps" else x.device
    )  # a full batch of large images takes seconds on a CPU
    generator = torch.Generator(drawn_there).manual_seed(1)
    noise = _COMPARED_DEVIATION * torch.randn(x.shape, generator=generator, device=drawn_there)
    x += (torch.rand(x.shape, generator=generator, device=drawn_there) + noise).to(x)
    return x


def place(
    module: Callable[[Tensor], Tensor], runtime: Runtime, shape: tuple[int, ...]
) -> Callable[[Tensor], Tensor]:
    """A copy of a module on the device and in the number format of a run; a function is returned unchanged.

    Images have their channels last, because that is faster. A module that calls `x.view(len(x), -1)` on its activations
    fails on them, and gets contiguous images instead.
    """
    if not isinstance(module, nn.Module):
        return module
    memory_format = runtime.memory_format(shape)
    placed = _converted(module, runtime, memory_format)
    if memory_format is torch.channels_last and _needs_contiguous(
        placed, blank(shape, runtime, CHECKED_ROWS)
    ):
        placed = nn.Sequential(_Contiguous(), _converted(module, runtime, torch.contiguous_format))
    return placed


def in_finer_format(module: nn.Module, runtime: Runtime) -> Callable[[Tensor], Tensor]:
    """The outputs of a module in a finer number format than that of the run. The module is converted when needed."""
    coarse = (
        runtime.torch_dtype in (torch.bfloat16, torch.float16) or runtime.torch_device.type == "mps"
    )
    finer = replace(runtime, dtype="float32" if coarse else "float64")

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


def _has_bfloat16(device: str) -> bool:
    """Whether the hardware supports bfloat16; other devices emulate it, which is slow."""
    kind = torch.device(device).type
    if kind == "cuda":  # workers may have the device, and this process may have none
        return not torch.cuda.is_available() or torch.cuda.get_device_capability(device) >= (8, 0)
    native = (
        getattr(torch.cpu, f"_is_{name}_supported", lambda: False)
        for name in ("avx512_bf16", "amx_tile")
    )
    return kind == "cpu" and any(supported() for supported in native)


def _dtype_name(dtype: Dtype) -> str:
    """torch.float32 as "float32"."""
    return str(dtype).removeprefix("torch.")


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise InvalidInput(
            f"unknown device {device!r}: give auto, cpu, cuda, cuda:N or mps"
        ) from None
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if (kind.index or 0) >= counts.get(kind.type, 0):
        known = [
            f"{name}:{i}" if name == "cuda" else name
            for name, count in counts.items()
            for i in range(count)
        ]
        raise InvalidInput(
            f"device {device!r} is not available here; available: {', '.join(known)}"
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
    except Exception as error:  # the check before the run names all others
        return "view size is not compatible" in str(error)
    return False


class _Contiguous(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()
