"""Compare another form of a classifier with the plain one before a run: it must give the same answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from smoothcert.device.placement import place
from smoothcert.device.runtime import Runtime, blank

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


class OtherAnswers(Exception):
    """Another form of a classifier gives other answers; the message says which."""


class Comparison:
    """Compares outputs with those of the plain classifier, both measured against a finer number format.

    Args:
        module: The module with its original weights.
        plain: The same module on the device and in the number format of the run.
        shape: The shape of one input.
        runtime: Device and number format.

    Raises:
        OtherAnswers: The answers of the module say nothing.
    """

    def __init__(
        self, module: nn.Module, plain: Callable[[Tensor], Tensor], shape: tuple[int, ...], runtime: Runtime
    ) -> None:
        exact = _Finer(module, shape, runtime)
        rows = _COMPARED_ROWS[runtime.torch_device.type]
        self.usual = _Compared(plain, exact, _noisy_batch(shape, runtime, rows))
        self.others = [
            _Compared(plain, exact, scale * _noisy_batch(shape, runtime, rows // 4)) for scale in _OTHER_SCALES
        ]
        labels = torch.cat([compared.exact for compared in (self.usual, *self.others)])
        if labels.ndim == 1 and bool((labels == labels[0]).all()):
            raise OtherAnswers("it gives all inputs of the comparison the same label")

    def check(self, outputs: Callable[[Tensor], Tensor]) -> None:
        """Raise `OtherAnswers` if these outputs are worse than those of the plain classifier.

        Args:
            outputs: From a batch of any size to what the module returns for it.
        """
        self.usual.check(outputs, _MORE_DIFFERING_LABELS, _MORE_ERROR, _ROUNDING)
        for compared in self.others:
            if not compared.kept.all():  # the format is too small for this scale, and fused sums overflow elsewhere
                continue
            more_labels = _MANY_DIFFERING_LABELS[compared.exact.is_floating_point()]
            compared.check(outputs, more_labels, _MUCH_ERROR, _MUCH_ROUNDING)


def check_labels(
    classify: Callable[[Tensor], Tensor], plain: nn.Module, shape: tuple[int, ...], runtime: Runtime
) -> None:
    """Raise `OtherAnswers` if another form of a classifier gives more other labels than rounding explains.

    Args:
        classify: The other form, from a batch of exactly the runtime's size to labels.
        plain: The classifier on the device and in the number format of the run.
        shape: The shape of one input.
        runtime: Device, number format and batch size.
    """
    x = _noisy_batch(shape, runtime, runtime.batch)
    if _differing(classify(_copy(x)), plain(_copy(x))) > _MORE_DIFFERING_LABELS:
        compared = _Compared(plain, _Finer(plain, shape, runtime), x)
        compared.check(classify, _MORE_DIFFERING_LABELS, _MORE_ERROR, _ROUNDING)


class _Finer:
    """A copy of a module in a finer number format than that of the run."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...], runtime: Runtime) -> None:
        coarse = runtime.torch_dtype in (torch.bfloat16, torch.float16) or runtime.torch_device.type == "mps"
        runtime = replace(runtime, dtype="float32" if coarse else "float64")
        self.dtype, self.module = runtime.torch_dtype, place(module, runtime, shape)

    def __call__(self, x: Tensor) -> Tensor:
        # Nobody needs all rows at once here, and a finer format needs more memory.
        parts = torch.split(x, _ROWS_AT_A_TIME)
        return torch.cat([self.module(part.to(self.dtype, copy=True)) for part in parts])


class _Compared:
    """Outputs for one batch. Rows that are too large for the number format of the run are left out.

    Args:
        plain: The classifier in the number format of the run.
        exact: The classifier in a finer one.
        x: The batch.
    """

    def __init__(self, plain: Callable[[Tensor], Tensor], exact: _Finer, x: Tensor) -> None:
        self.x = x
        self.plain = plain(_copy(x))
        self.exact = exact(x)
        self.kept = torch.isfinite(self.plain.reshape(len(x), -1)).all(1)

    def check(
        self, outputs: Callable[[Tensor], Tensor], more_labels: float, more_error: float, rounding: float
    ) -> None:
        """Raise `OtherAnswers` if too many labels differ, or if the errors of logits are too large."""
        found = outputs(_copy(self.x))
        if found.shape != self.exact.shape:
            raise OtherAnswers("this form returns another shape")
        if not self.kept.any():
            raise OtherAnswers("its outputs are not finite numbers")
        found, plain, exact = (values[self.kept] for values in (found, self.plain, self.exact))
        if (differing := _differing(found, exact)) > _differing(plain, exact) + more_labels:
            raise OtherAnswers(f"this form gives other labels for {differing:.1%} of noisy inputs")
        if found.is_floating_point():
            allowed = max(more_error * _error(plain, exact), rounding)
            if not (error := _error(found, exact)) <= allowed:
                raise OtherAnswers(f"this form has a relative error of {error:.1e}, more than {allowed:.1e}")


def _noisy_batch(shape: tuple[int, ...], runtime: Runtime, rows: int) -> Tensor:
    x = blank(shape, runtime, rows)
    generator = torch.Generator().manual_seed(1)
    noise = _DEVIATION * torch.randn(x.shape, generator=generator)
    x += (torch.rand(x.shape, generator=generator) + noise).to(x)
    return x


@torch.inference_mode(False)  # for the same reason as `blank`
def _copy(x: Tensor) -> Tensor:
    """A copy for one call: some classifiers change their inputs."""
    return x.clone()


def _labels(outputs: Tensor) -> Tensor:
    return outputs if outputs.ndim == 1 else outputs.argmax(1)


def _differing(outputs: Tensor, exact: Tensor) -> float:
    return float((_labels(outputs) != _labels(exact)).float().mean())


def _error(outputs: Tensor, exact: Tensor) -> float:
    """The error relative to how much the logits vary between inputs, or to their size where they hardly vary."""
    outputs, exact = (values.cpu().double() for values in (outputs, exact))
    reference = torch.maximum((exact - exact.mean(0)).norm(), _HARDLY * exact.norm())
    return float((outputs - exact).norm() / reference.clamp(min=1e-30))
