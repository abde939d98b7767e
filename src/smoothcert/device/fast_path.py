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

from smoothcert.device.in_place import Untraceable
from smoothcert.device.layers.convolution import FUSED_DTYPES
from smoothcert.device.layers.graph import Fusion, input_affine
from smoothcert.device.resnet.classifier import StageClassifier
from smoothcert.device.resnet.match import match
from smoothcert.device.runtime import Compile, Runtime, blank
from smoothcert.device.setup_clock import SetupClock
from smoothcert.device.tracing import trace
from smoothcert.errors import first_line
from smoothcert.noises import Draw

log = logging.getLogger(__name__)

_COMPARED_ROWS = {"cuda": 512, "cpu": 64, "mps": 64}
_ROWS_AT_A_TIME = 64
_DEVIATION = 0.5  # of the noise in the comparison
_MORE_DIFFERING_LABELS = 0.02
_MORE_ERROR = 1.5
_ROUNDING = 5e-3  # relative; two orders of the same sums may differ by this in TF32
# A graph that lost a part of the network may differ only far from [0, 1]. There, networks are used to nothing and
# rounding errors are larger, so differences must be large to tell.
_OTHER_SCALES = (16.0, 256.0, 4096.0)
_MUCH_ERROR, _MUCH_ROUNDING = 3.0, 0.1
_HARDLY = 1e-3  # of their size; logits may be saturated
_MANY_DIFFERING_LABELS = {True: 0.25, False: 0.05}  # with logits to compare, and with labels alone


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
    except Exception as error:  # networks of any kind
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
    if runtime.torch_dtype in FUSED_DTYPES and _has_kernels(device):
        affine = input_affine(traced, shape)
        example = blank(shape, replace(runtime, dtype="float32"), 2)
        layout = runtime.memory_format(shape)
        Fusion(traced.to(device).to(memory_format=layout), example, affine).run()  # type: ignore[call-overload]
    module = traced.to(device, runtime.torch_dtype)
    return module.to(memory_format=runtime.memory_format(shape))  # type: ignore[no-any-return, call-overload]


def _has_kernels(device: torch.device) -> bool:
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)


class _Comparison:
    """Compares the outputs of a fast classifier with those of the plain one, both measured against a finer format."""

    def __init__(
        self, module: nn.Module, plain: Callable[[Tensor], Tensor], shape: tuple[int, ...], runtime: Runtime
    ) -> None:
        coarse = runtime.torch_dtype in (torch.bfloat16, torch.float16) or runtime.torch_device.type == "mps"
        finer = torch.float32 if coarse else torch.float64
        exact = copy.deepcopy(module).to(runtime.torch_device, finer)
        exact = exact.to(memory_format=runtime.memory_format(shape))  # type: ignore[call-overload]
        rows = _COMPARED_ROWS[runtime.torch_device.type]
        self.usual = _Compared(plain, exact, _noisy_batch(shape, runtime, rows), finer)
        self.others = [
            _Compared(plain, exact, scale * _noisy_batch(shape, runtime, rows // 4), finer) for scale in _OTHER_SCALES
        ]
        labels = torch.cat([compared.exact for compared in (self.usual, *self.others)])
        if labels.ndim == 1 and bool((labels == labels[0]).all()):
            raise NotFast("it gives all inputs of the comparison the same label")

    def check(self, outputs: Callable[[Tensor], Tensor]) -> None:
        """Raise NotFast if these outputs are worse than those of the plain classifier."""
        self.usual.check(outputs, _MORE_DIFFERING_LABELS, _MORE_ERROR, _ROUNDING)
        for compared in self.others:
            if not compared.kept.all():  # the format is too small for this scale, and fused sums overflow elsewhere
                continue
            more_labels = _MANY_DIFFERING_LABELS[compared.exact.is_floating_point()]
            compared.check(outputs, more_labels, _MUCH_ERROR, _MUCH_ROUNDING)


class _Compared:
    """Outputs for one batch. Rows that are too large for the number format of the run are left out.

    Args:
        plain: The classifier in the number format of the run.
        exact: The classifier in a finer one.
        x: The batch.
        finer: The finer number format.
    """

    def __init__(self, plain: Callable[[Tensor], Tensor], exact: nn.Module, x: Tensor, finer: torch.dtype) -> None:
        self.x = x
        self.plain = plain(x.clone())
        # Nobody needs all rows at once here, and a finer format needs more memory.
        parts = torch.split(x, _ROWS_AT_A_TIME)
        self.exact = torch.cat([exact(part.to(finer, copy=True)) for part in parts])
        self.kept = torch.isfinite(self.plain.reshape(len(x), -1)).all(1)

    def check(
        self, outputs: Callable[[Tensor], Tensor], more_labels: float, more_error: float, rounding: float
    ) -> None:
        """Raise NotFast if too many labels differ, or if the errors of logits are too large."""
        fast = outputs(self.x.clone())
        if fast.shape != self.exact.shape:
            raise NotFast("its fast form returns another shape")
        if not self.kept.any():
            raise NotFast("its outputs are not finite numbers")
        fast, plain, exact = (values[self.kept] for values in (fast, self.plain, self.exact))
        if (differing := _differing(fast, exact)) > _differing(plain, exact) + more_labels:
            raise NotFast(f"its fast form gives other labels for {differing:.1%} of noisy inputs")
        if fast.is_floating_point():
            allowed = max(more_error * _error(plain, exact), rounding)
            if not (error := _error(fast, exact)) <= allowed:
                raise NotFast(f"its fast form has a relative error of {error:.1e}, more than {allowed:.1e}")


def _noisy_batch(shape: tuple[int, ...], runtime: Runtime, rows: int) -> Tensor:
    x = blank(shape, runtime, rows)
    generator = torch.Generator().manual_seed(1)
    noise = _DEVIATION * torch.randn(x.shape, generator=generator)
    x += (torch.rand(x.shape, generator=generator) + noise).to(x)
    return x


def _labels(outputs: Tensor) -> Tensor:
    return outputs if outputs.ndim == 1 else outputs.argmax(1)


def _differing(outputs: Tensor, exact: Tensor) -> float:
    return float((_labels(outputs) != _labels(exact)).float().mean())


def _error(outputs: Tensor, exact: Tensor) -> float:
    """The error relative to how much the logits vary between inputs, or to their size where they hardly vary."""
    outputs, exact = (values.cpu().double() for values in (outputs, exact))
    reference = torch.maximum((exact - exact.mean(0)).norm(), _HARDLY * exact.norm())
    return float((outputs - exact).norm() / reference.clamp(min=1e-30))
