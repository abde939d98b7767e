import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import smoothcert as sc


def positive(x):
    return (x[:, 0] > 0).long()


def smoothed(model=positive):
    return sc.Smoothed(model, sigma=0.5, classes=2, device="cpu", batch=500)


def test_the_leader_has_the_confidence_of_the_binomial_test():
    leader, tie = smoothed().predict([[0.5], [0.0]], samples=300)
    assert (leader.prediction, leader.look.samples) == (1, 300)
    assert leader.confidence == pytest.approx(1 - binomtest(leader.look.votes[1], 300).pvalue, abs=1e-12)
    assert tie.prediction is None
    assert tie.confidence == pytest.approx(1 - binomtest(max(tie.look.votes.values()), 300).pvalue, abs=1e-9)


def test_it_is_wrong_at_most_alpha_of_the_time():
    found = smoothed().predict(np.zeros((1000, 1), np.float32), samples=100, alpha=0.05)
    named = sum(one.prediction is not None for one in found)
    assert binomtest(named, 1000, 0.05, alternative="greater").pvalue > 1e-4
    assert named > 0  # otherwise the test could not fail


def test_it_is_settled_by_the_fewest_votes_that_can():
    always = smoothed(lambda x: torch.ones(len(x), dtype=torch.long))
    assert always.predict([[0.5]], samples=11)[0].prediction == 1


def test_without_any_vote_it_abstains():
    with pytest.warns(UserWarning, match="not in"):
        [answer] = smoothed(lambda x: (500 - x).sqrt().repeat(1, 2)).predict([[900.0]], samples=100)
    assert (answer.prediction, answer.confidence, answer.look.missing) == (None, 0, 100)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1}, "alpha must be"),
        ({"samples": 0}, "samples must be at least"),
        ({"samples": 10}, "samples 10 can never settle .* use at least 11"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings, message):
    with pytest.raises(sc.InvalidInput, match=message):
        smoothed().predict([[0.1]], **settings)
