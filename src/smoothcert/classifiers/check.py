"""The check before a run: a classifier answers in the right shape, and for each input from that input alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, first_line


def answer(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The output for a batch, or the sentence that says why there is none."""
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if part.training and isinstance(part, (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)):
            raise InvalidInput(f"the model is in training mode ({type(part).__name__}); call model.eval() first")
    try:
        output = module(x.clone())  # some models normalise in place
    except Exception as error:  # a model may raise anything
        kind = str(x.dtype).removeprefix("torch.")
        reason = first_line(error)
        hint = "; try --dtype float32" if x.dtype != torch.float32 and re.search("dtype|BFloat16|Half", reason) else ""
        raise InvalidInput(f"the model fails on a {kind} batch of shape {tuple(x.shape)}: {reason}{hint}") from error
    if not isinstance(output, Tensor):
        raise InvalidInput(f"the model must return a tensor of logits or labels, got {type(output).__name__}")
    return output


@torch.inference_mode()
def check_classifier(module: Callable[[Tensor], Tensor], classes: int, x: Tensor) -> None:
    """Refuse a classifier whose answers for the batch `x` have the wrong shape, or depend on more than the input."""
    rows = len(x)
    x = torch.cat([x[:-1], x[-1:] / 4])  # among darker ones, this is then no longer far below the largest
    output = answer(module, x).clone()  # a model may write every answer to one place
    labels = output.ndim == 1 and not output.is_floating_point()
    if not (labels and len(output) == rows) and tuple(output.shape) != (rows, classes):
        raise InvalidInput(
            f"the model must return logits of shape {(rows, classes)} or integer labels of shape {(rows,)} for "
            f"{rows} inputs and {classes} classes, got {output.dtype} of shape {tuple(output.shape)}"
        )
    scale = float(output.nan_to_num(0, 0, 0).abs().max()) if output.is_floating_point() else 0.0
    if not all(_close(output[kept], b, scale) for kept, b in _again(module, x, output)):
        raise InvalidInput(
            "the model changes its answer for the same input (dropout or batch statistics?); call model.eval() first"
        )


def _again(module: Callable[[Tensor], Tensor], x: Tensor, output: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some of the rows, and other answers for them: dropout shows in the first, batch statistics in the rest."""
    half = slice(len(x) // 2)
    yield slice(None), answer(module, x)
    for kept in (half, slice(-1, None)):  # one in a crowd shows a median or a quantile, which many would hold
        for others in (x / 4, -4 * x, 4 * x + 1):
            others[kept] = x[kept]
            yield kept, answer(module, others)[kept]
    if output.is_floating_point():  # a batch of another size has other kernels: rounding turns labels that are tied
        with suppress(InvalidInput):  # made for one size
            alone = answer(module, x[half])
            if alone.shape == output[half].shape:
                yield half, alone


def _close(a: Tensor, b: Tensor, scale: float) -> bool:
    """Equal up to rounding: other companions may choose another kernel, but not another answer."""
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    return bool(torch.allclose(a.float(), b.float(), rtol=0.05, atol=0.05 * scale, equal_nan=True))
