"""The check before a run: a classifier returns the right shape, and its answer for an input depends on it alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, first_line


def answer(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The output of a classifier for a batch.

    Args:
        module: The classifier.
        x: The batch. It stays unchanged.

    Raises:
        InvalidInput: The classifier is in training mode, it fails, or it does not return a tensor.
    """
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if part.training and isinstance(part, (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)):
            raise InvalidInput(f"the model is in training mode ({type(part).__name__}); call model.eval() first")
    try:
        output = module(x.clone())  # a copy, because some models normalise in place
    except Exception as error:  # a model may raise any error
        kind = str(x.dtype).removeprefix("torch.")
        reason = first_line(error)
        hint = '; try dtype="float32"' if x.dtype != torch.float32 and re.search("dtype|BFloat16|Half", reason) else ""
        raise InvalidInput(f"the model fails on a {kind} batch of shape {tuple(x.shape)}: {reason}{hint}") from error
    if not isinstance(output, Tensor):
        raise InvalidInput(f"the model must return a tensor of logits or labels, got {type(output).__name__}")
    return output


@torch.inference_mode()
def check_classifier(module: Callable[[Tensor], Tensor], classes: int, x: Tensor) -> None:
    """Refuse a classifier that returns the wrong shape, or whose answer for an input depends on anything else.

    Args:
        module: The classifier.
        classes: The number of classes.
        x: Random inputs in [0, 1].

    Raises:
        InvalidInput: The classifier fails one of the checks.
    """
    rows = len(x)
    # We darken the last input. In this batch, its values are far below the maximum; among the darker inputs of
    # `_repeated_answers`, they are not. So a model that scales by the maximum of the batch changes its answer.
    x = torch.cat([x[:-1], x[-1:] / 4])
    output = answer(module, x).clone()  # a copy, because a model may return the same buffer every time
    labels = output.ndim == 1 and not output.is_floating_point()
    if not (labels and len(output) == rows) and tuple(output.shape) != (rows, classes):
        raise InvalidInput(
            f"the model must return logits of shape {(rows, classes)} or integer labels of shape {(rows,)} for "
            f"{rows} inputs and {classes} classes, got {output.dtype} of shape {tuple(output.shape)}"
        )
    scale = float(output.nan_to_num(0, 0, 0).abs().max()) if output.is_floating_point() else 0.0
    if not all(_close(output[kept], again, scale) for kept, again in _repeated_answers(module, x, output)):
        raise InvalidInput(
            "the model changes its answer for the same input (dropout or batch statistics?); call model.eval() first"
        )


def _repeated_answers(module: Callable[[Tensor], Tensor], x: Tensor, output: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Rows of `x` and new answers for them. The first repetition detects dropout, the others batch statistics."""
    half = slice(len(x) // 2)
    yield slice(None), answer(module, x)
    # Half of the rows may be enough to keep the median or a quantile of the batch, so we also keep a single row only.
    for kept in (half, slice(-1, None)):
        for others in (x / 4, -4 * x, 4 * x + 1):
            others[kept] = x[kept]
            yield kept, answer(module, others)[kept]
    # Another batch size may use other kernels. Their rounding can change a label in a tie, so we only compare logits.
    if output.is_floating_point():
        with suppress(InvalidInput):  # some models take one batch size only
            smaller = answer(module, x[half])
            if smaller.shape == output[half].shape:
                yield half, smaller


def _close(a: Tensor, b: Tensor, scale: float) -> bool:
    """Whether two answers are equal up to rounding, which depends on the kernels that the library chooses."""
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    return bool(torch.allclose(a.float(), b.float(), rtol=0.05, atol=0.05 * scale, equal_nan=True))
