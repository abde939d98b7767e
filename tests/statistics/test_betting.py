"""Bets on the runner-up: the reference wealths, and that no false claim is ever believed more often than alpha."""

from dataclasses import dataclass
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import factorial
from tests.refusals import refused

from smoothcert.noises import Ablation, Gaussian, Laplace, Uniform
from smoothcert.statistics import betting
from smoothcert.statistics.betting import LOOKS, best_bet, tangents
from smoothcert.statistics.e_process import (
    Histories,
    begin,
    begin_histories,
    hopeless,
    outcome,
    update,
    update_histories,
)

CURVES = [
    (Gaussian(0.5), 0.25),
    (Gaussian(0.25), 0.5),
    (Uniform(1.0), 0.3),
    (Laplace(0.5), 0.25),
    (Gaussian(0.5), 0.0),
]
curves = pytest.mark.parametrize(("noise", "radius"), CURVES, ids=str)

REFERENCE_VOTES = [(40, 12, 8), (8, 3, 1), (11, 2, 2), (12, 4, 2), (15, 4, 2), (590, 180, 104)]
REFERENCE_WEALTH = {
    0.0: [0, 1.1390, 4.2633, 6.3333, 9.7014, 124.6279],
    0.25: [0, -0.0121, 0.2823, 0.3198, 0.5895, 5.6973],
    0.5: [0, 0, 0, 0, 0, 0],
}


@dataclass(frozen=True)
class Inexact(Gaussian):
    """Gaussian noise whose curve or drawing is off a little."""

    curve: float = 0.0
    drawing_error: float = 0.0

    def trade_off(self, radius, b):
        h, slope = super().trade_off(radius, b)
        return h * (1 + self.curve), slope * (1 - self.curve)


def path(table, votes, alpha=1e-100):
    """Log wealth against one rival after each look."""
    wealth, found = begin(table), []
    for own, rival, other in votes:
        wealth = update(table, wealth, own, rival, own + rival + other, alpha=alpha)
        found.append(wealth.log)
    return np.array(found)


def proved(wealth):
    """How many radii are proved against each rival."""
    return np.logical_and.accumulate(np.isinf(wealth.log), axis=-1).sum(axis=-1)


def exact_curve(noise, radius, b):
    """h(b) to 40 digits."""
    b = mpmath.mpf(b)
    if isinstance(noise, Gaussian):
        z = mpmath.findroot(
            lambda z: mpmath.ncdf(z) - b, float(mpmath.sqrt(2) * mpmath.erfinv(2 * b - 1))
        )
        return mpmath.ncdf(z + 2 * mpmath.mpf(radius) / noise.sigma)
    if isinstance(noise, Uniform):
        return min(b + mpmath.mpf(radius) / noise.scale, mpmath.mpf(1))
    grown = mpmath.exp(2 * mpmath.mpf(radius) / noise.scale)
    return grown * b if grown * b <= 0.5 else 1 - 1 / (4 * b * grown)


def test_wealth_is_that_of_the_reference():
    found = path(tangents(Gaussian(0.5), tuple(REFERENCE_WEALTH)), REFERENCE_VOTES)
    for j, expected in enumerate(REFERENCE_WEALTH.values()):
        assert found[:, j] == pytest.approx(expected, abs=5.1e-5)


def test_a_curve_of_another_library_version_hardly_changes_wealth():
    radii = tuple(REFERENCE_WEALTH)
    for error in (-1e-13, 1e-13):
        found = path(tangents(Inexact(0.5, error), radii), REFERENCE_VOTES)
        assert found == pytest.approx(
            path(tangents(Inexact(0.5), radii), REFERENCE_VOTES), abs=1e-4
        )


@curves
@given(
    shares=st.tuples(st.floats(0.2, 1), st.floats(0, 1)),
    n=st.sampled_from([8, 60, 1000, 10**6]),
    b=st.floats(0, 0.5),
)
@settings(max_examples=80, deadline=None)
def test_no_bet_gains_on_average_if_the_claim_is_false(noise, radius, shares, n, b):
    own = int(shares[0] * n)
    rival = int(shares[1] * (n - own))
    bet = best_bet(tangents(noise, (radius,)), own, rival, n)
    payoffs = [mpmath.exp(mpmath.mpf(float(part[0]))) for part in bet[:3]]
    touching = (
        (rival + 0.5) / (n + 1.5) / float(payoffs[1])
    )  # b0 = qb / payoff of B: the most dangerous tie
    for tie in (b, touching):
        with mpmath.workdps(40):
            tie = mpmath.mpf(max(tie, 1e-6))
            a = exact_curve(noise, radius, tie)
            if a + tie <= 1:
                assert a * payoffs[0] + tie * payoffs[1] + (1 - a - tie) * payoffs[2] <= 1


@curves
def test_all_short_votings_together_gain_nothing_and_seldom_convince(noise, radius):
    """Exact enumeration: four votes teach, then two looks of four votes, at every false claim of a grid."""
    table, alpha = tangents(noise, (radius,)), 0.5
    outcomes = np.array([(a, b, 4 - a - b) for a in range(5) for b in range(5 - a)])
    ways = 24 / factorial(outcomes).prod(axis=1)
    paths = np.array(list(product(range(len(outcomes)), repeat=3)))  # (paths, looks)
    wealth = unlimited = begin(table, (len(paths),))
    for look in outcomes[paths].transpose(1, 0, 2):
        votes = look[:, 0], look[:, 1], np.full(len(paths), 4)
        wealth = update(table, wealth, *votes, alpha=alpha)
        unlimited = update(table, unlimited, *votes, alpha=1e-100)
    assert proved(wealth).any() == (radius < 0.5)  # twelve votes are too few there
    for b in np.linspace(0.002, 0.49, 12):
        for part in (0.3, 0.8, 1.0):
            a = part * (b if radius == 0 else float(noise.trade_off(radius, b)[0]))
            if a + b < 1:
                chance = (ways * np.prod(np.array([a, b, 1 - a - b]) ** outcomes, axis=1))[
                    paths
                ].prod(axis=1)
                assert chance.sum() == pytest.approx(1)
                assert chance @ np.exp(unlimited.log[:, 0]) <= 1 + 1e-12
                assert chance @ proved(wealth) <= alpha


@curves
def test_ties_are_believed_less_often_than_alpha(noise, radius):
    """Four ties on each of the five curves, looked at again and again."""
    alpha, repetitions, rng = 0.05, 1500, np.random.default_rng(0)
    b = np.array([0.0005, 0.002, 0.01, 0.02]) if radius == 0.5 else np.array([0.02, 0.1, 0.2, 0.27])
    a = b if radius == 0 else noise.trade_off(radius, b)[0]
    p = np.repeat(np.stack([a, b, 1 - a - b], axis=1), repetitions, axis=0)
    assert p.min() > 0
    table = tangents(noise, (radius,))
    wealth, before = begin(table, (len(p),)), 0
    for look in LOOKS[LOOKS <= 3000].tolist():
        votes = rng.multinomial(look - before, p)
        wealth = update(
            table, wealth, votes[:, 0], votes[:, 1], np.full(len(p), look - before), alpha=alpha
        )
        before = look
    believed = proved(wealth).reshape(len(b), -1).mean(axis=1)
    assert believed.mean() > 0
    assert np.all(believed <= alpha)


def test_a_radius_counts_only_with_all_smaller_ones_and_all_rivals():
    table = tangents(Gaussian(0.5), (0.0, 0.25))
    wealth = begin(table, (2,))
    inf = np.inf
    for log, radii in [
        ([[0, inf], [inf, inf]], 0),
        ([[inf, 0], [inf, inf]], 1),
        ([[inf, inf], [inf, inf]], 2),
    ]:
        histories = Histories({1: 1}, wealth._replace(log=np.array(log)), 0, 2)
        assert outcome([histories], 1000, alpha=0.001, give_up=0.02).proved == radii


def test_what_is_beaten_stays_beaten():
    table = tangents(Gaussian(0.5), (0.0,))
    found = path(table, [(60, 0, 0), (40, 0, 0), (0, 400, 0)], alpha=0.001)
    assert np.isinf(found[1:]).all()


def test_the_drawing_error_is_charged():
    votes, radii = [(40, 12, 8), (400, 120, 80)], (0.0, 0.25)
    exact, charged = (
        path(tangents(Inexact(0.5, drawing_error=e), radii), votes)[-1] for e in (0.0, 0.01)
    )
    assert np.all(charged < exact - 1)
    a, b, error = 0.3 + 0.01, 0.3 - 0.01, 0.01  # as it is drawn, a tie looks like this
    bet = best_bet(tangents(Inexact(0.5, drawing_error=error), (0.0,)), 40, 12, 60)
    assert a * np.exp(bet.leader) + b * np.exp(bet.rival) + (1 - a - b) * np.exp(bet.other) <= 1


@pytest.mark.parametrize("noise", [Gaussian(0.1), Uniform(1.0), Laplace(0.01)], ids=str)
def test_a_radius_beyond_reach_is_not_bet_on(noise):
    found = path(tangents(noise, (4.0,)), [(60, 0, 0), (10_000, 0, 0)])
    assert found == pytest.approx(0, abs=1e-6)


def test_a_noise_without_a_curve_can_only_bet_at_radius_0():
    assert path(tangents(Ablation(45, 784), (0.0,)), REFERENCE_VOTES)[-1] == pytest.approx(
        124.6279, abs=1e-4
    )
    with refused("no-trade-off"):
        tangents(Ablation(45, 784), (0.0, 1.0))


def test_a_check_between_two_looks_changes_no_bet():
    table = tangents(Gaussian(0.5), (0.0, 0.25, 0.5))
    taught = update(table, begin(table), 48, 7, 60, alpha=1e-100)
    checked = update(table, taught, 15, 3, 20, alpha=1e-100, bets_change=False)
    assert all(np.array_equal(*pair) for pair in zip(checked.bet, taught.bet, strict=True))
    later = update(table, checked, 5, 1, 7, alpha=1e-100)
    at_once = update(table, taught, 20, 4, 27, alpha=1e-100)
    assert later.log == pytest.approx(at_once.log, rel=1e-12)
    assert all(np.array_equal(*pair) for pair in zip(later.bet, at_once.bet, strict=True))
    assert LOOKS[:5].tolist() == [60, 72, 87, 105, 126]


def test_radii_that_enter_later_start_with_nothing_and_leave_the_others_alone():
    few, all_of_them = (tangents(Gaussian(0.5), radii) for radii in ((0.0, 0.25), (0.0, 0.25, 0.5)))
    one, other = begin_histories(few), begin_histories(all_of_them)
    for votes, n in ({3: 58, 1: 2}, 60), ({3: 11, 2: 1}, 12), ({3: 15}, 15):
        [one] = update_histories(few, [one], [votes], n, chosen=[3], alpha=1e-100)
        [other] = update_histories(
            all_of_them, [other], [votes], n, chosen=[3], alpha=1e-100, n_radii=2
        )
        assert other.rows == one.rows
        assert other.wealth.log[..., :2].tolist() == one.wealth.log.tolist()
        assert not other.wealth.log[..., 2].any()
    assert other.wealth.bet.leader[0, 2] > 0  # earlier votes teach its first bet
    [entered] = update_histories(all_of_them, [other], [{3: 18}], 18, chosen=[3], alpha=1e-100)
    assert np.all(entered.wealth.log[..., 2] == pytest.approx(18 * other.wealth.bet.leader[..., 2]))


def random_looks(rng, classes, count, p=None):
    p = rng.dirichlet(np.full(classes, 0.5)) * 0.5 + 0.5 * np.eye(classes)[3] if p is None else p
    return [rng.multinomial(n, p) for n in np.diff(LOOKS[:count], prepend=0)]


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_one_input_with_shared_histories_gets_what_it_would_get_in_an_array(seed):
    rng, radii = np.random.default_rng(seed), (0.0, 0.1, 0.25, 0.5)
    table = tangents(Gaussian(0.5), radii)
    looks = random_looks(rng, 12, 12)
    together, wealth = [begin_histories(table)] * 2, begin(table, (2, 12))
    for votes in looks:
        n = int(votes.sum())
        by_class = {k: int(v) for k, v in enumerate(votes) if v}
        other = {(k + 1) % 12: v for k, v in by_class.items()}  # of another input, whose class is 4
        together = update_histories(
            table, together, [by_class, other], n, chosen=[3, 4], alpha=0.01
        )
        rivals = np.where(np.arange(12) == 3, 0, votes)
        wealth = update(table, wealth, votes[3], np.tile(rivals, (2, 1)), n, alpha=0.01)
        for histories, first in zip(together, (0, 1), strict=True):
            rows = [histories.rows.get((k + first) % 12, 0) for k in range(12)]
            assert histories.wealth.log[rows].tolist() == wealth.log[1].tolist()
        found = outcome(together, 1000, alpha=0.01, give_up=0.02)
        assert found.proved.tolist() == proved(wealth).min(axis=1).tolist()
        following = min(int(found.proved[0]), 3)
        assert found.hopeless.tolist() == [
            hopeless(wealth, 1000, alpha=0.01, give_up=0.02)[i, :, following].any()
            for i in range(2)
        ]


def test_ten_thousand_classes_share_a_few_histories():
    rng = np.random.default_rng(0)
    table = tangents(Gaussian(0.5), (0.0, 0.25))
    p = np.full(10_000, 0.3 / 10_000)
    p[3] += 0.7
    histories, voted = begin_histories(table), set()
    for votes in random_looks(rng, 10_000, 15, p):
        by_class = {int(k): int(votes[k]) for k in np.flatnonzero(votes)}
        voted |= by_class.keys()
        [histories] = update_histories(
            table, [histories], [by_class], int(votes.sum()), chosen=[3], alpha=0.001
        )
    assert len(voted) > 150
    assert len(histories.wealth.rival) < 25
    assert outcome([histories], 10_000, alpha=0.001, give_up=0.02).proved == 2


def test_bets_do_not_depend_on_how_many_are_made_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    table = tangents(Gaussian(0.5), (0.0, 0.25, 0.5))
    votes = rng.multinomial(500, [0.6, 0.3, 0.1], size=200)
    at_once = best_bet(table, votes[:, 0], votes[:, 1], votes.sum(axis=1))
    monkeypatch.setattr(betting, "_MOST_NUMBERS", 128 * 3 * 7)
    in_parts = best_bet(table, votes[:, 0], votes[:, 1], 500)
    alone = [best_bet(table, a, b, 500) for a, b in votes[:, :2]]
    for i in range(3):
        assert np.array_equal(at_once[i], in_parts[i])
        assert np.array_equal(at_once[i], [bet[i] for bet in alone])


def give_up_at(p, radius, ceiling, give_up, repetitions=200):
    """The share of inputs that are proved, and average samples, when hopeless ones are given up."""
    rng, table = np.random.default_rng(1), tangents(Gaussian(0.5), (radius,))
    wealth, before = begin(table, (repetitions,)), 0
    used, sure, stopped = np.zeros(repetitions), np.zeros(repetitions), np.zeros(repetitions, bool)
    for look in [*LOOKS[ceiling > LOOKS].tolist(), ceiling]:
        votes = rng.multinomial(look - before, p, size=repetitions)
        wealth = update(
            table,
            wealth,
            votes[:, 0],
            votes[:, 1],
            np.full(repetitions, look - before),
            alpha=0.001,
        )
        before = look
        used[~stopped] = look
        sure[~stopped] = proved(wealth)[~stopped]
        stopped |= (proved(wealth) == 1) | hopeless(wealth, ceiling, alpha=0.001, give_up=give_up)[
            :, 0
        ]
    return sure.mean(), used.mean()


def test_giving_up_saves_samples_and_loses_about_as_many_proofs_as_it_says():
    p = [0.62, 0.32, 0.06]  # radius .1933
    sure, spent = give_up_at(p, 0.15, 10_000, 0.0)
    found, used = give_up_at(p, 0.15, 10_000, 0.02)
    assert sure > 0.95
    assert sure - 0.05 <= found <= sure
    assert used <= spent
    assert give_up_at(p, 0.25, 10_000, 0.0) == (0, 10_000)
    assert give_up_at(p, 0.25, 10_000, 0.02)[1] < 1_500
