"""How the kernel divides a stage: images per block of threads, rows and channels per warp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from smoothcert.kernels.nvrtc import defines

_REGISTERS = 65536  # of a multiprocessor
_RESERVED = 1024  # bytes of shared memory that the system takes from every block
_MOST_SUMS = (
    128  # registers of a thread for results; as many are left for weights, pixels and addresses
)
_MOST_WARPS = 16
_MOST_RESIDENT_BLOCKS = 4


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
        """Bytes of shared memory per block: two buffers of activations with a border of one pixel."""
        return 2 * self.images * self.channels * 2 * (self.size + 2) ** 2

    @property
    def sums(self) -> int:
        """Registers per thread for results."""
        return self.rows * self.channels // 8 // self.column_warps * 4

    @property
    def traffic(self) -> float:
        """Cycles per image in which one convolution moves pixels and weights through the first-level cache.

        The kernel is limited by this traffic. A load of pixels takes 4 cycles, and weights take one per 128 bytes.
        """
        warps = self.threads // 32
        rows = self.rows if self.rows == self.size else self.rows + 2
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
    if channels % 16 or size not in (4, 8, 16, 32):
        return []
    found = []
    tile_images = max(16 // size, 1)
    for images, rows, column_warps in product((1, 2, 4, 8), (2, 4, 8), (1, 2, 4, 8)):
        layout = Layout(channels, size, images, rows, column_warps, 1)
        warps = layout.threads // 32
        if (
            images % tile_images
            or size % rows
            or channels // 8 % column_warps
            or not 4 <= warps <= _MOST_WARPS
        ):
            continue
        blocks = min(
            memory_per_multiprocessor // (layout.shared_memory + _RESERVED),
            _REGISTERS // (_registers(layout) * layout.threads),
            _MOST_RESIDENT_BLOCKS,
        )
        if layout.shared_memory <= memory_per_block and layout.sums <= _MOST_SUMS and blocks >= 1:
            found.append(replace(layout, resident_blocks=blocks))

    def rank(layout: Layout) -> tuple[bool, float, int]:
        # Two blocks on a multiprocessor hide each other's waiting at barriers. Then the least traffic wins, even where
        # threads need so many registers that only a few run.
        return layout.resident_blocks < 2, layout.traffic, -layout.resident_blocks * layout.threads

    return sorted(found, key=rank)


def _registers(layout: Layout) -> int:
    """An estimate of the registers of a thread: results, two steps of weights, pixels and addresses."""
    weights = 3 * 2 * layout.channels // 8 // layout.column_warps
    return min(-(-(layout.sums + 2 * weights + 40) // 8) * 8, 256)
