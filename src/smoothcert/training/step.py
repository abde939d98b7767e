"""One training step: the optimizer, the running mean of the weights, and the step itself.

The step runs as it is or as a CUDA graph, with the same function and the same buffers.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from smoothcert._user_errors import naming_user_errors
from smoothcert.device.compilation import capture
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import BasicBlock
from smoothcert.models.denoisers.unet import ResidualBlock
from smoothcert.training.device_data import DeviceData, augment
from smoothcert.training.methods.base import Method, Objective, Trainee
from smoothcert.training.recipe import Recipe
from smoothcert.transformations.pictures import transform_at_random

log = logging.getLogger(__name__)

_MEAN_EXPONENT = 17.0  # the weights of the last 10% of the steps make up about 85% of the mean


def compile_blocks(module: nn.Module) -> None:
    """Compile a network in place.

    A residual network is compiled block by block, because blocks of the same shape share their
    compiled code.
    """
    blocks: list[nn.Module] = [
        block for block in module.modules() if isinstance(block, BasicBlock | ResidualBlock)
    ]
    for block in blocks or [module]:
        block.compile(dynamic=False)


def share_of_step(number: int) -> float:
    """The share 1 - beta of step t in the running mean of the weights (Karras et al. 2024).

    With beta = (1 - 1/t)^(gamma + 1), the horizon of the mean grows with the training, so it suits
    short and long ones.
    """
    return float(1 - (1 - 1 / number) ** (_MEAN_EXPONENT + 1))


def optimizer_of(module: nn.Module, recipe: Recipe) -> Optimizer:
    """The optimizer of the method, in a form that a CUDA graph can replay.

    A CUDA graph reads tensors at fixed addresses. So the learning rate is a tensor on the device,
    and the state of the optimizer exists before the first step.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    device = parameters[0].device
    optimizer = recipe.method.optimizer(
        parameters,
        lr=torch.zeros((), device=device),
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        fused=device.type in ("cpu", "cuda"),
    )
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # at a learning rate of 0, it changes no weight
    optimizer.zero_grad()
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
    return optimizer


def _check_objective(method: Method, objective: object) -> None:
    """Refuse what the method of a user returns if it is not a scalar loss, with outputs."""
    loss = objective.loss if isinstance(objective, Objective) else None
    if loss is None or loss.ndim or not loss.requires_grad:
        raise InvalidInput(
            "not-an-objective",
            "{kind}.objective must return an Objective: a loss, which is a scalar that depends on "
            "the weights, and the outputs",
            kind=type(method).__name__,
        )


class Step:
    """One training step: read a batch from the device's memory, augment it, update the weights.

    Attributes:
        validated: A copy of the network in evaluation mode. With some methods, it is the running
            mean of the weights.
        epoch: The number of the current epoch from 0 on, a scalar tensor on the device.
        totals: The sums of the loss and of the score of the method over the steps so far, on the
            device.
    """

    def __init__(
        self, trainee: Trainee, recipe: Recipe, data: DeviceData, runtime: Runtime
    ) -> None:
        self.module = trainee.module
        self.trained = trainee.trained
        self.method = recipe.method
        self.transformation = recipe.transformation
        self.data = data
        memory_format = runtime.memory_format(data.shape)
        self.module.to(runtime.torch_device, memory_format=memory_format)  # type: ignore[call-overload]
        # Validation uses other batch sizes, for which a compiled network would be compiled again.
        self.validated = copy.deepcopy(trainee)
        self.validated.module.eval()
        self.optimizer = optimizer_of(self.module, recipe)
        self.autocast: Callable[[], AbstractContextManager[object]] = partial(
            torch.autocast,
            runtime.torch_device.type,
            dtype=torch.bfloat16,
            enabled=runtime.dtype == "bfloat16",
        )
        device = data.labels.device
        self.epoch = torch.zeros((), device=device)
        self.totals = torch.zeros(2, device=device)
        self._index = torch.zeros(recipe.batch, dtype=torch.long, device=device)
        self._share = torch.zeros((), device=device)
        means = self.validated.module.parameters()
        self._weights: list[Tensor] = []
        self._means: list[Tensor] = []
        for weight, mean in zip(self.module.parameters(), means, strict=True):
            if weight.requires_grad:
                self._weights.append(weight)
                self._means.append(mean)
        self._run: Callable[[], None] = self._compute

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name.

        The schedule and the randomness depend only on the epoch.
        """
        tensors: dict[str, Tensor] = self.trained.state_dict()
        for name, parameter in self.trained.named_parameters():
            for kind, tensor in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{kind.removesuffix('_buffer')}.{name}"] = tensor
        if self.method.keeps_mean:
            for name, tensor in self.validated.trained.state_dict().items():
                tensors[f"mean.{name}"] = tensor
        return tensors

    def __call__(self, index: Tensor, rate: float, number: int) -> None:
        """Train on one batch, as step `number` from 1 on."""
        self._index.copy_(index)
        if self.method.keeps_mean:
            self._share.fill_(share_of_step(number))
        self.optimizer.param_groups[0]["lr"].fill_(rate)
        self._run()

    def transformed(self, x: Tensor) -> Tensor:
        """A batch, transformed at random if the recipe says so."""
        if self.transformation is None:
            return x
        return transform_at_random(x, self.transformation)

    def _compute(self) -> None:
        labels = self.data.labels[self._index]
        x = self.transformed(augment(self.data.batch(self._index)))
        with self.autocast(), naming_user_errors():
            objective = self.method.objective(self.module, x, labels, self.epoch)
        _check_objective(self.method, objective)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(objective.loss)
        self.optimizer.step()
        if self.method.keeps_mean:
            self._update_mean()
        score = self.method.score(objective.outputs.detach(), x, labels).mean()
        self.totals += torch.stack((objective.loss.detach(), score))

    @torch.no_grad()
    def _update_mean(self) -> None:
        change = torch._foreach_sub(self._weights, self._means)
        torch._foreach_mul_(change, self._share)
        torch._foreach_add_(self._means, change)

    def capture(self) -> bool:
        """Capture the step as a CUDA graph. If that fails, log a warning and keep the normal step.

        The capture runs some steps to warm up, and takes back what they change.

        Returns:
            Whether the step is now a CUDA graph.
        """
        try:
            with self.taken_back():
                self._run = capture(self._compute).replay
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning(
                "the training step cannot be captured as a CUDA graph, so it runs more slowly: %s",
                error,
            )
            return False
        return True

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """After this context, restore everything that steps in it have changed."""
        tensors = [*self.tensors.values(), self.totals]
        saved = [tensor.clone() for tensor in tensors]
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, saved, strict=True):
                    tensor.copy_(value)
