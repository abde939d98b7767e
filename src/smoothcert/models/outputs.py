"""The answers of a classifier: one class per row of what it returns, and whether they hold.

They must have the right shape and be the same for an input in every batch and in every session. A
run may only continue with the classifier that it started with. We hash the weights. We cannot hash
the code of an arbitrary function, so we also compare answers: the classifier must give the same
ones as before.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from smoothcert._agreement import Outputs, in_full_batch, repeats, with_other_neighbours
from smoothcert._user_errors import where_raised
from smoothcert.errors import (
    InvalidInput,
    ModelFailed,
    SmoothcertError,
    either,
    first_line,
    setting,
)
from smoothcert.models.base import (
    Network,
    copied,
    described,
    find_logits,
    is_map_of_classes,
    other_task,
)
from smoothcert.models.wrappers import SeededRows, unseeded
from smoothcert.plans.votes import Answer

_BATCH_NORM = nn.modules.batchnorm._BatchNorm
_CHANGES_IN_TRAINING = (_BATCH_NORM, nn.modules.dropout._DropoutNd)
_INPUTS_FOR_LOGITS = 8
_INPUTS_FOR_LABELS = 64
"""More, because a label carries less information than a margin between logits."""
_NEEDS_GRADIENTS = re.compile(
    "does not require grad|saved for backward|inference tensor", re.IGNORECASE
)
_OTHER_SHAPE = re.compile("shape|size|channels|dimension", re.IGNORECASE)
_DYNAMIC_OPERATION = re.compile(r"\bquantized\.\w+_dynamic\(|\bquantized_(lstm|gru)")


class LabelClassifier(nn.Module):
    """Turns the output of a classifier into one class per row.

    A row with NaN, with +inf or with nothing but -inf gets the number `classes`, which is not a
    class: it is no vote. A single -inf is the logarithm of the probability 0, and another class can
    win.

    Args:
        module: The classifier: a batch of inputs to logits of shape (batch, classes) or to labels
            of shape (batch,), alone or in a form that `find_logits` takes.
        classes: The number of classes.
    """

    def __init__(self, module: Outputs, classes: int) -> None:
        super().__init__()
        self.module = module
        self.classes = classes

    def outputs(self, x: Tensor) -> Tensor:
        """The logits or labels of each row."""
        return find_logits(self.module(x), classes=self.classes, device=x.device)

    def forward(self, x: Tensor) -> Tensor:
        """The class of each row, as integers of shape (batch,)."""
        output = self.outputs(x)
        if tuple(output.shape) not in ((len(x),), (len(x), self.classes)):
            raise ModelFailed(
                "other-output-shape",
                "the model returns shape {shape} for {rows} inputs and {classes} classes",
                shape=tuple(output.shape),
                rows=len(x),
                classes=self.classes,
            )
        if output.ndim == 1:
            return torch.where((output >= 0) & (output < self.classes), output.long(), self.classes)
        return torch.where(has_winner(output), output.argmax(1), self.classes)


def has_winner(logits: Tensor) -> Tensor:
    """Whether a class wins in each row: the largest logit is finite.

    The largest of NaN and anything else is NaN.
    """
    return logits.amax(1).isfinite()


def answer(module: Network, x: Tensor) -> Tensor:
    """The logits or labels that a classifier returns for a batch.

    Raises:
        InvalidInput: The classifier is in training mode, it fails, or it returns neither logits nor
            labels.
    """
    with checking(module, x) as output:
        return find_logits(output, classes=None, device=x.device)


@contextmanager
def checking(model: Network, x: Tensor) -> Iterator[Any]:
    """What a classifier returns for a batch. In this context, it may be called again to check it.

    The modules of the user do not change. A classifier that is a module is checked in a copy. The
    modules of a function are found when it calls them. In training mode, a module may change its
    buffers, so these are restored.

    Raises:
        InvalidInput: A layer is in training mode, and was not called; or the classifier fails.
    """
    seeded = isinstance(model, SeededRows)
    if isinstance(model, nn.Module):
        for part in model.modules():
            _check_layer(part, seeded=seeded)
    if isinstance(unseeded(model), nn.Module):
        yield call(model, x)
    else:
        with _watched(model, x, seeded=seeded) as output:
            yield output


@contextmanager
def _watched(function: Network, x: Tensor, *, seeded: bool) -> Iterator[Any]:
    """What a function returns. After this context, its modules get their buffers back."""
    thread = get_ident()
    buffers: dict[tuple[nn.Module, str], tuple[Tensor, Tensor]] = {}

    def before_call(module: nn.Module, inputs: Any) -> None:
        if get_ident() != thread:  # another thread may train a network
            return
        # The layers of a TorchScript module are called without Python.
        script = isinstance(module, torch.jit.ScriptModule)
        for part in module.modules() if script else [module]:
            _check_layer(part, seeded=seeded)
            if getattr(part, "training", False):
                for name, buffer in part.named_buffers(recurse=False):
                    buffers.setdefault((part, name), (buffer, buffer.clone()))

    try:
        with _uncompiled(), register_module_forward_pre_hook(before_call):
            output = call(function, x)
        yield output
    finally:
        for (part, name), (buffer, value) in buffers.items():
            buffer.copy_(value)
            setattr(part, name, buffer)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """In this context, compiled modules run as written, so that their layers can be watched."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled, and the import takes seconds
        yield
        return
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global")
        yield


def _check_layer(part: nn.Module, *, seeded: bool) -> None:
    """Refuse a layer whose answer for an input depends on chance, or on other rows of its batch.

    With seeds of their own, rows are classified one at a time, and a layer may use random numbers.
    """
    kind = type(part)
    operation = getattr(part, "dynamic_operation", None)  # of an ONNX file
    dynamic = operation is not None or ".quantized.dynamic" in kind.__module__
    if isinstance(part, torch.jit.ScriptModule):
        kind = getattr(nn, part.original_name, kind)
        dynamic = bool(_DYNAMIC_OPERATION.search(getattr(part, "code", "")))
    changes = _BATCH_NORM if seeded else _CHANGES_IN_TRAINING
    if getattr(part, "training", False) and issubclass(kind, changes):
        raise InvalidInput(
            "training-mode",
            "the model is in training mode ({layer}); call model.eval() first",
            layer=kind.__name__,
        )
    if dynamic and not seeded:
        raise InvalidInput(
            "dynamic-quantization",
            "{layer} is quantized dynamically: it scales a batch by the largest value in it, so "
            "the answer for an input depends on the other rows; quantize statically, or give "
            "`stochastic=True`, which classifies inputs one at a time",
            layer=operation or kind.__name__,
        )


def call(module: Network, x: Tensor, *, what: str = "the model") -> Any:
    """What a network of the user returns for a batch."""
    try:
        return module(x.clone())  # a copy, because some models normalise in place
    except SmoothcertError:
        raise
    except Exception as error:  # a model may raise any error
        reason = first_line(error)
        raise InvalidInput(
            "model-fails",
            "{what} fails on a {dtype} batch of shape {shape}: {reason}{place}{hint}",
            what=what,
            dtype=str(x.dtype).removeprefix("torch."),
            shape=tuple(x.shape),
            reason=reason,
            place=where_raised(error),
            hint=_hint(x, reason),
        ) from error


def floats(
    module: Network,
    x: Tensor,
    shape: tuple[int, ...],
    *,
    what: str,
    kind: str = "logits",
) -> Tensor:
    """What a network of the user returns for a batch: floating-point numbers of this shape."""
    output = call(module, x, what=what)
    if isinstance(output, Tensor) and output.is_floating_point() and tuple(output.shape) == shape:
        return output
    raise InvalidInput(
        "other-output",
        "{what} must return {kind} of shape {shape}, and it returned {output}",
        what=what,
        kind=kind,
        shape=shape,
        output=described(output),
    )


def unfit(output: Tensor, rows: int, classes: int | str) -> InvalidInput:
    """The error for outputs that are neither logits nor labels."""
    if is_map_of_classes(output):
        return other_task(f"a map of {output.shape[1]} classes", "segmentation")
    if output.ndim == 3 and not output.is_floating_point():
        return other_task("a map of classes", "segmentation")
    if output.ndim == 1 and output.is_floating_point():
        numbers = "one number per input (a binary classifier must return two logits, or labels)"
        return other_task(numbers, "regression")
    return InvalidInput(
        "no-classifier",
        "the model must return logits of shape ({rows}, {classes}) or integer labels of shape "
        "({rows},) for {rows} inputs, and it returned {output}",
        rows=rows,
        classes=classes,
        output=described(output),
    )


def _hint(x: Tensor, reason: str) -> str:
    """What to do about an error of the model, where we know it."""
    if _NEEDS_GRADIENTS.search(reason):
        return (
            "; it computes gradients, and a run has none: give a function that calls it in "
            "torch.inference_mode(False) and torch.enable_grad(), with a copy of the batch"
        )
    if x.ndim == 3:
        return "; a batch of images has the shape (n, channels, height, width), as in x[:, None]"
    if x.ndim == 2 and _OTHER_SHAPE.search(reason):
        labels = either("labels=", "y of the .npz file")
        return f"; if a column of labels is among the inputs, give it as {labels}"
    if x.ndim == 4 and _OTHER_SHAPE.search(reason):
        channels = 1 if x.shape[1] == 3 else 3
        fits = f"{setting('resize', 'SIZE')} and {setting('channels', channels)}"
        return f"; if it takes pictures of another size, or with another number of channels: {fits}"
    return "" if x.dtype == torch.float32 else f"; perhaps {setting('dtype', 'float32')} helps"


@torch.inference_mode()
def check_classifier(module: Network, classes: int, x: Tensor) -> None:
    """Refuse a classifier with the wrong shape, or whose answer depends on more than the input.

    Raises:
        InvalidInput: The classifier fails one of the checks.
    """
    # We darken the last input. In this batch, its values are far below the maximum; among the
    # darker inputs of `with_other_neighbours`, they are not. So a model that scales by the maximum
    # of the batch changes its answer.
    x = torch.cat([x[:-1], x[-1:] / 4])

    def again(batch: Tensor) -> Tensor:
        return find_logits(call(module, batch), classes=classes, device=x.device)

    with checking(module, x) as first:
        # A copy, because a model may return the same buffer every time.
        output = find_logits(first, classes=classes, device=x.device).clone()
        if not _are_logits_or_labels(output, len(x), classes):
            raise unfit(output, len(x), classes)
        if output.ndim == 2 and not bool(has_winner(output).any()):
            hint = "" if x.dtype == torch.float32 else f", or try {setting('dtype', 'float32')}"
            raise InvalidInput(
                "no-finite-output",
                "the model returns NaN or infinite values for every input: check its weights and "
                "its normalisation{hint}",
                hint=hint,
            )
        others = with_other_neighbours(x, logits=output.is_floating_point())
        if not repeats(again, output, others):
            raise InvalidInput(
                "answer-changes",
                "the model changes its answer for the same input (dropout or batch statistics?); "
                "call model.eval() first, or give `stochastic=True` if it is random by design",
            )


def _are_logits_or_labels(output: Tensor, rows: int, classes: int) -> bool:
    if output.is_complex():
        return False
    if output.ndim == 1 and not output.is_floating_point():
        return len(output) == rows
    return tuple(output.shape) == (rows, classes) and output.dtype != torch.bool


@torch.inference_mode()
def check_full_batch(outputs: Outputs, few: Tensor, rows: int) -> None:
    """Refuse a classifier whose answer for a noisy input depends on the other rows of a full batch.

    Raises:
        InvalidInput: It does.
    """
    if not in_full_batch(outputs, few, rows):
        raise InvalidInput(
            "depends-on-batch",
            "in a batch of {rows}, the model's answer for an input depends on the row of the "
            "input or on the other rows (experts with a capacity? batch statistics? a cache?), so "
            "a certificate would not hold for the input alone: change the model, or try a smaller "
            "batch",
            rows=rows,
        )


@torch.inference_mode()
def fingerprint(
    model: Network,
    example: Tensor,
    device: torch.device,
    dtype: torch.dtype,
    *,
    classes: int | None = None,
) -> list[Answer] | None:
    """The answers of a classifier for one input with increasing noise, which is always the same.

    A module answers on the device of its weights and in float32, so that rounding does not matter.
    A function answers on the device and in the number format of the run.

    Returns:
        Labels, each with its margin: the distance of the two largest logits, or 1 where the
        classifier returns labels. None if the classifier fails here. If that is an error, the check
        before the run reports it.
    """
    if isinstance(model, nn.Module):
        model = copied(model).float()  # a call may change the module
        tensor = next(chain(model.parameters(), model.buffers()), None)
        if tensor is not None:
            device = tensor.device
            dtype = torch.float32

    def noisy(rows: int) -> Tensor:
        noise = torch.randn((rows, *example.shape), generator=torch.Generator().manual_seed(0))
        strength = torch.linspace(0, 1, rows).view(-1, *[1] * example.ndim)
        return (example.detach().cpu().float() + strength * noise).to(device, dtype)

    # For example, this process may not have the device.
    with suppress(InvalidInput, RuntimeError, AssertionError):
        with checking(model, noisy(_INPUTS_FOR_LOGITS)) as first:
            output = find_logits(first, classes=classes, device=device)
            if output.shape == (_INPUTS_FOR_LOGITS,) and not output.is_floating_point():
                more = call(model, noisy(_INPUTS_FOR_LABELS))
                labels = find_logits(more, classes=classes, device=device)
                return [(int(label), 1.0) for label in labels.tolist()]
        if output.ndim == 2 and len(output) == _INPUTS_FOR_LOGITS:
            return _labels_with_margins(output.cpu().double())
    return None


def _labels_with_margins(logits: Tensor) -> list[Answer]:
    below_all = float(logits.nan_to_num(0, 0, 0).min()) - 1
    best, labels = logits.nan_to_num(0, 0, below_all).topk(2)  # -inf never wins
    margins = [float(f"{margin:.6g}") for margin in (best[:, 0] - best[:, 1]).tolist()]
    return list(zip(labels[:, 0].tolist(), margins, strict=True))
