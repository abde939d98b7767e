"""The identity of a classifier: a run may only continue with the classifier that it started with.

We hash the weights. We cannot hash the code of an arbitrary function, so we also compare answers: the classifier must
give the same ones as before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert._agreement import Answer
from smoothcert.errors import InvalidInput
from smoothcert.models.check import answer, check_weights
from smoothcert.models.copying import copied

_MEMORY_ADDRESS = re.compile(r"( at |=)0x[0-9a-fA-F]+")  # it changes from process to process
_INPUTS_FOR_LOGITS = 8
_INPUTS_FOR_LABELS = 64  # more, because a label carries less information than a margin between logits


def state_hash(module: nn.Module) -> str:
    """The SHA-256 hash of the layers and the state of a module.

    Args:
        module: The module.
    """
    check_weights(module)
    digest = hashlib.sha256(_MEMORY_ADDRESS.sub("", repr(module)).encode())
    for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
        if isinstance(value, Tensor):
            content = _dense(value).detach().cpu().contiguous()
            digest.update(f"{name} {content.dtype} {tuple(content.shape)}\n".encode())
            digest.update(content.flatten().view(torch.uint8).numpy().data)
        else:  # extra state may be any object
            digest.update(_MEMORY_ADDRESS.sub("", f"{name} {value!r}\n").encode())
    return digest.hexdigest()


@torch.inference_mode()
def answers(
    model: Callable[[Tensor], Any],
    example: Tensor,
    device: torch.device,
    dtype: torch.dtype,
    *,
    classes: int | None = None,
) -> list[Answer] | None:
    """The answers of a classifier for one input with increasing noise, which is the same every time.

    A module answers on the device of its weights and in float32, so that rounding does not matter. A function answers
    on the device and in the number format of the run.

    Returns:
        Labels, each with its margin: the distance of the two largest logits, or 1 where the classifier returns labels.
        None if the classifier fails here. If that is an error, the check before the run reports it.
    """
    if isinstance(model, nn.Module):
        model = copied(model).float()  # a call may change the module
        if (tensor := next(chain(model.parameters(), model.buffers()), None)) is not None:
            device, dtype = tensor.device, torch.float32

    def outputs(rows: int) -> Tensor:
        noise = torch.randn((rows, *example.shape), generator=torch.Generator().manual_seed(0))
        strength = torch.linspace(0, 1, rows).view(-1, *[1] * example.ndim)
        x = example.detach().cpu().float() + strength * noise
        values = answer(model, x.to(device, dtype), classes=classes).cpu().double()
        return values.nan_to_num(0, 0, float(values.nan_to_num(0, 0, 0).min()) - 1)  # -inf never wins

    with suppress(InvalidInput, RuntimeError, AssertionError):  # for example, this process may not have the device
        output = outputs(_INPUTS_FOR_LOGITS)
        if output.ndim == 2 and len(output) == _INPUTS_FOR_LOGITS:
            best, labels = output.topk(2)
            margins = (best[:, 0] - best[:, 1]).tolist()
            return [(label, float(f"{m:.6g}")) for label, m in zip(labels[:, 0].tolist(), margins, strict=True)]
        if output.ndim == 1 and len(output) == _INPUTS_FOR_LOGITS:
            return [(int(label), 1.0) for label in outputs(_INPUTS_FOR_LABELS).tolist()]
    return None


def _dense(value: Tensor) -> Tensor:
    """A tensor whose bytes can be read: neither quantized nor sparse, with lazy operations applied."""
    value = value.dequantize() if value.is_quantized else value
    return (value if value.layout == torch.strided else value.to_dense()).resolve_conj().resolve_neg()
