"""Test that mistakes in a plan or noise of the user are reported with its class and method, and lose nothing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc

DATA = [(x, 0) for x in np.full((6, 2), 0.5)]


@dataclass(frozen=True)
class Own(sc.Plan):
    name: ClassVar[str] = "own"
    samples: int = 200
    alpha: float = 0.001
    pilot: int = 10
    known_labels: bool = False
    mistake: str = ""

    def request(self, state):
        if state.look == 0:
            return self.pilot
        if self.mistake == "class 1" and state.look == 2 and state.count < state.drawn:
            raise KeyError("no such key")
        if self.mistake == "raises":
            raise ZeroDivisionError("oh no")
        if self.mistake == "calls":
            return state.noise.radius("much")
        answers = {"negative": -5, "nan": float("nan"), "text": "many"}
        return answers.get(self.mistake, np.where(state.look == 1, 100, 0))

    def prove(self, state):
        if self.mistake == "bound":
            return sc.Proof(state.chosen, float("nan"), lower=float("nan"))
        return sc.Proof.from_bounds(state, 0.5)

    def __str__(self):
        return "own"


@dataclass(frozen=True)
class Flat(sc.noises.Uniform):
    def radius(self, p):
        raise ZeroDivisionError("oh no")


def first_class(x):
    return torch.zeros(len(x), dtype=torch.long)


def certify(out, plan, noise=None):
    return sc.certify(
        first_class,
        DATA,
        noise=noise or sc.Gaussian(0.5),
        plan=plan,
        classes=2,
        out=out,
        device="cpu",
        batch=50,
    )


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        ("negative", "request-not-whole"),
        ("nan", "request-not-whole"),
        ("text", "request-not-whole"),
        ("bound", "bound-not-a-probability"),
    ],
)
def test_a_wrong_answer_of_a_plan_is_named(mistake, code, tmp_path):
    with refused(code, plan="Own"):
        certify(tmp_path, Own(mistake=mistake))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            "raises",
            r"Own.request fails \(ZeroDivisionError\): oh no \(.*test_mistakes.py, line \d+\)",
        ),
        ("calls", r"Own.request fails \(\w+Error\): .* \(.*test_mistakes.py, line \d+\)"),
    ],
)
def test_a_mistake_of_a_plan_is_named_with_its_place(mistake, message, tmp_path):
    with pytest.raises(sc.InvalidInput, match=message):
        certify(tmp_path, Own(mistake=mistake))


@dataclass(frozen=True)
class Once(Own):
    def request(self, state):
        return self.samples if state.look == 0 else 0

    @property
    def most_samples(self):
        return 100


@pytest.mark.parametrize(
    ("samples", "code", "fields"),
    [(1_000, "too-many-samples", {"samples": 1_000, "most": 100}), (0, "no-first-look", {})],
)
def test_a_first_request_that_would_never_end_is_refused(samples, code, fields, tmp_path):
    plan = Once(samples=samples, pilot=0, known_labels=True)
    with refused(code, plan="Once", **fields):
        certify(tmp_path, plan)


def test_what_is_finished_before_a_mistake_is_saved(tmp_path):
    data = [(np.full(2, float(number == 5)), 0) for number in range(6)]

    def mostly_zero(x):
        return ((x[:, 0] > 0.5) & (x[:, 1] > 0.5)).long()

    settings = {
        "noise": sc.Gaussian(0.1),
        "classes": 2,
        "out": tmp_path,
        "device": "cpu",
        "batch": 1000,
    }
    with pytest.raises(sc.InvalidInput, match=r"Own.request fails \(KeyError\)"):
        sc.certify(mostly_zero, data, plan=Own(mistake="class 1", known_labels=True), **settings)
    assert set(sc.open_run(tmp_path).id) == {0, 1, 2, 3, 4}


class Unusual(Own):
    def prove(this, state):  # not self
        raise KeyError("no such key")


def test_a_mistake_is_named_whatever_a_method_calls_its_object():
    with pytest.raises(sc.InvalidInput, match=r"Unusual.prove fails \(KeyError\)"):
        sc.plans.Case(Unusual(), sc.Gaussian(0.5)).proof()


def test_a_mistake_of_a_noise_is_named(tmp_path):
    for plan in (Own(), sc.InputSpecific(1_000)):
        with pytest.raises(
            sc.InvalidInput,
            match=r"Flat.radius fails \(ZeroDivisionError\): oh no \(.*, line \d+\)",
        ):
            certify(tmp_path, plan, Flat(0.5))
