from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import smoothcert as sc
from smoothcert.device.prepare import prepare

PLAN = sc.InputSpecific(2000, decline=0.1)


def positive(x):
    return (x[:, 0] > 0).long()


@dataclass(frozen=True)
class Uniform(sc.Noise):
    """Uniform noise on a cube of half width b: R = 2 b (p - 1/2) in l1."""

    b: float = 0.5
    norm = "l1"
    draw = property(lambda self: sc.Additive("uniform", self.b))
    deviation = property(lambda self: self.b / 3**0.5)

    def radius(self, p):
        return 2 * self.b * (np.asarray(p) - 0.5)

    def probability(self, radius):
        return np.asarray(radius) / (2 * self.b) + 0.5


def smoothed(model=positive, **settings):
    defaults = {"noise": sc.Gaussian(0.5), "classes": 2, "device": "cpu", "batch": 500}
    return sc.Smoothed(model, **(defaults | settings))


def test_certify_proves_at_most_the_true_radius():
    certificate = smoothed().certify([0.6, 0.0], plan=PLAN)
    assert certificate.prediction == 1
    assert 0.4 < certificate.radius < 0.6
    assert certificate.samples == sum(look.samples for look in certificate.looks)


@pytest.mark.parametrize("distance", [0.1, 0.3, 0.45])
def test_any_noise_that_says_how_it_is_drawn_proves_at_most_the_true_radius(distance):
    """Under uniform noise the half-space at distance d has p = 1/2 + d, and d is its largest l1 radius."""
    certificate = smoothed(noise=Uniform(0.5)).certify([distance, 0.0], plan=sc.Fixed(20_000))
    assert certificate.count / certificate.counted == pytest.approx(0.5 + distance, abs=0.02)
    assert distance - 0.03 < certificate.radius < distance


def test_certify_abstains_on_a_tie_and_counts_what_it_cost():
    certificate = smoothed().certify([0.0], plan=sc.Fixed(1000))
    assert certificate.prediction is None
    assert (certificate.radius, certificate.samples) == (0, 1100)


def test_without_a_plan_it_is_input_specific_sampling():
    assert smoothed().certify([0.1]).plan == sc.InputSpecific()


@pytest.mark.parametrize("x", [[0.4, 0.1], np.array([0.4, 0.1]), torch.tensor([0.4, 0.1], requires_grad=True)])
def test_arrays_lists_and_tensors_are_the_same_input(x):
    assert smoothed().certify(x, plan=PLAN) == smoothed().certify((0.4, 0.1), plan=PLAN)


def test_bytes_are_divided_by_255():
    bright = smoothed(lambda x: (x[:, 0] > 0.5).long())
    assert bright.certify(np.array([255, 0], np.uint8), plan=PLAN) == bright.certify([1.0, 0.0], plan=PLAN, id=0)


def test_values_outside_the_unit_interval_are_told_once():
    model = smoothed()
    with pytest.warns(UserWarning, match=r"values lie in \[3, 255\], not in \[0, 1\]"):
        model.certify([255, 3], plan=PLAN)
    model.certify([255, 3], plan=PLAN)


def test_each_shape_has_a_batch_size_of_its_own(monkeypatch):
    def measured(model, classes, shape, runtime):
        assert not runtime.batch
        return prepare(model, classes, shape, replace(runtime, batch=50))

    monkeypatch.setattr("smoothcert.smoothed.prepare", measured)
    model = smoothed(batch="auto")
    for x in ([0.5], [0.5, 0.5]):
        assert model.certify(x, plan=PLAN).prediction == 1


def test_a_module_gives_logits():
    torch.manual_seed(0)
    certificate = smoothed(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), classes=4).certify(
        torch.rand(3, 4), plan=PLAN
    )
    assert sum(certificate.looks[0].votes.values()) == certificate.plan.pilot


def test_calls_draw_noise_of_their_own_unless_told_which():
    model = smoothed()
    first, second, again = (
        model.certify([0.1], plan=PLAN),
        model.certify([0.1], plan=PLAN),
        model.certify([0.1], plan=PLAN, id=0),
    )
    assert first.looks != second.looks
    assert first == again
    assert smoothed(seed=1).certify([0.1], plan=PLAN).looks != first.looks


@pytest.mark.parametrize("call", range(3))
def test_a_call_that_was_interrupted_leaves_nothing_behind(call):
    interrupted_at = None
    calls = 0

    def interrupting(x):
        nonlocal calls
        calls += 1
        if calls == interrupted_at:
            raise KeyboardInterrupt
        return positive(x)

    model = smoothed(interrupting, batch=50)
    first = model.certify([0.3], plan=PLAN)
    interrupted_at = calls + 1 + call
    with pytest.raises(KeyboardInterrupt):
        model.certify([-0.3], plan=PLAN)
    assert model.certify([0.3], plan=PLAN, id=0) == first


def test_predict_names_the_leader_with_the_binomial_tests_confidence():
    answer = smoothed().predict([0.5], samples=300)
    votes = answer.look.votes
    assert answer.prediction == 1
    assert answer.look.samples == 300
    assert answer.confidence == pytest.approx(1 - binomtest(votes[1], 300).pvalue, abs=1e-12)


def test_predict_abstains_when_the_votes_do_not_settle_it():
    answer = smoothed().predict([0.0], samples=300)
    assert answer.prediction is None
    votes = answer.look.votes
    assert answer.confidence == pytest.approx(1 - binomtest(max(votes.values()), 300).pvalue, abs=1e-9)


def test_predict_is_wrong_at_most_alpha_of_the_time():
    model = smoothed()
    named = sum(model.predict([0.0], samples=100, alpha=0.05).prediction is not None for _ in range(1000))
    assert binomtest(named, 1000, 0.05, alternative="greater").pvalue > 1e-4
    assert named > 0  # the test could have failed


def test_predict_is_settled_by_the_fewest_votes_that_can():
    always = smoothed(lambda x: torch.ones(len(x), dtype=torch.long))
    assert always.predict([0.5], samples=11).prediction == 1


def test_predict_without_any_vote_abstains():
    answer = smoothed(lambda x: torch.full((len(x), 2), torch.nan)).predict([0.3], samples=100)
    assert (answer.prediction, answer.confidence, answer.look.missing) == (None, 0, 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smoothed(3), "model must be a module or function, got int"),
        (lambda: smoothed(classes=1), "classes must be at least 2"),
        (lambda: smoothed(seed=-1), "seed must be at least 0"),
        (
            lambda: smoothed(seed=2**64).predict([0.5]),
            "seed must be from 0 to 9223372036854775807, got 18446744073709551616",
        ),
        (lambda: smoothed().certify([0.1, float("nan")]), "NaN or infinite"),
        (lambda: smoothed(noise=0.25), r"noise must be a noise such as Gaussian\(0.5\), got 0.25"),
        (lambda: smoothed(noise=Uniform), "noise must be a noise such as Gaussian.*Uniform"),
        (lambda: smoothed().certify("abc"), "an input must be an array of numbers, got str"),
        (lambda: smoothed().certify(None), "got NoneType"),
        (lambda: smoothed().certify([[0.1], [0.1, 0.2]]), "different lengths"),
        (lambda: smoothed().certify([]), r"the input is empty: its shape is \(0,\)"),
        (lambda: smoothed().certify([0.1], id=-1), "id must be at least 0"),
        (lambda: smoothed().certify([0.1], id=2**31), "id must be below"),
        (lambda: smoothed().certify([0.1], plan=sc.Fixed(9)), "9"),
        (lambda: smoothed().predict([0.1], alpha=1), "alpha must be"),
        (lambda: smoothed().predict([0.1], samples=0), "samples must be at least"),
        (lambda: smoothed().predict([0.1], samples=10), "samples 10 can never settle .* use at least 11"),
        (lambda: smoothed(classes=3, model=lambda x: x[:, :2]).certify([0.1, 0.2]), "3 classes"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, message):
    with pytest.raises(sc.InvalidInput, match=message):
        call()


@pytest.mark.parametrize("plan", ["fixed", sc.Fixed])
def test_what_is_no_plan_is_refused(plan):
    with pytest.raises(sc.InvalidInput, match="plan must be a plan such as"):
        sc.Smoothed(lambda x: x.flatten(1)[:, :2], noise=sc.Gaussian(0.5), classes=2).certify(torch.zeros(4), plan=plan)
