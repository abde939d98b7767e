"""Which classifier it is: a run is only continued with the one that it was begun with.

Weights are hashed. What a hash cannot see, the code around them, is asked: does it still give the same answers?
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert.classifiers.check import answer_where_it_is
from smoothcert.errors import InvalidInput

_ADDRESS = re.compile(r"( at |=)0x[0-9a-fA-F]+")  # where an object lies in memory is no part of it
_ASKED, _MIXTURES = 8, 4


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


def answers(module: Callable[[Tensor], Tensor], example: Tensor) -> list[float] | None:
    """What a classifier says about an input under more and more noise, the same every time.

    Mixtures of the logits, since there may be many. None if it does not answer before it is placed on a
    device; if that is a mistake, the check before a run says why.
    """
    noise = torch.randn((_ASKED, *example.shape), generator=torch.Generator().manual_seed(0))
    strength = torch.linspace(0, 1, _ASKED).view(-1, *[1] * example.ndim)
    try:
        output = answer_where_it_is(module, example + strength * noise).double().cpu()
    except InvalidInput:
        return None
    output = output.nan_to_num(0, 0, 0).reshape(_ASKED, -1)
    waves = torch.outer(torch.arange(output.shape[1]), torch.arange(_MIXTURES)).double().cos()
    return [float(f"{value:.6g}") for value in (output @ waves).flatten().tolist()]


def _dense(value: Tensor) -> Tensor:
    if is_lazy(value):
        raise InvalidInput("the model has layers without weights yet (a lazy one?): call it on an input first")
    if value.is_meta:
        return torch.empty(0)
    value = value.dequantize() if value.is_quantized else value
    return (value if value.layout == torch.strided else value.to_dense()).resolve_conj().resolve_neg()
