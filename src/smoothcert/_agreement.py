"""Do two classifiers agree? All comparisons of outputs are here, with what may differ.

What counts is the label, so answers are compared from the top (`changes`): how far each class is
behind the winner, measured by the margins between the two leading classes. Numbers that decide
nothing, such as the logit of a masked class or a constant in all logits, are no measure of
rounding: tolerances that grow with them would hide that labels depend on chance or on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from smoothcert.errors import InvalidInput

Outputs: TypeAlias = Callable[[Tensor], Tensor]
"""From a batch to logits or labels."""


@dataclass(frozen=True)
class Tolerance:
    """How much worse another form of a classifier may be than the plain one.

    Args:
        labels: The share of rows that may get another label.
        change: The largest change of an answer (see `changes`), as the root mean square of rows.
        factor: A change that is this many times that of the plain classifier is also allowed.
    """

    labels: float
    change: float = 0.0
    factor: float = 0.0


class Rounding(NamedTuple):
    """How much the answer for a row may change in another batch."""

    least: float
    """In float32 and float64. GPUs may compute in TF32, which has as many digits as float16."""
    roundings: int
    """In a reduced format, in units of its precision, if that is more."""

    def in_format(self, dtype: torch.dtype) -> float:
        """The largest change in a number format; see `changes`."""
        return max(self.least, self.roundings * torch.finfo(dtype).eps)


# The fast path, a compiled form or a reduced number format. In TF32, two orders of the same sums
# may differ by this change.
OTHER_FORM = Tolerance(labels=0.02, change=0.01, factor=1.5)
# The same far from [0, 1]. Networks are not made for such values, and rounding errors are larger
# there. Where a form returns labels only, there is nothing but labels to compare.
FAR_FORM = Tolerance(labels=0.25, change=0.2, factor=3.0)
FAR_LABELS = Tolerance(labels=0.05)
# The same batch once more: nothing but the last bits may differ.
SAME_BATCH = Rounding(5e-4, 4)
# The same rows among others: the kernels are the same.
OTHER_ROWS = Rounding(0.01, 32)
# The same rows in a batch of another size, which may use other kernels.
OTHER_SIZE = Rounding(0.06, 64)

# A form that lost a part of the network may differ only far from [0, 1].
_FAR_SCALES = (16.0, 256.0, 4096.0)
_FAR_SHARE = 8  # one row in this many has each of these scales
_ALONE_ROWS = 8
_ROWS_AT_A_TIME = 64


class OtherAnswers(Exception):
    """Another form of a classifier gives other answers; the message says which."""


def differing_labels(actual: Tensor, expected: Tensor) -> float:
    """The share of rows with another label."""
    return float((_labels(actual) != _labels(expected)).float().mean())


class Reference:
    """The outputs of the plain classifier for noisy rows, to compare other forms with.

    Both are measured against a finer number format, because both only approximate the network.

    Args:
        plain: The classifier as it would run.
        finer: The same classifier in a finer number format.
        x: Noisy rows. Some of them are scaled, so that they lie far from [0, 1].

    Raises:
        OtherAnswers: The classifier gives the same label to all inputs, so a comparison proves
            nothing.
    """

    def __init__(self, plain: Outputs, finer: Outputs, x: Tensor) -> None:
        self.x = x
        part = len(x) // _FAR_SHARE
        self.far = [slice(number * part, (number + 1) * part) for number in range(len(_FAR_SCALES))]
        self.usual = slice(len(_FAR_SCALES) * part, None)
        for rows, scale in zip(self.far, _FAR_SCALES, strict=True):
            self.x[rows] *= scale
        self.plain = _in_parts(plain, self.x)
        self.exact = finer(self.x)
        if self.exact.ndim == 1 and bool((self.exact == self.exact[0]).all()):
            raise OtherAnswers("it gives all inputs of the comparison the same label")

    def check(self, outputs: Outputs) -> None:
        """Raise `OtherAnswers` if these outputs are worse than those of the plain classifier."""
        actual = _in_parts(outputs, self.x)
        if actual.shape != self.exact.shape:
            raise OtherAnswers("this form returns another shape")
        _check_no_worse(
            actual[self.usual], self.plain[self.usual], self.exact[self.usual], OTHER_FORM
        )
        for rows in self.far:
            # Without a winner, the number format is too small for this scale.
            if bool(_winners(self.plain[rows]).all()):
                far = FAR_FORM if actual.is_floating_point() else FAR_LABELS
                _check_no_worse(actual[rows], self.plain[rows], self.exact[rows], far)


def _in_parts(outputs: Outputs, x: Tensor) -> Tensor:
    """The outputs for a few rows at a time, because large networks need much memory for a row."""
    return torch.cat([outputs(part) for part in torch.split(_copy(x), _ROWS_AT_A_TIME)])


def check_labels_of_form(form: Outputs, plain: Outputs, finer: Outputs, x: Tensor) -> None:
    """Raise `OtherAnswers` if a form gives other labels to noisy rows than rounding explains.

    The finer format is used only if labels differ.
    """
    actual = form(_copy(x))
    expected = plain(_copy(x))
    if differing_labels(actual, expected) > OTHER_FORM.labels:
        _check_no_worse(actual, expected, finer(x), OTHER_FORM)


class RepeatedBatch(NamedTuple):
    """A batch that contains rows of an earlier one: they must get the same answers again."""

    batch: Tensor
    rows: Sequence[int]
    """Rows of this batch ..."""
    before: Sequence[int]
    """... and where the same rows were in the first batch."""
    rounding: Rounding

    @property
    def may_fail(self) -> bool:
        """Whether the batch has another size, which some models do not take."""
        return self.rounding == OTHER_SIZE


def repeats(outputs: Outputs, first: Tensor, again: Iterable[RepeatedBatch]) -> bool:
    """Whether rows get the same answers as in the first batch, whose outputs are given.

    Labels may change only in a tie, and ties are rare.
    """
    margin = typical_margin(first)
    for other in again:
        try:
            actual = outputs(other.batch)
        except InvalidInput:
            if other.may_fail:
                continue
            raise
        if actual.shape != (len(other.batch), *first.shape[1:]):
            if other.may_fail:
                continue
            return False
        expected = first[list(other.before)]
        actual = actual[list(other.rows)]
        tolerance = other.rounding.in_format(other.batch.dtype)
        if not _same(actual, expected, tolerance, margin):
            return False
    return True


def _same(actual: Tensor, expected: Tensor, tolerance: float, margin: float) -> bool:
    """Whether labels are equal, or logits up to a change; labels of logits may differ in a tie."""
    if not expected.is_floating_point():
        return actual.equal(expected)
    most_ties = max(1.0, tolerance * len(actual))
    if differing_labels(actual, expected) * len(actual) > most_ties:
        return False
    return bool((changes(actual, expected, margin) <= tolerance).all())


def typical_margin(logits: Tensor) -> float:
    """The median margin between the two leading classes; 0 for labels.

    Many networks have a few rows in which only one class is possible: the others are masked. The
    median does not see them.
    """
    if logits.ndim != 2 or not logits.is_floating_point():
        return 0.0
    leading = logits.detach().cpu().double().topk(min(2, logits.shape[1])).values
    margins = leading[:, 0] - leading[:, -1]
    finite = margins[margins.isfinite()]
    return float(finite.median()) if len(finite) else 0.0


def changes(actual: Tensor, expected: Tensor, margin: float | None = None) -> Tensor:
    """How much the answer of each row has changed: 0 if not at all.

    Let d be how far a class is behind the one that wins in `expected`. Its change is |d' - d|, as a
    share of d plus the typical margin m between the two leading classes, plus one rounding of the
    winning logit. So a class that is far behind may change by more, since that cannot make it win,
    but its logit does not change what is allowed for others. A common shift of all logits counts
    as a class whose logit is always 0.

    A change of c can only alter the label of a row whose margin is at most about c m.

    Args:
        actual: Logits of shape (rows, classes).
        expected: Other logits for the same rows.
        margin: The typical margin m; None takes that of `expected`.
    """
    if margin is None:
        margin = typical_margin(expected)
    rounding = torch.finfo(expected.dtype).eps
    actual, expected = (
        torch.nn.functional.pad(logits.detach().cpu().double(), (0, 1))
        for logits in (actual, expected)
    )
    both_win = _winners(actual[:, :-1]) & _winners(expected[:, :-1])
    neither_wins = ~_winners(actual[:, :-1]) & ~_winners(expected[:, :-1])
    winner = expected[:, :-1].argmax(1, keepdim=True)
    before = expected.gather(1, winner) - expected
    after = actual.gather(1, winner) - actual
    scale = margin + rounding * expected.gather(1, winner).abs()
    change = (after - before).abs() / (scale + torch.minimum(before.abs(), after.abs()))
    change = torch.where(after == before, 0.0, change).nan_to_num(torch.inf).amax(1)
    return torch.where(both_win, change, torch.where(neither_wins, 0.0, torch.inf))


def with_other_neighbours(x: Tensor, *, logits: bool) -> Iterator[RepeatedBatch]:
    """Batches in which the answers of a classifier for rows of `x` must stay the same.

    The first one detects dropout, the second one random numbers that are the same in every call but
    not in every row, and the others batch statistics. Labels may change in a tie, so other kernels
    are only tried with logits.
    """
    all_rows = range(len(x))
    half = range(len(x) // 2)
    yield RepeatedBatch(x, all_rows, all_rows, SAME_BATCH)
    if logits:
        yield RepeatedBatch(x.flip(0), all_rows[::-1], all_rows, OTHER_ROWS)
    # Half of the rows may be enough to keep the median or a quantile of the batch, so we also keep
    # a single row only.
    for kept in (half, all_rows[-1:]):
        for others in (x / 4, -4 * x, 4 * x + 1):
            others[list(kept)] = x[list(kept)]
            yield RepeatedBatch(others, kept, kept, OTHER_ROWS)
    if logits:
        yield RepeatedBatch(x[: len(half)], half, half, OTHER_SIZE)


def in_full_batch(outputs: Outputs, few: Tensor, rows: int) -> bool:
    """Whether rows get the same answers everywhere in a full batch, and alone.

    The batch repeats a few rows. So it shows whether an answer depends on the number of its row, on
    how many rows are alike, or on the other rows at all.
    """
    kept = torch.arange(rows) % len(few)
    batch = few[kept.to(few.device)]
    first = outputs(batch).clone()
    everywhere = RepeatedBatch(batch, range(rows), kept.tolist(), OTHER_ROWS)
    if not repeats(lambda same: first, first, [everywhere]):
        return False
    different = min(rows, len(few))
    chosen = {round(i * (different - 1) / (_ALONE_ROWS - 1)) for i in range(_ALONE_ROWS)}
    # The last place of each row in the batch.
    last = {int(i): number for number, i in enumerate(kept)}
    # Copies, because some classifiers change their inputs.
    singles = (
        RepeatedBatch(few[i : i + 1].clone(), [0], [last[i]], OTHER_SIZE) for i in sorted(chosen)
    )
    # As in a run, the same memory gets other rows. A classifier that remembers batches by their
    # address fails here.
    batch.copy_(few[kept.flip(0).to(few.device)])
    backwards = RepeatedBatch(batch, range(rows), range(rows)[::-1], OTHER_ROWS)
    return repeats(outputs, first, [backwards, *singles])


def _check_no_worse(actual: Tensor, plain: Tensor, exact: Tensor, tolerance: Tolerance) -> None:
    """Raise `OtherAnswers` if too many labels differ, or if the errors of logits are too large.

    Rows that are too large for the number format of the run are left out.
    """
    kept = _winners(plain)
    if not kept.any():
        raise OtherAnswers("its outputs are not finite numbers")
    actual, plain, exact = (values[kept] for values in (actual, plain, exact))
    more_labels = tolerance.labels + 1 / len(actual)  # a label may change in a tie
    differing = differing_labels(actual, exact)
    if differing > differing_labels(plain, exact) + more_labels:
        raise OtherAnswers(f"this form gives other labels for {differing:.1%} of noisy inputs")
    if actual.is_floating_point():
        allowed = max(tolerance.factor * _error(plain, exact), tolerance.change)
        error = _error(actual, exact)
        if not error <= allowed:
            raise OtherAnswers(
                f"this form has a relative error of {error:.1e}, more than {allowed:.1e}"
            )


def _error(outputs: Tensor, exact: Tensor) -> float:
    """The root mean square of the changes of all rows."""
    return float(changes(outputs, exact).square().mean().sqrt())


def _winners(outputs: Tensor) -> Tensor:
    """Whether each row has a label: its largest logit is finite. Another one may be -inf."""
    return outputs.reshape(len(outputs), -1).amax(1).isfinite()


def _labels(outputs: Tensor) -> Tensor:
    return outputs if outputs.ndim == 1 else outputs.argmax(1)


def _copy(x: Tensor) -> Tensor:
    """A copy for one call: some classifiers change their inputs."""
    # torch would compile a classifier again for inference tensors.
    with torch.inference_mode(False):
        return x.clone()
