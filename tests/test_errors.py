"""Errors have a code, fields and a sentence, in every process."""

import pickle

import pytest
from tests.refusals import refused

from smoothcert.errors import InvalidInput, MissingExtra, UnreadableInput, phrase


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("too-small", "{name} must be at least {least:,}", name="samples", least=1_000),
        UnreadableInput("input 3 cannot be read", 3),
        MissingExtra("timm:resnet50", "vision"),
    ],
)
def test_an_error_of_another_process_is_the_same_error(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.code, again.fields, str(again)) == (error.code, error.fields, str(error))


def test_values_with_braces_stay_as_they_are():
    error = InvalidInput("unknown", "no class is called {name}", name="{0}")
    assert str(error) == "no class is called {0}"


def test_a_refusal_is_told_by_its_code_and_fields():
    with refused("too-small", least=2):
        raise InvalidInput("too-small", "at least {least}", least=2)


def test_a_sentence_names_parameters_between_backquotes():
    error = InvalidInput(
        "missing",
        "{why}: give `out=DIR`, `dtype={dtype}`, `radii={radii}`, `joint=True` or "
        "`the plan Exact()|--method exact`",
        why="`out` {is} missing",
        dtype="float32",
        radii=[0.25, 0.5],
    )
    assert str(error) == (
        '`out` {is} missing: give out=DIR, dtype="float32", radii=[0.25, 0.5], joint=True or the '
        "plan Exact()"
    )
    assert phrase(error.message, command=True) == (
        "`out` {is} missing: give --out DIR, --dtype float32, --radii 0.25,0.5, --joint or "
        "--method exact"
    )
