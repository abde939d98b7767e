"""Runs a CIFAR ResNet with one kernel per stage."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothcert.kernels.base import KernelClassifier
from smoothcert.kernels.grid_noise import grid_noise
from smoothcert.kernels.nvrtc import Kernel
from smoothcert.kernels.resnet.layout import Layout, layouts
from smoothcert.kernels.resnet.match import NotAResNet
from smoothcert.kernels.resnet.network import Block, Network
from smoothcert.kernels.resnet.packing import pack_next, pack_stage
from smoothcert.noises.draws import Additive, AdditiveGrid, Draw

_DTYPES = {torch.bfloat16: 1, torch.float16: 0}
_NO_NOISE, _NORMAL, _GRID = 0, 1, 2  # values of NOISE in stage.cu
_OLDEST = (8, 0)  # the compute capability that first had these tensor core instructions
_BATCH = 4096  # about this many rows keep the device busy long enough


class Arguments(ctypes.Structure):
    """The parameter of stage.cu."""

    _fields_ = (
        ("inputs", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("affine", ctypes.c_void_p),
        ("hidden", ctypes.c_void_p),
        ("shortcut", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("biases", ctypes.c_void_p),
        ("next_weights", ctypes.c_void_p),
        ("next_biases", ctypes.c_void_p),
        ("next_hidden", ctypes.c_void_p),
        ("next_shortcut", ctypes.c_void_p),
        ("linear", ctypes.c_void_p),
        ("linear_bias", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("scale", ctypes.c_float),
        ("ratio", ctypes.c_float),
        ("tail", ctypes.c_float),
        ("length", ctypes.c_int),
        ("smallest", ctypes.c_int),
        ("blocks", ctypes.c_int),
        ("count", ctypes.c_int),
        ("classes", ctypes.c_int),
    )


@dataclass(frozen=True)
class StageWeights:
    """A stage as the kernel takes it.

    Args:
        channels: Channels of the activations.
        size: Side length of the activations.
        blocks: Residual blocks.
        weights: Of the 3x3 convolutions.
        biases: Of the 3x3 convolutions.
        next_channels: Channels of the next stage; 0 in the last stage.
        next_size: Side length of the next stage's activations.
        next_weights: Of the convolutions that lead to the next stage.
        next_biases: Of the convolutions that lead to the next stage.
    """

    channels: int
    size: int
    blocks: int
    weights: Tensor
    biases: Tensor
    next_channels: int = 0
    next_size: int = 0
    next_weights: Tensor | None = None
    next_biases: Tensor | None = None

    def options(self, *, is_first: bool, input_channels: int, dtype: torch.dtype, noise: int) -> list[str]:
        """The constants of stage.cu, apart from the layout."""
        values = {
            "HALF_IS_BFLOAT16": _DTYPES[dtype],
            "IS_FIRST": int(is_first),
            "IS_LAST": int(not self.next_channels),
            "INPUT_CHANNELS": input_channels,
            "NOISE": noise,
            "NEXT_CHANNELS": self.next_channels,
            "STRIDE": self.size // self.next_size if self.next_size else 1,
        }
        return [f"-D{name}={value}" for name, value in values.items()]


def pack_network(network: Network) -> list[StageWeights]:
    """The stages of a network in float32.

    Raises:
        NotAResNet: The network has a shape that the kernel does not support.
    """
    stages = network.stages()
    if network.shape[0] > 4 or network.first.stride != 1:
        raise NotAResNet("the first convolution has more than 4 input channels or a stride")
    if not stages[0]:
        raise NotAResNet("the first block changes the shape")
    packed = []
    size = network.shape[1]
    for number, stage in enumerate(stages):
        following = stages[number + 1][0] if number + 1 < len(stages) else None
        packed.append(_pack_stage(network, stage, size, following, is_first=number == 0))
        size = packed[-1].next_size
    return packed


def _pack_stage(
    network: Network, stage: Sequence[Block], size: int, following: Block | None, *, is_first: bool
) -> StageWeights:
    convolutions = [convolution for block in stage for convolution in (block.first, block.second)]
    if not is_first:  # the kernel before this one computes the first convolution of the strided block
        convolutions = convolutions[1:]
    channels = convolutions[0].channels
    if any(
        convolution.weight.shape[:2] != (channels, channels) or convolution.stride != 1 for convolution in convolutions
    ):
        raise NotAResNet("the width changes within a stage")
    if is_first and network.first.channels != channels:
        raise NotAResNet("the first convolution has another width than the first stage")
    weights, biases = pack_stage(network.first if is_first else None, convolutions)
    if following is None:
        return StageWeights(channels, size, len(stage), weights, biases)
    assert following.shortcut is not None
    stride = following.first.stride
    if stride not in (1, 2) or size % stride or following.first.channels % 16:
        raise NotAResNet("a stage has an unusual width or stride")
    next_weights, next_biases = pack_next(following.first, following.shortcut)
    return StageWeights(
        channels,
        size,
        len(stage),
        weights,
        biases,
        following.first.channels,
        size // stride,
        next_weights,
        next_biases,
    )


class StageClassifier(KernelClassifier):
    """A CIFAR ResNet on a CUDA device.

    Args:
        network: The network.
        dtype: The number format of weights and activations: bfloat16 or float16.
        device: The CUDA device.
        chosen: A layout for each stage. Default: the most promising ones.
        draw: The noise of the run, if it is known. Its kernel is compiled together with the others. The kernels of
            other noises are compiled when they are needed.

    Raises:
        NotAResNet: The network does not fit, or the device is too old.
        CudaError: The kernels cannot be compiled.
    """

    def __init__(
        self,
        network: Network,
        dtype: torch.dtype,
        device: torch.device,
        chosen: Sequence[Layout] | None = None,
        *,
        draw: Draw | None = None,
    ) -> None:
        if dtype not in _DTYPES or device.type != "cuda" or torch.version.hip:
            raise NotAResNet(f"the kernels compute in bfloat16 or float16 on CUDA, not in {dtype} on {device}")
        device = torch.device("cuda", torch.cuda.current_device()) if device.index is None else device
        if torch.cuda.get_device_capability(device) < _OLDEST:
            raise NotAResNet("the device has no tensor cores for this")
        self.shape, self.classes, self.dtype, self.device = network.shape, network.classes, dtype, device
        packed = pack_network(network)
        properties = torch.cuda.get_device_properties(device)
        per_block, per_multiprocessor = _shared_memory(properties)
        if chosen is None:
            chosen = [best_layout(stage.channels, stage.size, per_block, per_multiprocessor) for stage in packed]
        self.layouts = list(chosen)
        with ThreadPoolExecutor() as pool:  # NVRTC compiles several programs at a time
            stages = [pool.submit(self._compile, stage, number) for number, stage in enumerate(packed)]
            noise = _noise_constant(draw)
            drawing = pool.submit(self._compile, packed[0], 0, noise) if noise else None
            self._kernels = [future.result() for future in stages]
            self._drawing = {noise: drawing.result()} if drawing else {}
        affine = torch.stack([network.factor, network.offset], 1)
        self._affine = affine.to(device)
        self._linear = network.linear.T.contiguous().to(device)
        self._linear_bias = network.linear_bias.to(device)
        self._stages = [_on_device(stage, dtype, device) for stage in packed]
        self._multiprocessors = properties.multi_processor_count

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of the stages."""
        return self._kernels

    def __call__(self, noisy: Tensor) -> Tensor:
        return self._run(noisy.contiguous(memory_format=torch.channels_last))

    def logits(self, noisy: Tensor) -> Tensor:
        """The logits of each row, in float32."""
        logits = torch.empty((len(noisy), self.classes), device=self.device, dtype=torch.float32)
        self._run(noisy.contiguous(memory_format=torch.channels_last), logits=logits)
        return logits

    def with_noise(self, inputs: Tensor, rows: Tensor, *, count: int, seed: int, draw: Draw) -> Tensor:
        return self._run(inputs, rows=rows, count=count, seed=seed, draw=draw)

    def best_batch(self) -> int:
        """A batch that keeps all multiprocessors busy until the end.

        The last blocks of a kernel leave a part of the device idle, so the batch is a multiple of what runs at once.
        """
        waves = [
            kernel.resident_blocks(layout.threads) * self._multiprocessors * layout.images
            for kernel, layout in zip(self._kernels, self.layouts, strict=True)
        ]
        work = [stage.blocks * stage.channels**2 * stage.size**2 for stage in self._stages]

        def waste(batch: int) -> float:
            return sum(cost * ceil(batch / wave) * wave / batch for cost, wave in zip(work, waves, strict=True))

        candidates = sorted({wave * n for wave in waves for n in range(1, 2 * _BATCH // wave + 1)})
        enough = [batch for batch in candidates if _BATCH // 2 <= batch <= 2 * _BATCH]
        return min(enough or [_BATCH], key=lambda batch: (round(waste(batch) / sum(work), 2), batch))

    def _compile(self, stage: StageWeights, number: int, noise: int = _NO_NOISE) -> Kernel:
        options = stage.options(is_first=number == 0, input_channels=self.shape[0], dtype=self.dtype, noise=noise)
        layout = self.layouts[number]
        return Kernel(source(), "stage", [*options, *layout.options()], self.device, layout.shared_memory)

    def _run(
        self,
        inputs: Tensor,
        *,
        rows: Tensor | None = None,
        count: int | None = None,
        seed: int = 0,
        draw: Draw | None = None,
        logits: Tensor | None = None,
    ) -> Tensor:
        count = len(inputs) if count is None else count
        noise = _noise_constant(draw)
        if noise and noise not in self._drawing:
            self._drawing[noise] = self._compile(self._stages[0], 0, noise)
        labels = torch.empty(count, device=self.device, dtype=torch.int64)
        hidden: Tensor | None = None
        shortcut: Tensor | None = None
        for number, (stage, layout) in enumerate(zip(self._stages, self.layouts, strict=True)):
            next_hidden, next_shortcut = self._activations(stage, count), self._activations(stage, count)
            arguments = Arguments(
                _pointer(inputs),
                _pointer(rows),
                _pointer(self._affine),
                _pointer(hidden),
                _pointer(shortcut),
                _pointer(stage.weights),
                _pointer(stage.biases),
                _pointer(stage.next_weights),
                _pointer(stage.next_biases),
                _pointer(next_hidden),
                _pointer(next_shortcut),
                _pointer(self._linear),
                _pointer(self._linear_bias),
                _pointer(labels),
                _pointer(logits),
                seed=seed,
                blocks=stage.blocks,
                count=count,
                classes=self.classes,
            )
            _describe_noise(arguments, draw, self.device)
            kernel = self._drawing[noise] if number == 0 and noise else self._kernels[number]
            kernel.launch(ceil(count / layout.images), layout.threads, arguments)
            hidden, shortcut = next_hidden, next_shortcut
        return labels

    def _activations(self, stage: StageWeights, count: int) -> Tensor | None:
        """Memory for the inputs of the next stage."""
        if not stage.next_channels:
            return None
        return torch.empty((count, stage.next_channels, stage.next_size**2), device=self.device, dtype=self.dtype)


def _noise_constant(draw: Draw | None) -> int:
    """The constant NOISE of the kernel that draws this noise."""
    if type(draw) is AdditiveGrid:
        return _GRID
    return _NORMAL if type(draw) is Additive and draw.law == "normal" else _NO_NOISE


def _describe_noise(arguments: Arguments, draw: Draw | None, device: torch.device) -> None:
    if isinstance(draw, Additive):
        arguments.scale = draw.drawn_scale
    elif isinstance(draw, AdditiveGrid):
        grid = grid_noise(draw, device)
        arguments.table, arguments.length = _pointer(grid.table), len(grid.table)
        arguments.smallest, arguments.ratio, arguments.tail = grid.smallest, grid.ratio, grid.tail
        arguments.scale = grid.step


def best_layout(channels: int, size: int, per_block: int, per_multiprocessor: int) -> Layout:
    """The most promising layout of a stage.

    Raises:
        NotAResNet: The activations do not fit into shared memory.
    """
    found = layouts(channels, size, per_block, per_multiprocessor)
    if not found:
        raise NotAResNet(f"a stage of {channels} channels and {size}x{size} pixels does not fit into shared memory")
    return found[0]


@lru_cache(maxsize=1)
def source() -> str:
    """The CUDA C++ of the kernel."""
    folder = Path(__file__).parent
    files = (folder.parent / "instructions.cu", folder / "noise.cu", folder / "stage.cu")
    return "\n".join(file.read_text() for file in files)


def _shared_memory(properties: Any) -> tuple[int, int]:
    """Bytes of shared memory that a block can have, and of a multiprocessor."""
    return properties.shared_memory_per_block_optin, properties.shared_memory_per_multiprocessor


def _on_device(stage: StageWeights, dtype: torch.dtype, device: torch.device) -> StageWeights:
    """The stage with its weights rounded, once, and on the device. Biases stay in float32."""
    return replace(
        stage,
        weights=stage.weights.to(device, dtype),
        biases=stage.biases.to(device),
        next_weights=None if stage.next_weights is None else stage.next_weights.to(device, dtype),
        next_biases=None if stage.next_biases is None else stage.next_biases.to(device),
    )


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
