"""The fast path: a classifier as fused operations, without torch's compiler.

Tracing a network and folding its batch normalisation takes a second, where the compiler takes half a minute. A CIFAR
ResNet then runs with one kernel per stage (`resnet`), and everything else with fused operations (`layers`).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from smoothcert.device.layers.convolution import FUSED_DTYPES
from smoothcert.device.layers.graph import Fusion, input_affine
from smoothcert.device.nvrtc import CudaError
from smoothcert.device.probing import Unexpected
from smoothcert.device.resnet.classifier import StageClassifier
from smoothcert.device.resnet.match import match
from smoothcert.device.runtime import Compile, Runtime, blank
from smoothcert.device.setup_clock import SetupClock
from smoothcert.device.tracing import Untraceable, trace
from smoothcert.errors import first_line
from smoothcert.noises import Draw

log = logging.getLogger(__name__)

_COMPARED_ROWS = {"cuda": 512, "cpu": 64, "mps": 64}
_DEVIATION = 0.5  # of the noise in the comparison
_MORE_DIFFERING_LABELS = 0.02
_MORE_ERROR = 1.5
_ROUNDING = 5e-3  # relative; two orders of the same sums may differ by this in TF32


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

    Args:
        module: The module with its original weights. It stays unchanged.
        plain: The same module on the device and in the number format of the run.
        shape: The shape of one input.
        runtime: How to run it. With `compile="stages"` or "fast", stage kernels are tried first.
        say: Receives a short message before each step that takes long.
        clock: Measures the steps "trace", "compile" and "check".
        draw: The noise of the run, if it is known; see `StageClassifier`.

    Raises:
        NotFast: The module cannot be traced, or the fast form gives other answers.
    """
    clock = clock or SetupClock()
    say("tracing the classifier")
    try:
        with clock.step("trace"):
            traced = trace(copy.deepcopy(module).cpu(), shape).requires_grad_(False)
    except Untraceable as error:
        raise NotFast(f"it cannot be traced: {first_line(error)}") from None
    with clock.step("check"):
        compare = _Comparison(module, plain, shape, runtime)
    try:
        with clock.step("trace"):
            network = match(traced, shape)
        say("compiling kernels")
        with clock.step("compile"):
            stages = StageClassifier(network, runtime.torch_dtype, runtime.torch_device, draw=draw)
        with clock.step("check"):
            compare.check(stages.logits)
        return FastClassifier("stages", stages.logits, stages)
    except (Unexpected, CudaError, NotFast, AttributeError, OSError) as error:
        log.info("no stage kernels for this classifier: %s", first_line(error))
    with clock.step("compile"):
        fused = fuse(traced, shape, runtime)
    with clock.step("check"):
        compare.check(fused)
    return FastClassifier("fast", fused)


@torch.no_grad()
def fuse(traced: fx.GraphModule, shape: tuple[int, ...], runtime: Runtime) -> nn.Module:
    """A traced module on its device, with fused operations where the device has them.

    Args:
        traced: A graph from `trace`, on the CPU. It is changed.
        shape: The shape of one input.
        runtime: Device and number format.
    """
    device = runtime.torch_device
    if device.type == "cuda" and runtime.torch_dtype in FUSED_DTYPES and not torch.version.hip:
        affine = input_affine(traced, shape)
        example = blank(shape, replace(runtime, dtype="float32"), 2)
        layout = runtime.memory_format(shape)
        Fusion(traced.to(device).to(memory_format=layout), example, affine).run()  # type: ignore[call-overload]
    module = traced.to(device, runtime.torch_dtype)
    return module.to(memory_format=runtime.memory_format(shape))  # type: ignore[no-any-return, call-overload]


class _Comparison:
    """Compares the outputs of a fast classifier with those of the plain one, both measured against a finer format."""

    def __init__(
        self, module: nn.Module, plain: Callable[[Tensor], Tensor], shape: tuple[int, ...], runtime: Runtime
    ) -> None:
        self.x = blank(shape, runtime, _COMPARED_ROWS[runtime.torch_device.type])
        generator = torch.Generator().manual_seed(1)
        noise = _DEVIATION * torch.randn(self.x.shape, generator=generator)
        self.x += (torch.rand(self.x.shape, generator=generator) + noise).to(self.x)
        coarse = runtime.torch_dtype in (torch.bfloat16, torch.float16) or runtime.torch_device.type == "mps"
        finer = torch.float32 if coarse else torch.float64
        exact = copy.deepcopy(module).to(runtime.torch_device, finer)
        exact = exact.to(memory_format=runtime.memory_format(shape))  # type: ignore[call-overload]
        self.exact = exact(self.x.to(finer))
        self.plain = plain(self.x)

    def check(self, outputs: Callable[[Tensor], Tensor]) -> None:
        """Raise NotFast if these outputs are worse than those of the plain classifier."""
        fast = outputs(self.x)
        if fast.shape != self.exact.shape:
            raise NotFast("its fast form returns another shape")
        limit = _differing(self.plain, self.exact) + _MORE_DIFFERING_LABELS
        if (differing := _differing(fast, self.exact)) > limit:
            raise NotFast(f"its fast form gives other labels for {differing:.1%} of noisy inputs")
        if fast.is_floating_point():
            allowed = max(_MORE_ERROR * _error(self.plain, self.exact), _ROUNDING)
            if not (error := _error(fast, self.exact)) <= allowed:
                raise NotFast(f"its fast form has a relative error of {error:.1e}, more than {allowed:.1e}")


def _differing(outputs: Tensor, exact: Tensor) -> float:
    labels = [output if output.ndim == 1 else output.argmax(1) for output in (outputs, exact)]
    return float((labels[0] != labels[1]).float().mean())


def _error(outputs: Tensor, exact: Tensor) -> float:
    """The error relative to how much the logits vary between inputs."""
    reference = exact.double() - exact.double().mean(0)
    return float((outputs.double() - exact.double()).norm() / reference.norm().clamp(min=1e-30))
