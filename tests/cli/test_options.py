"""Tests of the options for noise and plan, and of library messages that name options."""

import json

import pytest
from tests.refusals import refused

from smoothcert import AtRadii, Fixed, Gaussian, InputSpecific, InvalidInput
from smoothcert._settings import PlanSettings
from smoothcert.cli.options import NoiseOptions
from smoothcert.errors import either, phrase, setting
from smoothcert.plans.from_settings import plan_from, shown_radii


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, InputSpecific()),
        (
            {"samples": 1_000, "decline": 0.1, "kind": "relative"},
            InputSpecific(1_000, decline=0.1, kind="relative"),
        ),
        (
            {"reference": "ideal", "bound": "runner-up"},
            InputSpecific(reference="ideal", bound="runner-up"),
        ),
        (
            {"pilot": 50, "pilot_use": "reuse", "grid": "exact"},
            InputSpecific(pilot=50, pilot_use="reuse", grid="exact"),
        ),
        ({"method": "fixed", "alpha": 0.05}, Fixed(alpha=0.05)),
        ({"method": "fixed", "known_labels": True}, Fixed(known_labels=True)),
        ({"method": "fixed", "radii": [0, 0.5]}, Fixed()),  # here the radii are only shown
        ({"method": "radii", "radii": [0, 0.5]}, AtRadii((0, 0.5))),
    ],
)
def test_options_become_a_plan_and_what_is_not_given_is_its_default(options, expected):
    assert plan_from(PlanSettings(**options)) == expected


@pytest.mark.parametrize(
    ("options", "code", "fields"),
    [
        ({"method": "magic"}, "unknown-name", {"value": "magic"}),
        ({"method": "combined"}, "unknown-name", {"value": "combined"}),
        (
            {"method": "fixed", "decline": 0.1},
            "option-of-another-method",
            {"option": "decline"},
        ),
        (
            {"method": "radii", "radii": [1], "pilot_use": "reuse"},
            "option-of-another-method",
            {"option": "pilot_use"},
        ),
        ({"method": "radii"}, "missing-setting", {"missing": "radii"}),
        ({"pilot": 0}, "too-small", {"name": "pilot", "value": 0}),
    ],
)
def test_options_that_make_no_plan_are_named(options, code, fields):
    with refused(code, **fields):
        plan_from(PlanSettings(**options))


@pytest.mark.parametrize("options", [{"sigma": 0.5}, {"noise": "gaussian:0.5"}])
def test_a_noise_is_named_or_given_by_its_sigma(options):
    assert NoiseOptions(**options).build() == Gaussian(0.5)


@pytest.mark.parametrize(
    ("options", "code", "fields"),
    [
        ({}, "noise-or-sigma", {}),
        ({"sigma": 0.5, "noise": "gaussian:0.5"}, "noise-or-sigma", {}),
        ({"noise": "pink:0.5"}, "unknown-name", {"option": "--noise", "value": "pink"}),
        ({"noise": "gaussian"}, "unfit-numbers", {"name": "gaussian"}),
        ({"noise": "gaussian:much"}, "unfit-numbers", {"text": "gaussian:much"}),
        ({"noise": "gaussian:0.5,1"}, "unfit-numbers", {"text": "gaussian:0.5,1"}),
    ],
)
def test_options_that_make_no_noise_are_named(options, code, fields):
    with refused(code, **fields):
        NoiseOptions(**options).build()


@pytest.mark.parametrize(
    ("source", "command", "named"),
    [
        (
            "class Hum(sc.Noise):\n    norm = 'l2'\n    draw = radius = None",
            "map --noise hum:1",
            "deviation and probability",
        ),
        (
            "class Hum(sc.Plan):\n    name = 'hum'\n    __str__ = request = None",
            "map --sigma 1 --method hum",
            "prove",
        ),
    ],
)
def test_a_noise_or_plan_of_the_user_that_lacks_a_method_is_told_so(
    smoothcert, tmp_path, source, command, named
):
    file = tmp_path / f"hum_{command[6]}.py"
    file.write_text(f"import smoothcert as sc\n\n\n{source}\n")
    answer = smoothcert(f"--import {file} {command}")
    assert (answer.code, answer.out) == (2, "")
    assert (
        answer.err
        == f"smoothcert: Hum of module {file.stem} cannot be used: it does not define {named}\n"
    )


def test_a_plan_of_the_user_that_is_no_dataclass_is_told_so(smoothcert, tmp_path):
    (tmp_path / "plain_plan.py").write_text(
        "import smoothcert as sc\n\n\n"
        "class Plain(sc.Plan):\n    name = 'plain'\n    __str__ = request = prove = lambda *_: 'x'\n"
    )
    imported = f"--import {tmp_path / 'plain_plan.py'} map --sigma 1"
    answer = smoothcert(f"{imported} --method plain")
    assert (answer.code, answer.out) == (2, "")
    assert (
        answer.err
        == "smoothcert: Plain cannot be used: make it a frozen dataclass (@dataclass(frozen=True))\n"
    )
    assert (
        smoothcert(f"{imported} --method fixed --decline 1").code == 2
    )  # another plan does not suffer from it


@pytest.mark.parametrize(
    ("part", "python", "command"),
    [
        (setting("out", "DIR"), "out=DIR", "--out DIR"),
        (setting("known_labels", True), "known_labels=True", "--known-labels"),
        (setting("dtype", "float32"), 'dtype="float32"', "--dtype float32"),
        (setting("radii", [0.25, 0.5]), "radii=[0.25, 0.5]", "--radii 0.25,0.5"),
        (setting("data"), "data=", "--data"),
        (either("the plan Exact()", "--method exact"), "the plan Exact()", "--method exact"),
    ],
)
def test_python_and_the_command_line_each_phrase_a_message(part, python, command):
    error = InvalidInput(f"give {part}, or give up")
    assert str(error) == f"give {python}, or give up"
    assert phrase(error.message, command=True) == f"give {command}, or give up"
    assert str(InvalidInput(f"cannot go on: {error.message}")) == f"cannot go on: {error}"


def test_a_refusal_of_the_library_is_told_in_options(smoothcert, tmp_path):
    command = f"certify --model fashion-cnn --data fashion-mnist --sigma .25 --samples 200 --limit 2 --out {tmp_path}"
    assert smoothcert(f"{command} --device cpu --batch 100").code == 0
    answer = smoothcert(f"{command} --device cpu --batch 100 --seed 1")
    assert answer.code == 2
    assert answer.err.endswith("it differs in seed (there 0, now 1); choose another --out DIR\n")


def test_a_zero_is_not_taken_for_an_option_that_was_left_out(smoothcert):
    for option in ("--alpha 0", "--decline 0", "--samples 0"):
        answer = smoothcert(f"coverage --sigma 0.5 --samples 100 {option}")
        assert (answer.code, answer.out) == (2, "")


def test_coverage_and_map_take_every_plan(smoothcert):
    for options in (
        "--method fixed --known-labels",
        "--bound runner-up",
        "--reference ideal",
        "--method radii --radii 0,0.5",
    ):
        found = json.loads(smoothcert(f"coverage --sigma 0.5 --samples 1000 {options} --json").out)
        assert found["valid"] is True
        rows = json.loads(
            smoothcert(f"map --sigma 0.5 --samples 1000 {options} --at 0.5,0.9,1 --json").out
        )["map"]
        assert [row["p"] for row in rows] == [0.5, 0.9, 1]
        assert all(0 <= row["samples"] <= 1_050 for row in rows)


def test_a_method_that_is_nearly_right_is_suggested():
    with refused("unknown-name", value="radius", hint=": did you mean radii?"):
        plan_from(PlanSettings(method="radius"))


def test_shown_radii_are_in_increasing_order():
    assert shown_radii([0.5, 0, 0.25]) == [0, 0.25, 0.5]


def test_import_after_the_command_is_told_where_it_belongs(smoothcert):
    found = smoothcert("certify --import plans.py")
    assert (found.code, found.out) == (2, "")
    assert (
        found.err
        == "smoothcert: --import goes before the command, as in smoothcert --import FILE certify\n"
    )
