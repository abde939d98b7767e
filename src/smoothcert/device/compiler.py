"""torch's compiler, with the weights of a classifier as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_MAX_COMPILED_CLASSIFIERS = 256  # in one process


def compiled(classifier: nn.Module, *, tune: bool) -> Callable[[Tensor], Tensor]:
    """The classifier, compiled at its first call; with `tune`, the compiler chooses its kernels by timing them."""
    from torch._dynamo import config as dynamo_config  # this import takes a second
    from torch._inductor import config as inductor_config

    options: dict[str, Any] = {"max_autotune": tune}
    form: Callable[[Tensor], Tensor] = torch.compile(classifier, dynamic=False, options=options)

    # `freezing` must also be set while the code is traced, so it cannot be an option of torch.compile. Every classifier
    # counts as a recompilation of the same code. Beyond torch's limit, it would silently run uncompiled.
    def call(x: Tensor) -> Tensor:
        limit = dynamo_config.patch(recompile_limit=_MAX_COMPILED_CLASSIFIERS, fail_on_recompile_limit_hit=True)
        with inductor_config.patch(freezing=True), limit:
            return form(x)

    return call
