"""Projected gradient ascent on the loss of a smoothed classifier, in l2, l1 and l-infinity.

SmoothAdv and CAT-RS train with it, and `attack` searches with it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.training.methods.base import log_mean_probability, logits_of

Gradient = Callable[[Tensor], Tensor]
"""The direction in which a loss grows, at a batch of inputs."""

_SPARSE_SHARE = 0.01
"""The share of coordinates that a step in l1 changes, if all of them can move."""


def loss_gradient(module: nn.Module, labels: Tensor, noise: Tensor) -> Gradient:
    """The gradient of J(x') = -log mean_i F_y(x' + delta_i).

    The m noise samples delta_i are the same in every step.
    """

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        log_probability = log_mean_probability(logits_of(module, x + noise))
        loss = functional.nll_loss(log_probability, labels, reduction="sum")
        return torch.autograd.grad(loss, x)[0]

    return gradient


def ascend(
    gradient: Gradient,
    x: Tensor,
    *,
    epsilon: Tensor,
    steps: int,
    norm: str = "l2",
    values: tuple[float, float] | None = (0.0, 1.0),
) -> Tensor:
    """Search an input x' with ||x' - x|| <= epsilon and a large loss.

    Each step has the length 2 epsilon / T along the steepest direction and is followed by a
    projection. In l1, that direction is a change of one coordinate. We change several, and none
    that is at its limit already.

    Args:
        gradient: The gradient of the loss.
        x: The inputs.
        epsilon: The largest distance.
        steps: The number T of steps.
        norm: "l2", "l1" or "linf".
        values: The smallest and the largest value of an input; None if it may have any.
    """
    adversarial = x
    for _ in range(steps):
        slope = gradient(adversarial)
        adversarial = adversarial.detach()
        length = 2 * epsilon / steps
        if norm == "l1":
            moved = adversarial + _sparse_step(slope, adversarial, length, values)
        else:
            moved = adversarial + length * steepest(slope, norm)
        if values is not None:
            moved = moved.clamp(*values)
        adversarial = x + _projected(moved - x, epsilon, norm)
    return adversarial


def steepest(gradient: Tensor, norm: str) -> Tensor:
    """The change of length 1 in l2 or l-infinity along which a linear loss grows fastest."""
    if norm == "linf":
        return gradient.sign()
    return gradient / _length(gradient)


def _sparse_step(
    gradient: Tensor, x: Tensor, length: Tensor, values: tuple[float, float] | None
) -> Tensor:
    """A step of this length in l1 along the steepest coordinates that can still move."""
    flat = gradient.flatten(1)
    changed = max(int(_SPARSE_SHARE * flat.shape[1]), 1)
    limit = length.view(-1, 1)
    room = (limit / changed).expand_as(flat)
    if values is not None:
        smallest, largest = values
        to_limit = torch.where(gradient > 0, largest - x, x - smallest).flatten(1)
        room = torch.minimum(room, to_limit.clamp_min(0))
    room = room * (flat != 0)
    steepest_first = flat.abs().argsort(dim=1, descending=True)
    ordered = room.gather(1, steepest_first)
    left = (limit - (ordered.cumsum(1) - ordered)).clamp_min(0)
    sizes = torch.zeros_like(flat).scatter(1, steepest_first, torch.minimum(ordered, left))
    return (flat.sign() * sizes).view_as(gradient)


def _projected(change: Tensor, epsilon: Tensor, norm: str) -> Tensor:
    """The nearest change of length epsilon at most. No coordinate grows or changes its sign."""
    if norm == "linf":
        return torch.minimum(torch.maximum(change, -epsilon), epsilon)
    if norm == "l2":
        return change * (epsilon / _length(change)).clamp(max=1)
    sizes = change.flatten(1).abs()
    limit = epsilon.view(-1, 1)
    ordered = sizes.sort(dim=1, descending=True).values
    rank = torch.arange(1, sizes.shape[1] + 1, device=sizes.device)
    # What the first coordinates must lose if only they stay.
    excess = (ordered.cumsum(1) - limit) / rank
    last = (ordered > excess).sum(1, keepdim=True).clamp_min(1) - 1
    lost = excess.gather(1, last).clamp_min(0)
    return (change.flatten(1).sign() * (sizes - lost).clamp_min(0)).view_as(change)


def _length(x: Tensor) -> Tensor:
    """The l2 norm of each row, never zero, in a shape by which `x` can be divided."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    return norm.clamp_min(1e-12)
