"""The door to `kernels`: a faster form of a classifier, where there is one that agrees with it.

The package also works without the folder `kernels`, so nothing else imports it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from torch import Tensor, nn

from smoothcert._agreement import Outputs
from smoothcert.device.runtime import Runtime, say_nothing
from smoothcert.noises import Draw

_KERNELS = "smoothcert.kernels"


@dataclass(frozen=True)
class Declined:
    """There is no faster form of a module that agrees with it.

    Args:
        reason: Why.
        disagrees: Whether there is one that gives other answers. Then rounding alone changes the
            answers, so other compilers, which round differently as well, cannot help.
    """

    reason: str
    disagrees: bool = False


class KernelClassifier(ABC):
    """A whole classifier as kernels: from a batch of noisy inputs to one class per row.

    A row whose logits are not finite gets the number of classes, which is not a class. The result
    for a row does not depend on the other rows. Batches may have any size.
    """

    @abstractmethod
    def __call__(self, noisy: Tensor) -> Tensor:
        """The class of each row."""

    @abstractmethod
    def logits(self, noisy: Tensor) -> Tensor:
        """The logits of each row, in float32."""

    @abstractmethod
    def with_noise(
        self, inputs: Tensor, rows: Tensor, *, count: int, seed: int, draw: Draw
    ) -> Tensor:
        """The class of each row, where the kernel draws and adds the noise of `PhiloxStream`.

        Args:
            inputs: The clean inputs, by slot.
            rows: Slot, id and sample of every row, as `VoteCounter` has them.
            count: How many rows there are.
            seed: The key of the noise.
            draw: How the noise is drawn; one for which the stream has a `kernel_draw`.
        """

    @abstractmethod
    def best_batch(self) -> int:
        """A batch size that keeps the device busy."""


def accelerate(
    module: Outputs,
    plain: Outputs,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None] = say_nothing,
    *,
    draw: Draw | None = None,
) -> KernelClassifier | nn.Module | Declined:
    """The fastest form of a module that gives the same answers to noisy inputs as the plain one.

    Args:
        module: The module with its original weights.
        plain: The same module on the device and in the number format of the run.
        shape: The shape of one input.
        runtime: Device and number format.
        say: Takes messages about what happens.
        draw: The noise of the run, if it is decided: its kernel is then compiled with the others.

    Returns:
        The whole classifier as kernels, where that is possible, which needs no CUDA graph; else a
        faster module, or why there is none.
    """
    if not isinstance(module, nn.Module):
        return Declined("it is a function")
    if find_spec(_KERNELS) is None:
        return Declined("the kernels are not installed")
    faster: KernelClassifier | nn.Module | Declined = import_module(_KERNELS).accelerate(
        module, plain, shape, runtime, say, draw
    )
    return faster
