"""One training step. It runs as it is or as a CUDA graph, with the same function and the same buffers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.optim import SGD

from smoothcert.classifiers.architectures import BasicBlock
from smoothcert.device.cuda_graph import capture
from smoothcert.training.data import DeviceData, augment
from smoothcert.training.methods import Method

log = logging.getLogger(__name__)


def sgd(module: nn.Module, *, momentum: float, weight_decay: float) -> SGD:
    """SGD with Nesterov momentum, in a form that a CUDA graph can use.

    A CUDA graph reads tensors at fixed addresses. So the learning rate is a tensor on the device, and the momentum
    buffers exist before the first step.

    Args:
        module: The network to train.
        momentum: The momentum.
        weight_decay: The factor of the L2 penalty.
    """
    parameters = list(module.parameters())
    device = parameters[0].device
    rate = torch.zeros((), device=device)
    fused = device.type in ("cpu", "cuda")
    optimizer = SGD(parameters, lr=rate, momentum=momentum, nesterov=True, weight_decay=weight_decay, fused=fused)
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def momentum_buffers(optimizer: SGD) -> list[Tensor]:
    """The momentum buffers in the order of the parameters.

    Args:
        optimizer: What `sgd` returned.
    """
    return [optimizer.state[parameter]["momentum_buffer"] for parameter in optimizer.param_groups[0]["params"]]


def compile_blocks(module: nn.Module) -> None:
    """Compile a network in place.

    A residual network is compiled block by block, because blocks of the same shape share their compiled code.

    Args:
        module: The network.
    """
    blocks: list[nn.Module] = [block for block in module.modules() if isinstance(block, BasicBlock)]
    for block in blocks or [module]:
        block.compile(dynamic=False)


class Step:
    """One training step: reads a batch from the device's memory, augments it and updates the weights.

    Args:
        module: The network.
        optimizer: What `sgd` returned for this network.
        method: The training method.
        data: The training data.
        batch: Inputs per step.
        autocast: Makes the context in which the network computes.

    Attributes:
        epoch: The number of the current epoch from 0 on, a scalar tensor on the device.
        totals: The sums of loss and accuracy over the steps so far, on the device.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: SGD,
        method: Method,
        data: DeviceData,
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
        """Train on one batch.

        Args:
            index: The numbers of the inputs.
            rate: The learning rate.
        """
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
        """Capture the step as a CUDA graph. If that fails, log a warning and keep the normal step.

        The capture runs some steps to warm up. Afterwards, it restores weights, batch statistics, momentum and totals.

        Returns:
            Whether the step is now a CUDA graph.
        """
        tensors = [*self.module.state_dict().values(), *momentum_buffers(self.optimizer), self.totals]
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
                    tensor.copy_(value)
