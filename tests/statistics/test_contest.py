import numpy as np
import pytest

from smoothcert.noises import Gaussian
from smoothcert.statistics.bets import tangents
from smoothcert.statistics.contest import LOOKS, begin_contest, update_contest

TABLE = tangents(Gaussian(0.25), (0.0,))


def settle(p, ceiling, alpha, repetitions=1, seed=0):
    """The answers (-1 for none) and the samples of many contests between the same classes."""
    rng = np.random.default_rng(seed)
    contest, before = begin_contest(TABLE, (repetitions,), len(p)), 0
    used = np.full(repetitions, ceiling)
    for look in LOOKS[ceiling >= LOOKS].tolist():
        votes = rng.multinomial(look - before, p, size=repetitions)
        contest = update_contest(TABLE, contest, votes, np.full(repetitions, look - before), alpha=alpha)
        used[contest.settled & (used > look)] = look
        before = look
    return np.where(contest.settled, contest.leader, -1), used


def test_a_clear_answer_takes_twenty_samples():
    answers, used = settle([0, 0, 1.0, 0], 100, 0.001)
    assert (answers.tolist(), used.tolist()) == ([2], [20])
    answers, used = settle([0.03, 0.95, 0.02], 1000, 0.001, 500)
    assert np.all(answers == 1)
    assert used.mean() < 40


@pytest.mark.parametrize(
    "p", [[0.34, 0.33, 0.33], [0.501, 0.499], [0.499, 0.501], [0.24, 0.25, 0.25, 0.26], [0.51, 0.49]]
)
def test_near_ties_are_answered_wrongly_less_often_than_alpha(p):
    alpha = 0.05
    answers, _ = settle(p, 1000, alpha, 4000)
    wrong = (answers >= 0) & (answers != np.argmax(p))
    assert wrong.mean() <= alpha


def test_a_class_must_beat_the_third_as_well():
    """A first look with no votes of class 2 does not make it a weak rival."""
    contest = begin_contest(TABLE, (), 3)
    for votes in ([6, 2, 0], [20, 0, 20], [40, 0, 40]):
        contest = update_contest(TABLE, contest, votes, sum(votes), alpha=0.001)
    assert np.isinf(contest.wealth.log[1, 0])
    assert not contest.settled


def test_a_new_leader_starts_again_with_half_of_what_is_left_of_alpha():
    contest = begin_contest(TABLE, (), 3)
    seen = []
    for votes in ([5, 3, 0], [0, 0, 1], [0, 8, 0], [1, 0, 0], [9, 0, 0]):
        contest = update_contest(TABLE, contest, votes, sum(votes), alpha=0.001)
        seen.append((int(contest.leader), int(contest.changes)))
    assert seen == [(0, 0), (0, 0), (1, 1), (1, 1), (0, 2)]
    assert np.exp(contest.wealth.log[:, 0]).tolist() == pytest.approx([1 / 8] * 3)


def test_a_tie_for_the_lead_changes_nothing():
    contest = begin_contest(TABLE, (), 2)
    for votes in ([0, 8], [8, 0]):
        contest = update_contest(TABLE, contest, votes, 8, alpha=0.001)
    assert (contest.leader, contest.changes) == (1, 0)


def test_a_settled_contest_keeps_its_leader():
    contest = begin_contest(TABLE, (), 2)
    for votes in ([0, 8], [0, 12], [200, 0]):
        contest = update_contest(TABLE, contest, votes, sum(votes), alpha=0.001)
    assert contest.settled
    assert contest.leader == 1
