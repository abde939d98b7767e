"""One training step. It runs as it is or as a CUDA graph, with the same function and the same buffers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from smoothcert.device.cuda_graph import capture
from smoothcert.models.architectures import BasicBlock
from smoothcert.models.denoisers.unet import ResidualBlock
from smoothcert.training.data import DeviceData, augment
from smoothcert.training.methods import Method
from smoothcert.training.optimizers import RunningMean

log = logging.getLogger(__name__)


def compile_blocks(module: nn.Module) -> None:
    """Compile a network in place.

    A residual network is compiled block by block, because blocks of the same shape share their compiled code.
    """
    blocks: list[nn.Module] = [block for block in module.modules() if isinstance(block, BasicBlock | ResidualBlock)]
    for block in blocks or [module]:
        block.compile(dynamic=False)


class Step:
    """One training step: reads a batch from the device's memory, augments it and updates the weights.

    Attributes:
        epoch: The number of the current epoch from 0 on, a scalar tensor on the device.
        totals: The sums of the loss and of the score of the method over the steps so far, on the device.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        method: Method,
        data: DeviceData,
        *,
        batch: int,
        autocast: Callable[[], AbstractContextManager[object]],
        mean: RunningMean | None = None,
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self.method = method
        self.data = data
        self.autocast = autocast
        self.mean = mean
        device = data.labels.device
        self.epoch = torch.zeros((), device=device)
        self.totals = torch.zeros(2, device=device)
        self._index = torch.zeros(batch, dtype=torch.long, device=device)
        self._run: Callable[[], None] = self._compute

    def __call__(self, index: Tensor, rate: float) -> None:
        """Train on one batch."""
        self._index.copy_(index)
        self.optimizer.param_groups[0]["lr"].fill_(rate)
        self._run()

    def _compute(self) -> None:
        labels = self.data.labels[self._index]
        x = augment(self.data.batch(self._index))
        with self.autocast():
            objective = self.method.objective(self.module, x, labels, self.epoch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(objective.loss)
        self.optimizer.step()
        if self.mean is not None:
            self.mean.update()
        score = self.method.score(objective.outputs.detach(), x, labels).mean()
        self.totals += torch.stack((objective.loss.detach(), score))

    def capture(self) -> bool:
        """Capture the step as a CUDA graph. If that fails, log a warning and keep the normal step.

        The capture runs some steps to warm up. Afterwards, it restores everything that these steps have changed.

        Returns:
            Whether the step is now a CUDA graph.
        """
        remembered = [tensor for state in self.optimizer.state.values() for tensor in state.values()]
        means = [] if self.mean is None else self.mean.tensors
        state = dict(self.module.named_buffers()) | self.module.state_dict()
        tensors = [*state.values(), *remembered, *means, self.totals]
        saved = [tensor.clone() for tensor in tensors]
        try:
            self._run = capture(self._compute).replay
            return True
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("the training step cannot be captured as a CUDA graph, so it runs more slowly: %s", error)
            return False
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, saved, strict=True):
                    if not torch.equal(tensor, value):  # a constant buffer may be expanded and cannot be overwritten
                        tensor.copy_(value)
