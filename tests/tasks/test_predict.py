import time

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import binomtest
from tests.refusals import refused

import smoothcert as sc


def positive(x):
    return (x[:, 0] > 0).long()


def smoothed(model=positive, classes=2):
    return sc.Smoothed(model, sigma=0.25, classes=classes, device="cpu", batch=500)


def test_a_clear_answer_takes_few_samples_and_a_tie_takes_all():
    clear, lead, tie = smoothed().predict([[1.0], [0.15], [0.0]], samples=300)
    assert (clear.prediction, clear.samples) == (1, 20)
    assert lead.prediction == 1
    assert 20 < lead.samples <= 300
    assert lead.share == lead.look.votes[1] / lead.samples
    assert (tie.prediction, tie.samples) == (None, 300)
    assert tie.leader in (0, 1)
    assert 0.5 <= tie.share < 0.65


def tied(x):
    """At the origin, the classes have the probabilities .34, .33 and .33."""
    edges = torch.tensor(0.25 * ndtri([0.34, 0.67]), dtype=torch.float32)
    return torch.bucketize(x[:, 0].contiguous(), edges)


@pytest.mark.parametrize(("model", "classes", "right"), [(positive, 2, None), (tied, 3, 0)])
def test_it_is_wrong_at_most_alpha_of_the_time(model, classes, right):
    found = smoothed(model, classes).predict(np.zeros((600, 1), np.float32), samples=100, alpha=0.1)
    wrong = sum(one.prediction not in (None, right) for one in found)
    assert binomtest(wrong, 600, 0.1, alternative="greater").pvalue > 1e-4
    assert classes > 2 or any(
        one.prediction is not None for one in found
    )  # otherwise the test could not fail


def test_a_batch_gets_the_answers_of_one_input_after_the_other():
    x = np.linspace(0, 1, 30, dtype=np.float32)[:, None] ** 2
    found = smoothed().predict(x, samples=200)
    assert [one.prediction for one in found[15:]] == [1] * 15
    assert found[-1].samples < found[0].samples == 200


def test_after_the_deadline_it_abstains_with_what_is_known():
    def slow(x):
        time.sleep(0.02)
        return positive(x)

    model = smoothed(slow)
    model.predict([[0.5]])  # prepares the classifier
    start = time.perf_counter()
    found = model.predict(np.zeros((300, 1), np.float32), samples=10**6, milliseconds=150)
    assert time.perf_counter() - start < 5
    assert {one.prediction for one in found} == {None}
    assert 0 < sum(one.samples for one in found) < 10**6
    assert model.predict([[0.5]], milliseconds=0)[0].look == sc.Look(0, {})
    assert model.predict([[1.0]], milliseconds=60_000)[0].prediction == 1


def test_the_preparation_of_the_classifier_does_not_count():
    def slow_at_first(x):
        calls.append(len(x))
        time.sleep(0.1 if len(calls) < 5 else 0)
        return positive(x)

    calls = []
    [answer] = smoothed(slow_at_first).predict([[1.0]], milliseconds=200)
    assert (answer.prediction, answer.samples) == (1, 20)


def test_without_any_vote_it_abstains():
    with pytest.warns(UserWarning, match="not in"):
        [answer] = smoothed(lambda x: (500 - x).sqrt().repeat(1, 2)).predict([[900.0]], samples=100)
    assert (answer.prediction, answer.leader, answer.share, answer.look.missing) == (
        None,
        None,
        0,
        100,
    )


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"alpha": 1}, "not-an-alpha"),
        ({"samples": 0}, "too-small"),
        ({"samples": 19}, "never-settled"),
        ({"milliseconds": -1}, "not-at-least"),
    ],
)
def test_what_cannot_be_is_refused(settings, code):
    with refused(code):
        smoothed().predict([[0.1]], **settings)


def test_an_answer_falls_back_to_the_finest_group_that_is_settled():
    def thirds(x):  # at 0.5, classes 0 to 2 have a third each, and class 3 nothing
        edges = torch.tensor(0.5 + 0.25 * ndtri([1 / 3, 2 / 3, 1 - 1e-9]), dtype=torch.float32)
        return torch.bucketize(x[:, 0].contiguous(), edges)

    levels = {"kind": {"one": "0-2", "other": "3"}, "pair": {"low": "0,1"}}
    inputs = np.array([[0.5], [0.02]], np.float32)
    tie, clear = smoothed(thirds, 4).predict(inputs, samples=400, groups=levels)
    assert (tie.prediction, tie.group) == (None, "low")
    assert (clear.prediction, clear.group) == (0, None)
