"""Turn requests for samples into votes. The requests of many inputs share batches of a fixed size.

An input that needs 1,217 samples takes 1,217 rows. The next input in the queue uses the rest of the
batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.device.acceleration import KernelClassifier
from smoothcert.device.runtime import Runtime
from smoothcert.noises import Noise
from smoothcert.plans import Look
from smoothcert.plans.groups import Groups
from smoothcert.sampling.streams import Segment, stream_for

_BATCHES_AHEAD = 4
"""How many batches the host may queue ahead of the device."""
_ROW_MULTIPLE = 32
"""Smaller batches have a multiple of this many rows."""


class Sampler:
    """Keeps several inputs open, whose requests share batches.

    Call `open` while there are `free` slots, `request` samples, and call `advance` until it returns
    the votes. The host does not wait for the device while it can send a full batch to it.

    Args:
        counter: Counts the votes on the device.
        groups: Groups of classes, whose votes are summed; None for votes by class.
    """

    def __init__(self, counter: VoteCounter, groups: Groups | None = None) -> None:
        self.counter = counter
        self.groups = groups
        self.forwarded = 0
        """Rows that went through the classifier, padding included."""
        self.counted = 0
        """Rows that were a sample of an input, without padding."""
        self._packer = Packer(len(counter.noisy))
        self._free = list(reversed(range(len(counter.inputs) - 1)))
        self._last: dict[int, Segment] = {}
        """The last request of each open input, of no samples before the first."""
        self._readings: deque[Reading] = deque()

    @property
    def free(self) -> int:
        """How many more inputs can be opened."""
        return len(self._free)

    @property
    def full(self) -> bool:
        """Whether the samples that were requested fill the next batch."""
        return self._packer.rows >= self._packer.size

    def open(self, id: int, x: Tensor, *, drawn: int = 0) -> int:
        """Open an input of which `drawn` samples were drawn before; returns its slot."""
        slot = self._free.pop()
        self._last[slot] = Segment(slot, id, drawn, 0)
        self.counter.load(slot, x)
        return slot

    def request(self, slot: int, samples: int) -> None:
        """Request more samples of an open input, whose other requests must be complete."""
        last = self._last[slot]
        self._last[slot] = replace(last, first=last.first + last.count, count=samples)
        self._packer.add(self._last[slot])

    def close(self, slot: int) -> None:
        """Close an input, so that another one can have its slot."""
        del self._last[slot]
        self._free.append(slot)

    @torch.inference_mode()
    def advance(self) -> list[tuple[int, Look]]:
        """Send the next batch to the device.

        If the next batch is not full, this first waits for votes, because they may lead to requests
        that fill it.

        Returns:
            Slots and votes of the requests that are complete.
        """
        if self.full or (self._packer.rows and not self._readings):
            batch = self._packer.take()
            self.forwarded += self.counter.size(batch.rows)
            self.counted += batch.rows
            reading = self.counter.run(batch)
            if reading is not None:
                self._readings.append(reading)
        elif self._readings:
            return self._collect(self._readings.popleft())
        completed = []
        while self._readings and self._readings[0].ready():
            completed += self._collect(self._readings.popleft())
        return completed

    def _collect(self, reading: Reading) -> list[tuple[int, Look]]:
        looks = []
        for slot, counts in reading.wait():
            votes = {int(c): int(counts[c]) for c in counts[:-1].nonzero()[0]}
            look = Look(self._last[slot].count, votes)
            looks.append((slot, look if self.groups is None else self.groups.look(look)))
        return looks


class Packer:
    """A queue of requests, which leave it in batches.

    Args:
        size: Rows per batch.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows = 0
        """Rows in the queue."""
        self._queue: deque[Segment] = deque()

    def add(self, request: Segment) -> None:
        """Put a request at the end of the queue."""
        self._queue.append(request)
        self.rows += request.count

    def take(self) -> Batch:
        """The next batch. It is shorter than `size` only if the queue does not hold more."""
        segments: list[Segment] = []
        completed: list[int] = []
        room = self.size
        while room and self._queue:
            request = self._queue.popleft()
            count = min(request.count, room)
            segments.append(replace(request, count=count))
            if count == request.count:
                completed.append(request.slot)
            else:
                rest = replace(request, first=request.first + count, count=request.count - count)
                self._queue.appendleft(rest)
            room -= count
        self.rows -= self.size - room
        return Batch(segments, completed)


@dataclass(frozen=True)
class Batch:
    """The samples of one forward pass.

    Args:
        segments: The samples, in the order of the rows.
        completed: Slots whose request ends in this batch.
    """

    segments: list[Segment]
    completed: list[int]

    @property
    def rows(self) -> int:
        """The number of samples."""
        return sum(segment.count for segment in self.segments)


class VoteCounter:
    """Counts votes of noisy inputs that lie in slots on the device.

    One more slot than asked for takes the rows that only fill up a batch.

    Args:
        classify: Takes a batch of exactly `batch` noisy inputs and returns a class per row;
            `classes` means "no vote". A `KernelClassifier` draws the noise itself where it can.
        runtime: Device, number format and rows of the noisy batch.
        noise: The smoothing noise.
        shape: The shape of one input.
        classes: The number of classes.
        slots: How many inputs can be open at a time.
        seed: The key of the noise.
        flexible: Whether `classify` also takes smaller batches. Then a batch that is not full is
            not filled up.
    """

    # Like `blank`, this makes ordinary tensors. For inference tensors, `classify` would be compiled
    # a second time.
    @torch.inference_mode(False)
    def __init__(
        self,
        classify: Callable[[Tensor], Tensor],
        runtime: Runtime,
        *,
        noise: Noise,
        shape: tuple[int, ...],
        classes: int,
        slots: int,
        seed: int,
        flexible: bool = False,
    ) -> None:
        device = runtime.torch_device
        dtype = runtime.torch_dtype
        batch = runtime.batch
        memory_format = runtime.memory_format(shape)
        self.classify = classify
        self.stream = stream_for(device, seed, noise.draw)
        self.device = device
        self.flexible = flexible
        # Noise is added in float32 or, for a classifier in float64, in float64. See `Subject.read`.
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        clean = torch.zeros((slots + 1, *shape), device=device, dtype=exact)
        self.inputs = clean.to(memory_format=memory_format)
        noisy_shape = noise.draw.output_shape(shape)
        noisy = torch.zeros((batch, *noisy_shape), device=device, dtype=dtype)
        self.noisy = noisy.to(memory_format=memory_format)
        self.counts = torch.zeros((slots + 1, classes + 1), device=device, dtype=torch.int64)
        self.ones = torch.ones(batch, device=device, dtype=torch.int64)
        self._buffers = cycle([_HostBuffer(batch, device) for _ in range(_BATCHES_AHEAD)])

    def load(self, slot: int, x: Tensor) -> None:
        """Copy an input into a slot."""
        source = x
        if self.device.type == "cuda" and x.device.type == "cpu":
            source = x.pin_memory()  # `x` itself if it is pinned, which the caller may change
        self.inputs[slot].copy_(source, non_blocking=source is not x)

    def draw(self, x: Tensor, segments: list[Segment], out: Tensor) -> None:
        """Write samples of one input, in segments of slot 0, into a noisy batch."""
        self.load(0, x)
        buffer = next(self._buffers)
        rows = buffer.send(Batch(segments, completed=[]), len(out), padding=len(self.inputs) - 1)
        self.stream.write(out, self.inputs, segments, rows)
        buffer.finish()

    def size(self, rows: int) -> int:
        """The rows that are forwarded for a batch of this many samples.

        These are all rows of a full batch, or what is needed if the classifier is flexible.
        Libraries prepare their kernels for every new size, so sizes are rounded up.
        """
        if not self.flexible:
            return len(self.noisy)
        return min(-(-rows // _ROW_MULTIPLE) * _ROW_MULTIPLE, len(self.noisy))

    def run(self, batch: Batch) -> Reading | None:
        """Queue a batch on the device; returns a reading if requests end in it."""
        buffer = next(self._buffers)
        size = self.size(batch.rows)
        rows = buffer.send(batch, size, padding=len(self.inputs) - 1)
        votes = rows[0] * self.counts.shape[1] + self._classes(batch, rows, size)
        self.counts.view(-1).scatter_add_(0, votes, self.ones[:size])
        counts = None
        if batch.completed:
            slots = rows[3, : len(batch.completed)]
            counts = self.counts[slots].to("cpu", non_blocking=self.device.type == "cuda")
            self.counts.index_fill_(0, slots.long(), 0)  # the next request starts at zero
        done = buffer.finish()
        if counts is None:
            return None
        return Reading(batch.completed, counts, done)

    def _classes(self, batch: Batch, rows: Tensor, size: int) -> Tensor:
        """The class of every noisy row.

        Where the classifier draws the same noise itself, no noisy batch is written.
        """
        draw = self.stream.kernel_draw
        if draw is not None and isinstance(self.classify, KernelClassifier):
            return self.classify.with_noise(
                self.inputs, rows, count=size, seed=self.stream.seed, draw=draw
            )
        noisy = self.noisy[:size]
        self.stream.write(noisy, self.inputs, batch.segments, rows)
        return self.classify(noisy)


@dataclass(frozen=True)
class Reading:
    """Votes of completed requests on their way to the host."""

    slots: list[int]
    counts: Tensor
    done: torch.cuda.Event | None

    def ready(self) -> bool:
        return self.done is None or bool(self.done.query())  # type: ignore[no-untyped-call]

    def wait(self) -> list[tuple[int, NDArray[np.int64]]]:
        if self.done is not None:
            self.done.synchronize()
        return list(zip(self.slots, self.counts.numpy(), strict=True))


class _HostBuffer:
    """Pinned host memory for the bookkeeping of a batch. It is reused when that batch is done."""

    def __init__(self, batch: int, device: torch.device) -> None:
        self.device = device
        self.rows = torch.empty((4, batch), dtype=torch.int32, pin_memory=device.type == "cuda")
        self.done: torch.cuda.Event | None = None

    def send(self, batch: Batch, size: int, *, padding: int) -> Tensor:
        """Slot, id and sample of the first `size` rows, then the slots whose requests end.

        The tensor is contiguous, because kernels compute the address of an entry from `size`.
        """
        if self.done is not None:  # only CUDA copies are asynchronous, so only they need an event
            self.done.synchronize()
        rows = self.rows.numpy()
        segments = batch.segments
        filled = batch.rows
        counts = [segment.count for segment in segments]
        starts = np.cumsum([0, *counts[:-1]])
        offsets = [segment.first for segment in segments] - starts
        rows[0, :filled] = np.repeat([segment.slot for segment in segments], counts)
        rows[1, :filled] = np.repeat([segment.id for segment in segments], counts)
        rows[2, :filled] = np.arange(filled) + np.repeat(offsets, counts)
        rows[:, filled:] = padding
        rows[3, : len(batch.completed)] = batch.completed
        on_device = self.rows.to(self.device, non_blocking=self.device.type == "cuda")
        return on_device[:, :size].contiguous()

    def finish(self) -> torch.cuda.Event | None:
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream(self.device)  # the device may not be the current one
            self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.done.record(stream)
        return self.done
