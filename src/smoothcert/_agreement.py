"""Do two classifiers agree? All comparisons of outputs are here, with one table of what may differ.

Functions from a batch to logits or labels get the same rows. Their outputs are compared as labels
(`differing_labels`), number by number (`repeats`), or as two approximations of a finer number format (`Reference`).
`table` and `report` compare recorded answers, and they work without torch, so it is not imported at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor

Outputs: TypeAlias = "Callable[[Tensor], Tensor]"
"""From a batch to logits, labels or, for a denoiser, estimates."""
Answer: TypeAlias = tuple[int, float]
"""The label that a model gives to an input, and its margin over the next label."""


@dataclass(frozen=True)
class Tolerance:
    """How far two outputs may differ.

    Args:
        labels: The share of rows that may get another label.
        numbers: The largest difference of numbers, as a share of the largest one; in a `Reference`, the largest error,
            as a share of how much logits vary between rows.
        factor: In a `Reference`, an error that is this many times the error of the plain classifier is also allowed.
    """

    labels: float = 0.0
    numbers: float = 0.0
    factor: float = 0.0


# A reduced number format against float32.
REDUCED_FORMAT = Tolerance(labels=0.02)
# The fast path or a compiled form against the plain module. In TF32, two orders of the same sums may differ by 5e-3.
OTHER_FORM = Tolerance(labels=0.02, numbers=5e-3, factor=1.5)
# The same far from [0, 1]. Networks are not made for such values, and rounding errors are larger there. Where a form
# returns labels only, there is nothing but labels to compare.
FAR_FORM = Tolerance(labels=0.25, numbers=0.1, factor=3.0)
FAR_LABELS = Tolerance(labels=0.05)
# A CUDA graph against the calls that it was captured from: the kernels are the same.
CUDA_GRAPH = Tolerance()
# The same batch once more. The kernels are the same, so nothing but the last bits may differ.
SAME_BATCH, SAME_BATCH_ROUNDINGS = Tolerance(numbers=1e-3), 4
# The same rows in another order, in float32 or float64, and in a reduced format.
OTHER_ORDER, OTHER_ORDER_REDUCED = Tolerance(numbers=0.01), Tolerance(numbers=0.05)
# The same rows among others, or in a smaller batch, which may use other kernels.
OTHER_NEIGHBOURS = Tolerance(numbers=0.05)
# A row alone against the same row in a full batch: the largest change of kernels that there is.
ALONE, ALONE_REDUCED = Tolerance(numbers=0.05), Tolerance(numbers=0.25)
# The estimates of a denoiser for the same input, at the same place in a batch of the same shape.
DENOISER, DENOISER_ROUNDINGS = Tolerance(numbers=5e-4), 0.5
# Recorded answers against those of another day: other GPUs and numbers of threads round differently.
RECORDED = Tolerance(labels=0.05, numbers=0.02)

# A form that lost a part of the network may differ only far from [0, 1].
_FAR_SCALES = (16.0, 256.0, 4096.0)
_FAR_SHARE = 8  # one row in this many has each of these scales
_ALONE_ROWS = 8
_LEAST_VARIATION = 1e-3  # of logits, relative to their size; they may be saturated


class OtherAnswers(Exception):
    """Another form of a classifier gives other answers; the message says which."""


def differing_labels(found: Tensor, expected: Tensor) -> float:
    """The share of rows with another label."""
    return float((_labels(found) != _labels(expected)).float().mean())


class Reference:
    """The outputs of the plain classifier for noisy rows, to compare other forms with.

    Both are measured against a finer number format, because both only approximate the network.

    Args:
        plain: The classifier as it would run.
        finer: The same classifier in a finer number format.
        x: Noisy rows. Some of them are scaled, so that they lie far from [0, 1].

    Raises:
        OtherAnswers: The classifier gives the same label to all inputs, so a comparison proves nothing.
    """

    def __init__(self, plain: Outputs, finer: Outputs, x: Tensor) -> None:
        self.x = x
        part = len(x) // _FAR_SHARE
        self.far = [slice(number * part, (number + 1) * part) for number in range(len(_FAR_SCALES))]
        self.usual = slice(len(_FAR_SCALES) * part, None)
        for rows, scale in zip(self.far, _FAR_SCALES, strict=True):
            self.x[rows] *= scale
        self.plain, self.exact = plain(_copy(self.x)), finer(self.x)
        if self.exact.ndim == 1 and bool((self.exact == self.exact[0]).all()):
            raise OtherAnswers("it gives all inputs of the comparison the same label")

    def check(self, outputs: Outputs) -> None:
        """Raise `OtherAnswers` if these outputs are worse than those of the plain classifier."""
        found = outputs(_copy(self.x))
        if found.shape != self.exact.shape:
            raise OtherAnswers("this form returns another shape")
        _check_no_worse(
            found[self.usual], self.plain[self.usual], self.exact[self.usual], OTHER_FORM
        )
        for rows in self.far:
            if (
                self.plain[rows].isfinite().all()
            ):  # otherwise the format is too small for this scale
                far = FAR_FORM if found.is_floating_point() else FAR_LABELS
                _check_no_worse(found[rows], self.plain[rows], self.exact[rows], far)


def check_labels_of_form(form: Outputs, plain: Outputs, finer: Outputs, x: Tensor) -> None:
    """Raise `OtherAnswers` if a form gives other labels to noisy rows than rounding explains.

    The finer format is used only if labels differ.
    """
    found, expected = form(_copy(x)), plain(_copy(x))
    if differing_labels(found, expected) > OTHER_FORM.labels:
        _check_no_worse(found, expected, finer(x), OTHER_FORM)


class RepeatedBatch(NamedTuple):
    """A batch that contains rows of an earlier one: they must get the same answers again."""

    batch: Tensor
    rows: Sequence[int]
    """Rows of this batch ..."""
    before: Sequence[int]
    """... and where the same rows were in the first batch."""
    tolerance: float
    may_fail: bool = False
    """Whether the batch has another size, which some models do not take."""


def repeats(
    outputs: Outputs, first: Tensor, again: Iterable[RepeatedBatch], scale: float | None = None
) -> bool:
    """Whether rows get the same answers in other batches as in the first one, whose outputs are given."""
    scale = largest(first) if scale is None else scale
    for other in again:
        try:
            found = outputs(other.batch)
        except InvalidInput:
            if other.may_fail:
                continue
            raise
        if other.may_fail and found.shape != (len(other.batch), *first.shape[1:]):
            continue
        if not _close(first[list(other.before)], found[list(other.rows)], other.tolerance, scale):
            return False
    return True


def with_other_neighbours(x: Tensor, *, logits: bool) -> Iterator[RepeatedBatch]:
    """Batches in which the answers of a classifier for rows of `x` must stay the same.

    The first one detects dropout, the second one random numbers that are the same in every call but not in every row,
    and the others batch statistics. Labels may change in a tie, so other kernels are only tried with logits.
    """
    import torch

    all_rows, half = range(len(x)), range(len(x) // 2)
    yield RepeatedBatch(
        x,
        all_rows,
        all_rows,
        max(SAME_BATCH.numbers, SAME_BATCH_ROUNDINGS * torch.finfo(x.dtype).eps),
    )
    if logits:
        order = OTHER_ORDER if x.dtype.itemsize >= 4 else OTHER_ORDER_REDUCED
        yield RepeatedBatch(x.flip(0), all_rows[::-1], all_rows, order.numbers)
    # Half of the rows may be enough to keep the median or a quantile of the batch, so we also keep a single row only.
    for kept in (half, all_rows[-1:]):
        for others in (x / 4, -4 * x, 4 * x + 1):
            others[list(kept)] = x[list(kept)]
            yield RepeatedBatch(others, kept, kept, OTHER_NEIGHBOURS.numbers)
    if logits:
        yield RepeatedBatch(x[: len(half)], half, half, OTHER_NEIGHBOURS.numbers, may_fail=True)


def in_full_batch(outputs: Outputs, few: Tensor, rows: int) -> bool:
    """Whether rows get the same answers everywhere in a full batch, and alone.

    The batch repeats a few rows. So it shows whether an answer depends on the number of its row, on how many rows are
    alike, or on the other rows at all.
    """
    import torch

    kept = torch.arange(rows) % len(few)
    batch = few[kept.to(few.device)]
    first = outputs(batch).clone()
    reduced = few.dtype.itemsize < 4
    order, alone = (OTHER_ORDER_REDUCED, ALONE_REDUCED) if reduced else (OTHER_ORDER, ALONE)
    if not repeats(
        lambda same: first, first, [RepeatedBatch(batch, range(rows), kept.tolist(), order.numbers)]
    ):
        return False
    different = min(rows, len(few))
    chosen = {round(i * (different - 1) / (_ALONE_ROWS - 1)) for i in range(_ALONE_ROWS)}
    last = {
        int(i): number for number, i in enumerate(kept)
    }  # the last place of each row in the batch
    # Copies, because some classifiers change their inputs.
    singles = (
        RepeatedBatch(few[i : i + 1].clone(), [0], [last[i]], alone.numbers, may_fail=True)
        for i in sorted(chosen)
    )
    # As in a run, the same memory gets other rows. A classifier that remembers batches by their address fails here.
    batch.copy_(few[kept.flip(0).to(few.device)])
    return repeats(
        outputs,
        first,
        [RepeatedBatch(batch, range(rows), range(rows)[::-1], order.numbers), *singles],
    )


def largest(x: Tensor) -> float:
    """The largest finite number in a tensor by its size; 0 for labels."""
    return float(x.nan_to_num(0, 0, 0).abs().max()) if x.is_floating_point() else 0.0


def same_answers(there: Sequence[Answer] | None, now: Sequence[Answer] | None) -> bool:
    """Whether the labels and margins of a model are the same up to rounding; True if there are no answers to compare.

    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 1.001), (4, 0.001)])
    True
    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 0.9), (5, 0.001)])
    False
    """
    if there is None or now is None:
        return True
    rounding = RECORDED.numbers * max((margin for _, margin in [*there, *now]), default=0)
    others = [
        label
        for (label, margin), (label_now, margin_now) in zip(there, now, strict=False)
        if abs(margin - margin_now) > rounding
        or (label != label_now and max(margin, margin_now) > rounding)
    ]
    return len(there) == len(now) and len(others) <= RECORDED.labels * len(there)


def same_votes(there: Mapping[int, int], now: Mapping[int, int]) -> bool:
    """Whether the votes of the same samples are the same up to rounding, which can decide a few of them.

    >>> same_votes({3: 90, 5: 10}, {3: 91, 5: 9}), same_votes({3: 90, 5: 10}, {3: 80, 5: 20})
    (True, False)
    """
    changed = sum(abs(there.get(c, 0) - now.get(c, 0)) for c in {*there, *now}) / 2
    return changed <= 1 + RECORDED.labels * sum(there.values())


def _check_no_worse(found: Tensor, plain: Tensor, exact: Tensor, tolerance: Tolerance) -> None:
    """Raise `OtherAnswers` if too many labels differ, or if the errors of logits are too large.

    Rows that are too large for the number format of the run are left out.
    """
    kept = plain.reshape(len(plain), -1).isfinite().all(1)
    if not kept.any():
        raise OtherAnswers("its outputs are not finite numbers")
    found, plain, exact = (values[kept] for values in (found, plain, exact))
    more_labels = tolerance.labels + 1 / len(found)  # a label may change in a tie
    if (differing := differing_labels(found, exact)) > differing_labels(plain, exact) + more_labels:
        raise OtherAnswers(f"this form gives other labels for {differing:.1%} of noisy inputs")
    if found.is_floating_point():
        allowed = max(tolerance.factor * _error(plain, exact), tolerance.numbers)
        if not (error := _error(found, exact)) <= allowed:
            raise OtherAnswers(
                f"this form has a relative error of {error:.1e}, more than {allowed:.1e}"
            )


def _error(outputs: Tensor, exact: Tensor) -> float:
    """The error relative to how much the logits vary between inputs, or to their size where they hardly vary."""
    outputs, exact = (values.cpu().double() for values in (outputs, exact))
    reference = (exact - exact.mean(0)).norm().maximum(_LEAST_VARIATION * exact.norm())
    return float((outputs - exact).norm() / reference.clamp(min=1e-30))


def _close(first: Tensor, again: Tensor, tolerance: float, scale: float) -> bool:
    """Whether two outputs are equal up to rounding, which depends on the kernels that the library chooses."""
    if first.shape != again.shape:
        return False
    if not first.is_floating_point():
        return first.equal(again)
    return first.float().allclose(
        again.float(), rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )


def _labels(outputs: Tensor) -> Tensor:
    return outputs if outputs.ndim == 1 else outputs.argmax(1)


def _copy(x: Tensor) -> Tensor:
    """A copy for one call: some classifiers change their inputs."""
    import torch

    with torch.inference_mode(
        False
    ):  # torch would compile a classifier again for inference tensors
        return x.clone()
