"""The fast path: a classifier as fused operations, without torch's compiler.

Tracing a network and folding its batch normalisation takes a second, where the compiler takes half a minute. A CIFAR
ResNet then runs with one kernel per stage (`resnet`), and everything else with fused operations (`layers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from smoothcert.device.comparison import Comparison
from smoothcert.device.runtime import Compile, Runtime, blank
from smoothcert.device.setup_clock import SetupClock
from smoothcert.errors import first_line
from smoothcert.kernels.in_place import Untraceable
from smoothcert.kernels.layers.convolution import FUSED_DTYPES
from smoothcert.kernels.layers.graph import Fusion, input_affine
from smoothcert.kernels.resnet.classifier import StageClassifier
from smoothcert.kernels.resnet.match import match
from smoothcert.kernels.tracing import trace
from smoothcert.models.copying import copied
from smoothcert.noises import Draw

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FastClassifier:
    """A classifier on the fast path.

    Args:
        compile: The name of what runs.
        outputs: From a batch to what the module returns for it.
        stages: The stage kernels, where they run.
    """

    compile: Compile
    outputs: Callable[[Tensor], Tensor]
    stages: StageClassifier | None = None


class NotFast(Exception):
    """A classifier cannot take the fast path; the message says why."""


@torch.inference_mode(False)  # inference tensors could only be used in inference mode
@torch.no_grad()
def build_fast(
    module: nn.Module,
    plain: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None] = lambda message: None,
    clock: SetupClock | None = None,
    *,
    draw: Draw | None = None,
) -> FastClassifier:
    """The fast form of a module, after a comparison with the plain one on noisy inputs.

    Raises:
        NotFast: The module cannot be traced.
        OtherAnswers: The fast form gives other answers.
    """
    clock = clock or SetupClock()
    say("tracing the classifier")
    try:
        with clock.step("trace"):
            traced = trace(copied(module).cpu(), shape).requires_grad_(False)
    except Untraceable as error:
        raise NotFast(f"it cannot be traced: {first_line(error)}") from None
    with clock.step("check"):
        compare = Comparison(module, plain, shape, runtime)
    try:
        with clock.step("trace"):
            network = match(traced, shape)
        say("compiling kernels")
        with clock.step("compile"):
            stages = StageClassifier(network, runtime.torch_dtype, runtime.torch_device, draw=draw)
        with clock.step("check"):
            compare.check(stages.logits)
        return FastClassifier("stages", stages.logits, stages)
    except Exception as error:  # networks of any kind
        log.info("no stage kernels for this classifier: %s", first_line(error))
    with clock.step("compile"):
        fused = fuse(traced, shape, runtime)
    with clock.step("check"):
        compare.check(fused)
    return FastClassifier("fast", fused)


@torch.no_grad()
def fuse(traced: fx.GraphModule, shape: tuple[int, ...], runtime: Runtime) -> nn.Module:
    """A traced module on its device, with fused operations where the device has them."""
    device = runtime.torch_device
    if runtime.torch_dtype in FUSED_DTYPES and _has_kernels(device):
        affine = input_affine(traced, shape)
        example = blank(shape, replace(runtime, dtype="float32"), 2)
        layout = runtime.memory_format(shape)
        exact = traced.to(device, example.dtype)  # the weights may be in a reduced format
        Fusion(exact.to(memory_format=layout), example, affine).run()  # type: ignore[call-overload]
    module = traced.to(device, runtime.torch_dtype)
    return module.to(memory_format=runtime.memory_format(shape))  # type: ignore[no-any-return, call-overload]


def _has_kernels(device: torch.device) -> bool:
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)
