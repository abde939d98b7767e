"""Transformed pictures of open inputs: what a walk looks at, and the margins of its cells.

Pictures stay on the device. There, the picture at the centre of a cell is written into the slot of
its input, and the margin of the cell is computed, for many inputs at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import ceil, prod

import torch
from torch import Tensor

from smoothcert.noises import Transformed
from smoothcert.plans import Cell
from smoothcert.sampling.sampler import VoteCounter
from smoothcert.transformations.margins import NUMBERS_PER_VALUE, cover

_MOST_NUMBERS = {"cuda": 2**26, "cpu": 2**22}
"""In the largest array: more inputs are treated in several parts. On a host they fit into a cache."""
_STEPS = 2.0**24
"""Margins are rounded up to multiples of 1 / _STEPS, so that they do not depend on the batch."""


class Views:
    """Shows transformed pictures in the slots of a counter.

    On CUDA this runs on a stream of its own: the host waits for the margins, and must not wait for
    the batches that the classifier still has in its queue. An MPS device has no float64, so there
    the pictures stay on the host.

    Args:
        noise: The transformation.
        counter: The counter of votes.
    """

    @torch.inference_mode(False)
    def __init__(self, noise: Transformed, counter: VoteCounter) -> None:
        self.noise = noise
        self.counter = counter
        self._device = torch.device("cpu") if counter.device.type == "mps" else counter.device
        self._stream: torch.cuda.Stream | None = None
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device, priority=-1)  # type: ignore[no-untyped-call]
        with self._on_own_stream():
            self._pictures = torch.zeros_like(counter.inputs, device=self._device)

    def _on_own_stream(self) -> AbstractContextManager[object]:
        """The stream of the pictures; on a host there is only one."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def load(self, slot: int, x: Tensor) -> None:
        """Keep the picture of a slot."""
        with self._on_own_stream():
            self._pictures[slot].copy_(x)

    @torch.inference_mode()
    def show(self, slots: Sequence[int], cells: Sequence[Cell]) -> list[float]:
        """Write the pictures at the centres of cells into slots; returns the margins of the cells."""
        numbers = NUMBERS_PER_VALUE * prod(self._pictures.shape[1:])
        size = max(_MOST_NUMBERS[self._device.type] // numbers, 1)
        margins: list[float] = []
        for first in range(0, len(slots), size):
            part = slice(first, first + size)
            margins += self._show(slots[part], cells[part])
        return margins

    def _show(self, slots: Sequence[int], cells: Sequence[Cell]) -> list[float]:
        with self._on_own_stream():
            places = torch.tensor(slots, device=self._device)
            centre, near, far = torch.tensor(cells, dtype=torch.float64, device=self._device).T
            x = self._pictures[places]
            transformed, found = cover(x, self.noise, centre, near, far)
            pictures = transformed.to(x.dtype)
            margins = found.tolist()  # now the stream is idle
        inputs = self.counter.inputs
        if self._stream is not None:
            for tensor in (places, pictures):
                tensor.record_stream(torch.cuda.current_stream(self._device))
        inputs[places.to(inputs.device)] = pictures.to(inputs.device)
        return [ceil(margin * _STEPS) / _STEPS for margin in margins]
