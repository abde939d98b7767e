"""Runs a CIFAR ResNet, or an ensemble of them, with one kernel per stage.

Weights lie in the order in which the kernel reads them. A tensor core multiplies pixels by a matrix
of 16 input channels and 8 output channels. Lane l of a warp holds 4 of its elements: the output
channel l / 4, and the input channels k, k + 1, k + 8 and k + 9, where k is twice the remainder of
l / 4. They are 8 bytes, and the 32 lanes read 256 bytes in a row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor

from smoothcert.device.acceleration import KernelClassifier
from smoothcert.kernels.evaluation import Unexpected
from smoothcert.kernels.layout import Layout, layouts
from smoothcert.kernels.nvrtc import Kernel, defines, read_source, runs_kernels
from smoothcert.kernels.resnet import Block, Convolution, Network
from smoothcert.models.outputs import has_winner
from smoothcert.noises.base import Additive, AdditiveGrid, Draw
from smoothcert.sampling.grid_noise import grid_noise

_DTYPES = {torch.bfloat16: 1, torch.float16: 0}
"""The number formats, and their values of HALF_IS_BFLOAT16 in stage.cu."""
# Values of NOISE in stage.cu.
_NO_NOISE = 0
_NORMAL = 1
_GRID = 2
_BATCH = 4096
"""About this many rows keep the device busy long enough."""
_MOST_INPUT_CHANNELS = 4
_CHANNEL_MULTIPLE = 16
"""Input channels of the matrix that a tensor core multiplies by."""

_POINTERS = (
    "inputs rows affine hidden shortcut weights biases next_weights next_biases next_hidden "
    "next_shortcut linear linear_bias labels logits table"
)


class Arguments(ctypes.Structure):
    """The parameter of stage.cu, in the order of its members."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS.split()),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_float) for name in ("scale", "ratio", "tail")),
        *((name, ctypes.c_int) for name in ("length", "smallest", "blocks", "count", "classes")),
    )


@dataclass(frozen=True)
class StageWeights:
    """A stage as the kernel takes it.

    Args:
        channels: Channels of the activations.
        size: Side length of the activations.
        blocks: Residual blocks.
        next_channels: Channels of the next stage; 0 in the last stage.
        next_size: Side length of the next stage's activations.
        tensors: Weights and biases by their names in stage.cu: those of the 3x3 convolutions, and
            those of the convolutions that lead to the next stage.
    """

    channels: int
    size: int
    blocks: int
    next_channels: int
    next_size: int
    tensors: dict[str, Tensor]


def pack_network(network: Network, dtype: torch.dtype, device: torch.device) -> list[StageWeights]:
    """The stages of a network on a device, with weights that are rounded once.

    Biases stay in float32.

    Raises:
        Unexpected: The network has a shape that the kernel does not support.
    """
    if network.shape[0] > _MOST_INPUT_CHANNELS or network.first.stride != 1:
        raise Unexpected("the first convolution has more than 4 input channels or a stride")
    if not network.stages[0]:
        raise Unexpected("the first block changes the shape")
    packed = []
    size = network.shape[1]
    for number in range(len(network.stages)):
        stage = _pack_stage(network, number, size)
        for name, tensor in stage.tensors.items():
            kept_dtype = dtype if name.endswith("weights") else tensor.dtype
            stage.tensors[name] = tensor.to(device, kept_dtype)
        packed.append(stage)
        size = stage.next_size
    return packed


def _pack_stage(network: Network, number: int, size: int) -> StageWeights:
    """A stage with activations of this side length, in float32."""
    blocks = network.stages[number]
    convolutions = _convolutions_of(network, number)
    channels = convolutions[0].channels
    tensors = _pack_convolutions(None if number else network.first, convolutions)
    if number + 1 == len(network.stages):
        return StageWeights(channels, size, len(blocks), 0, 0, tensors)
    next_block = network.stages[number + 1][0]
    next_channels = next_block.first.channels
    stride = next_block.first.stride
    if stride not in (1, 2) or size % stride or next_channels % _CHANNEL_MULTIPLE:
        raise Unexpected("a stage has an unusual width or stride")
    tensors |= _pack_next(next_block)
    return StageWeights(channels, size, len(blocks), next_channels, size // stride, tensors)


def _convolutions_of(network: Network, number: int) -> list[Convolution]:
    """The convolutions that the kernel of a stage computes, all of one width.

    The kernel before it computes the first one of the strided block.
    """
    blocks = network.stages[number]
    convolutions = [convolution for block in blocks for convolution in (block.first, block.second)]
    own = convolutions[1:] if number else convolutions
    channels = own[0].channels
    if any(c.weight.shape[:2] != (channels, channels) or c.stride != 1 for c in own):
        raise Unexpected("the width changes within a stage")
    if number == 0 and network.first.channels != channels:
        raise Unexpected("the first convolution has another width than the first stage")
    return own


class StageClassifier(KernelClassifier):
    """A CIFAR ResNet on a CUDA device.

    Args:
        network: The network.
        dtype: The number format of weights and activations: bfloat16 or float16.
        device: The CUDA device.
        chosen: A layout for each stage. Default: the most promising ones.
        draw: The noise of the run, if it is decided. Its kernel is compiled together with the
            others. The kernels of other noises are compiled when they are needed.

    Raises:
        Unexpected: The network does not fit, or the device is too old.
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
        if dtype not in _DTYPES or not runs_kernels(device):
            raise Unexpected(f"there are no kernels for {dtype} on {device}")
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        packed = pack_network(network, dtype, device)
        properties: Any = torch.cuda.get_device_properties(device)
        self._multiprocessors: int = properties.multi_processor_count
        if chosen is None:
            chosen = [_best_layout(stage, properties) for stage in packed]
        self._load(network, packed, chosen)
        with ThreadPoolExecutor() as pool:  # NVRTC compiles several programs at a time
            stages = [pool.submit(self._compile, number) for number in range(len(packed))]
            noise = _noise_constant(draw)
            drawing = pool.submit(self._compile, 0, noise) if noise else None
            self._kernels = [future.result() for future in stages]
            self._drawing = {noise: drawing.result()} if drawing else {}

    def _load(self, network: Network, packed: list[StageWeights], chosen: Sequence[Layout]) -> None:
        weights = packed[0].tensors["weights"]
        self.shape = network.shape
        self.classes = network.classes
        self.dtype = weights.dtype
        self.device = weights.device
        self.layouts = list(chosen)
        self._stages = packed
        self._shared = {
            "affine": torch.stack([network.factor, network.offset], 1).to(self.device),
            "linear": network.linear.T.contiguous().to(self.device),
            "linear_bias": network.linear_bias.to(self.device),
        }

    def __call__(self, noisy: Tensor) -> Tensor:
        return self._run(noisy.contiguous(memory_format=torch.channels_last))

    def logits(self, noisy: Tensor) -> Tensor:
        logits = torch.empty((len(noisy), self.classes), device=self.device, dtype=torch.float32)
        self._run(noisy.contiguous(memory_format=torch.channels_last), logits=logits)
        return logits

    def with_noise(
        self, inputs: Tensor, rows: Tensor, *, count: int, seed: int, draw: Draw
    ) -> Tensor:
        return self._run(inputs, rows=rows, count=count, seed=seed, draw=draw)

    def noisy_logits(
        self, inputs: Tensor, rows: Tensor, *, count: int, seed: int, draw: Draw
    ) -> Tensor:
        """The logits of each row, with the arguments of `with_noise`."""
        logits = torch.empty((count, self.classes), device=self.device, dtype=torch.float32)
        self._run(inputs, rows=rows, count=count, seed=seed, draw=draw, logits=logits)
        return logits

    def best_batch(self) -> int:
        """A batch that keeps all multiprocessors busy until the end.

        The last blocks of a kernel leave a part of the device idle, so the batch is a multiple of
        what runs at once.
        """
        waves = [
            kernel.resident_blocks(layout.threads) * self._multiprocessors * layout.images
            for kernel, layout in zip(self._kernels, self.layouts, strict=True)
        ]
        work = [stage.blocks * stage.channels**2 * stage.size**2 for stage in self._stages]

        def waste(batch: int) -> float:
            return sum(
                cost * ceil(batch / wave) * wave / batch
                for cost, wave in zip(work, waves, strict=True)
            )

        candidates = sorted({wave * n for wave in waves for n in range(1, 2 * _BATCH // wave + 1)})
        enough = [batch for batch in candidates if _BATCH // 2 <= batch <= 2 * _BATCH]
        return min(
            enough or [_BATCH], key=lambda batch: (round(waste(batch) / sum(work), 2), batch)
        )

    def _compile(self, number: int, noise: int = _NO_NOISE) -> Kernel:
        source = read_source("noise", "stage")
        memory = self.layouts[number].shared_memory
        return Kernel(source, "stage", self._options(number, noise), self.device, memory)

    def _options(self, number: int, noise: int) -> list[str]:
        """The constants of stage.cu."""
        stage = self._stages[number]
        constants = defines(
            HALF_IS_BFLOAT16=_DTYPES[self.dtype],
            IS_FIRST=int(number == 0),
            IS_LAST=int(not stage.next_channels),
            INPUT_CHANNELS=self.shape[0],
            NOISE=noise,
            NEXT_CHANNELS=stage.next_channels,
            STRIDE=stage.size // stage.next_size if stage.next_size else 1,
        )
        return constants + self.layouts[number].options()

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
            self._drawing[noise] = self._compile(0, noise)
        labels = torch.empty(count, device=self.device, dtype=torch.int64)
        shared = _pointers(**self._shared, inputs=inputs, rows=rows, labels=labels, logits=logits)
        shared |= _noise_arguments(draw, self.device)
        hidden: Tensor | None = None
        shortcut: Tensor | None = None
        for number, (stage, layout) in enumerate(zip(self._stages, self.layouts, strict=True)):
            next_hidden = self._activations(stage, count)
            next_shortcut = self._activations(stage, count)
            pointers = _pointers(
                **stage.tensors,
                hidden=hidden,
                shortcut=shortcut,
                next_hidden=next_hidden,
                next_shortcut=next_shortcut,
            )
            arguments = Arguments(
                **shared,
                **pointers,
                seed=seed,
                blocks=stage.blocks,
                count=count,
                classes=self.classes,
            )
            kernel = self._kernels[number]
            if number == 0 and noise:
                kernel = self._drawing[noise]
            kernel.launch(ceil(count / layout.images), layout.threads, arguments)
            hidden = next_hidden
            shortcut = next_shortcut
        return labels

    def _activations(self, stage: StageWeights, count: int) -> Tensor | None:
        """Memory for the inputs of the next stage."""
        if not stage.next_channels:
            return None
        return torch.empty(
            (count, stage.next_channels, stage.next_size**2), device=self.device, dtype=self.dtype
        )


class StageEnsemble(KernelClassifier):
    """Several CIFAR ResNets on a CUDA device, whose logits are averaged.

    Each of them draws the noise again. It is keyed, so it is the same noise.

    Args:
        members: The networks.
    """

    def __init__(self, members: Sequence[StageClassifier]) -> None:
        self.members = members

    def __call__(self, noisy: Tensor) -> Tensor:
        return self._labels(self.logits(noisy))

    def logits(self, noisy: Tensor) -> Tensor:
        return torch.stack([member.logits(noisy) for member in self.members]).mean(0)

    def with_noise(
        self, inputs: Tensor, rows: Tensor, *, count: int, seed: int, draw: Draw
    ) -> Tensor:
        logits = [
            member.noisy_logits(inputs, rows, count=count, seed=seed, draw=draw)
            for member in self.members
        ]
        return self._labels(torch.stack(logits).mean(0))

    def best_batch(self) -> int:
        return self.members[0].best_batch()

    def _labels(self, logits: Tensor) -> Tensor:
        return torch.where(has_winner(logits), logits.argmax(1), self.members[0].classes)


def _best_layout(stage: StageWeights, properties: Any) -> Layout:
    """The most promising layout of a stage on a device with these properties."""
    fitting = layouts(
        stage.channels,
        stage.size,
        properties.shared_memory_per_block_optin,
        properties.shared_memory_per_multiprocessor,
    )
    if not fitting:
        raise Unexpected("the activations of a stage do not fit into shared memory")
    return fitting[0]


def _noise_constant(draw: Draw | None) -> int:
    """The constant NOISE of the kernel that draws this noise."""
    if type(draw) is AdditiveGrid:
        return _GRID
    if type(draw) is Additive and draw.law == "normal":
        return _NORMAL
    return _NO_NOISE


def _noise_arguments(draw: Draw | None, device: torch.device) -> dict[str, Any]:
    if isinstance(draw, AdditiveGrid):
        grid = grid_noise(draw, device)
        return {
            "table": grid.table.data_ptr(),
            "length": len(grid.table),
            "smallest": grid.smallest,
            "ratio": grid.ratio,
            "tail": grid.tail,
            "scale": grid.step,
        }
    if isinstance(draw, Additive):
        return {"scale": draw.drawn_scale}
    return {}


def _pointers(**tensors: Tensor | None) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}


def _pack_matrices(matrices: Tensor) -> Tensor:
    """Matrices of shape (..., 16 k, 8 n) as (..., k, n, 32 lanes, 4)."""
    lane = torch.arange(32)
    inner = (lane % 4 * 2)[:, None] + torch.tensor([0, 1, 8, 9])
    *others, inputs, outputs = matrices.shape
    tiles = matrices.reshape(*others, inputs // 16, 16, outputs // 8, 8)
    tiles = tiles.movedim(-3, -2)  # (..., k, n, 16, 8)
    return tiles[..., inner, (lane // 4)[:, None]].contiguous()


def _pack_convolution(weight: Tensor) -> Tensor:
    """A 3x3 convolution as steps of 16 input channels and a column of the filter, with its rows."""
    packed = _pack_matrices(weight.permute(2, 3, 1, 0))  # (row, column, k, n, lane, 4)
    return packed.permute(2, 1, 0, 3, 4, 5).contiguous()


def _pack_first(weight: Tensor) -> Tensor:
    """The first convolution as a single step of 4 columns of the filter and 4 input channels.

    Missing columns and channels are filled up with zeros.
    """
    outputs, inputs = weight.shape[:2]
    filled = weight.new_zeros((3, 4, 4, outputs))  # (row, column, channel, output)
    filled[:, :3, :inputs] = weight.permute(2, 3, 1, 0)
    return _pack_matrices(filled.view(3, 16, outputs)).movedim(1, 0).contiguous()


def _pack_next(block: Block) -> dict[str, Tensor]:
    """The 3x3 and the 1x1 convolution that lead to the next stage, which begins with this block."""
    assert block.shortcut is not None
    weights = []
    for convolution in (block.first, block.shortcut):
        matrices = convolution.weight.flatten(2).permute(2, 1, 0)  # (tap, input, output)
        packed = _pack_matrices(matrices).movedim(1, 0)  # (k, tap, n, lane, 4)
        weights.append(packed.flatten())
    return {
        "next_weights": torch.cat(weights),
        "next_biases": torch.cat([block.first.bias, block.shortcut.bias]),
    }


def _pack_convolutions(
    first: Convolution | None, convolutions: list[Convolution]
) -> dict[str, Tensor]:
    """The 3x3 convolutions of a stage, with one more step, which the kernel loads and ignores."""
    weights = []
    biases = []
    if first is not None:
        weights.append(_pack_first(first.weight).flatten())
        biases.append(first.bias)
    for convolution in convolutions:
        weights.append(_pack_convolution(convolution.weight).flatten())
        biases.append(convolution.bias)
    weights.append(torch.zeros(3 * convolutions[0].channels // 8 * 32 * 4))
    return {"weights": torch.cat(weights), "biases": torch.cat(biases)}
