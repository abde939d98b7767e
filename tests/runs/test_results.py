from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.pages import render
from tests.refusals import refused

import smoothcert as sc
from smoothcert.errors import InvalidInput
from smoothcert.noises import Discrete, Gaussian, Rotation
from smoothcert.plans import AtRadii, Certificate, Combined, Fixed, Look, Price
from smoothcert.plans.follow import unanimous
from smoothcert.runs.decline import largest_decline
from smoothcert.runs.results import COLUMNS, Results, p_correct
from smoothcert.runs.summary import p_reached_by
from smoothcert.runs.words import all_together, shortfall, summary
from smoothcert.statistics import metrics


def test_columns_are_sorted_by_id_and_hold_what_the_certificates_say():
    plan, noise = Fixed(900, pilot=100), Gaussian(0.5)
    certificates = [
        Certificate.from_votes(
            [Look(100, {3: 99}), Look(900, {3: 890})], plan=plan, noise=noise, id=7, label=3
        ),
        Certificate.from_votes(
            [Look(100, {1: 51}), Look(900, {1: 20})], plan=plan, noise=noise, id=2, label=None
        ),
    ]
    results = Results.from_certificates("two", certificates)
    assert results.id.tolist() == [2, 7]
    assert results.label.tolist() == [-1, 3]
    assert results.prediction.tolist() == [-1, 3]
    assert results.samples.tolist() == [1000, 1000]
    assert results.missing.tolist() == [49 + 880, 11]
    assert results.p.tolist() == [20 / 900, 890 / 900]
    assert results.correct.tolist() == [
        False,
        True,
    ]  # label -1 and prediction -1 are not a correct prediction
    assert results.radius.tolist() == [0.0, certificates[0].radius]
    assert list(results.only(results.correct)) == certificates[:1]


def test_figures_of_results_are_those_of_the_pure_functions(iss_run: Results):
    radii = [0.0, 0.25, 0.5]
    assert iss_run.acr == metrics.average_certified_radius(iss_run.radius, iss_run.correct)
    np.testing.assert_array_equal(
        iss_run.certified_accuracy(radii),
        metrics.certified_accuracy(iss_run.radius, iss_run.correct, radii),
    )
    assert iss_run.average_samples == np.mean(iss_run.samples)


def test_samples_saved_counts_the_pilot_on_both_sides(iss_run: Results, fixed_run: Results):
    assert fixed_run.samples_saved == 0
    assert iss_run.samples_saved == pytest.approx(
        1 - iss_run.average_samples / fixed_run.average_samples
    )
    assert 0 < iss_run.samples_saved < 1


def test_decline_needs_the_same_noise_and_every_input(
    iss_run: Results, fixed_run: Results, altered
):
    assert largest_decline(iss_run, fixed_run) == np.max(fixed_run.radius - iss_run.radius)
    assert largest_decline(iss_run, altered(fixed_run, noise=Gaussian(1.0))) is None
    assert (
        largest_decline(iss_run, altered(fixed_run, manifest=altered(fixed_run.manifest, seed=1)))
        is None
    )
    assert largest_decline(iss_run, altered(fixed_run, manifest=None)) is None
    assert largest_decline(iss_run, altered(fixed_run, id=fixed_run.id + 1)) is None


def test_a_price_counts_from_the_same_sample_on_as_fixed_sampling(
    iss_run: Results, fixed_run: Results, altered
):
    pilot = fixed_run.plan.pilot
    alike = altered(iss_run, plan=Price(10_000, price=1e-5, pilot=pilot))
    assert largest_decline(alike, fixed_run) == largest_decline(iss_run, fixed_run)
    other = altered(iss_run, plan=Price(10_000, price=1e-5, pilot=pilot + 1))
    assert largest_decline(other, fixed_run) is None


@pytest.mark.parametrize("other", [{"pilot": 200}, {"pilot_use": "reuse"}, {"alpha": 0.01}])
def test_decline_needs_the_same_pilot_and_alpha(
    iss_run: Results, fixed_run: Results, altered, other
):
    assert largest_decline(iss_run, altered(fixed_run, plan=Fixed(10_000, **other))) is None
    first = Combined((Fixed(10_000), Fixed(10_000, **other)))
    assert largest_decline(iss_run, altered(fixed_run, plan=first)) == largest_decline(
        iss_run, fixed_run
    )


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("id", 40, "iss: input 40 occurs more than once"),
        ("radius", np.nan, "iss: radius of input 30 must be .* got nan"),
        ("radius", np.inf, "iss: radius of input 30 must be"),
        ("radius", -0.5, "iss: radius of input 30 must be"),
        ("seconds", np.nan, "iss: seconds of input 30 must be"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_input(
    iss_run: Results, altered, column, value, named
):
    values = getattr(iss_run, column).copy()
    values[3] = value
    with pytest.raises(InvalidInput, match=named):
        altered(iss_run, **{column: values})


def test_columns_of_different_length_are_refused(iss_run: Results, altered):
    with refused("unequal-columns"):
        altered(iss_run, radius=iss_run.radius[1:])


def test_the_distribution_of_p_hardly_depends_on_the_number_of_samples(simulate):
    few, many = simulate("few", Fixed(500)), simulate("many", Fixed(50_000))
    assert few.acr < 0.85 * many.acr
    levels = np.array([0.6, 0.7, 0.8, 0.9])
    assert np.abs(few.share_above(levels) - many.share_above(levels)).max() <= 0.05
    assert p_reached_by(few, 0.5) == pytest.approx(p_reached_by(many, 0.5), abs=0.02)
    assert many.certified_accuracy([0.0])[0] <= many.share_above([0.5])[0]


def test_half_of_the_inputs_reach_the_median_and_wrong_ones_reach_nothing(iss_run, altered):
    median = p_reached_by(iss_run, 0.5)
    assert np.mean(p_correct(iss_run) >= median) >= 0.5 > np.mean(p_correct(iss_run) > median)
    assert not p_correct(iss_run)[~iss_run.correct].any()
    assert p_reached_by(altered(iss_run, counted=np.zeros(len(iss_run), int)), 0.5) is None


def test_without_labels_accuracy_is_unknown_and_not_zero(iss_run, altered):
    unlabelled = altered(iss_run, label=np.full(len(iss_run), -1))
    assert np.isnan([unlabelled.acr, *unlabelled.certified_accuracy([0, 0.25])]).all()
    assert unlabelled.acr_band is None


@pytest.mark.parametrize(
    "task",
    [
        sc.open_run,
        lambda r: sc.attack(r),
        sc.audit,
        lambda r: sc.explain(r, 0),
        lambda r: sc.gate(r, {"inputs": 1}),
    ],
)
@pytest.mark.annexes
def test_what_needs_a_run_on_disk_refuses_results_in_memory(task, iss_run: Results):
    with refused("needs-run-on-disk"):
        task(iss_run)


@pytest.mark.parametrize(
    ("noise", "plan", "needed"),
    [
        (Discrete(0.6, 256, size=784), Fixed(1000), "a radius of 1 needs 99.87% of the votes"),
        (Gaussian(0.5), AtRadii([0.5], 1000), "a radius of 0.5 needs 84.14% of the votes"),
    ],
)
def test_a_class_that_wins_the_vote_by_too_little_is_not_said_to_lose_it(
    noise, plan, needed, tmp_path
):
    """Radii with steps, and radii that are decided, need more than a majority."""
    votes = {3: 98, 5: 2} if isinstance(noise, Discrete) else {3: 70, 5: 30}

    def model(x):
        share = votes[3] / 100
        # The first coordinate of the noise alone decides, so the share is nearly exact.
        border = torch.special.ndtri(torch.tensor(share)) * 0.5
        wins = x[:, 0] < border if isinstance(noise, Gaussian) else _scattered(x) < share
        return torch.stack([wins, ~wins], 1).float()

    data = [(np.zeros(784, np.float32), 0) for _ in range(4)]
    settings = {"noise": noise, "plan": plan, "device": "cpu", "dtype": "float32", "batch": 500}
    run = sc.certify(model, data, **settings, progress=sc.Progress(), out=tmp_path / "run")
    assert run.abstained.all()
    assert needed in summary(run)
    page = render([run])
    assert needed in page
    assert "provably wins the vote" not in page
    assert p_reached_by(run, 0.5) is None


def _scattered(x):
    """A number in [0, 1) that any change of x changes by chance."""
    weights = torch.arange(1, 1 + x.shape[1]) * 0.618
    return (x @ weights * 997.7) % 1


def test_a_majority_is_enough_where_radii_have_no_steps():
    assert shortfall(Gaussian(0.5), None) == "no class provably wins the vote"
    assert shortfall(Gaussian(0.5), (0.25,), top=3) == "no class is provably among the top 3"
    assert shortfall(Discrete(0.8), (0.0, 1.0)) == "no class provably wins the vote"
    assert "radius of 1 needs 87.51%" in shortfall(Discrete(0.8), None)


def test_all_inputs_that_were_tried_count_for_the_number_of_wrong_certificates(fixed_run, altered):
    manifest = replace(fixed_run.manifest, unreadable=(10**6, 10**6 + 1))
    fewer = altered(fixed_run, **{name: column[:-1] for name, column in fixed_run.columns.items()})
    assert altered(fewer, manifest=manifest).tried == 62
    assert all_together(altered(fewer, manifest=manifest)) == (
        "of these 62 inputs, at most 1 has a wrong certificate, with probability 0.998"
    )


def test_what_holds_under_a_noise_of_the_user_rests_on_its_theorem(fixed_run, altered):
    class Stated(Gaussian):
        """Says nothing that anybody has checked."""

    for noise in (Stated(0.5), Rotation(Stated(0.5))):
        sentence = all_together(altered(fixed_run, noise=noise))
        assert sentence.endswith("if the theorem of Stated holds, which nothing here checks")


def test_no_band_of_the_acr_exceeds_what_an_input_can_have(simulate):
    for plan, largest in (
        (AtRadii([0, 0.5], 1_000), 0.5),
        (Fixed(1_000), unanimous(Fixed(1_000), Gaussian(0.5)).proof().radius),
    ):
        run = simulate("few", plan)
        few = replace(run, **{name: getattr(run, name)[:3] for name in COLUMNS})
        few = replace(few, radius=np.array([0.0, largest, largest]), prediction=few.label)
        assert few.acr_band == (0.0, pytest.approx(largest))
