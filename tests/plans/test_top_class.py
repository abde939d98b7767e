import numpy as np
import pytest
from scipy.stats import binom

from smoothcert.noises import Gaussian
from smoothcert.plans import Look
from smoothcert.plans.top_class import LOOKS, TopClass

NOISE = Gaussian(0.25)


def advance(contests, votes, samples, alpha):
    """Contests after one more look of each."""
    rule = TopClass(10**9, alpha)
    states = [contest or rule.init(NOISE) for contest in contests]
    return rule.update_each(states, [Look(samples, one) for one in votes])


def settle(p, ceiling, alpha, repetitions=1, seed=0):
    """The answers (-1 for none) and the samples of many contests between the same classes."""
    rng = np.random.default_rng(seed)
    answers, used = np.full(repetitions, -1), np.full(repetitions, ceiling)
    contests, going, before = [None] * repetitions, np.arange(repetitions), 0
    for look in LOOKS[ceiling >= LOOKS].tolist():
        votes = [
            dict(enumerate(row))
            for row in rng.multinomial(look - before, p, size=len(going)).tolist()
        ]
        contests = advance(contests, votes, look - before, alpha)
        settled = np.array([contest.settled for contest in contests])
        answers[going[settled]] = [contest.leader for contest in contests if contest.settled]
        used[going[settled]] = look
        contests, going, before = [c for c in contests if not c.settled], going[~settled], look
        if not contests:
            break
    return answers, used


def follow(*looks, alpha=0.001):
    """One contest after looks with these votes of the classes 0, 1, ..."""
    contest = None
    for votes in looks:
        [contest] = advance([contest], [dict(enumerate(votes))], sum(votes), alpha)
        yield contest


def test_a_clear_answer_takes_twenty_samples():
    answers, used = settle([0, 0, 1.0, 0], 100, 0.001)
    assert (answers.tolist(), used.tolist()) == ([2], [20])
    answers, used = settle([0.03, 0.95, 0.02], 1000, 0.001, 500)
    assert np.all(answers == 1)
    assert used.mean() < 40


@pytest.mark.parametrize(
    "p", [[0.34, 0.33, 0.33], [0.501, 0.499], [0.499, 0.501], [0.24, 0.25, 0.25, 0.26]]
)
def test_near_ties_are_answered_wrongly_less_often_than_alpha(p):
    alpha, repetitions = 0.05, 800
    answers, _ = settle(p, 500, alpha, repetitions)
    wrong = np.sum((answers >= 0) & (answers != np.argmax(p)))
    assert wrong > 0 or len(p) > 2
    assert binom.sf(wrong - 1, repetitions, alpha) > 1e-4


def test_a_class_must_beat_the_third_as_well():
    """A first look with no votes of class 2 does not make it a weak rival."""
    *_, contest = follow([6, 2, 0], [20, 0, 20], [40, 0, 40])
    assert np.isinf(contest.histories.wealth.log[contest.histories.rows[1]])
    assert not contest.settled


def test_a_new_leader_starts_again_with_half_of_what_is_left_of_alpha():
    seen = list(follow([5, 3, 0], [0, 0, 1], [0, 8, 0], [1, 0, 0], [9, 0, 0]))
    assert [(one.leader, one.changes) for one in seen] == [(0, 0), (0, 0), (1, 1), (1, 1), (0, 2)]
    wealth = seen[-1].histories.wealth
    assert np.exp(wealth.log[:, 0]).tolist() == pytest.approx([1 / 8] * 3)
    assert (wealth.leader.tolist(), wealth.drawn.tolist()) == ([15] * 3, [27] * 3)
    rows = seen[-1].histories.rows
    assert {c: wealth.rival[row] for c, row in rows.items()} == {1: 11, 2: 1}
    assert sorted(wealth.rival.tolist()) == [0, 1, 11]


def test_a_tie_for_the_lead_changes_nothing():
    *_, contest = follow([0, 8], [8, 0])
    assert (contest.leader, contest.changes) == (1, 0)


def test_a_settled_contest_keeps_its_leader():
    *_, contest = follow([0, 8], [0, 12], [200, 0])
    assert contest.settled
    assert contest.leader == 1


def test_without_a_vote_there_is_no_leader():
    *_, contest = follow([0, 0], [0, 0])
    assert (contest.leader, contest.settled, contest.seen.samples) == (-1, False, 0)
