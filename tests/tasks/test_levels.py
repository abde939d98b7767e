"""A confidence is above one half and an alpha below, at every door."""

import math
from dataclasses import dataclass

import pytest
import torch
from tests.refusals import refused

import smoothcert as sc
from smoothcert._check import alpha, confidence
from smoothcert.compat.cohen import Smooth
from smoothcert.plans import TwoStagePlan
from smoothcert.tasks.replay import read_population

WRONG_ALPHAS = [0.5, 0.95, 0.999, 1, 5, 0, -0.1, math.nan, math.inf, True, "text", None, [0.01]]
WRONG_CONFIDENCES = [0.5, 0.05, 0.001, 1, 95, 0, -0.9, math.nan, True, "text", None, [0.95]]


def _model(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


@dataclass(frozen=True)
class UsersPlan(TwoStagePlan):
    """A plan of a user, which does not check its settings."""

    name = "users"

    def __post_init__(self):
        pass

    def after_pilot(self, votes, noise):
        return self.samples


@pytest.fixture(scope="module")
def run(on_disk):
    return on_disk("levels", sc.Fixed(1_000), inputs=4).path


@pytest.fixture(scope="module")
def log(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("logs") / "log.tsv"
    sc.write_results(sc.open_run(run), out)
    return out


DOORS = {
    "Fixed": lambda run, log, a: sc.Fixed(1_000, alpha=a),
    "InputSpecific": lambda run, log, a: sc.InputSpecific(1_000, alpha=a),
    "Price": lambda run, log, a: sc.Price(1_000, alpha=a, price=1e-4),
    "AtRadii": lambda run, log, a: sc.AtRadii([0.1], 1_000, alpha=a),
    "runner-up": lambda run, log, a: sc.AtRadii([0.1], 1_000, alpha=a, bound="runner-up"),
    "SampleMap": lambda run, log, a: sc.SampleMap(1_000, alpha=a),
    "user's plan": lambda run, log, a: sc.certify(
        _model, [[0.1]], plan=UsersPlan(1_000, alpha=a), sigma=0.25
    ),
    "predict": lambda run, log, a: sc.Smoothed(_model, sigma=0.25).predict([[0.1]], alpha=a),
    "attack": lambda run, log, a: sc.attack(run, alpha=a),
    "cohen.certify": lambda run, log, a: Smooth(_model, 2, 0.25).certify(
        torch.zeros(1), 10, 100, a, 10
    ),
    "cohen.predict": lambda run, log, a: Smooth(_model, 2, 0.25).predict(
        torch.zeros(1), 100, a, 10
    ),
    "compare": lambda run, log, a: sc.compare(
        _model, _model, [[0.1]], [0], radius=0.1, out="unused", alpha=a
    ),
    "gate": lambda run, log, a: sc.gate(run, {"alpha": a}),
    "replay": lambda run, log, a: read_population(
        log, sc.Fixed(1_000), noise=sc.Gaussian(0.5), log_samples=1_000, log_alpha=a
    ),
}


@pytest.mark.parametrize("wrong", [0.5, 0.999, math.nan])
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_an_alpha_of_one_half_or_more(run, log, door, wrong):
    with refused("not-an-alpha", name="log_alpha" if door == "replay" else "alpha"):
        DOORS[door](run, log, wrong)


@pytest.mark.parametrize("wrong", [0.5, 0.05, math.nan])
def test_every_door_refuses_a_confidence_of_one_half_or_less(run, wrong):
    with refused("not-a-confidence", name="confidence"):
        sc.compare(run, run, confidence=wrong)
    with refused("not-a-confidence", name="confidence"):
        sc.gate(run, {"inputs": 4, "confidence": wrong})


@pytest.mark.parametrize("wrong", WRONG_ALPHAS)
def test_what_is_no_alpha_is_refused(wrong):
    with refused("not-an-alpha", name="log_alpha"):
        alpha("log_alpha", wrong)


@pytest.mark.parametrize("wrong", WRONG_CONFIDENCES)
def test_what_is_no_confidence_is_refused(wrong):
    with refused("not-a-confidence", name="confidence"):
        confidence("confidence", wrong)


def test_usual_levels_are_kept_as_they_are():
    assert [alpha("alpha", a) for a in (0.001, 1e-20, 0.49)] == [0.001, 1e-20, 0.49]
    assert [confidence("confidence", c) for c in (0.95, 0.999, 0.51)] == [0.95, 0.999, 0.51]
    assert sc.Exact().alpha == 0


def test_the_sentence_says_what_was_meant():
    with refused("not-an-alpha") as raised:
        sc.Fixed(1_000, alpha=0.999)
    assert str(raised.value).endswith("got 0.999: for a confidence of 0.999, write 0.001")
