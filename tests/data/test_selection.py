"""The choice of the inputs to certify."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert.data import select_ids
from smoothcert.errors import InvalidInput


def test_skip_takes_every_nth() -> None:
    assert select_ids(10_000, skip=20) == list(range(0, 10_000, 20))
    assert select_ids(50_000, skip=100)[-1] == 49_900
    assert select_ids(3) == [0, 1, 2]


def test_limit_counts_after_skipping() -> None:
    assert select_ids(10_000, skip=20, limit=3) == [0, 20, 40]
    assert select_ids(3, limit=10) == [0, 1, 2]


def test_ids_keep_their_order_and_appear_once() -> None:
    assert select_ids(100, ids="50, 3-5,4,99") == [50, 3, 4, 5, 99]
    assert select_ids(100, ids=[7, 2, 7]) == [7, 2]
    assert select_ids(100, ids="9,8,7", limit=2) == [9, 8]


@pytest.mark.parametrize("ids", ["", "a", "3-", "-3", "5-3", "1,,2", "1.5", "1-2-3"])
def test_ids_that_cannot_be_read_are_refused(ids: str) -> None:
    with refused("not-ids", ids=ids):
        select_ids(100, ids=ids)


@pytest.mark.parametrize("ids", ["100", "98-100", "5,1000000000000", "0-999999999999999", [100]])
def test_ids_outside_of_the_data_are_refused(ids: str) -> None:
    with refused("id-out-of-range", last=99):
        select_ids(100, ids=ids)


def test_contradictions_and_empty_choices_are_refused() -> None:
    with refused("skip-and-ids", ids="1", skip=2):
        select_ids(100, ids="1", skip=2)
    with refused("no-inputs"):
        select_ids(100, ids=[])
    with refused("no-inputs"):
        select_ids(0)


@pytest.mark.parametrize(
    ("choice", "code", "name"),
    [
        ({"skip": 0}, "too-small", "skip"),
        ({"skip": -1}, "too-small", "skip"),
        ({"limit": 0}, "too-small", "limit"),
        ({"limit": 1.5}, "not-whole", "limit"),
        ({"ids": [-1]}, "too-small", "each id"),
        ({"ids": [1.5]}, "not-whole", "each id"),
    ],
)
def test_choices_are_whole_numbers(choice: dict, code: str, name: str) -> None:
    with refused(code, name=name):
        select_ids(100, **choice)


def test_shards_divide_the_inputs_evenly() -> None:
    shards = [select_ids(100, skip=3, limit=20, shard=(part, 6)) for part in range(1, 7)]
    assert sorted(id for shard in shards for id in shard) == select_ids(100, skip=3, limit=20)
    assert {len(shard) for shard in shards} == {3, 4}
    assert select_ids(100, skip=3, limit=20, shard="6/6") == shards[-1]


@pytest.mark.parametrize("shard", ["3", "a/b", "3/4/5", 3, (1, 2, 3), "0/4", "5/4", "1/0"])
def test_a_shard_that_is_none_is_refused(shard: object) -> None:
    with refused("not-shard"):
        select_ids(100, shard=shard)  # type: ignore[arg-type]


def test_more_shards_than_inputs_are_refused() -> None:
    with refused("too-many-shards", inputs="3 inputs", parts=4):
        select_ids(3, shard="1/4")


MASK = [True, False, False, True, False, True]


class Series:
    """Like a boolean `pandas.Series`: it iterates, and `tolist` gives plain values."""

    def __init__(self, values: list[bool]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> object:
        return iter(np.array(self._values))

    def tolist(self) -> list[bool]:
        return self._values


FORMS = [
    np.array,
    torch.tensor,
    list,
    tuple,
    Series,
    iter,
    lambda mask: [np.bool_(value) for value in mask],
    lambda mask: [torch.tensor(value) for value in mask],
    lambda mask: np.ma.array(mask),
    lambda mask: np.array(mask, object),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_selects_inputs(form) -> None:
    assert select_ids(6, ids=form(MASK)) == [0, 3, 5]
    assert select_ids(6, ids=form(MASK), limit=2) == [0, 3]
    assert select_ids(2, ids=form([True, True])) == [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_of_another_length_is_refused(form) -> None:
    for count in (2, 5, 7, 100):
        with refused("mask-of-another-length", length=6, count=count):
            select_ids(count, ids=form(MASK))


def test_a_mask_that_selects_nothing_is_refused() -> None:
    with refused("no-inputs"):
        select_ids(3, ids=np.zeros(3, bool))


@pytest.mark.parametrize(
    "ids",
    [
        [True, 2],
        [0, False],
        [np.True_, 3],
        [torch.tensor(True), 3],
        [[True, False]],
        np.ones((2, 3), bool),
        np.array([0.5]),
        np.array([np.nan]),
        torch.tensor([-1]),
        [None],
        ["1"],
        np.array(["1"]),
    ],
)
def test_what_are_neither_numbers_nor_a_mask_is_refused(ids) -> None:
    with pytest.raises(InvalidInput):
        select_ids(6, ids=ids)


def test_numbers_in_other_forms_are_numbers() -> None:
    for one in (3, np.array(3), torch.tensor(3)):
        assert select_ids(6, ids=one) == [3]
    for ids in (np.array([3, 1]), torch.tensor([3, 1]), np.array([3.0, 1.0]), iter([3, 1])):
        assert select_ids(6, ids=ids) == [3, 1]
    assert select_ids(6, ids=np.ma.array([3, 1], mask=False)) == [3, 1]


@pytest.mark.parametrize("dtype", [int, float, bool])
def test_masked_entries_are_no_ids(dtype) -> None:
    ids = np.ma.array([1, 0, 1], mask=[False, True, False], dtype=dtype)
    with refused("masked-entries", name="ids"):
        select_ids(3, ids=ids)
