from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import AtRadii, Certificate, Fixed, Gaussian, InputSpecific, Look, Price, certify
from smoothcert.plans import Case
from smoothcert.plans.simulation import simulate as follow_simulated
from smoothcert.runs.formats import write_results
from smoothcert.runs.logs import read_log
from smoothcert.statistics import metrics
from smoothcert.tasks.replay import (
    Population,
    from_shares,
    from_votes,
    probabilities,
    read_population,
    simulate,
)

SMALL = Path(__file__).parents[1] / "data" / "small-log.tsv"
PUBLISHED = Path(__file__).parents[3] / "shared" / "logs"
NOISE = Gaussian(0.5)
PLAN = InputSpecific(10_000, pilot=200, decline=0.1)


def replay(log, plan, *, noise, log_samples=100_000, log_alpha=0.001, abstained_p=0.49, **settings):
    p = probabilities(
        log, noise=noise, samples=log_samples, alpha=log_alpha, abstained_p=abstained_p
    )
    return simulate(from_shares(p, log.correct), plan, noise=noise, **settings)


# Sigma, kind, ceiling and decline, then simulated average samples, ACR, and ACR of fixed sampling at the same cost.
PAPER = [
    (0.5, "absolute", 100_000, 0.05, 34358, 0.799, 0.776),
    (0.5, "absolute", 100_000, 0.10, 22892, 0.779, 0.758),
    (0.5, "absolute", 500_000, 0.05, 148870, 0.858, 0.836),
    (0.5, "absolute", 500_000, 0.10, 97303, 0.841, 0.820),
    (1.0, "absolute", 100_000, 0.05, 27321, 0.967, 0.929),
    (1.0, "absolute", 100_000, 0.10, 20064, 0.952, 0.914),
    (1.0, "absolute", 500_000, 0.05, 106736, 1.020, 0.986),
    (1.0, "absolute", 500_000, 0.10, 83614, 1.009, 0.976),
    (0.5, "relative", 100_000, 0.01, 72120, 0.814, 0.808),
    (0.5, "relative", 100_000, 0.05, 35499, 0.787, 0.778),
    (1.0, "relative", 100_000, 0.01, 67651, 0.975, 0.968),
    (1.0, "relative", 100_000, 0.05, 32281, 0.945, 0.937),
]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published logs are not here")
@pytest.mark.parametrize(
    ("sigma", "kind", "ceiling", "decline", "samples", "acr", "fixed_acr"), PAPER
)
def test_the_paper_comes_out_of_its_published_logs(
    sigma, kind, ceiling, decline, samples, acr, fixed_acr
):
    log = read_log(PUBLISHED / f"imagenet-consistency-{sigma:.2f}.tsv")
    plan = InputSpecific(ceiling, decline=decline, kind=kind, pilot_use="reuse")
    found = replay(log, plan, noise=Gaussian(sigma))
    assert found.plan.samples == pytest.approx(samples, rel=0.03)
    assert found.plan.acr == pytest.approx(acr, abs=0.005)
    assert found.fixed.acr == pytest.approx(fixed_acr, abs=0.005)
    assert found.inputs == 500


@pytest.fixture(scope="module")
def small():
    return replay(read_log(SMALL), PLAN, noise=NOISE, log_samples=10_000)


def test_a_plan_lies_between_fixed_sampling_at_its_cost_and_the_ceiling(small):
    assert small.fixed.acr < small.plan.acr < small.ceiling.acr
    assert small.plan.mad < small.fixed.mad
    assert small.ceiling.mad == 0
    assert small.plan.samples == small.fixed.samples < small.ceiling.samples == 10_200


def test_every_forward_pass_is_paid_for_even_where_nothing_is_certified():
    hopeless = simulate(from_shares(np.full(20, 0.3), np.zeros(20, bool)), PLAN, noise=NOISE)
    assert hopeless.plan.abstained == 1
    assert hopeless.plan.samples == PLAN.pilot
    abstaining = simulate(
        from_shares(np.full(20, 0.52), np.ones(20, bool)), Fixed(100, pilot=50), noise=NOISE
    )
    assert abstaining.plan.abstained > 0.9
    assert abstaining.plan.samples == 150


def test_the_simulation_agrees_with_certificates_made_one_by_one(small):
    log = read_log(SMALL)
    p = probabilities(log, noise=NOISE, samples=10_000, alpha=0.001)
    rng, radii, samples = np.random.default_rng(5), [], []
    for _ in range(20):
        for share in p:
            looks = []
            while more := Case(PLAN, NOISE, looks=looks).more:
                looks.append(Look(more, {0: int(rng.binomial(more, share))}))
            certificate = Certificate.from_votes(looks, plan=PLAN, noise=NOISE)
            radii.append(certificate.radius)
            samples.append(certificate.samples)
    radii = np.reshape(radii, (20, len(p)))
    assert small.plan.samples == pytest.approx(np.mean(samples), rel=0.02)
    assert small.plan.acr == pytest.approx(
        metrics.average_certified_radius(radii, log.correct), abs=0.005
    )
    assert small.plan.abstained == pytest.approx(np.mean(radii == 0), abs=0.02)


def test_certified_accuracy_falls_with_the_radius_from_the_share_of_correct_inputs(small):
    shares = list(small.plan.certified_accuracy.values())
    assert list(small.plan.certified_accuracy) == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(50 / 60)


def test_the_decline_is_measured_on_the_same_noise():
    """A plan that always draws up to its ceiling has no decline."""
    for pilot_use in ("fresh", "reuse"):
        same = simulate(
            from_shares(np.linspace(0.5, 1, 50), np.ones(50)),
            Fixed(1_000, pilot_use=pilot_use),
            noise=NOISE,
        )
        assert same.plan.mad == same.fixed.mad == 0
        assert same.plan.acr == same.ceiling.acr


def test_a_plan_with_another_bound_than_the_simulated_ceiling_has_no_decline():
    found = simulate(MANY, Fixed(1_000, bound="runner-up"), noise=NOISE, repetitions=1)
    assert found.plan.mad is None


@pytest.mark.parametrize(
    "plan",
    [
        Fixed(1_000, bound="runner-up"),
        AtRadii([0], 1_000, bound="runner-up"),
        Fixed(1_000, top=2),
        InputSpecific(1_000, top=2),
    ],
    ids=str,
)
def test_a_log_of_one_class_does_not_tell_about_the_others(plan):
    with refused("votes-needed"):
        replay(read_log(SMALL), plan, noise=NOISE)


def test_the_top_k_are_simulated_from_the_votes_of_all_classes():
    votes = from_votes([[60, 20, 15, 5]] * 20, [0] * 20)
    found = simulate(votes, Fixed(1_000, top=2), noise=NOISE, repetitions=1).plan
    assert found.mad is None
    with refused("top-too-large", top=4, answers=4):
        simulate(votes, Fixed(1_000, top=4), noise=NOISE, repetitions=1)


def test_a_seed_gives_the_same_figures_again_and_another_seed_does_not(small):
    log = read_log(SMALL)
    assert replay(log, PLAN, noise=NOISE, log_samples=10_000) == small
    assert replay(log, PLAN, noise=NOISE, log_samples=10_000, seed=1) != small


def test_what_is_assumed_of_abstained_inputs_matters_to_relative_decline():
    log, plan = read_log(SMALL), InputSpecific(10_000, kind="relative", decline=0.05)
    spent = [
        replay(log, plan, noise=NOISE, log_samples=10_000, abstained_p=p).plan.samples
        for p in (0.2, 0.5)
    ]
    assert spent[0] < spent[1]


def test_a_run_of_our_own_is_replayed_from_its_votes(iss_run):
    p = probabilities(iss_run, noise=NOISE, abstained_p=0.3)
    assert np.all(
        p == np.where(iss_run.counted > 0, iss_run.count / np.maximum(iss_run.counted, 1), 0.3)
    )
    again = simulate(from_shares(p, iss_run.correct), iss_run.plan, noise=NOISE)
    assert again.plan.samples == pytest.approx(iss_run.average_samples, rel=0.05)
    assert again.plan.acr == pytest.approx(iss_run.acr, abs=0.02)
    with refused("other-noise", recorded=Gaussian(0.5), noise=Gaussian(1.0)):
        probabilities(iss_run, noise=Gaussian(1.0))


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"repetitions": 0}, "too-small", {"name": "repetitions"}),
        ({"seed": -1}, "too-small", {"name": "seed"}),
        ({"abstained_p": 1.5}, "not-between", {"name": "abstained_p"}),
        ({"radii": [0.5, float("nan")]}, "not-at-least", {"name": "each radius"}),
        ({"log_samples": 0}, "samples-out-of-range", {}),
        ({"log_alpha": 0.0}, "not-between", {"name": "alpha"}),
    ],
)
def test_bad_settings_are_named(settings, code, fields):
    with refused(code, **fields):
        replay(read_log(SMALL), PLAN, noise=NOISE, **{"log_samples": 10_000} | settings)


RNG = np.random.default_rng(7)
MANY = Population(RNG.dirichlet([6, 2, 1, 1, 0.5, 0.5], 40), RNG.integers(6, size=40))


def one_by_one(population, plan, *, repetitions, seed):
    """Simulate the same inputs with certificates, one input at a time."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(repetitions):
        for p, label in zip(population.p, population.label, strict=True):
            case, looks = Case(plan, NOISE, int(label) if plan.known_labels else None), []
            while case.more:
                looks.append(
                    Look(case.more, dict(enumerate(rng.multinomial(case.more, p).tolist())))
                )
                case.add(looks[-1])
            found.append(Certificate.from_votes(looks, plan=plan, noise=NOISE, label=int(label)))
    return found


@pytest.mark.parametrize(
    "plan",
    [
        Fixed(500, pilot=50),
        Fixed(500, pilot=50, bound="runner-up"),
        Fixed(500, known_labels=True),
        InputSpecific(1_000, pilot=50, decline=0.1),
        InputSpecific(1_000, pilot=50, decline=0.1, bound="runner-up"),
        InputSpecific(1_000, pilot=50, decline=0.1, known_labels=True),
        InputSpecific(1_000, pilot=50, decline=0.1, pilot_use="reuse"),
        AtRadii([0, 0.25], 300, bound="runner-up"),
    ],
    ids=str,
)
def test_every_plan_is_simulated_as_its_certificates_are_made(plan):
    simulated = simulate(MANY, plan, noise=NOISE, repetitions=60, radii=[0.0, 0.25]).plan
    made = one_by_one(MANY, plan, repetitions=8, seed=3)
    radius, correct = np.array([c.radius for c in made]), np.array([c.correct for c in made])
    slack = 4.5 / np.sqrt(len(made))
    assert simulated.samples == pytest.approx(np.mean([c.samples for c in made]), rel=slack)
    assert simulated.abstained == pytest.approx(
        np.mean([c.abstained for c in made]), abs=0.5 * slack
    )
    assert simulated.acr == pytest.approx(
        np.mean(radius * correct), abs=slack * np.std(radius * correct)
    )
    for r, share in simulated.certified_accuracy.items():
        assert share == pytest.approx(np.mean(correct & (radius > r)), abs=0.5 * slack)
    assert 0 < simulated.abstained < 1


def test_votes_for_all_classes_become_their_shares():
    population = from_votes([[90, 10, 0], [20, 30, 50]], [0, 1])
    assert population.p.tolist() == [[0.9, 0.1, 0], [0.2, 0.3, 0.5]]
    assert population.label.tolist() == [0, 1]
    found = simulate(population, Fixed(1_000, known_labels=True), noise=NOISE, radii=[0.0]).plan
    assert (found.samples, found.abstained, found.certified_accuracy) == (1_000, 0.5, {0.0: 0.5})


def test_inputs_without_a_label_are_never_correct_and_cannot_be_certified_by_it(
    iss_run, tmp_path, altered
):
    write_results(altered(iss_run, label=np.full(len(iss_run), -1)), tmp_path / "a.csv", "csv")
    population, noise, _ = read_population(tmp_path / "a.csv", iss_run.plan)
    assert noise == NOISE
    assert population.label.tolist() == [-1] * len(iss_run)
    assert simulate(population, iss_run.plan, noise=NOISE).plan.acr is None
    with refused("unlabelled-inputs"):
        read_population(tmp_path / "a.csv", Fixed(1_000, known_labels=True))


def test_published_votes_are_read_with_their_labels(tmp_path):
    (tmp_path / "votes.txt").write_text("90 10 0 0\n20 30 50 1\n")
    population, _, remark = read_population(tmp_path / "votes.txt", PLAN, noise=NOISE)
    assert (population.p[1].tolist(), population.label.tolist(), remark) == (
        [0.2, 0.3, 0.5],
        [0, 1],
        None,
    )


def test_an_export_with_known_labels_is_not_taken_for_one_of_predictions(
    tmp_path, iss_run, altered
):
    """An input without a certificate has p of its label there, not p of a wrong prediction."""
    known = altered(iss_run, plan=Fixed(10_000, known_labels=True))
    write_results(known, tmp_path / "a.csv")
    with refused("no-class-of-pilot"):
        read_population(tmp_path / "a.csv", Fixed(1_000))
    population, _, _ = read_population(tmp_path / "a.csv", Fixed(1_000, known_labels=True))
    assert population.label.tolist() == [0] * len(known)


def test_a_replay_of_a_run_that_stopped_early_says_how_p_is_wrong(tmp_path, iss_run, altered):
    write_results(altered(iss_run, plan=AtRadii([0, 0.5], samples=10_000)), tmp_path / "early.csv")
    write_results(altered(iss_run, plan=Price(10_000, price=1e-5)), tmp_path / "bad.csv")
    write_results(iss_run, tmp_path / "planned.csv")
    early, bad, planned = (
        read_population(tmp_path / name, Fixed(1_000))[2] or ""
        for name in ("early.csv", "bad.csv", "planned.csv")
    )
    assert "p is too large on average" in early
    assert "p is too small on average" in bad
    assert "on average" not in planned


@pytest.mark.filterwarnings("ignore:input 0 of list")
@pytest.mark.parametrize("plan", [Fixed(100, pilot=10), Fixed(100, known_labels=True)], ids=str)
def test_a_run_with_known_labels_is_replayed_from_the_votes_of_all_classes(tmp_path, plan):
    made = Fixed(100, known_labels=True)
    certify(
        lambda x: (x[:, 0] > 0).long(),
        [([5.0], 0)],
        noise=NOISE,
        classes=2,
        plan=made,
        out=tmp_path,
        device="cpu",
    )
    population, _, _ = read_population(tmp_path, plan)
    assert population.p.tolist() == [[0, 1]]
    assert population.chosen is None


def test_samples_without_a_vote_lower_the_probability_of_every_class():
    population = from_votes([[60, 20], [0, 0]], [0, 0], [100, 100])
    assert population.p.tolist() == [[0.6, 0.2], [0, 0]]
    plan = Fixed(10_000, pilot=100, bound="runner-up")
    found = follow_simulated(plan, NOISE, population.p, (20, 2), np.random.default_rng(0))
    assert found.state.count[:, 0].mean() == pytest.approx(6_000, rel=0.02)
    assert not found.state.count[:, 1].any()
