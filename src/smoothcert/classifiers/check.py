"""The check before a run: a classifier answers in the right shape, and for each input from that input alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput


def answer(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The output for a batch, or the sentence that says why there is none."""
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if part.training and isinstance(part, (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)):
            raise InvalidInput(f"the model is in training mode ({type(part).__name__}); call model.eval() first")
    try:
        output = module(x.clone())  # some models normalise in place
    except Exception as error:  # a model may raise anything
        kind = str(x.dtype).removeprefix("torch.")
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        hint = "; try --dtype float32" if x.dtype != torch.float32 and re.search("dtype|BFloat16|Half", reason) else ""
        raise InvalidInput(f"the model fails on a {kind} batch of shape {tuple(x.shape)}: {reason}{hint}") from error
    if not isinstance(output, Tensor):
        raise InvalidInput(f"the model must return a tensor of logits or labels, got {type(output).__name__}")
    return output


@torch.inference_mode()
def check_classifier(module: Callable[[Tensor], Tensor], classes: int, x: Tensor) -> None:
    """Refuse a classifier whose answers for the batch `x` have the wrong shape, or depend on more than the input."""
    rows = len(x)
    output = answer(module, x)
    labels = output.ndim == 1 and not output.is_floating_point()
    if not (labels and len(output) == rows) and tuple(output.shape) != (rows, classes):
        raise InvalidInput(
            f"the model must return logits of shape {(rows, classes)} or integer labels of shape {(rows,)} for "
            f"{rows} inputs and {classes} classes, got {output.dtype} of shape {tuple(output.shape)}"
        )
    # The same inputs again, then among other companions: dropout shows in the first, batch statistics in the second.
    kept = rows // 2
    among_others = torch.cat([x[:kept], x[kept:] / 4])
    if not (_close(output, module(x.clone())) and _close(output[:kept], module(among_others)[:kept])):
        raise InvalidInput(
            "the model changes its answer for the same input (dropout or batch statistics?); call model.eval() first"
        )


def _close(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding: other companions may choose another kernel, but not another answer."""
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    a, b = a.float(), b.float()
    return bool(torch.allclose(a, b, rtol=0.05, atol=0.05 * float(a.nan_to_num(0, 0, 0).abs().max()), equal_nan=True))
