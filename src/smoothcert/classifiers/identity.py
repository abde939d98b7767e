"""Which classifier it is: a run is only continued with the one that it was begun with.

Weights are hashed. What a hash cannot see, the code around them, is asked: does it still give the same answers?
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert.classifiers.check import answer
from smoothcert.errors import InvalidInput

_ADDRESS = re.compile(r"( at |=)0x[0-9a-fA-F]+")  # where an object lies in memory is no part of it
_ASKED, _ASKED_FOR_LABELS = 8, 64  # noisy inputs; a label says less than a margin


def state_hash(module: nn.Module) -> str:
    """The `weights_hash` of a module."""
    digest = hashlib.sha256(_ADDRESS.sub("", repr(module)).encode())
    for name, value in sorted((dict(module.named_buffers()) | module.state_dict()).items()):
        if isinstance(value, Tensor):
            content = _dense(value).detach().cpu().contiguous()
            digest.update(f"{name} {content.dtype} {tuple(content.shape)}\n".encode())
            digest.update(content.flatten().view(torch.uint8).numpy().data)
        else:  # extra state, which may be anything
            digest.update(_ADDRESS.sub("", f"{name} {value!r}\n").encode())
    return digest.hexdigest()


@torch.inference_mode()
def answers(
    model: Callable[[Tensor], Tensor], example: Tensor, device: torch.device, dtype: torch.dtype
) -> list[tuple[int, float]] | None:
    """What a classifier says about an input under more and more noise, the same every time: labels and their margins.

    A module is asked where its weights are and in full precision, so that rounding does not matter; anything else as it
    will be run. None if there is no answer there; if that is a mistake, the check before a run says why.
    """
    if isinstance(model, nn.Module):
        model = copy.deepcopy(getattr(model, "_orig_mod", model)).float()  # being called may change it
        if (held := next(chain(model.parameters(), model.buffers()), None)) is not None:
            device, dtype = held.device, torch.float32

    def ask(rows: int) -> Tensor:
        noise = torch.randn((rows, *example.shape), generator=torch.Generator().manual_seed(0))
        strength = torch.linspace(0, 1, rows).view(-1, *[1] * example.ndim)
        x = example.detach().cpu().float() + strength * noise
        return answer(model, x.to(device, dtype)).cpu().double().nan_to_num(0, 0, 0)

    with suppress(InvalidInput, RuntimeError, AssertionError):  # such as: no such device in this process
        output = ask(_ASKED)
        if output.ndim == 2 and len(output) == _ASKED:
            best, labels = output.topk(2)
            margins = (best[:, 0] - best[:, 1]).tolist()
            return [(label, float(f"{m:.6g}")) for label, m in zip(labels[:, 0].tolist(), margins, strict=True)]
        if output.ndim == 1 and len(output) == _ASKED:
            return [(int(label), 1.0) for label in ask(_ASKED_FOR_LABELS).tolist()]
    return None


def _dense(value: Tensor) -> Tensor:
    if is_lazy(value):
        raise InvalidInput("the model has layers without weights yet (a lazy one?): call it on an input first")
    if value.is_meta:
        return torch.empty(0)
    value = value.dequantize() if value.is_quantized else value
    return (value if value.layout == torch.strided else value.to_dense()).resolve_conj().resolve_neg()
