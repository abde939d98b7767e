"""Our own kernels, behind one function: a faster form of a classifier that agrees with it, without torch's compiler.

Tracing a network and folding its batch normalisation takes a second, where the compiler takes half a minute. A CIFAR
ResNet then runs with one kernel per stage (`stages`), and everything else with fused operations (`layers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from smoothcert._agreement import OtherAnswers, Reference
from smoothcert.device.host import SetupClock, say_nothing
from smoothcert.device.runtime import Runtime, blank, in_finer_format, noisy_images
from smoothcert.errors import InvalidInput, first_line
from smoothcert.kernels.fusion import Fusion, input_affine
from smoothcert.kernels.layers import FUSED_DTYPES
from smoothcert.kernels.nvrtc import runs_kernels
from smoothcert.kernels.resnet import match
from smoothcert.kernels.stages import StageClassifier
from smoothcert.kernels.tracing import trace
from smoothcert.models.base import copied
from smoothcert.noises import Draw

__all__ = ["Declined", "StageClassifier", "accelerate"]

log = logging.getLogger(__name__)

_COMPARED_ROWS = {"cuda": 512, "cpu": 96, "mps": 96}


@dataclass(frozen=True)
class Declined:
    """There is no faster form of a module that agrees with it.

    Args:
        reason: Why.
        disagrees: Whether there is one that gives other answers. Rounding alone changes them then, so other compilers,
            which round differently as well, cannot help.
    """

    reason: str
    disagrees: bool = False


@torch.inference_mode(False)  # inference tensors could only be used in inference mode
@torch.no_grad()
def accelerate(
    module: Callable[[Tensor], Tensor],
    plain: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None] = say_nothing,
    clock: SetupClock | None = None,
    *,
    draw: Draw | None = None,
) -> StageClassifier | nn.Module | Declined:
    """The fastest form of a module that gives the same answers to noisy inputs as the plain one.

    Args:
        module: The module with its original weights.
        plain: The same module on the device and in the number format of the run.
        shape: The shape of one input.
        runtime: Device and number format.
        say: Takes messages about what happens.
        clock: Takes the seconds of each step.
        draw: The noise of the run, if it is known, so that its kernel is compiled with the others.

    Returns:
        The whole classifier as kernels, where that is possible, which needs no CUDA graph; else a faster module.
    """
    if not isinstance(module, nn.Module):
        return Declined("it is a function")
    clock = clock or SetupClock()
    try:
        say("tracing the classifier")
        with clock.step("trace"):
            traced = trace(copied(module).cpu(), shape).requires_grad_(False)
        with clock.step("check"):
            noisy = noisy_images(shape, runtime, _COMPARED_ROWS[runtime.torch_device.type])
            reference = Reference(plain, in_finer_format(module, runtime), noisy)
        try:
            with clock.step("trace"):
                network = match(traced, shape)
            say("compiling kernels")
            with clock.step("compile"):
                stages = StageClassifier(
                    network, runtime.torch_dtype, runtime.torch_device, draw=draw
                )
            with clock.step("check"):
                reference.check(stages.logits)
            return stages
        except Exception as error:  # networks of any kind
            log.info("no stage kernels for this classifier: %s", first_line(error))
        with clock.step("compile"):
            fused = _fuse(traced, shape, runtime)
        with clock.step("check"):
            reference.check(fused)
        return fused
    except InvalidInput:
        raise
    except Exception as error:  # networks of any kind come here
        return Declined(first_line(error), disagrees=isinstance(error, OtherAnswers))


def _fuse(traced: fx.GraphModule, shape: tuple[int, ...], runtime: Runtime) -> nn.Module:
    """A traced module on its device, with fused operations where the device has them."""
    device = runtime.torch_device
    if runtime.torch_dtype in FUSED_DTYPES and runs_kernels(device):
        affine = input_affine(traced, shape)
        example = blank(shape, replace(runtime, dtype="float32"), 2)
        layout = runtime.memory_format(shape)
        exact = traced.to(device, example.dtype)  # the weights may be in a reduced format
        Fusion(exact.to(memory_format=layout), example, affine).run()  # type: ignore[call-overload]
    module = traced.to(device, runtime.torch_dtype)
    return module.to(memory_format=runtime.memory_format(shape))  # type: ignore[no-any-return, call-overload]
