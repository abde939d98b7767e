import pytest
import torch
from scipy.stats import binom
from tests.refusals import refused
from tests.subjects import bound

from smoothcert.device.runtime import Runtime
from smoothcert.noises import Gaussian
from smoothcert.plans import Fixed, InputSpecific, Look, Price
from smoothcert.plans.coverage import exact_coverage
from smoothcert.sampling.engine import window

NOISE = Gaussian(0.5)


def positive(x):
    """A half-space: class 1 where the first number is above 0, so p = Phi(distance / sigma)."""
    return (x[:, 0] > 0).long()


def engine_for(plan, *, batch=4096, model=positive, seed=0, shape=(1,), classes=2):
    runtime = Runtime.resolve("cpu", batch=batch)
    subject = bound(model, classes, NOISE, runtime, torch.zeros(shape), seed=seed)
    return subject.prepare().engine(plan)


def certify(plan, distances, **settings):
    inputs = ((id, torch.tensor([d]), None) for id, d in enumerate(distances))
    return list(engine_for(plan, **settings).certify(inputs))


def spread(count):
    """Distances from the boundary on both sides: p from .05 to .95, and some beyond 1 - 1e-6."""
    return torch.linspace(-0.8, 0.8, count - 20).tolist() + torch.linspace(-3, 3, 20).tolist()


@pytest.mark.parametrize(
    "plan", [Fixed(2000), InputSpecific(2000), InputSpecific(2000, kind="relative", decline=0.1)]
)
def test_certificates_do_not_depend_on_batch_order_or_interruption(plan):
    distances = spread(60)

    def by_id(certificates):
        return {c.id: c for c in certificates}

    whole = by_id(certify(plan, distances))
    assert by_id(certify(plan, distances, batch=173)) == whole
    inputs = [(id, torch.tensor([d]), None) for id, d in enumerate(distances)]
    assert by_id(engine_for(plan, batch=500).certify(reversed(inputs))) == whole
    interrupted = engine_for(plan).certify(inputs)
    first = by_id(next(interrupted) for _ in range(25))
    rest = by_id(engine_for(plan, batch=99).certify(i for i in inputs if i[0] not in first))
    assert first | rest == whole


def test_samples_of_a_plan_are_a_prefix_of_those_at_the_ceiling():
    def first_samples(samples):
        rows = []

        def record(x):
            rows.append(x[:, 0].clone())
            return positive(x)

        [certificate] = certify(Fixed(samples), [0.3], model=record, batch=1)
        assert certificate.samples == samples + 100
        # Earlier rows belong to the check of the classifier.
        return torch.cat(rows[-certificate.samples :])

    torch.testing.assert_close(first_samples(200), first_samples(300)[:300], rtol=0, atol=0)


@pytest.mark.parametrize("batch", [256, 1024])
def test_nearly_all_rows_of_uneven_requests_are_counted(batch):
    engine = engine_for(InputSpecific(10_000), batch=batch)
    wanted = [
        c.samples
        for c in engine.certify((i, torch.tensor([d]), None) for i, d in enumerate(spread(150)))
    ]
    assert max(wanted) > 5 * min(wanted)
    assert engine.sampler.counted == sum(wanted)
    assert engine.sampler.counted >= 0.97 * engine.sampler.forwarded


def test_the_window_does_not_grow_with_inputs_and_is_bounded_in_bytes():
    engine = engine_for(InputSpecific(10_000), batch=256)
    slots = engine.free
    opened = 0

    def inputs():
        nonlocal opened
        for opened in range(200):
            assert engine.busy <= slots
            yield opened, torch.tensor([1.0]), None

    assert sum(1 for _ in engine.certify(inputs())) == 200
    assert opened > 10 * slots
    assert window(1, 8192, (3, 224, 224)) * 3 * 224 * 224 * 4 <= 2**30
    assert window(100, 8192, (3, 2**20, 2**10)) == 2


def test_output_that_is_not_finite_costs_samples_and_counts_for_nobody():
    def broken(x):
        logits = torch.cat([x, -x], 1)
        logits[x[:, 0] < 0] = torch.nan
        return logits

    [certificate] = certify(Fixed(1000), [0.5], model=broken)  # P(finite) = Phi(1) = .84
    assert 100 < certificate.missing < 260
    assert certificate.count + certificate.looks[1].missing == certificate.counted == 1000
    assert certificate.prediction == 0
    assert certificate.radius < 0.5
    [nothing] = certify(Fixed(1000), [500.5], model=lambda x: (400 - x).sqrt().repeat(1, 2))
    assert nothing.abstained
    assert nothing.samples == nothing.missing == 100  # no sample had a vote, so there is no class


def overclaimed(certificates, distances):
    """The number of radii that exceed the true one: the signed distance from the boundary."""
    return sum(
        c.radius > (distances[c.id] if c.prediction == 1 else -distances[c.id])
        for c in certificates
        if not c.abstained
    )


def most(alpha, count):
    """If failures have probability alpha, more than this many have one of 1 in 10,000."""
    return binom.isf(1e-4, count, alpha)


PLANS = {
    "fixed": lambda alpha: Fixed(1000, alpha=alpha),
    "absolute": lambda alpha: InputSpecific(1000, alpha=alpha, decline=0.05),
    "relative": lambda alpha: InputSpecific(1000, alpha=alpha, decline=0.05, kind="relative"),
    "price": lambda alpha: Price(1000, alpha=alpha, price=1e-5),
}


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("name", PLANS)
def test_at_most_alpha_of_the_radii_exceed_the_true_one(name, alpha):
    # A quarter of the inputs are ties of two classes, where any certificate is wrong. The others
    # have p from .5 to .98.
    inputs = 5_000 if alpha > 0.01 else 20_000  # frequent failures are counted among fewer inputs
    distances = [0.0] * (inputs // 4) + torch.linspace(0, 1, inputs * 3 // 4).tolist()
    certificates = certify(PLANS[name](alpha), distances, batch=32768)
    assert len(certificates) == len(distances)
    assert sum(not c.abstained for c in certificates) > 0.6 * len(distances)
    assert overclaimed(certificates, distances) <= most(alpha, len(distances))
    ties = [c for c in certificates if distances[c.id] == 0]
    assert overclaimed(ties, distances) <= most(alpha, len(ties))


def test_the_truth_test_catches_a_plan_that_overclaims_as_often_as_computed():
    plan = InputSpecific(1000, alpha=0.05, decline=0.05, pilot_use="reuse")
    ties = [0.0] * 3000
    failures = overclaimed(certify(plan, ties, batch=32768), ties)
    assert failures > most(plan.alpha, len(ties))
    exact = exact_coverage(plan, NOISE).tie_failure
    assert abs(failures - exact * len(ties)) < 4.5 * (exact * len(ties)) ** 0.5


def test_votes_that_the_plan_did_not_ask_for_are_refused_and_not_dropped():
    engine = engine_for(Fixed(1000))
    with refused("votes-of-another-plan", id=7, plan="fixed 1,000"):
        engine.open(7, torch.zeros(1), None, [Look(100, {0: 100}), Look(999, {0: 999})])
