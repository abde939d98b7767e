"""One step of training, run plainly or recorded and replayed: the same function on the same buffers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.optim import SGD

from smoothcert.classifiers.architectures import BasicBlock
from smoothcert.recording import record
from smoothcert.training.data import HeldData, augment
from smoothcert.training.methods import Method

log = logging.getLogger(__name__)


def sgd(module: nn.Module, *, momentum: float, weight_decay: float) -> SGD:
    """Nesterov's SGD whose learning rate is a tensor on the device and whose momentum exists from the start.

    Both so that a recorded step reads them where they will be.
    """
    parameters = list(module.parameters())
    device = parameters[0].device
    rate = torch.zeros((), device=device)
    fused = device.type in ("cpu", "cuda")
    optimizer = SGD(parameters, lr=rate, momentum=momentum, nesterov=True, weight_decay=weight_decay, fused=fused)
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def momenta(optimizer: SGD) -> list[Tensor]:
    """In the order of the parameters."""
    return [optimizer.state[parameter]["momentum_buffer"] for parameter in optimizer.param_groups[0]["params"]]


def compile_blocks(module: nn.Module) -> None:
    """Compile in place: a residual network block by block, as blocks of one shape share their code."""
    blocks: list[nn.Module] = [block for block in module.modules() if isinstance(block, BasicBlock)]
    for block in blocks or [module]:
        block.compile(dynamic=False)


class Step:
    """Draws a batch by its indices, augments it and descends; loss and accuracy add up in `totals` on the device."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: SGD,
        method: Method,
        data: HeldData,
        *,
        batch: int,
        autocast: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self.method = method
        self.data = data
        self.autocast = autocast
        device = data.labels.device
        self.epoch = torch.zeros((), device=device)
        self.totals = torch.zeros(2, device=device)
        self._index = torch.zeros(batch, dtype=torch.long, device=device)
        self._run: Callable[[], None] = self._compute

    def __call__(self, index: Tensor, rate: float) -> None:
        """Train on the inputs at `index` with learning rate `rate`."""
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
        correct = (objective.logits.argmax(-1) == labels).float().mean()
        self.totals += torch.stack((objective.loss.detach(), correct))

    def capture(self) -> bool:
        """Record the step as a CUDA graph; where that fails, say so and go on with the plain step.

        The steps that warm up leave no trace in weights, statistics, momentum and totals.
        """
        kept = [*self.module.state_dict().values(), *momenta(self.optimizer), self.totals]
        before = [tensor.clone() for tensor in kept]
        try:
            self._run = record(self._compute).replay
            return True
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("the training step cannot be recorded as a CUDA graph, so it runs more slowly: %s", error)
            return False
        finally:
            with torch.no_grad():
                for tensor, old in zip(kept, before, strict=True):
                    tensor.copy_(old)
