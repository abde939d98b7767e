"""Comparisons that need no model. What they find in networks is tested where users meet it: models, kernels, device."""

import pytest
import torch

from smoothcert._agreement import (
    OTHER_ROWS,
    OTHER_SIZE,
    OtherAnswers,
    Reference,
    RepeatedBatch,
    changes,
    check_labels_of_form,
    differing_labels,
    repeats,
)
from smoothcert.errors import InvalidInput

X = torch.rand((6, 4), generator=torch.Generator().manual_seed(0))
ALONE = [RepeatedBatch(X[i : i + 1], [0], [i], OTHER_ROWS) for i in range(len(X))]


@pytest.mark.parametrize(
    ("outputs", "holds"),
    [
        (lambda x: 2 * x, True),
        (lambda x: x.argmax(1), True),
        (lambda x: x - x.mean(0), False),
        (lambda x: torch.where(x < x.min() + 1e-6, torch.nan, x), False),
        (lambda x: torch.where(x < 0.5, torch.nan, x), True),
    ],
    ids=["own row", "labels", "mean of the batch", "NaN beside a number", "NaN beside NaN"],
)
def test_rows_are_compared_alone_and_in_company(outputs, holds):
    assert repeats(outputs, outputs(X), ALONE) is holds


def test_only_a_batch_of_another_size_may_fail():
    def picky(x):
        if len(x) < 6:
            raise InvalidInput("six rows")
        return x

    assert repeats(picky, X, [again._replace(rounding=OTHER_SIZE) for again in ALONE])
    with pytest.raises(InvalidInput, match="six rows"):
        repeats(picky, X, ALONE)


def test_labels_are_compared_with_a_finer_format_only_if_they_differ():
    def never(x):
        raise AssertionError("not needed")

    check_labels_of_form(lambda x: x, lambda x: x, never, X)
    with pytest.raises(OtherAnswers, match=r"other labels for 100\.0% of noisy inputs"):
        check_labels_of_form(lambda x: x.flip(1), lambda x: x, lambda x: x, X)
    assert differing_labels(X, X.flip(1)) == 1


def test_a_change_is_measured_by_the_margins_of_the_leading_classes():
    before = torch.tensor([[3.0, 1.0, -50.0], [0.0, 2.0, -50.0], [1.0, 3.0, -50.0]])
    after = before + torch.tensor([0.0, 0.2, 0.0])
    expected = torch.tensor([0.2 / 3.8, 0.2 / 4, 0.2 / 4])  # the margins are 2, one of them 1.8 now
    for hide in (0.0, 5000.0, torch.tensor([0.0, 0.0, -1e4]), torch.tensor([0, 0, -torch.inf])):
        assert changes(after + hide, before + hide).float() == pytest.approx(expected, rel=1e-2)
    assert changes(before, before).tolist() == [0, 0, 0]
    assert changes(before - torch.tensor([0.0, 0.0, 10.0]), before).max() < 0.2
    assert changes(before + torch.nan, before).tolist() == [torch.inf] * 3
    assert changes(before + torch.nan, before - torch.nan).tolist() == [0, 0, 0]


def test_a_form_is_compared_a_few_rows_at_a_time():
    """A large U-Net needs half a gigabyte for a row."""
    sizes = []

    def plain(x):
        sizes.append(len(x))
        return x

    x = torch.rand((150, 4), generator=torch.Generator().manual_seed(0))
    reference = Reference(plain, plain, x)
    sizes.clear()
    reference.check(plain)
    assert sizes == [64, 64, 22]
    with pytest.raises(OtherAnswers):
        reference.check(lambda x: x.flip(1))
