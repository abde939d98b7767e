"""Compare another form of a classifier with the plain one before a run: it must give the same answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from smoothcert.device.placement import place
from smoothcert.device.runtime import Runtime, blank

_COMPARED_ROWS = {"cuda": 512, "cpu": 96, "mps": 96}
_ROWS_AT_A_TIME = 64
_DEVIATION = 0.5  # of the noise in the comparison
_MORE_DIFFERING_LABELS = 0.02
_MORE_ERROR = 1.5  # times the error of the plain classifier
_ROUNDING = 5e-3  # relative; two orders of the same sums may differ by this in TF32
# A graph that lost a part of the network may differ only far from [0, 1]. Networks are not made for such values and
# rounding errors are larger there, so only large differences count.
_OTHER_SCALES = (16.0, 256.0, 4096.0)
_FAR_MORE_ERROR, _FAR_ROUNDING = 3.0, 0.1
_LEAST_VARIATION = 1e-3  # of logits, relative to their size; they may be saturated
_FAR_DIFFERING_LABELS = {True: 0.25, False: 0.05}  # with logits to compare, and with labels alone


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
        OtherAnswers: The module gives the same label to all inputs, so a comparison proves nothing.
    """

    def __init__(
        self, module: nn.Module, plain: Callable[[Tensor], Tensor], shape: tuple[int, ...], runtime: Runtime
    ) -> None:
        rows = _COMPARED_ROWS[runtime.torch_device.type]
        self.x = _noisy_batch(shape, runtime, rows)
        part = rows // 8
        self.others = [slice(number * part, (number + 1) * part) for number in range(len(_OTHER_SCALES))]
        self.usual = slice(len(_OTHER_SCALES) * part, None)
        for others, scale in zip(self.others, _OTHER_SCALES, strict=True):
            self.x[others] *= scale
        self.plain = plain(_copy(self.x))
        self.exact = _in_finer_format(module, self.x, runtime)
        if self.exact.ndim == 1 and bool((self.exact == self.exact[0]).all()):
            raise OtherAnswers("it gives all inputs of the comparison the same label")

    def check(self, outputs: Callable[[Tensor], Tensor]) -> None:
        """Raise `OtherAnswers` if these outputs are worse than those of the plain classifier."""
        found = outputs(_copy(self.x))
        if found.shape != self.exact.shape:
            raise OtherAnswers("this form returns another shape")
        _compare(found[self.usual], self.plain[self.usual], self.exact[self.usual])
        for rows in self.others:
            if not self.plain[rows].isfinite().all():  # the format is too small for this scale, so fused sums overflow
                continue
            more_labels = _FAR_DIFFERING_LABELS[found.is_floating_point()]
            _compare(found[rows], self.plain[rows], self.exact[rows], more_labels, _FAR_MORE_ERROR, _FAR_ROUNDING)


def check_labels(
    classify: Callable[[Tensor], Tensor], plain: nn.Module, shape: tuple[int, ...], runtime: Runtime
) -> None:
    """Raise `OtherAnswers` if another form of a classifier gives more other labels than rounding explains."""
    x = _noisy_batch(shape, runtime, runtime.batch)
    found, expected = classify(_copy(x)), plain(_copy(x))
    if _differing(found, expected) > _MORE_DIFFERING_LABELS:
        _compare(found, expected, _in_finer_format(plain, x, runtime))


def _in_finer_format(module: nn.Module, x: Tensor, runtime: Runtime) -> Tensor:
    """The outputs of a module in a finer number format than that of the run."""
    coarse = runtime.torch_dtype in (torch.bfloat16, torch.float16) or runtime.torch_device.type == "mps"
    runtime = replace(runtime, dtype="float32" if coarse else "float64")
    exact = place(module, runtime, tuple(x.shape[1:]))
    # In parts, because a finer format needs more memory.
    parts = torch.split(x, _ROWS_AT_A_TIME)
    return torch.cat([exact(part.to(runtime.torch_dtype, copy=True)) for part in parts])


def _compare(
    found: Tensor,
    plain: Tensor,
    exact: Tensor,
    more_labels: float = _MORE_DIFFERING_LABELS,
    more_error: float = _MORE_ERROR,
    rounding: float = _ROUNDING,
) -> None:
    """Raise `OtherAnswers` if too many labels differ, or if the errors of logits are too large.

    Rows that are too large for the number format of the run are left out.
    """
    kept = plain.reshape(len(plain), -1).isfinite().all(1)
    if not kept.any():
        raise OtherAnswers("its outputs are not finite numbers")
    found, plain, exact = (values[kept] for values in (found, plain, exact))
    more_labels += 1 / len(found)  # a label may change in a tie
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
    reference = torch.maximum((exact - exact.mean(0)).norm(), _LEAST_VARIATION * exact.norm())
    return float((outputs - exact).norm() / reference.clamp(min=1e-30))
