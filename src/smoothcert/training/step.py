"""A data set in the memory of a device, and one training step on it.

The step runs as it is or as a CUDA graph, with the same function and the same buffers.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from smoothcert.data.base import Dataset
from smoothcert.device.compilation import capture
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import BasicBlock
from smoothcert.models.denoisers.unet import ResidualBlock
from smoothcert.training.methods.base import Trainee
from smoothcert.training.recipe import Recipe

log = logging.getLogger(__name__)

_PADDING = 4
_MEAN_EXPONENT = 17.0  # the weights of the last 10% of the steps make up about 85% of the mean


@dataclass(frozen=True)
class DeviceData:
    """A whole data set in the memory of a device."""

    inputs: Tensor
    labels: Tensor
    name: str = ""
    class_names: Sequence[str] | None = None

    @classmethod
    def from_dataset(
        cls, dataset: Dataset, device: torch.device, *, labelled: bool = True
    ) -> DeviceData:
        """Read a data set once and copy it to a device."""
        pairs = [
            (_as_bytes(x.float()), label)
            for x, label in map(dataset.__getitem__, range(len(dataset)))
        ]
        shapes = {tuple(x.shape) for x, _ in pairs}
        if len(shapes) != 1:
            raise InvalidInput(
                f"{dataset.name} has inputs of {len(shapes)} shapes: training needs inputs of one shape"
            )
        labels = torch.tensor([label for _, label in pairs])
        if labelled and (labels < 0).any():
            raise InvalidInput(
                f"{dataset.name} has inputs without a label: training needs a label for each input"
            )
        if bad := [
            index
            for index, (x, _) in enumerate(pairs)
            if x.is_floating_point() and not x.isfinite().all()
        ]:
            raise InvalidInput(f"input {bad[0]} of {dataset.name} has NaN or infinite values")
        if all(x.dtype == torch.uint8 for x, _ in pairs):
            inputs = torch.stack([x for x, _ in pairs])
        else:
            inputs = torch.stack([_as_floats(x) for x, _ in pairs])
        return cls(inputs.to(device), labels.to(device), dataset.name, dataset.class_names)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def batch(self, index: Tensor) -> Tensor:
        """Some of the inputs as floats in [0, 1]."""
        return _as_floats(self.inputs[index])


def _as_bytes(x: Tensor) -> Tensor:
    """An input as bytes if that is exact, which takes a quarter of the memory; otherwise the input itself."""
    values = (
        x.numpy()
    )  # torch would use threads, which wait for one another longer than they compute
    scaled = np.rint(values * values.dtype.type(255))
    if (
        np.array_equal(scaled / values.dtype.type(255), values)
        and scaled.min() >= 0
        and scaled.max() <= 255
    ):
        return torch.from_numpy(scaled.astype(np.uint8))
    return x


def _as_floats(x: Tensor) -> Tensor:
    return x.float() / 255 if x.dtype == torch.uint8 else x


def augment(x: Tensor) -> Tensor:
    """Shift each colour image by up to 4 pixels and mirror half of them, at random."""
    if x.ndim != 4 or x.shape[1] != 3:
        return x
    batch, _, height, width = x.shape
    down, right = torch.randint(0, 2 * _PADDING + 1, (2, batch, 1), device=x.device)
    rows = down + torch.arange(height, device=x.device)
    columns = right + torch.arange(width, device=x.device)
    mirrored = torch.rand(batch, 1, device=x.device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = functional.pad(x, [_PADDING] * 4)
    image = torch.arange(batch, device=x.device)[:, None, None]
    # This kind of indexing moves the channels to the end: (batch, height, width, channels).
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def compile_blocks(module: nn.Module) -> None:
    """Compile a network in place.

    A residual network is compiled block by block, because blocks of the same shape share their compiled code.
    """
    blocks: list[nn.Module] = [
        block for block in module.modules() if isinstance(block, BasicBlock | ResidualBlock)
    ]
    for block in blocks or [module]:
        block.compile(dynamic=False)


def share_of_step(number: int) -> float:
    """The share 1 - beta of step t in the running mean of the weights (Karras et al. 2024).

    With beta = (1 - 1/t)^(gamma + 1), the horizon of the mean grows with the training, so it suits short and long ones.
    """
    return float(1 - (1 - 1 / number) ** (_MEAN_EXPONENT + 1))


def optimizer_of(module: nn.Module, recipe: Recipe) -> Optimizer:
    """The optimizer of the method, in a form that a CUDA graph can replay.

    A CUDA graph reads tensors at fixed addresses. So the learning rate is a tensor on the device, and the state of the
    optimizer exists before the first step.
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


class Step:
    """One training step: reads a batch from the device's memory, augments it and updates the weights.

    Attributes:
        validated: A copy of the network in evaluation mode. With some methods, it is the running mean of the weights.
        epoch: The number of the current epoch from 0 on, a scalar tensor on the device.
        totals: The sums of the loss and of the score of the method over the steps so far, on the device.
    """

    def __init__(
        self, trainee: Trainee, recipe: Recipe, data: DeviceData, runtime: Runtime
    ) -> None:
        self.module, self.trained, _ = trainee
        self.method, self.data = recipe.method, data
        self.module.to(runtime.torch_device, memory_format=runtime.memory_format(data.shape))  # type: ignore[call-overload]
        # A copy, because validation uses other batch sizes, for which a compiled network would be compiled again.
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
        self.epoch, self.totals = torch.zeros((), device=device), torch.zeros(2, device=device)
        self._index = torch.zeros(recipe.batch, dtype=torch.long, device=device)
        self._share = torch.zeros((), device=device)
        pairs = zip(self.validated.module.parameters(), self.module.parameters(), strict=True)
        self._means, self._weights = zip(
            *((mean, own) for mean, own in pairs if own.requires_grad), strict=True
        )
        self._run: Callable[[], None] = self._compute

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name. The schedule and the randomness depend only on the epoch."""
        remembered = {
            f"{kind.removesuffix('_buffer')}.{name}": tensor
            for name, parameter in self.trained.named_parameters()
            for kind, tensor in self.optimizer.state.get(parameter, {}).items()
        }
        mean = self.validated.trained.state_dict() if self.method.keeps_mean else {}
        return (
            self.trained.state_dict()
            | remembered
            | {f"mean.{name}": tensor for name, tensor in mean.items()}
        )

    def __call__(self, index: Tensor, rate: float, number: int) -> None:
        """Train on one batch, as step `number` from 1 on."""
        self._index.copy_(index)
        if self.method.keeps_mean:
            self._share.fill_(share_of_step(number))
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

        The capture runs some steps to warm up. Afterwards, it restores everything that these steps have changed.

        Returns:
            Whether the step is now a CUDA graph.
        """
        tensors = [*self.tensors.values(), self.totals]
        saved = [tensor.clone() for tensor in tensors]
        try:
            self._run = capture(self._compute).replay
            return True
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning(
                "the training step cannot be captured as a CUDA graph, so it runs more slowly: %s",
                error,
            )
            return False
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, saved, strict=True):
                    tensor.copy_(value)
