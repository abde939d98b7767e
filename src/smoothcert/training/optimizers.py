"""Optimizers in a form that a CUDA graph can replay.

A CUDA graph reads tensors at fixed addresses. So the learning rate is a tensor on the device, and the state of an
optimizer exists before the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

_SECOND_MOMENT = 0.99


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
