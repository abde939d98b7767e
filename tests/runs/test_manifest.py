import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert import Combined, Fixed, Gaussian, InputSpecific
from smoothcert.errors import InvalidInput
from smoothcert.runs.manifest import Manifest, compact_ids, expand_ids, same_answers

MANIFEST = Manifest(
    model="m",
    classes=3,
    data="d",
    data_hash="ab",
    ids=(1000,),
    noise=Gaussian(0.5),
    plan=InputSpecific(5000, decline=0.05),
    seed=1,
    device="cpu",
    dtype="float32",
    compile="none",
    weights_hash="cd",
)


@given(st.lists(st.integers(0, 100), unique=True))
def test_ids_survive_being_compacted(ids):
    assert expand_ids(compact_ids(ids)) == ids


@given(st.integers(0, 50), st.integers(1, 7), st.integers(3, 40), st.booleans())
def test_evenly_spaced_ids_stay_small(first, step, count, backwards):
    ids = list(range(first, first + step * count, step))[:: -1 if backwards else 1]
    assert isinstance(compact_ids(ids), dict)
    assert expand_ids(compact_ids(ids)) == ids


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ids": tuple(range(0, 1000, 20)), "plan": Combined((Fixed(1000), InputSpecific(2000)))},
        {"answers": [(3, 1.5), (0, 0.25)], "weights": "w.pth", "batch": 512, "fallback": "compile=max failed"},
        {"started": "2026-01-01", "finished": "2026-01-02", "forwarded": 10**9, "circumstances": {"torch": "2.11"}},
        {"weights_hash": None},
        {"stochastic": True},
        {"denoiser": {"name": "d.safetensors", "hash": "2" * 64, "description": "for sigma from 0 to 1"}},
    ],
)
def test_a_manifest_comes_back_from_json(changes):
    manifest = replace(MANIFEST, **changes)
    parsed = Manifest.parse(json.loads(json.dumps(manifest.plain())), "a.json")
    assert replace(parsed, answers=None) == replace(manifest, answers=None)
    assert [tuple(answer) for answer in parsed.answers or []] == (manifest.answers or [])
    # Runs without a denoiser are recorded as before there were any; earlier versions did not record `stochastic`.
    left_out = {name for name in ("denoiser", "stochastic") if getattr(manifest, name) is None}
    assert set(manifest.plain()) == {field.name for field in fields(Manifest)} - left_out


def test_how_a_classifier_was_run_follows_from_what_was_asked_for_and_what_failed():
    asked = replace(MANIFEST, compile="max")
    assert asked.compiled == "max"
    assert replace(asked, fallback="compile=max failed").compiled == "none"


@pytest.mark.parametrize(("compiled", "fallback"), [("default", None), ("none", "compilation failed")])
def test_version_0_1_0_recorded_both_what_was_asked_for_and_what_was_done(compiled, fallback):
    old = {k: v for k, v in replace(MANIFEST, compile="default").plain().items() if k != "fallback"}
    found = Manifest.parse(old | {"compiled": compiled}, "old")
    assert (found.compile, found.compiled, found.fallback) == ("default", compiled, fallback)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": None}, "old is damaged: its manifest has no seed"),
        ({"noise": {"name": "Fixed"}}, "old: its manifest cannot be read: noise and plan have other types"),
        ({"ids": 5}, "old: its manifest cannot be read"),
        ({"ids": {"first": 0}}, "old: its manifest cannot be read"),
        ({"ids": {"first": 0, "last": 10**15, "step": 1}}, "old: its manifest cannot be read: its ids are damaged"),
        ({"ids": {"first": -5, "last": 5, "step": 5}}, "its ids are damaged: they are not different numbers from 0 on"),
        ({"ids": {"first": "a", "last": "b", "step": 1}}, "old: its manifest cannot be read"),
        ({"ids": {"first": 0, "last": 5, "step": 0}}, "old: its manifest cannot be read"),
        ({"ids": [3, 3]}, "its ids are damaged"),
        ({"ids": ["x"]}, "old: its manifest cannot be read"),
        ({"ids": [None]}, "old: its manifest cannot be read"),
        ({"plan": {"name": "Unheard"}}, "no plan or noise 'Unheard'"),
    ],
)
def test_a_damaged_manifest_is_one_sentence(changes, named):
    with pytest.raises(InvalidInput, match=named):
        Manifest.parse(MANIFEST.plain() | changes, "old")


def test_entries_of_a_later_version_do_no_harm():
    assert Manifest.parse(MANIFEST.plain() | {"mood": "good"}, "new") == MANIFEST


def test_all_differing_fields_are_named_with_both_values():
    MANIFEST.check_continues(MANIFEST, "runs/a")
    with pytest.raises(InvalidInput) as caught:
        replace(MANIFEST, seed=2, ids=(0, 1, 2, *range(7, 1000))).check_continues(MANIFEST, "runs/a")
    message = str(caught.value)
    assert message.startswith("runs/a holds another run: it differs in ")
    assert "ids (there [1000], now [0, 1, 2," in message
    assert "seed (there 1, now 2)" in message
    assert message.endswith("; choose another out=DIR")
    assert len(message) < 300


def test_of_two_plans_only_the_settings_that_differ_are_named():
    other = replace(MANIFEST, plan=InputSpecific(5000, decline=0.1))
    with pytest.raises(InvalidInput, match=r"differs in plan\.decline \(there 0\.05, now 0\.1\); choose"):
        other.check_continues(MANIFEST, "runs/a")


def test_what_was_moved_is_the_same_by_its_content():
    there = replace(MANIFEST, model="fashion-cnn", data="here/x.npz")
    replace(there, data="/there/x.npz", model="fashion_cnn").check_continues(there, "runs/a")
    with pytest.raises(InvalidInput, match=r"differs in data \(there here/x\.npz, now y\.npz\); data_hash"):
        replace(there, data="y.npz", data_hash="ef").check_continues(there, "runs/a")
    unknown = replace(there, model="f", weights_hash=None)
    with pytest.raises(InvalidInput, match="differs in model"):
        replace(unknown, model="g").check_continues(unknown, "runs/a")


@pytest.mark.parametrize("ids", [(1000,), (3, 1000), range(2000)])
def test_more_inputs_or_fewer_continue_a_run(ids):
    other = MANIFEST.with_ids(ids)
    other.check_continues(MANIFEST, "runs/a")
    MANIFEST.check_continues(other, "runs/a")


@pytest.mark.parametrize(
    "circumstance",
    [
        {"batch": 512},
        {"fallback": "compile=max failed"},
        {"weights": "moved.pth"},
        {"forwarded": 10},
        {"started": "today"},
        {"finished": "tomorrow"},
        {"circumstances": {"torch": "3.0"}},
    ],
)
def test_what_only_happened_to_be_so_does_not_matter(circumstance):
    replace(MANIFEST, **circumstance).check_continues(MANIFEST, "runs/a")


def test_a_model_that_answers_otherwise_is_another_run_even_under_the_same_name():
    there = replace(MANIFEST, answers=[(0, 1.0), (1, 2.0)])
    replace(there, answers=[(0, 1.001), (1, 2.0)]).check_continues(there, "runs/a")
    with pytest.raises(InvalidInput, match="differs in what the model answers to the same inputs"):
        replace(there, answers=[(0, 1.0), (2, 2.0)]).check_continues(there, "runs/a")


def test_answers_that_nobody_recorded_speak_against_nothing():
    assert same_answers(None, [(0, 1.0)])
    assert same_answers([(0, 1.0)], None)
    assert not same_answers([(0, 1.0)], [(0, 1.0), (0, 1.0)])


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"plan": Fixed(10)}, True),
        ({"ids": (1, 2)}, True),
        ({"batch": 7}, True),
        ({"noise": Gaussian(0.25)}, False),
        ({"seed": 2}, False),
        ({"weights_hash": "other"}, False),
        ({"data_hash": "other"}, False),
        ({"dtype": "bfloat16"}, False),
        ({"device": "cuda"}, False),
    ],
)
def test_draws_are_the_same_whatever_the_plan(changes, same):
    assert (replace(MANIFEST, **changes).draws() == MANIFEST.draws()) == same
