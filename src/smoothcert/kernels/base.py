"""What a classifier offers that runs as kernels of ours from end to end."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from smoothcert.noises import Draw


class KernelClassifier(ABC):
    """From a batch of noisy inputs to one class per row.

    A row whose logits are not finite gets the number of classes, which is not a class. The result for a row does not
    depend on the other rows. Batches may have any size.
    """

    @abstractmethod
    def __call__(self, noisy: Tensor) -> Tensor:
        """The class of each row."""

    @abstractmethod
    def logits(self, noisy: Tensor) -> Tensor:
        """The logits of each row."""

    @abstractmethod
    def with_noise(self, inputs: Tensor, rows: Tensor, *, count: int, seed: int, draw: Draw) -> Tensor:
        """The class of each row, where the kernel draws the noise and adds it, as `PhiloxStream` does.

        Args:
            inputs: The clean inputs, by slot.
            rows: Slot, id and sample of every row, as `VoteCounter` has them.
            count: How many rows there are.
            seed: The key of the noise.
            draw: How the noise is drawn; one for which the stream has a `kernel_draw`.
        """

    @abstractmethod
    def best_batch(self) -> int:
        """A batch size that keeps the device busy until the end."""
