"""Questions to recorded votes: what they prove about groups, about the top k and about the finest answer."""

from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import (
    Ablation,
    AtRadii,
    BettingRadii,
    Certificate,
    Combined,
    Exact,
    Fixed,
    Gaussian,
    InputSpecific,
    Laplace,
    Look,
    Price,
    Splitting,
    Uniform,
    Walk,
)
from smoothcert.data.groups import read_levels
from smoothcert.plans import Case
from smoothcert.plans.asked import Question, answers
from smoothcert.plans.groups import Groups
from smoothcert.plans.simulation import simulated_stops

NOISE = Gaussian(0.5)
NAMES = ("plane", "ship", "cat", "dog", "frog")
LEVELS = read_levels(
    {"kind": {"vehicle": "0,1", "animal": "2-4"}, "group": {"pet": ["cat", "dog"]}}, 5, NAMES
)
CLASSES = Groups.of_members("class", {}, 5, NAMES)
KIND, GROUP = LEVELS
ALPHA = 0.05


def recorded(plan, shares, times, *, label=2, noise=NOISE, seed=0):
    """Runs of a plan on one input whose classes have these probabilities."""
    rng = np.random.default_rng(seed)
    runs = []
    for id in range(times):
        case = Case(plan, noise, label)
        looks = []
        while case.more:
            votes = rng.multinomial(case.more, shares)
            looks.append(Look(case.more, {c: int(n) for c, n in enumerate(votes) if n}))
            case.add(looks[-1])
        runs.append(Certificate.from_case(case, looks, id=id))
    return runs


def ask(question, plan, runs, noise=NOISE):
    return answers(question, plan, noise, runs, 5)


PLANS = [
    Fixed(300, pilot=30),
    Fixed(300, known_labels=True),
    Fixed(300, pilot=30, bound="runner-up"),
    InputSpecific(300, pilot=30, decline=0.1),
    InputSpecific(300, pilot=30, decline=0.1, known_labels=True),
    AtRadii([0, 0.25, 0.5], 400, pilot=20),
    AtRadii([0, 0.25, 0.5], 400, known_labels=True),
    AtRadii([0, 0.25, 0.5], 400, bound="runner-up"),
    AtRadii([0, 0.25, 0.5], 400, bound="runner-up", known_labels=True),
]
plans = pytest.mark.parametrize("plan", PLANS, ids=str)


@plans
def test_groups_get_what_their_summed_votes_prove(plan):
    """Votes of groups, told to the plan as if it had asked for them, without giving up."""
    runs = recorded(plan, [0.02, 0.03, 0.65, 0.25, 0.05], 30)
    [proof] = ask(Question(1, (GROUP,)), plan, runs)
    for place, run in enumerate(runs):
        label = GROUP.of[2] if plan.known_labels else None
        state = plan.init(NOISE, label)
        for look in run.looks:
            state = plan.update(state, GROUP.look(look))
        alone = plan.prove(state)
        radius = np.nan if alone.radius is None else alone.radius
        assert proof.radius[place] == pytest.approx(radius, nan_ok=True)
        assert proof.prediction[place] == alone.prediction


@plans
def test_the_classes_as_groups_get_the_certificates_of_the_run(plan):
    runs = recorded(plan, [0.02, 0.03, 0.85, 0.05, 0.05], 30)
    [proof] = ask(Question(1, (CLASSES,)), plan, runs)
    found = [None if r != r else r for r in proof.radius.tolist()]
    assert found == [run.proof.radius for run in runs]


def threshold(noise, radius):
    """The probability with which a group is just not robust at a radius."""
    return noise.needed_probability(radius) - 1e-9


NOISES = [Gaussian(0.5), Laplace(0.4), Uniform(0.9), Ablation(40, size=784)]
RADII = {
    str(noise): (1.0, 2.0, 4.0) if isinstance(noise, Ablation) else (0.1, 0.25, 0.4)
    for noise in NOISES
}


def at_their_limits(noise):
    """Shares with which each level is just false at its own radius: the finer, the smaller."""
    fine, middle, coarse = (threshold(noise, r) for r in RADII[str(noise)])
    return [0.0, 1 - coarse, fine, middle - fine, coarse - middle]


def false_claims(question, plan, noise, shares, runs):
    """How often any claim about any level is false."""
    proofs = ask(question, plan, runs, noise)
    wrong = np.zeros(len(runs), bool)
    for level, proof in zip(question.levels, proofs, strict=True):
        p = np.bincount(level.of, shares)
        own = level.of[2]
        truth = noise.certified_radius(
            p[own], np.delete(p, own).max() if plan.bound != "binary" else None
        )
        for r in RADII[str(noise)]:
            reached = proof.radius >= r if question.radii or plan.radii else proof.radius > r
            wrong |= (truth <= r) & reached
    return wrong.mean()


def slack(times):
    return 3 * np.sqrt(ALPHA / times)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_the_finest_answer_is_wrong_with_alpha_at_most_and_without_division_it_is_not(
    noise, monkeypatch
):
    plan = Fixed(2000, alpha=ALPHA, known_labels=True)
    levels = (*LEVELS, CLASSES)
    shares = at_their_limits(noise)
    runs = recorded(plan, shares, 2000, noise=noise)
    most = ALPHA + slack(2000)
    several = Question(1, levels, RADII[str(noise)])
    assert false_claims(several, plan, noise, shares, runs) <= most
    assert false_claims(Question(1, levels), plan, noise, shares, runs) <= most
    for radius in RADII[str(noise)]:
        alone = Question(1, levels, (radius,))
        assert alone.divisor(plan) == 1
        assert false_claims(alone, plan, noise, shares, runs) <= most
    monkeypatch.setattr(Question, "divisor", lambda *_: 1)
    assert false_claims(several, plan, noise, shares, runs) > 1.5 * ALPHA


@pytest.mark.parametrize("bound", ["binary", "runner-up"])
def test_stopping_for_the_class_makes_no_group_wrong_more_often(bound):
    radii = RADII[str(NOISE)]
    plan = AtRadii(radii, 600, alpha=ALPHA, known_labels=True, bound=bound)
    shares = at_their_limits(NOISE)
    runs = recorded(plan, shares, 600)
    for levels in [(KIND,), (GROUP,), (*LEVELS, CLASSES)]:
        found = false_claims(Question(1, levels), plan, NOISE, shares, runs)
        assert found <= ALPHA + slack(600)


def test_a_level_is_claimed_only_where_the_coarser_ones_are():
    plan = Fixed(1000, pilot=100, bound="runner-up")
    # Class 0 wins against each other class alone; its group loses to theirs.
    runs = recorded(plan, [0.4, 0.0, 0.2, 0.2, 0.2], 50, label=0)
    alone = ask(Question(1, (CLASSES,)), plan, runs)[0]
    below = ask(Question(1, (KIND, CLASSES)), plan, runs)
    assert np.isfinite(alone.radius).mean() > 0.8
    assert np.isnan(below[1].radius[below[0].prediction == 1]).all()
    assert (below[1].prediction >= 2).mean() > 0.8  # in the winning group, the winning class


def test_alpha_is_divided_by_the_smaller_number_of_levels_and_radii():
    levels = (*LEVELS, CLASSES)
    fixed = Fixed(1000)
    assert Question(1, levels).divisor(fixed) == 3
    assert Question(1, levels, (0.1, 0.2)).divisor(fixed) == 2
    assert Question(1, levels, (0.1, 0.2, 0.3, 0.4)).divisor(fixed) == 3
    assert Question(1, levels).divisor(AtRadii([0.5])) == 1
    assert Question(1, levels, (0.1, 0.2)).plan(fixed).alpha == fixed.alpha / 2
    assert Question(1, (KIND,), alpha=0.01).plan(fixed).alpha == 0.01


TIED = [0.3, 0.3, 0.3, 0.05, 0.05]
TOP = [
    Fixed(200, pilot=20, alpha=ALPHA, top=2),
    Fixed(200, alpha=ALPHA, known_labels=True, top=2),
    InputSpecific(200, pilot=20, alpha=ALPHA, decline=0.1, top=2),
    Price(200, price=1e-5, alpha=ALPHA, known_labels=True, top=2),
    AtRadii([0, 0.25], 1000, alpha=ALPHA, known_labels=True, top=2),
]


@pytest.mark.parametrize("plan", TOP, ids=str)
def test_a_class_that_ties_with_two_others_is_not_within_the_top_two(plan):
    rng = np.random.default_rng(0)
    stops = simulated_stops(
        plan, NOISE, [TIED, [0.6, 0.2, 0.1, 0.05, 0.05]], repetitions=600, rng=rng
    )
    proved = np.isfinite(np.array(stops.proof.radius, float)).mean(axis=1)
    assert proved[0] <= ALPHA + 3 * np.sqrt(ALPHA / 600)
    assert proved[1] > 0.8


@pytest.mark.parametrize(
    "plan", [AtRadii([0, 0.25], 2000), AtRadii([0, 0.25], 2000, bound="runner-up")], ids=str
)
def test_the_votes_of_decided_radii_answer_about_the_top_k_by_bets(plan):
    plan = replace(plan, alpha=ALPHA)
    question = Question(2, (CLASSES,))
    tied = ask(question, plan, recorded(plan, TIED, 600))[0]
    assert np.isfinite(tied.radius).mean() <= ALPHA + 3 * np.sqrt(ALPHA / 600)
    shares = [0.02, 0.02, 0.48, 0.46, 0.02]
    runs = recorded(plan, shares, 40)
    assert np.mean([run.proof.radius is not None for run in runs]) < 0.5
    assert (ask(question, plan, runs)[0].radius == 0.25).mean() > 0.5


def test_a_radius_that_entered_later_counts_from_the_sample_where_it_entered():
    first = BettingRadii([0.0], 300, alpha=ALPHA, known_labels=True)
    later = replace(first, radii=(0.0, 0.25), samples=600, earlier=first.stages)
    runs = recorded(later, [0.0, 0.0, 0.8, 0.15, 0.05], 30)
    [proof] = ask(Question(1, (CLASSES,)), later, runs)
    assert [None if r != r else r for r in proof.radius.tolist()] == [c.proof.radius for c in runs]
    at_once = replace(later, earlier=())
    [group] = ask(Question(1, (GROUP,)), later, runs)
    [unsound] = ask(Question(1, (GROUP,)), at_once, runs)
    assert np.nan_to_num(group.radius, nan=-1).sum() <= np.nan_to_num(unsound.radius, nan=-1).sum()
    with refused("radii-of-continued-run"):
        ask(Question(1, (GROUP, CLASSES), (0.1,)), later, runs)


def test_a_run_of_two_radii_that_was_continued_can_be_asked():
    first = BettingRadii([0.0, 0.1], 300, alpha=ALPHA, known_labels=True)
    later = replace(first, samples=600, earlier=first.stages)
    runs = recorded(later, [0.0, 0.0, 0.8, 0.15, 0.05], 10)
    [proof] = ask(Question(1, (CLASSES,)), later, runs)
    assert [None if r != r else r for r in proof.radius.tolist()] == [c.proof.radius for c in runs]


def test_counted_outcomes_answer_exactly():
    noise = Splitting(0.5, levels=255)
    plan = Exact().for_noise(noise)
    look = Look(255, {2: 100, 3: 95, 0: 60})
    runs = [Certificate.from_votes([look], plan=plan, noise=noise, label=2)]
    [pet] = ask(Question(1, (GROUP,)), plan, runs, noise)
    assert pet.radius[0] == pytest.approx(0.5 * (195 - 60) / 255)
    [top] = ask(Question(2, (CLASSES,)), plan, runs, noise)
    # Class 0 alone, or classes 0 and 3 together: (60 + d) = 100 - d, or (155 + d) / 2 = 100 - d.
    assert top.radius[0] == pytest.approx(max((100 - 60) / 2, (200 - 155) / 3) / 255)


@pytest.mark.parametrize(
    "plan", [Price(price=1e-5), Combined((Fixed(1000), InputSpecific(1000)))], ids=str
)
def test_a_plan_whose_votes_decided_when_to_stop_says_what_to_do(plan):
    with refused("plan-answers-no-question", plan=plan) as error:
        Question(1, (KIND,)).plan(plan)
    assert "ask when you certify, with certify --groups or --top" in str(error.value)


def test_a_walk_can_only_be_asked_for_groups_when_it_is_certified():
    with refused("plan-answers-no-question") as error:
        Question(1, (KIND,)).plan(Walk([5.0]))
    assert str(error.value).endswith("with certify --groups")


def test_a_pilot_that_chose_the_class_does_not_count_for_a_group():
    plan = Fixed(1000, pilot=100, pilot_use="reuse")
    runs = [
        Certificate.from_votes(
            [Look(100, {2: 100}), Look(900, {2: 600, 3: 300})], plan=plan, noise=NOISE
        )
    ]
    [proof] = ask(Question(1, (GROUP,)), plan, runs)
    assert (proof.count[()], proof.counted[()]) == (900, 900)
