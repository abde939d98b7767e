import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InvalidInput
from smoothcert.runs.manifest import check_same, compact_ids, expand_ids


@given(st.lists(st.integers(0, 100), unique=True))
def test_ids_survive_being_compacted(ids):
    assert expand_ids(compact_ids(ids)) == ids


@given(st.integers(0, 50), st.integers(1, 7), st.integers(3, 40), st.booleans())
def test_evenly_spaced_ids_stay_small(first, step, count, backwards):
    ids = list(range(first, first + step * count, step))[:: -1 if backwards else 1]
    assert isinstance(compact_ids(ids), dict)
    assert expand_ids(compact_ids(ids)) == ids


def test_all_differing_fields_are_named_with_both_values():
    recorded = {"model": "m", "ids": [1000], "seed": 1}
    check_same(recorded, dict(recorded), "runs/a")
    with pytest.raises(InvalidInput) as caught:
        check_same(recorded, recorded | {"seed": 2, "ids": list(range(1000))}, "runs/a")
    message = str(caught.value)
    assert message.startswith("runs/a holds another run: it differs in ids (there [1000], now [0, 1, 2,")
    assert "seed (there 1, now 2)" in message
    assert len(message) < 300


def test_of_two_plans_only_the_settings_that_differ_are_named():
    plan = {"name": "InputSpecific", "samples": 5000, "decline": 0.05}
    with pytest.raises(InvalidInput, match=r"differs in plan\.decline \(there 0\.05, now 0\.1\); choose"):
        check_same({"plan": plan}, {"plan": plan | {"decline": 0.1}}, "runs/a")


def test_what_was_moved_is_the_same_by_its_content():
    there = {"model": "fashion-cnn", "weights_hash": "ab", "data": "here/x.npz", "data_hash": "cd", "seed": 0}
    check_same(there, there | {"data": "/there/x.npz", "model": "fashion_cnn"}, "runs/a")
    with pytest.raises(InvalidInput, match=r"differs in data \(there here/x\.npz, now y\.npz\); data_hash"):
        check_same(there, there | {"data": "y.npz", "data_hash": "ef"}, "runs/a")
    unknown = there | {"model": "f", "weights_hash": None}
    with pytest.raises(InvalidInput, match="differs in model"):
        check_same(unknown, unknown | {"model": "g"}, "runs/a")
