"""Our own kernels: a faster form of a classifier that agrees with it, without torch's compiler.

Tracing a network and folding its batch normalisation takes a second, where the compiler takes half
a minute. A CIFAR ResNet then runs with one kernel per stage (`stages`), and everything else with
fused operations (`layers`). The rest of the package comes here through `device.acceleration`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from math import prod

import torch
from torch import fx, nn

from smoothcert._agreement import OtherAnswers, Outputs, Reference
from smoothcert.device.acceleration import Declined, KernelClassifier
from smoothcert.device.runtime import Runtime, blank, in_finer_format, noisy_images
from smoothcert.errors import InvalidInput, first_line
from smoothcert.kernels.fusion import Fusion, input_affine
from smoothcert.kernels.layers import FUSED_DTYPES
from smoothcert.kernels.nvrtc import runs_kernels
from smoothcert.kernels.resnet import match
from smoothcert.kernels.stages import StageClassifier, StageEnsemble
from smoothcert.kernels.tracing import trace
from smoothcert.models.base import copied
from smoothcert.models.wrappers import Ensemble
from smoothcert.noises import Draw

__all__ = ["accelerate"]

log = logging.getLogger(__name__)

_COMPARED_ROWS = {"cuda": 512, "cpu": 96, "mps": 96}
_COMPARED_NUMBERS = 2**25
"""Numbers in all compared rows: 222 images of 3x224x224."""
_FEWEST_COMPARED_ROWS = 32


@torch.inference_mode(False)  # inference tensors could only be used in inference mode
@torch.no_grad()
def accelerate(
    module: nn.Module,
    plain: Outputs,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None],
    draw: Draw | None,
) -> KernelClassifier | nn.Module | Declined:
    """What `device.acceleration.accelerate` returns, with the same arguments."""
    try:
        say("tracing the classifier")
        traced = _traced(module, shape)
        affordable = max(_COMPARED_NUMBERS // prod(shape), _FEWEST_COMPARED_ROWS)
        rows = min(_COMPARED_ROWS[runtime.torch_device.type], affordable)
        noisy = noisy_images(shape, runtime, rows)
        reference = Reference(plain, in_finer_format(module, runtime), noisy)
        try:
            return _as_stages(module, traced, shape, runtime, say, draw, reference)
        except Exception as error:  # networks of any kind
            log.info("no stage kernels for this classifier: %s", first_line(error))
        fused = _fuse(traced, shape, runtime)
        reference.check(fused)
        return fused
    except InvalidInput:
        raise
    except Exception as error:  # networks of any kind
        return Declined(first_line(error), disagrees=isinstance(error, OtherAnswers))


def _as_stages(
    module: nn.Module,
    traced: fx.GraphModule,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None],
    draw: Draw | None,
    reference: Reference,
) -> KernelClassifier:
    """A CIFAR ResNet, or an ensemble of them, with one kernel per stage.

    It raises an error for any other module.
    """
    parts = [traced]
    if isinstance(module, Ensemble):
        parts = [_traced(member, shape) for member in module.members]
    networks = [match(part, shape) for part in parts]
    say("compiling kernels")
    members = [
        StageClassifier(network, runtime.torch_dtype, runtime.torch_device, draw=draw)
        for network in networks
    ]
    stages = StageEnsemble(members) if isinstance(module, Ensemble) else members[0]
    reference.check(stages.logits)
    return stages


def _traced(module: nn.Module, shape: tuple[int, ...]) -> fx.GraphModule:
    return trace(copied(module).cpu(), shape).requires_grad_(False)


def _fuse(traced: fx.GraphModule, shape: tuple[int, ...], runtime: Runtime) -> nn.Module:
    """A traced module on its device, with fused operations where the device has them."""
    device = runtime.torch_device
    memory_format = runtime.memory_format(shape)
    if runtime.torch_dtype in FUSED_DTYPES and runs_kernels(device):
        affine = input_affine(traced, shape)
        example = blank(shape, replace(runtime, dtype="float32"), 2)
        exact = traced.to(device, example.dtype)  # the weights may be in a reduced format
        exact = exact.to(memory_format=memory_format)  # type: ignore[call-overload]
        Fusion(exact, example, affine).run()
    module = traced.to(device, runtime.torch_dtype)
    return module.to(memory_format=memory_format)  # type: ignore[no-any-return, call-overload]
