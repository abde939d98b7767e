"""How the kernel divides a stage: images per block of threads, rows and channels per warp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from smoothcert.kernels.nvrtc import defines

_REGISTERS = 65536
"""Registers of a multiprocessor."""
_MOST_THREAD_REGISTERS = 256
"""Registers of a thread."""
_RESERVED_BYTES = 1024
"""Shared memory that the system takes from every block."""
_MOST_SUMS = 128
"""Registers of a thread for results. As many are left for weights, pixels and addresses."""
_FEWEST_WARPS = 4
_MOST_WARPS = 16
"""Warps per block."""
_MOST_RESIDENT_BLOCKS = 4
_SIZES = (4, 8, 16, 32)
"""Side lengths of activations for which the kernel has code."""


@dataclass(frozen=True)
class Layout:
    """How a block of threads works on a stage.

    Args:
        channels: Channels of the stage.
        size: Side length of its activations.
        images: Images per block of threads.
        rows: Rows of pixels whose results one warp holds.
        column_warps: Warps that share the output channels of the same pixels.
        resident_blocks: Blocks that run on one multiprocessor at the same time.
    """

    channels: int
    size: int
    images: int
    rows: int
    column_warps: int
    resident_blocks: int

    @property
    def threads(self) -> int:
        """Threads per block."""
        tiles = self.images * self.size * self.size // 16
        return 32 * tiles // self.rows * self.column_warps

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory per block: two buffers of activations and a border of a pixel."""
        return 2 * self.images * self.channels * 2 * (self.size + 2) ** 2

    @property
    def sums(self) -> int:
        """Registers per thread for results."""
        return self.rows * self.channels // 8 // self.column_warps * 4

    @property
    def traffic(self) -> float:
        """Cycles per image in which a convolution moves pixels and weights through the L1 cache.

        The kernel is limited by this traffic. A load of pixels takes 4 cycles, and weights take one
        cycle per 128 bytes.
        """
        warps = self.threads // 32
        rows = self.rows
        if rows != self.size:  # a warp also reads the rows above and below
            rows += 2
        pixels = rows * 3 * (self.channels // 16) * 4
        weights = 9 * self.channels * self.channels * 2 / self.column_warps / 128
        return warps * (pixels + weights) / self.images

    def options(self) -> list[str]:
        """The constants of stage.cu."""
        return defines(**{name.upper(): value for name, value in vars(self).items()})


def layouts(
    channels: int, size: int, memory_per_block: int, memory_per_multiprocessor: int
) -> list[Layout]:
    """All layouts that fit, the most promising ones first."""
    if channels % 16 or size not in _SIZES:
        return []
    fitting = []
    for images, rows, column_warps in product((1, 2, 4, 8), (2, 4, 8), (1, 2, 4, 8)):
        layout = Layout(channels, size, images, rows, column_warps, 1)
        if not _divides_evenly(layout):
            continue
        blocks = min(
            memory_per_multiprocessor // (layout.shared_memory + _RESERVED_BYTES),
            _REGISTERS // (_registers(layout) * layout.threads),
            _MOST_RESIDENT_BLOCKS,
        )
        if layout.shared_memory <= memory_per_block and layout.sums <= _MOST_SUMS and blocks >= 1:
            fitting.append(replace(layout, resident_blocks=blocks))

    def rank(layout: Layout) -> tuple[bool, float, int]:
        # Two blocks on a multiprocessor hide each other's waiting at barriers. Then the least
        # traffic wins, even where threads need so many registers that only a few run.
        return layout.resident_blocks < 2, layout.traffic, -layout.resident_blocks * layout.threads

    return sorted(fitting, key=rank)


def _divides_evenly(layout: Layout) -> bool:
    """Whether the warps of a block share its pixels and channels without a remainder."""
    tile_images = max(16 // layout.size, 1)
    if layout.images % tile_images or layout.size % layout.rows:
        return False
    if layout.channels // 8 % layout.column_warps:
        return False
    return _FEWEST_WARPS <= layout.threads // 32 <= _MOST_WARPS


def _registers(layout: Layout) -> int:
    """An estimate of a thread's registers: results, two steps of weights, pixels, addresses."""
    weights = 3 * 2 * layout.channels // 8 // layout.column_warps
    return min(-(-(layout.sums + 2 * weights + 40) // 8) * 8, _MOST_THREAD_REGISTERS)
