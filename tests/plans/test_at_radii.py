from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from scipy.stats import binom
from tests.refusals import refused
from tests.subjects import bound

import smoothcert as sc
from smoothcert.device.runtime import Runtime
from smoothcert.plans import AtRadii, Case, Certificate, Look
from smoothcert.plans.at_radii import State
from smoothcert.plans.coverage import exact_coverage
from smoothcert.plans.expected import expected
from smoothcert.statistics.group_sequential import stopping_distribution
from smoothcert.tasks.audit import fault
from smoothcert.tasks.replay import from_shares, simulate

NOISE = sc.Gaussian(0.5)
RADII = (0, 0.25, 0.5, 1.0)


def walk(plan, p, *, seed, classes=2):
    """The certificate of a simulated input whose class 0 has probability p."""
    rng = np.random.default_rng(seed)
    case, looks = Case(plan, NOISE, 0), []
    while case.more:
        votes = rng.multinomial(case.more, [p, *[(1 - p) / (classes - 1)] * (classes - 1)])
        looks.append(Look(case.more, {c: int(n) for c, n in enumerate(votes) if n}))
        case.add(looks[-1])
    return Certificate.from_votes(looks, plan=plan, noise=NOISE, label=0)


@pytest.mark.parametrize("known_labels", [False, True])
def test_coverage_is_the_exact_crossing_probability(known_labels):
    found = exact_coverage(AtRadii([0.5], samples=10_000, known_labels=known_labels), NOISE)
    assert found.worst_p == pytest.approx(ndtr(1) + NOISE.drawing_error, abs=1e-12)
    assert found.worst_failure == pytest.approx(
        0.000998783086, abs=NOISE.drawing_error
    )  # of ndtr(1)
    assert found.valid
    assert found.exact


def test_several_radii_need_no_correction():
    plan = AtRadii(np.linspace(0, 1.5, 7), samples=5_000, alpha=0.05)
    assert exact_coverage(plan, NOISE).worst_failure <= 0.05
    # All states, with giving up: the chance to prove any false radius just below each threshold.
    tables = plan.tables(NOISE)
    for false, threshold in enumerate(tables.thresholds.tolist(), start=1):
        p = threshold * (1 - 1e-12)
        stop = stopping_distribution(p, tables.looks, tables.needed, tables.futile)
        assert stop.levels.sum() == pytest.approx(1)
        assert stop.levels[false:].sum() <= 0.05


def test_boundaries_are_nested():
    needed = AtRadii(np.linspace(0, 2, 40), samples=20_000).tables(NOISE).needed
    assert np.all(np.diff(needed, axis=0) >= 0)


def test_the_map_gives_expected_samples_and_chances():
    plan = AtRadii([0.5], samples=10_000, known_labels=True)
    found = expected(plan, NOISE, [0.85, 0.9, 0.95, 0.99])
    # Without giving up, the specification says 623, 167 and 76 samples, and a chance of .15102 at .85.
    assert found.samples[1:] == pytest.approx([623, 167, 76], abs=2)
    assert found.proved["proves 0.5"][1:] == pytest.approx([1, 1, 1], abs=1e-3)
    assert 0.12 < found.proved["proves 0.5"][0] < 0.15102


def test_expected_samples_are_those_of_simulated_inputs():
    plan = AtRadii(RADII, samples=2_000)
    spent = [walk(plan, 0.8, seed=seed).samples for seed in range(400)]
    [average] = expected(plan, NOISE, 0.8).samples
    assert np.mean(spent) == pytest.approx(average, abs=4 * np.std(spent) / 20)


def test_a_proved_radius_of_zero_is_a_certificate():
    plan = AtRadii([0, 1.5], samples=2_000)
    certificate = walk(plan, 0.7, seed=0)
    assert (certificate.prediction, certificate.radius, certificate.correct) == (0, 0.0, True)
    assert not certificate.abstained
    assert walk(plan, 0.5, seed=0).prediction is None


def test_certificates_count_at_the_radius_that_was_decided():
    run = sc.Results.from_certificates("r", [walk(AtRadii(RADII), 0.9, seed=0)])
    assert run.radius.tolist() == [0.5]
    assert run.certified_accuracy([0, 0.5, 0.51]).tolist() == [1, 1, 0]


def test_the_recorded_radius_is_the_one_that_was_asked_for():
    for radius in np.linspace(0.01, 1.7, 50).tolist():
        plan = AtRadii([radius], samples=100_000)
        [threshold] = plan.tables(NOISE).thresholds
        assert NOISE.radius(threshold) >= radius  # so that p above the threshold proves it
        proved = State(plan.init(NOISE, 0).tally, level=1)
        assert plan.prove(proved).radius == radius


def test_known_labels_need_no_pilot_and_count_every_sample():
    plan = AtRadii(RADII, known_labels=True)
    assert plan.pilot == 0
    assert plan.most_samples == 100_000
    assert walk(plan, 0.99, seed=1).counted == walk(plan, 0.99, seed=1).samples
    assert AtRadii(RADII).pilot == 50
    with refused("needless-pilot"):
        AtRadii(RADII, known_labels=True, pilot=20)


def test_wrong_inputs_cost_little_with_known_labels():
    assert walk(AtRadii(RADII, known_labels=True), 0.1, seed=0).samples == 60


@pytest.mark.parametrize("p", [0.3, 0.55, 0.8, 0.97, 1.0])
def test_audit_derives_each_certificate_again_and_finds_false_ones(p):
    certificate = walk(AtRadii(RADII, samples=3_000), p, seed=3)
    assert fault(certificate) is None
    larger = [r for r in RADII if r > certificate.radius]
    if not certificate.abstained and larger:
        assert fault(replace(certificate, radius=larger[0]))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"radii": []}, "no-radii"),
        ({"radii": "0,0.25"}, "not-at-least"),
        ({"radii": [-1]}, "not-at-least"),
        ({"radii": [0.5], "samples": 5}, "never-certifies"),
        ({"radii": [float("nan")]}, "not-at-least"),
        ({"radii": [0.5], "bound": "third"}, "not-one-of"),
    ],
)
def test_wrong_settings_are_told(settings, code):
    with refused(code):
        AtRadii(**settings)


def test_a_radius_that_no_votes_prove_is_refused_before_the_run():
    with refused("too-few-samples", radius=3, samples=1_000):
        AtRadii([0, 3], samples=1_000).for_noise(NOISE)


def test_radii_are_sorted_and_listed_once():
    assert AtRadii([0.5, 0, 0.5]).radii == (0.0, 0.5)
    assert (
        str(AtRadii([0.5, 0], known_labels=True)) == "radii 0, 0.5, ceiling 100,000, known labels"
    )


def tied(classes):
    """A classifier that answers with each of so many classes equally often at the origin, whatever is asked."""
    edges = torch.tensor(NOISE.sigma * ndtri(np.arange(1, classes) / classes), dtype=torch.float32)
    return lambda x: torch.bucketize(x[:, 0].contiguous(), edges)


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "known_labels"), [(2, False), (2, True), (3, False)])
def test_at_most_alpha_of_the_certificates_are_wrong_through_the_real_sampler(
    classes, known_labels
):
    inputs, alpha = 20_000, 0.05
    plan = AtRadii(
        [0.0, 0.2],
        samples=300,
        alpha=alpha,
        known_labels=known_labels,
        pilot=0 if known_labels else 9,
    )
    runtime = Runtime.resolve("cpu", "float32", "none", 8192)
    subject = bound(tied(classes), classes, NOISE, runtime, torch.zeros(1), seed=1)
    engine = subject.prepare().engine(plan)
    wrong = sum(
        not c.abstained for c in engine.certify((id, torch.zeros(1), 0) for id in range(inputs))
    )
    # No class has a majority, so every certificate is wrong.
    assert binom.sf(wrong - 1, inputs, alpha) > 1e-6
    if (
        classes == 2
    ):  # the bound is nearly reached, so the test would notice a plan that spends more
        assert wrong > 0.7 * alpha * inputs


def test_steps_of_an_l0_radius_count_as_in_a_run_that_measures_it():
    """p = .6 proves a radius of 1 pixel and no more, so certified accuracy at 1 (radii above 1) must be 0."""
    noise = sc.Ablation(45, size=784)
    assert noise.radius(0.6) == 1
    population = from_shares(np.full(200, 0.6), np.ones(200, bool))
    found = simulate(population, AtRadii([0, 1, 2], samples=20_000), noise=noise, repetitions=2)
    assert found.ceiling.certified_accuracy == {0.0: 1.0, 1.0: 0.0, 2.0: 0.0}
    assert found.plan.certified_accuracy == {0.0: pytest.approx(1, abs=0.05), 1.0: 0.0, 2.0: 0.0}


def test_audit_tests_an_l0_radius_at_the_step_above_it():
    noise, plan = sc.Ablation(45, size=784), AtRadii([0, 1, 2], samples=20_000, known_labels=True)
    rng = np.random.default_rng(0)
    case, looks = Case(plan, noise, 3), []
    while case.more:
        look = Look(case.more, {3: int(rng.binomial(case.more, 0.63))})
        looks.append(look)
        case.add(look)
    made = Certificate.from_votes(looks, plan=plan, noise=noise, label=3)
    assert made.radius == 1  # above 1, so 2 pixels: that needs p > .6116
    assert fault(made) is None
    assert plan.p_value(looks, 1, noise, 3) <= plan.alpha
    assert plan.p_value(looks, 2, noise, 3) == 1


@pytest.mark.parametrize("noise", [sc.Gaussian(0.5), sc.Uniform(1.0), sc.Laplace(0.3)], ids=str)
def test_thresholds_of_nearly_equal_radii_are_sorted(noise):
    for radius in np.random.default_rng(0).uniform(0, 0.8, 30):
        radii = [radius]
        while len(radii) < 5:
            radii.append(float(np.nextafter(radii[-1], 9)))
        thresholds = AtRadii(radii, samples=100).tables(noise).thresholds
        assert np.all(np.diff(thresholds) >= 0)


@pytest.mark.parametrize(
    ("noise", "radius", "largest"),
    [(sc.Uniform(0.5), 2, 0.5), (sc.Discrete(0.2, 256, size=1), 1, 1)],
    ids=str,
)
def test_more_samples_are_not_advised_where_they_cannot_help(noise, radius, largest):
    with refused("radius-never-proved", radius=radius, largest=pytest.approx(largest)):
        AtRadii([0, radius], samples=10_000).for_noise(noise)
