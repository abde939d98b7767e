"""The runner-up bound beside the exact truth: every outcome of a small plan with three classes."""

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, ndtri, xlogy

from smoothcert import Certificate, Fixed, Gaussian, InputSpecific, Look, Tally, exact_coverage
from smoothcert._registry import describe, restore
from smoothcert.plans import Case
from smoothcert.plans.votes import ManyVotes
from smoothcert.statistics.bounds import lower_bound, upper_bound
from smoothcert.tasks.audit import fault

NOISE = Gaussian(0.5)
SETTINGS = {"samples": 40, "pilot": 12, "alpha": 0.05, "bound": "runner-up"}
PLANS = [
    Fixed(**SETTINGS),
    InputSpecific(**SETTINGS, decline=0.1),
    InputSpecific(**SETTINGS, decline=0.3, kind="relative"),
    InputSpecific(**SETTINGS, decline=0.1, reference="ideal"),
    Fixed(**SETTINGS, version=1),
]


def probabilities():
    """The simplex of three classes in steps of 0.05, all ties of two and three, and what lies just beside them."""
    steps = np.arange(21) / 20
    grid = [(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-12]
    ties = [(1 / 3, 1 / 3, 1 / 3), *((t, t, 1 - 2 * t) for t in np.linspace(0.34, 0.5, 9))]
    ties += [(1 - 2 * t, t, t) for t in (0.34, 0.4, 0.45)]
    beside = [(a + e, b - e, c) for a, b, c in ties for e in (0.01, -0.01)]
    p = np.clip(np.array(grid + ties + beside), 0, 1)
    return p / p.sum(axis=1, keepdims=True)


@cache
def outcomes(n):
    """All votes of n samples for three classes."""
    a, b = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    inside = a + b <= n
    return np.stack([a[inside], b[inside], n - a[inside] - b[inside]], axis=1)


def shares(votes, p):
    """Multinomial probabilities, shape (classes' probabilities, outcomes)."""
    ways = gammaln(votes.sum(axis=1) + 1) - gammaln(votes + 1).sum(axis=1)
    return np.exp(ways + sum(xlogy(votes[:, c], p[:, c, None]) for c in range(3)))


@cache
def radii(plan, n, chosen, alone):
    """The certified radius of every outcome of the second look, NaN for none."""
    votes = outcomes(n)
    drawn = np.full(len(votes), n)
    pilot = np.zeros_like(votes)
    pilot[:, list(alone)] = range(len(alone), 0, -1)
    state = Tally(
        NOISE,
        plan.pilot,
        look=2,
        chosen=np.full(len(votes), chosen),
        count=votes[:, chosen],
        drawn=drawn,
        first=ManyVotes(drawn, pilot),
        every=ManyVotes(drawn, votes),
    )
    return np.asarray(plan.prove(state).radius)


def followers(pilot, chosen):
    """The other classes that the pilot has seen, by their votes."""
    return tuple(c for c in np.argsort(-pilot, kind="stable").tolist() if c != chosen and pilot[c])


def failure(plan, p):
    """The exact probability of a wrong certificate: of a class that does not lead, or of too large a radius."""
    total = np.zeros(len(p))
    pilots = outcomes(plan.pilot)
    for pilot, share in zip(pilots, shares(pilots, p).T, strict=True):
        look = Look(plan.pilot, dict(enumerate(pilot.tolist())))
        n = Case(plan, NOISE, looks=[look]).more
        if not n:
            continue
        chosen = look.top
        radius = radii(plan, n, chosen, followers(pilot, chosen))
        others = np.delete(p, chosen, axis=1).max(axis=1)
        with np.errstate(invalid="ignore"):
            truth = NOISE.sigma / 2 * (ndtri(p[:, chosen]) - ndtri(others))
        truth = np.where(p[:, chosen] > others, truth, -np.inf)
        wrong = np.nan_to_num(radius, nan=-np.inf) > truth[:, None] * (1 + 1e-12)
        wrong &= ~np.isnan(radius)
        total += share * (shares(outcomes(n), p) * wrong).sum(axis=1)
    return total


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_at_most_alpha_of_all_outcomes_are_wrong_whatever_the_classes_probabilities(plan):
    p = probabilities()
    assert shares(outcomes(40), p).sum(axis=1) == pytest.approx(1)
    failed = failure(plan, p)
    assert failed.max() <= plan.alpha
    assert failed.max() > plan.alpha / 20  # a claim that could have failed


def test_the_enumeration_finds_a_bound_that_spends_too_much():
    class Spendthrift(Fixed):
        level = 0.2
        level_of_rivals = 0.2

    assert failure(Spendthrift(**SETTINGS), probabilities()).max() > 0.05


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_enumerated_radii_are_those_of_certificates(plan):
    rng = np.random.default_rng(0)
    certified = 0
    for _ in range(200):
        p = rng.dirichlet([4, 1, 0.5])
        pilot = rng.multinomial(plan.pilot, p)
        looks = [Look(plan.pilot, dict(enumerate(pilot.tolist())))]
        if n := Case(plan, NOISE, looks=looks).more:
            votes = rng.multinomial(n, p)
            looks.append(Look(n, dict(enumerate(votes.tolist()))))
            chosen = looks[0].top
            row = np.flatnonzero((outcomes(n) == votes).all(axis=1))[0]
            expected = radii(plan, n, chosen, followers(pilot, chosen))[row]
        else:
            expected = np.nan
        found = Certificate.from_votes(looks, plan=plan, noise=NOISE)
        assert found.abstained == np.isnan(expected)
        assert found.radius == np.nan_to_num(expected)
        certified += not found.abstained
        assert fault(found) is None
    assert certified > 50


def test_a_class_that_leads_without_a_majority_is_certified():
    looks = [Look(100, {0: 45, 1: 28, 2: 27}), Look(10_000, {0: 4_500, 1: 2_800, 2: 2_700})]
    binary, both = (
        Certificate.from_votes(looks, plan=Fixed(10_000, bound=b), noise=NOISE)
        for b in ("binary", "runner-up")
    )
    assert binary.abstained
    assert both.prediction == 0
    lower, upper = (
        lower_bound(4_500, 10_000, alpha=0.0005),
        upper_bound(2_800, 10_000, alpha=0.0005),
    )
    assert (both.proof.lower, both.proof.upper) == (lower, upper)
    assert (
        both.radius
        == NOISE.certified_radius(lower, upper)
        == pytest.approx(0.25 * (ndtri(lower) - ndtri(upper)))
    )


def test_with_one_rival_alone_the_radius_is_the_binary_one_at_half_of_alpha_and_so_a_little_smaller():
    looks = [Look(100, {0: 90, 1: 10}), Look(10_000, {0: 9_000, 1: 1_000})]
    binary, both = (
        Certificate.from_votes(looks, plan=Fixed(10_000, bound=b), noise=NOISE)
        for b in ("binary", "runner-up")
    )
    assert both.radius == pytest.approx(
        NOISE.certified_radius(lower_bound(9_000, 10_000, alpha=0.0005)), rel=1e-12
    )
    assert both.radius < binary.radius


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8),
    st.lists(st.integers(0, 200), min_size=8, max_size=8),
)
def test_the_radius_is_never_below_what_the_lower_bound_alone_proves(pilot, votes):
    first, second = dict(enumerate(pilot)), dict(enumerate(votes))
    samples = max(sum(votes), 20)
    assume(sum(pilot) <= samples)
    plan = Fixed(samples, pilot=max(sum(pilot), 1), bound="runner-up", alpha=0.01)
    looks = [Look(plan.pilot, first), Look(samples, second)]
    found = Certificate.from_votes(looks, plan=plan, noise=NOISE)
    if looks[0].top is None:
        assert found.abstained
        return
    alone = NOISE.certified_radius(lower_bound(votes[looks[0].top], samples, alpha=0.005))
    assert found.radius >= alone
    rest = [count for c, count in second.items() if c != looks[0].top]
    assert (
        found.proof.upper >= max(rest) / samples
    )  # no other class is bounded below its share of the votes
    assert found.proof.upper <= 1 - found.proof.lower + 1e-12


def test_rivals_of_the_pilot_are_bounded_one_by_one_and_all_others_together():
    plan = Fixed(1_000, bound="runner-up", alpha=0.01)
    pilot = Look(100, {0: 40, 1: 5, 2: 20, 3: 15, 4: 12, 5: 8})
    for votes, largest in (
        ({0: 400, 1: 50, 2: 200, 3: 150, 4: 120, 5: 80}, 200),
        ({0: 400, 1: 150, 2: 20, 3: 150, 4: 120, 5: 160}, 310),  # 1 and 5 share one bound
        ({0: 400, 1: 0, 2: 20, 3: 150, 4: 330, 5: 100}, 330),
        ({0: 400, 2: 20, 3: 30, 4: 30, 9: 300}, 300),  # the pilot never saw class 9
    ):
        upper = Case(plan, NOISE, looks=[pilot, Look(1_000, votes)]).proof().upper
        assert upper == upper_bound(largest, 1_000, alpha=0.005)


def test_a_class_that_leads_without_a_majority_gets_the_samples_that_its_radius_takes():
    plan, binary = (InputSpecific(100_000, bound=b, decline=0.05) for b in ("runner-up", "binary"))
    leading = Look(1_000, {0: 450, 1: 250, 2: 200, 3: 100})
    assert Case(binary, NOISE, looks=[leading]).more == 0
    n = Case(plan, NOISE, looks=[leading]).more
    assert 0 < n < 100_000
    votes = {0: 0.45, 1: 0.25, 2: 0.2, 3: 0.1}
    some, all_of_them = (
        Certificate.from_votes(
            [leading, Look(k, {c: round(v * k) for c, v in votes.items()})], plan=p, noise=NOISE
        )
        for p, k in ((plan, n), (Fixed(100_000, bound="runner-up"), 100_000))
    )
    assert 0 < all_of_them.radius - some.radius <= 0.05


def test_coverage_of_a_runner_up_bound_is_a_union_bound_and_says_so():
    found = exact_coverage(Fixed(1_000, bound="runner-up"), NOISE)
    assert (found.worst_failure, found.tie_failure, found.exact, found.valid) == (
        0.001,
        0.001,
        False,
        True,
    )


def test_a_run_of_version_1_keeps_its_bound_and_goes_on_with_it():
    recorded = restore({"name": "Fixed", **SETTINGS})
    assert recorded == Fixed(**SETTINGS, version=1) != Fixed(**SETTINGS)
    assert Fixed(**SETTINGS).continuing(recorded) == recorded
    assert restore(describe(recorded)) == recorded
    assert restore(describe(Fixed(**SETTINGS))) == Fixed(**SETTINGS)


def test_without_dividing_alpha_over_rivals_votes_prove_more():
    looks = [Look(12, {0: 8, 1: 2, 2: 2}), Look(40, {0: 28, 1: 6, 2: 6})]
    now, then = (
        Certificate.from_votes(looks, plan=Fixed(**SETTINGS, version=version), noise=NOISE)
        for version in (2, 1)
    )
    assert now.proof.lower == then.proof.lower
    assert now.proof.upper == upper_bound(6, 40, alpha=0.025) < then.proof.upper
    assert now.radius > then.radius


def test_the_bound_of_the_class_alone_has_one_version():
    assert Fixed(100, version=1) == Fixed(100)
    assert "version" not in describe(Fixed(100))
