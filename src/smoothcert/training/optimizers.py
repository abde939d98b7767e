"""Optimizers in a form that a CUDA graph can replay, and the running mean of weights.

A CUDA graph reads tensors at fixed addresses. So the learning rate is a tensor on the device, and the state of an
optimizer exists before the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

_SECOND_MOMENT = 0.99
_MEAN_EXPONENT = 17.0  # the weights of the last 10% of the steps make up about 85% of the mean


def sgd(module: nn.Module, *, momentum: float, weight_decay: float) -> Optimizer:
    """SGD with Nesterov momentum."""
    parameters, rate, fused = _prepare(module)
    optimizer = SGD(parameters, lr=rate, momentum=momentum, nesterov=True, weight_decay=weight_decay, fused=fused)
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def adamw(module: nn.Module, *, momentum: float, weight_decay: float) -> Optimizer:
    """AdamW (Loshchilov & Hutter 2019)."""
    parameters, rate, fused = _prepare(module)
    optimizer = AdamW(
        parameters,
        lr=rate,
        betas=(momentum, _SECOND_MOMENT),
        weight_decay=weight_decay,
        fused=fused,
        foreach=False,
        capturable=rate.device.type == "cuda",
    )
    for parameter in parameters:
        optimizer.state[parameter] |= {
            "step": torch.zeros((), device=rate.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def _prepare(module: nn.Module) -> tuple[list[nn.Parameter], Tensor, bool]:
    """The parameters to train, a learning rate on their device, and whether the device has fused optimizers."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    device = parameters[0].device
    return parameters, torch.zeros((), device=device), device.type in ("cpu", "cuda")


def state_tensors(optimizer: Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Everything that an optimizer remembers from step to step, by name."""
    return {
        f"{kind.removesuffix('_buffer')}.{name}": tensor
        for name, parameter in module.named_parameters()
        for kind, tensor in optimizer.state.get(parameter, {}).items()
    }


class RunningMean:
    """The mean of the weights of all steps, in which recent steps count more (Karras et al. 2024).

    After step t, the mean is beta times the mean before plus 1 - beta times the weights, with
    beta = (1 - 1/t)^(gamma + 1). So its horizon grows with the training, and it suits short and long ones.
    """

    def __init__(self, mean: nn.Module, module: nn.Module) -> None:
        pairs = list(zip(mean.parameters(), module.parameters(), strict=True))
        self._means: list[Tensor] = [own for own, trained in pairs if trained.requires_grad]
        self._weights: list[Tensor] = [trained for _, trained in pairs if trained.requires_grad]
        self._share = torch.zeros((), device=self._weights[0].device)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold the mean."""
        return self._means

    def set_step(self, number: int) -> None:
        """Set the weight of the next step."""
        self._share.fill_(1 - (1 - 1 / number) ** (_MEAN_EXPONENT + 1))

    @torch.no_grad()
    def update(self) -> None:
        """Include the current weights."""
        change = torch._foreach_sub(self._weights, self._means)
        torch._foreach_mul_(change, self._share)
        torch._foreach_add_(self._means, change)
