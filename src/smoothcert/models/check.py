"""The check before a run: a classifier returns the right shape, and its answer for an input depends on it alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert._agreement import in_full_batch, other_companies, repeats
from smoothcert.errors import InvalidInput, SmoothcertError, first_line, setting
from smoothcert.models.outputs import described, find_logits, has_winner
from smoothcert.models.seeded import SeededRows

_BATCH_NORM = nn.modules.batchnorm._BatchNorm
_CHANGES_IN_TRAINING = (_BATCH_NORM, nn.modules.dropout._DropoutNd)
_NEEDS_GRADIENTS = re.compile("does not require grad|saved for backward|inference tensor", re.IGNORECASE)


def answer(module: Callable[[Tensor], Any], x: Tensor, *, classes: int | None = None) -> Tensor:
    """The logits or labels that a classifier returns for a batch.

    Raises:
        InvalidInput: The classifier is in training mode, it fails, or it returns neither logits nor labels.
    """
    for part in _parts(module):
        if part.training and isinstance(part, _BATCH_NORM if isinstance(module, SeededRows) else _CHANGES_IN_TRAINING):
            raise InvalidInput(f"the model is in training mode ({type(part).__name__}); call model.eval() first")
    try:
        output = module(x.clone())  # a copy, because some models normalise in place
    except SmoothcertError:
        raise
    except Exception as error:  # a model may raise any error
        kind = str(x.dtype).removeprefix("torch.")
        reason = first_line(error)
        raise InvalidInput(
            f"the model fails on a {kind} batch of shape {tuple(x.shape)}: {reason}{_hint(x, reason)}"
        ) from error
    return find_logits(output, classes=classes, device=x.device)


def unfit(output: Tensor, rows: int, classes: int | str) -> InvalidInput:
    """The error for outputs that are neither logits nor labels."""
    return InvalidInput(
        f"the model must return logits of shape ({rows}, {classes}) or integer labels of shape ({rows},) for {rows} "
        f"inputs, and it returned {described(output)}"
    )


def check_weights(module: Callable[[Tensor], Any], *, what: str = "the model") -> None:
    """Refuse a module whose weights are not there yet, or are complex numbers."""
    tensors = chain(module.parameters(), module.buffers()) if isinstance(module, nn.Module) else ()
    for tensor in tensors:
        if is_lazy(tensor):
            raise InvalidInput(f"{what} has layers without weights yet (lazy layers?): call it on an input first")
        if tensor.is_meta:
            raise InvalidInput(f"{what} has no weights yet (it is on the meta device): load its weights first")
        if tensor.is_complex():  # torch would drop their imaginary parts in the number format of the run
            raise InvalidInput(f"{what} has complex weights: store them as pairs of real numbers (torch.view_as_real)")


def _parts(model: Callable[[Tensor], Any]) -> Iterator[nn.Module]:
    """All modules in a classifier, and in the denoiser of a function."""
    if isinstance(model, nn.Module):
        yield from model.modules()
    function = model.model if isinstance(model, SeededRows) else model
    if not isinstance(function, nn.Module) and isinstance(front := getattr(function, "denoiser", None), nn.Module):
        yield from front.modules()


def _hint(x: Tensor, reason: str) -> str:
    """What to do about an error of the model, where we know it."""
    if _NEEDS_GRADIENTS.search(reason):
        return (
            "; the model computes gradients, and a run has none: give a function that calls it in "
            "torch.inference_mode(False) and torch.enable_grad(), with a copy of the batch"
        )
    if x.ndim == 3:
        return "; a batch of images has the shape (n, channels, height, width), as in x[:, None]"
    return "" if x.dtype == torch.float32 else f"; perhaps {setting('dtype', 'float32')} helps"


@torch.inference_mode()
def check_classifier(module: Callable[[Tensor], Any], classes: int, x: Tensor) -> None:
    """Refuse a classifier that returns the wrong shape, or whose answer for an input depends on anything else.

    Raises:
        InvalidInput: The classifier fails one of the checks.
    """
    rows = len(x)
    # We darken the last input. In this batch, its values are far below the maximum; among the darker inputs of
    # `other_companies`, they are not. So a model that scales by the maximum of the batch changes its answer.
    x = torch.cat([x[:-1], x[-1:] / 4])
    output = answer(module, x, classes=classes).clone()  # a copy, because a model may return the same buffer every time
    labels = output.ndim == 1 and not output.is_floating_point()
    unordered = output.is_complex() or (output.dtype == torch.bool and not labels)
    if unordered or (not (labels and len(output) == rows) and tuple(output.shape) != (rows, classes)):
        raise unfit(output, rows, classes)
    if output.ndim == 2 and not bool(has_winner(output).any()):
        hint = "" if x.dtype == torch.float32 else f", or try {setting('dtype', 'float32')}"
        raise InvalidInput(
            "the model returns NaN or infinite values for every input: check its weights and its normalisation" + hint
        )
    again = other_companies(x, logits=output.is_floating_point())
    if not repeats(partial(answer, module, classes=classes), output, again):
        raise InvalidInput(
            "the model changes its answer for the same input (dropout or batch statistics?); call model.eval() first, "
            f"or give {setting('stochastic', True)} if it is random by design"
        )


@torch.inference_mode()
def check_full_batch(outputs: Callable[[Tensor], Tensor], few: Tensor, rows: int) -> None:
    """Refuse a classifier whose answer for a noisy input depends on its company in a full batch.

    Raises:
        InvalidInput: It does.
    """
    if not in_full_batch(outputs, few, rows):
        raise InvalidInput(
            f"in a batch of {rows}, the model's answer for an input depends on the row of the input or on the other "
            "rows (experts with a capacity? batch statistics? a cache?), so a certificate would not hold for the input "
            "alone: change the model, or try a smaller batch"
        )
