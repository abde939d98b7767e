import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

from smoothcert import Combined, Fixed, Gaussian, InputSpecific
from smoothcert._registry import describe
from smoothcert.plans.votes import same_answers
from smoothcert.runs.manifest import Manifest, compact_ids, expand_ids

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

SPENDING = {
    "total": 5000,
    "rate": 1e4,
    "survey": 100,
    "votes": [[1000, 20, 25]],
    "block": [1000],
    "plan": describe(MANIFEST.plan),
}
QUESTION = {
    "asked": "2026-01-01T00:00:00+00:00",
    "top": 1,
    "levels": ['{"kind": {"left": "0"}}'],
    "radii": None,
    "alpha": 0.001,
}


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
        {"answers": [(3, 1.5), (0, 0.25)], "weights": "w.pth", "batch": 512, "compile": "none"},
        {
            "started": "2026-01-01",
            "finished": "2026-01-02",
            "forwarded": 10**9,
            "circumstances": {"torch": "2.11"},
        },
        {"weights_hash": None},
        {"answers": [(0, float("inf"))]},
        {
            "budget": {"samples": 5000, "minutes": None, "ceiling": 1000, "pilot": 100},
            "spending": SPENDING,
            "shard": "3/16",
            "values": (0.0, 1.0),
        },
        {"settings": {"stochastic": True}},
        {
            "denoiser": {
                "name": "d.safetensors",
                "hash": "2" * 64,
                "description": "for sigma from 0 to 1",
            }
        },
    ],
)
def test_a_manifest_comes_back_from_json(changes):
    manifest = replace(MANIFEST, **changes)
    parsed = Manifest.parse(json.loads(json.dumps(manifest.plain())), "a.json")
    assert replace(parsed, answers=None) == replace(manifest, answers=None)
    assert [tuple(answer) for answer in parsed.answers or []] == (manifest.answers or [])
    assert set(manifest.plain()) == {field.name for field in fields(Manifest)}


def test_a_missing_entry_is_named():
    with refused("incomplete-manifest", where="old", entry="seed"):
        Manifest.parse(MANIFEST.plain() | {"seed": None}, "old")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("noise", {"name": "Fixed"}),
        ("noise", [["name", "Gaussian"], ["sigma", 0.5]]),
        ("plan", {"name": "Gaussian", "sigma": 0.5}),
        ("plan", {"name": "Unheard"}),
        ("ids", 5),
        ("ids", "123"),
        ("ids", [1.5]),
        ("ids", [True]),
        ("ids", [10**30]),
        ("ids", {"first": 0}),
        ("ids", {"first": 0, "last": 10**15, "step": 1}),
        ("ids", {"first": -5, "last": 5, "step": 5}),
        ("ids", {"first": "a", "last": "b", "step": 1}),
        ("ids", {"first": 0, "last": 5, "step": 0}),
        ("ids", [3, 3]),
        ("ids", ["x"]),
        ("ids", [None]),
        ("unreadable", None),
        ("seed", True),
        ("seed", -1),
        ("seed", 2**64),
        ("classes", 3.0),
        ("model", 3),
        ("weights", ["w.pth"]),
        ("forwarded", "10"),
        ("until_clear", 0),
        ("circumstances", "torch 2.11"),
        ("circumstances", {"torch": {"version": 2}}),
        ("settings", {"stochastic": [[]]}),
        ("answers", [[3]]),
        ("answers", [[3, "1.5"]]),
        ("answers", [[3, float("nan")]]),
        ("values", [0.0]),
        ("values", [0.0, 1.0, 2.0]),
        ("shard", "3"),
        ("shard", "3 of 16"),
        ("denoiser", {"name": "d"}),
        ("denoiser", {"name": "d", "hash": 2, "description": ""}),
        ("budget", {"minutes": 2.0}),
        ("budget", {"samples": None, "minutes": None, "ceiling": 1000, "pilot": 100}),
        ("spending", {}),
        ("spending", SPENDING | {"plan": {"name": "Gaussian", "sigma": 0.5}}),
        ("spending", SPENDING | {"rate": 0}),
        ("spending", SPENDING | {"total": float("inf")}),
        ("spending", SPENDING | {"votes": [[0, 10]]}),
        ("questions", [QUESTION | {"levels": []}]),
        ("questions", [QUESTION | {"levels": ["kind"]}]),
        ("questions", [QUESTION | {"levels": ["{}"]}]),
        ("questions", [QUESTION | {"levels": ['"/etc/hosts"']}]),
    ],
)
def test_a_damaged_entry_is_named_in_one_sentence(entry, value):
    with refused("unreadable-manifest", where="old", entry=entry):
        Manifest.parse(MANIFEST.plain() | {entry: value}, "old")


def test_a_question_is_read_again_as_it_was_recorded():
    assert Manifest.parse(MANIFEST.plain() | {"questions": [QUESTION]}, "").questions == [QUESTION]


def test_groups_of_a_run_never_make_us_read_a_file(tmp_path):
    file = tmp_path / "groups.toml"
    file.write_text('left = "0"\n')
    manifest = replace(MANIFEST, settings={"groups": json.dumps(str(file))})
    with refused("unreadable-manifest", entry="groups"):
        _ = manifest.groups


def test_the_sentence_shows_the_start_of_the_entry():
    with refused("unreadable-manifest") as raised:
        Manifest.parse(MANIFEST.plain() | {"model": list(range(1000))}, "old")
    sentence = "old: the entry 'model' of its manifest cannot be read: got [0, 1, 2,"
    assert str(raised.value).startswith(sentence)
    assert len(str(raised.value)) < 200


def test_entries_of_a_later_version_do_no_harm():
    assert Manifest.parse(MANIFEST.plain() | {"mood": "good"}, "new") == MANIFEST


def test_all_differing_fields_are_named_with_both_values():
    assert MANIFEST.differences(MANIFEST) == []
    ids, seed = replace(MANIFEST, seed=2, ids=(0, 1, 2, *range(7, 1000))).differences(MANIFEST)
    assert ids.startswith("ids (there [1000], now [0, 1, 2,")
    assert len(ids) < 200
    assert seed == "seed (there 1, now 2)"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"plan": InputSpecific(5000, decline=0.1)}, ["plan.decline (there 0.05, now 0.1)"]),
        (
            {"settings": {"stochastic": True}, "weights_hash": "seeded"},
            ["stochastic (there False, now True)"],
        ),
        (
            {"data": "y.npz", "data_hash": "ef"},
            ["data (there d, now y.npz)", "data_hash (there ab, now ef)"],
        ),
        # A run goes on with more inputs or with fewer.
        ({"ids": (3, 1000)}, []),
        ({"ids": tuple(range(2000))}, []),
        # A model and data with the same content may have been moved.
        ({"data": "/there/x.npz", "model": "fashion_cnn", "weights": "moved.pth"}, []),
        # Batch and compilation are compared when the classifier is prepared.
        ({"batch": 512, "compile": "max"}, []),
        (
            {
                "forwarded": 10,
                "started": "today",
                "finished": "tomorrow",
                "circumstances": {"torch": "3.0"},
            },
            [],
        ),
    ],
)
def test_only_settings_that_differ_are_named(changes, named):
    recorded = replace(MANIFEST, settings={"stochastic": False})
    other = replace(recorded, **changes)
    assert other.differences(recorded) == named
    assert bool(recorded.differences(other)) == bool(named)


def test_a_function_is_known_by_its_name():
    unknown = replace(MANIFEST, model="f", weights_hash=None)
    assert replace(unknown, model="g").differences(unknown) == ["model (there f, now g)"]


def test_a_model_that_answers_otherwise_is_another_run_even_under_the_same_name():
    there = replace(MANIFEST, answers=[(0, 1.0), (1, 2.0)])
    assert not replace(there, answers=[(0, 1.001), (1, 2.0)]).differences(there)
    [named] = replace(there, answers=[(0, 1.0), (2, 2.0)]).differences(there)
    assert named.startswith("what the model answers to the same inputs")


def test_a_run_of_stage_kernels_is_continued_by_asking_for_the_fast_path():
    assert replace(MANIFEST, compile="stages").compile_request == "fast"
    assert replace(MANIFEST, compile="max").compile_request == "max"


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
        ({"settings": {"stochastic": True}}, False),
    ],
)
def test_draws_are_the_same_whatever_the_plan(changes, same):
    assert replace(MANIFEST, **changes).same_draws(MANIFEST) == same
