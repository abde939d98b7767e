"""`BettingRadii`: bets, from the votes of one input up to runs, audits and replays."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from tests.refusals import refused

import smoothcert as sc
from smoothcert._registry import describe, restore
from smoothcert.plans import AtRadii, BettingRadii, Case, Certificate, Look
from smoothcert.plans.coverage import exact_coverage
from smoothcert.plans.expected import expected
from smoothcert.plans.follow import follow
from smoothcert.plans.votes import ManyVotes
from smoothcert.statistics import betting
from smoothcert.statistics.betting import LOOKS, tangents
from smoothcert.statistics.e_process import begin, update
from smoothcert.tasks.audit import audit, fault
from smoothcert.tasks.replay import from_votes, simulate

NOISE = sc.Gaussian(0.5)
RADII = (0, 0.25, 0.5, 1.0)
PLAN = AtRadii(RADII, bound="runner-up", known_labels=True)


def walk(plan, p, *, seed=0, noise=NOISE, label=0):
    """The certificate of a simulated input whose classes have these probabilities."""
    rng = np.random.default_rng(seed)
    case, looks = Case(plan, noise, label), []
    while case.more:
        votes = rng.multinomial(case.more, p)
        looks.append(Look(case.more, {c: int(n) for c, n in enumerate(votes) if n}))
        case.add(looks[-1])
    return Certificate.from_votes(looks, plan=plan, noise=noise, label=label)


def true_radius(p, noise=NOISE):
    return noise.sigma / 2 * (norm.ppf(p[0]) - norm.ppf(max(p[1:])))


def test_a_class_that_leads_without_a_majority_is_certified():
    p = [0.45, 0.2, 0.2, 0.15]
    assert true_radius(p) == pytest.approx(0.179, abs=1e-3)
    certificate = walk(PLAN, p)
    assert (certificate.prediction, certificate.radius, certificate.correct) == (0, 0.0, True)
    assert walk(AtRadii(RADII, known_labels=True), p).abstained
    assert walk(PLAN, [0.8, 0.1, 0.1]).radius == 0.5
    assert walk(PLAN, [0.4, 0.41, 0.19]).prediction is None


def test_what_is_proved_is_the_wealth_of_the_statistics():
    rng, p = np.random.default_rng(5), [0.68, 0.2, 0.1, 0.02]
    table = tangents(NOISE, PLAN.radii)
    case, wealth = Case(PLAN, NOISE, 0), begin(table, (4,))
    for n in np.diff(LOOKS[:25], prepend=0).tolist():
        assert case.more in (n, 0)
        if not case.more:
            break
        votes = rng.multinomial(n, p)
        case.add(Look(n, dict(enumerate(votes.tolist()))))
        wealth = update(table, wealth, votes[0], [0, *votes[1:]], n, alpha=0.001)
        radius = case.proof().radius
        assert np.isinf(wealth.log).all(axis=0).cumprod().sum() == (
            0 if radius is None else RADII.index(radius) + 1
        )
    assert radius == 0.25


def test_a_proof_states_no_bound_on_a_probability():
    proof = walk(PLAN, [0.45, 0.2, 0.2, 0.15]).proof
    assert (proof.lower, proof.upper, proof.radius) == (0.0, None, 0.0)
    assert walk(PLAN, [0.2, 0.5, 0.3]).proof.radius is None


def test_the_pilot_chooses_the_class_and_teaches_the_first_bet():
    plan = AtRadii([0.0], bound="runner-up")
    assert (plan.pilot, PLAN.pilot, plan.most_samples) == (105, 0, 100_105)
    case = Case(plan, NOISE)
    assert case.more == 105
    assert case.add(Look(105, {2: 100, 1: 5})) == 126 - 105
    case.add(Look(21, {2: 21}))
    assert (case.more, case.proof().prediction, case.proof().counted, case.proof().radius) == (
        0,
        2,
        21,
        0.0,
    )


def test_a_pilot_without_a_vote_ends_the_input():
    certificate = walk(AtRadii([0.0], bound="runner-up"), [0.0, 1.0], label=None)
    assert certificate.prediction == 1
    case = Case(AtRadii([0.0], bound="runner-up"), NOISE)
    assert case.add(Look(105, {})) == 0
    assert case.proof().prediction is None


@pytest.mark.parametrize(
    "p", [(0.3, 0.7), (0.45, 0.3, 0.25), (0.8, 0.2), (0.97, 0.02, 0.01), (1.0, 0.0)]
)
@pytest.mark.parametrize(
    "plan", [replace(PLAN, samples=3_000), AtRadii(RADII, 3_000, bound="runner-up")], ids=str
)
def test_audit_derives_each_certificate_again_and_finds_false_ones(plan, p):
    certificate = walk(plan, p, seed=3)
    assert fault(certificate) is None
    for radius in RADII:
        if radius != certificate.radius:
            assert fault(replace(certificate, radius=radius, prediction=0))
    more = [
        *certificate.looks[:-1],
        Look(certificate.looks[-1].samples, {0: certificate.looks[-1].samples}),
    ]
    assert certificate.looks[-1].votes == more[-1].votes or fault(
        replace(certificate, looks=tuple(more))
    )


def test_coverage_is_the_bound_of_a_theorem():
    found = exact_coverage(PLAN, NOISE)
    assert (found.worst_failure, found.exact, found.theorem, found.valid) == (
        0.001,
        False,
        "Ville's inequality",
        True,
    )


def test_ties_within_a_radius_are_certified_less_often_than_alpha():
    """On the curve where the class ties with a rival at some radius, every certificate of that radius is wrong."""
    alpha, repetitions, rng = 0.05, 500, np.random.default_rng(0)
    ties = [(0, 0.3, 0.3), (0, 0.5, 0.5)]
    for radius, rivals in (
        (0.25, (0.01, 0.1, 0.2, 0.3)),
        (0.5, (0.01, 0.05, 0.15)),
        (1.0, (0.002, 0.02)),
    ):
        ties += [(RADII.index(radius), float(NOISE.trade_off(radius, b)[0]), b) for b in rivals]
    level, a, b = np.array(ties).T
    shares = np.stack([a, b, (1 - a - b) / 2, (1 - a - b) / 2], axis=1)
    plan = AtRadii(RADII, 2_000, alpha=alpha, bound="runner-up", known_labels=True)
    shape = (repetitions, len(ties))
    end = follow(
        plan,
        NOISE,
        lambda more: ManyVotes(more, rng.multinomial(more, shares)),
        shape,
        np.zeros(shape, int),
    )
    radius = plan.prove(end.state).radius
    wrong = (radius >= np.array(RADII)[level.astype(int)]).sum(axis=0)
    assert wrong.sum() > 0
    assert np.all(binom.sf(wrong - 1, repetitions, alpha) > 1e-3)


def test_the_map_is_simulated():
    found = expected(
        AtRadii([0.5], 10_000, bound="runner-up", known_labels=True), NOISE, [0.8, 0.9, 0.99]
    )
    assert found.average
    assert found.proved["proves 0.5"] == pytest.approx([0, 1, 1], abs=0.02)
    assert found.samples[2] < 150


def test_a_replay_of_all_votes_needs_a_tenth_of_the_samples():
    votes = [
        [60_000, 39_000, 1_000],
        [45_000, 30_000, 25_000],
        [99_000, 500, 500],
        [30_000, 50_000, 20_000],
    ] * 10
    found = simulate(
        from_votes(votes, [0] * 40), replace(PLAN, radii=(0, 0.25)), noise=NOISE, repetitions=2
    ).plan
    assert found.samples < 10_000
    assert list(found.certified_accuracy.values()) == pytest.approx([0.75, 0.25], abs=0.03)


@pytest.mark.parametrize(
    "noise",
    [sc.Ablation(45, 784), sc.Discrete(0.8, size=15), sc.Splitting(0.5, 255)],
    ids=["l0", "bits", "counted"],
)
@pytest.mark.parametrize("radii", [[0], [0, 1]])
def test_a_noise_without_a_curve_is_refused_before_the_run(noise, radii):
    with pytest.raises(sc.InvalidInput):
        AtRadii(radii, bound="runner-up").for_noise(noise)


@pytest.mark.parametrize(
    ("settings", "noise", "code", "radius"),
    [
        ({"radii": [0, 3], "samples": 1_000}, NOISE, "too-few-samples", 3),
        ({"radii": [0], "samples": 50}, NOISE, "too-few-samples", 0),
        ({"radii": [0, 2]}, sc.Uniform(0.5), "radius-never-proved", 2),
    ],
)
def test_a_radius_that_no_votes_prove_is_refused_before_the_run(settings, noise, code, radius):
    with refused(code, radius=radius):
        AtRadii(**settings, bound="runner-up", known_labels=True).for_noise(noise)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"give_up": 1}, "give-up-too-large"),
        ({"give_up": -0.1}, "not-at-least"),
        ({"bound": "runner-up", "version": 2}, "not-one-of"),
        ({"bound": "runner-up", "earlier": ((10**6, 1),)}, "stages-shrink"),
    ],
)
def test_wrong_settings_are_told(settings, code):
    with refused(code):
        AtRadii(RADII, **settings)


@pytest.mark.parametrize("bound", ["binary", "runner-up"])
def test_giving_up_saves_samples_for_proofs(bound):
    p = np.tile([[0.69, 0.3, 0.01]], (200, 1))
    never, seldom, soon = (
        simulate(
            from_votes(1000 * p, [0] * 200),
            AtRadii([0.25], 5_000, bound=bound, known_labels=True, give_up=give_up),
            noise=NOISE,
            repetitions=1,
        ).plan
        for give_up in (0, 0.02, 0.5)
    )
    assert never.samples > 4_950
    assert soon.samples < 0.8 * seldom.samples < 0.8 * never.samples


def test_the_record_of_a_plan_for_the_class_alone_is_what_it_always_was():
    assert describe(AtRadii([0, 0.5], 10_000)) == {
        "name": "AtRadii",
        "radii": [0.0, 0.5],
        "samples": 10_000,
        "alpha": 0.001,
        "pilot": 50,
        "known_labels": False,
    }
    recorded = describe(replace(PLAN, give_up=0.1))
    assert (recorded["name"], recorded["give_up"], recorded["version"]) == ("BettingRadii", 0.1, 1)
    assert restore(recorded) == replace(PLAN, give_up=0.1)
    assert str(restore(recorded)) == (
        "radii 0, 0.25, 0.5, 1, ceiling 100,000, runner-up bound, known labels, giving up at 0.1"
    )


def test_the_record_of_version_1_and_the_runner_up_of_at_radii_are_this_plan():
    recorded = {
        "name": "AtRadii",
        "radii": [0.0, 0.25],
        "samples": 2_000,
        "alpha": 0.001,
        "pilot": 105,
        "known_labels": False,
        "bound": "runner-up",
        "earlier": [[500, 1]],
        "version": 1,
    }
    plan = BettingRadii((0, 0.25), 2_000, earlier=((500, 1),))
    assert restore(recorded) == plan
    assert AtRadii((0, 0.25), 2_000, bound="runner-up", earlier=((500, 1),)) == plan
    assert plan.bound == "runner-up"
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert pickle.loads(pickle.dumps(AtRadii([0]))) == AtRadii([0], bound="binary")
    assert replace(AtRadii([0], 500), samples=600) == AtRadii([0], 600)


def three_ways(x):
    """Class 0 leads without a majority near the origin, and the other classes share the rest."""
    return torch.where(x[:, 0] > 0.1, 0, torch.where(x[:, 1] > 0, 1, 2))


@pytest.mark.parametrize("known_labels", [False, True])
def test_a_run_is_the_same_in_memory_on_disk_resumed_and_in_any_batch(tmp_path, known_labels):
    data = [([d / 15, 0.0], 0) for d in range(15)]
    plan = AtRadii([0, 0.25], 2_000, bound="runner-up", known_labels=known_labels)
    settings = {"noise": NOISE, "plan": plan, "classes": 3, "device": "cpu"}

    def certified(name, **more):
        return sc.certify(three_ways, data, out=tmp_path / name, **settings, **more)

    whole = certified("whole", batch=64)
    certified("parts", limit=4, batch=500)
    parts = certified("parts", batch=500)
    assert [c.looks for c in parts] == [c.looks for c in whole]
    assert [c.proof for c in parts] == [c.proof for c in whole]
    assert {c.radius for c in whole if not c.abstained} == {0.0, 0.25}
    assert sc.certify(three_ways, data, **settings).plan == plan
    assert audit(whole.path, model=three_ways, data=data, redraw=15).findings == ()


@pytest.mark.parametrize("noise", [NOISE, sc.Laplace(0.5), sc.Uniform(0.5)], ids=str)
def test_the_second_route_finds_the_same_wealth_and_an_unfair_bet(noise, monkeypatch):
    plan, p = (
        AtRadii([0, 0.1, 0.25], 3_000, bound="runner-up", known_labels=True),
        [0.6, 0.25, 0.1, 0.05],
    )
    found = walk(plan, p, noise=noise)
    assert plan.p_value(found.looks, found.radius, noise, 0) <= plan.alpha
    for larger in (r for r in plan.radii if r > found.radius):
        assert plan.p_value(found.looks, larger, noise, 0) > plan.alpha
    fair = betting._offset
    tangents.cache_clear()
    monkeypatch.setattr(
        betting, "_offset", lambda *args: fair(*args) - 0.1
    )  # tangents that cut into the false claims
    unfair = walk(plan, p, noise=noise)
    assert plan.p_value(unfair.looks, unfair.radius, noise, 0) > plan.alpha
    tangents.cache_clear()
