from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import smoothcert as sc
from smoothcert.smoothed.prepare import prepare

PLAN = sc.InputSpecific(2000, decline=0.1)


def positive(x):
    return (x[:, 0] > 0).long()


@dataclass(frozen=True)
class Uniform(sc.Noise):
    """Uniform noise on a cube of half width b: R = 2 b (p - 1/2) in l1."""

    b: float = 0.5
    norm = "l1"
    draw = property(lambda self: sc.Additive("uniform", self.b))
    deviation = property(lambda self: self.b / 3**0.5)

    def radius(self, p):
        return 2 * self.b * (np.asarray(p) - 0.5)

    def probability(self, radius):
        return np.asarray(radius) / (2 * self.b) + 0.5


def smoothed(model=positive, **settings):
    defaults = {"noise": sc.Gaussian(0.5), "classes": 2, "device": "cpu", "batch": 500}
    return sc.Smoothed(model, **(defaults | settings))


def test_certify_proves_at_most_the_true_radius():
    certificate = smoothed().certify([0.6, 0.0], plan=PLAN)
    assert certificate.prediction == 1
    assert 0.4 < certificate.radius < 0.6
    assert certificate.samples == sum(look.samples for look in certificate.looks)


@pytest.mark.parametrize("distance", [0.1, 0.3, 0.45])
def test_any_noise_that_says_how_it_is_drawn_proves_at_most_the_true_radius(distance):
    """Under uniform noise the half-space at distance d has p = 1/2 + d, and d is its largest l1 radius."""
    certificate = smoothed(noise=Uniform(0.5)).certify([distance, 0.0], plan=sc.Fixed(20_000))
    assert certificate.count / certificate.counted == pytest.approx(0.5 + distance, abs=0.02)
    assert distance - 0.03 < certificate.radius < distance


def test_certify_abstains_on_a_tie_and_counts_what_it_cost():
    certificate = smoothed().certify([0.0], plan=sc.Fixed(1000))
    assert certificate.prediction is None
    assert (certificate.radius, certificate.samples) == (0, 1100)


def test_without_a_plan_it_is_input_specific_sampling():
    assert smoothed().certify([0.1]).plan == sc.InputSpecific()


@pytest.mark.parametrize("x", [[0.4, 0.1], np.array([0.4, 0.1]), torch.tensor([0.4, 0.1], requires_grad=True)])
def test_arrays_lists_and_tensors_are_the_same_input(x):
    assert smoothed().certify(x, plan=PLAN) == smoothed().certify((0.4, 0.1), plan=PLAN)


def test_bytes_are_divided_by_255():
    bright = smoothed(lambda x: (x[:, 0] > 0.5).long())
    assert bright.certify(np.array([255, 0], np.uint8), plan=PLAN) == bright.certify([1.0, 0.0], plan=PLAN, id=0)


def test_values_outside_the_unit_interval_are_told_once():
    model = smoothed()
    with pytest.warns(UserWarning, match=r"values lie in \[3, 255\], not in \[0, 1\]"):
        model.certify([255, 3], plan=PLAN)
    model.certify([255, 3], plan=PLAN)


def test_each_shape_has_a_batch_size_of_its_own(monkeypatch):
    def measured(model, classes, shape, runtime, draw):
        assert not runtime.batch
        return prepare(model, classes, shape, replace(runtime, batch=50))

    monkeypatch.setattr("smoothcert.tasks.smoothed.prepare", measured)
    model = smoothed(batch="auto")
    for x in ([0.5], [0.5, 0.5]):
        assert model.certify(x, plan=PLAN).prediction == 1


def test_a_module_gives_logits():
    torch.manual_seed(0)
    certificate = smoothed(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), classes=4).certify(
        torch.rand(3, 4), plan=PLAN
    )
    assert sum(certificate.looks[0].votes.values()) == certificate.plan.pilot


def test_calls_draw_noise_of_their_own_unless_told_which():
    model = smoothed()
    first, second, again = (
        model.certify([0.1], plan=PLAN),
        model.certify([0.1], plan=PLAN),
        model.certify([0.1], plan=PLAN, id=0),
    )
    assert first.looks != second.looks
    assert first == again
    assert smoothed(seed=1).certify([0.1], plan=PLAN).looks != first.looks


@pytest.mark.parametrize("call", range(3))
def test_a_call_that_was_interrupted_leaves_nothing_behind(call):
    interrupted_at = None
    calls = 0

    def interrupting(x):
        nonlocal calls
        calls += 1
        if calls == interrupted_at:
            raise KeyboardInterrupt
        return positive(x)

    model = smoothed(interrupting, batch=50)
    first = model.certify([0.3], plan=PLAN)
    interrupted_at = calls + 1 + call
    with pytest.raises(KeyboardInterrupt):
        model.certify([0.1], plan=PLAN)
    assert model.certify([0.3], plan=PLAN, id=0) == first


def test_predict_names_the_leader_with_the_binomial_tests_confidence():
    answer = smoothed().predict([0.5], samples=300)
    votes = answer.look.votes
    assert answer.prediction == 1
    assert answer.look.samples == 300
    assert answer.confidence == pytest.approx(1 - binomtest(votes[1], 300).pvalue, abs=1e-12)


def test_predict_abstains_when_the_votes_do_not_settle_it():
    answer = smoothed().predict([0.0], samples=300)
    assert answer.prediction is None
    votes = answer.look.votes
    assert answer.confidence == pytest.approx(1 - binomtest(max(votes.values()), 300).pvalue, abs=1e-9)


def test_predict_is_wrong_at_most_alpha_of_the_time():
    model = smoothed()
    named = sum(model.predict([0.0], samples=100, alpha=0.05).prediction is not None for _ in range(1000))
    assert binomtest(named, 1000, 0.05, alternative="greater").pvalue > 1e-4
    assert named > 0  # otherwise the test could not fail


def test_predict_is_settled_by_the_fewest_votes_that_can():
    always = smoothed(lambda x: torch.ones(len(x), dtype=torch.long))
    assert always.predict([0.5], samples=11).prediction == 1


def test_predict_without_any_vote_abstains():
    with pytest.warns(UserWarning, match="not in"):
        answer = smoothed(lambda x: (500 - x).sqrt().repeat(1, 2)).predict([900.0], samples=100)
    assert (answer.prediction, answer.confidence, answer.look.missing) == (None, 0, 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smoothed(3), "model must be a module or function, got int"),
        (lambda: smoothed(classes=1), "classes must be at least 2"),
        (lambda: smoothed(seed=-1), "seed must be at least 0"),
        (
            lambda: smoothed(seed=2**64).predict([0.5]),
            "seed must be from 0 to 9223372036854775807, got 18446744073709551616",
        ),
        (lambda: smoothed().certify([0.1, float("nan")]), "NaN or infinite"),
        (lambda: smoothed(noise=0.25), r"noise must be a noise such as Gaussian\(0.5\), got 0.25"),
        (lambda: smoothed(noise=Uniform), "noise must be a noise such as Gaussian.*Uniform"),
        (lambda: smoothed().certify("abc"), "an input must be an array of numbers, got str"),
        (lambda: smoothed().certify(None), "got NoneType"),
        (lambda: smoothed().certify([[0.1], [0.1, 0.2]]), "different lengths"),
        (lambda: smoothed().certify([]), r"the input is empty: its shape is \(0,\)"),
        (lambda: smoothed().certify([0.1], id=-1), "id must be at least 0"),
        (lambda: smoothed().certify([0.1], id=2**31), "id must be below"),
        (lambda: smoothed().certify([0.1], plan=sc.Fixed(9)), "9"),
        (lambda: smoothed().predict([0.1], alpha=1), "alpha must be"),
        (lambda: smoothed().predict([0.1], samples=0), "samples must be at least"),
        (lambda: smoothed().predict([0.1], samples=10), "samples 10 can never settle .* use at least 11"),
        (lambda: smoothed(classes=3, model=lambda x: x[:, :2]).certify([0.1, 0.2]), "3 classes"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, message):
    with pytest.raises(sc.InvalidInput, match=message):
        call()


@pytest.mark.parametrize("plan", ["fixed", sc.Fixed])
def test_what_is_no_plan_is_refused(plan):
    with pytest.raises(sc.InvalidInput, match="plan must be a plan such as"):
        sc.Smoothed(lambda x: x.flatten(1)[:, :2], noise=sc.Gaussian(0.5), classes=2).certify(torch.zeros(4), plan=plan)


NETWORK = torch.nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)).eval()


def test_many_inputs_in_memory_get_the_certificates_of_each_alone_in_their_order():
    images, labels = torch.rand((9, 3, 4), generator=torch.Generator().manual_seed(0)), [0, 1, 2, None, 0, 1, 2, -1, 0]
    together = smoothed(NETWORK, classes=3, dtype="float32", batch="auto")
    found = together.certify_all(images, labels, plan=PLAN)
    alone = smoothed(NETWORK, classes=3, dtype="float32", batch="auto")
    assert found == [
        alone.certify(x, plan=PLAN, label=None if label in (None, -1) else label)
        for x, label in zip(images, labels, strict=True)
    ]
    assert [c.id for c in found] == list(range(9))
    assert found[::-1] == together.certify_all(list(images)[::-1], labels[::-1], plan=PLAN, ids=range(8, -1, -1))
    # Inputs that are certified together share batches, so there is less padding.
    assert together.forwarded / 2 < alone.forwarded


def test_data_with_labels_can_be_certified_in_memory():
    data = [(torch.rand(3, 4), label) for label in (0, 2)]
    assert [c.label for c in smoothed(NETWORK, classes=3).certify_all(data, plan=PLAN)] == [0, 2]


def test_one_input_forwards_little_more_than_its_samples():
    forwarded = 0

    def counting(x):
        nonlocal forwarded
        forwarded += len(x)
        return positive(x)

    model = smoothed(counting, batch="auto")
    model.certify([0.3], plan=PLAN)
    prepared = forwarded
    certificate = model.certify([0.6], plan=PLAN)
    assert certificate.samples <= forwarded - prepared <= certificate.samples + 31 * len(certificate.looks)
    assert model.forwarded >= forwarded - prepared


def test_the_votes_of_smaller_batches_are_those_of_full_ones():
    x = torch.rand((3, 4), generator=torch.Generator().manual_seed(0))
    fitted, full = (smoothed(NETWORK, classes=3, dtype="float32", batch=b) for b in ("auto", 500))
    assert fitted.certify(x, plan=PLAN) == full.certify(x, plan=PLAN)


def test_a_given_batch_size_is_kept():
    def only_64(x):
        assert len(x) in (4, 8, 64)  # the check of the classifier has batches of 4 and 8
        return positive(x)

    model = smoothed(only_64, batch=64)
    certificate = model.certify([0.6], plan=PLAN)
    assert model.forwarded == 64 * sum(-(-look.samples // 64) for look in certificate.looks)


def test_without_a_label_nothing_is_correct_or_wrong():
    model = smoothed()
    assert model.certify([0.6], plan=PLAN).correct is None
    assert model.certify([0.6], plan=PLAN, label=1).correct is True
    assert model.certify([0.6], plan=PLAN, label=0).correct is False
    assert model.certify([0.0], plan=sc.Fixed(1000), label=0).correct is False


def test_every_input_is_checked_for_the_unit_interval():
    model = smoothed()
    model.certify([0.5], plan=PLAN)
    with pytest.warns(UserWarning, match=r"values lie in \[7, 7\]"):
        model.certify([7.0], plan=PLAN)


@pytest.mark.parametrize("dtype", [torch.float32, "float32"])
@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu"])
def test_devices_and_number_formats_of_torch_are_taken(device, dtype):
    model = smoothed(device=device, dtype=dtype)
    assert (model.runtime.device, model.runtime.dtype) == ("cpu", "float32")


def test_a_random_classifier_is_certified_if_it_is_said_to_be_one():
    def randomised(x):
        return (x[:, 0] + 0.1 * torch.randn(len(x)) > 0.5).long()

    with pytest.raises(sc.InvalidInput, match="or give stochastic=True if it is random by design"):
        smoothed(randomised).certify([0.9], plan=PLAN)
    before = torch.random.get_rng_state()
    first, again = (smoothed(randomised, stochastic=True, batch=b).certify([0.9], plan=PLAN) for b in (100, 300))
    assert first == again
    assert torch.equal(before, torch.random.get_rng_state())
    # The added noise makes the radius smaller: sigma 0.5 becomes a vote with deviation sqrt(0.5^2 + 0.1^2).
    assert 0.2 < first.radius < 0.4 * 0.5 / (0.5**2 + 0.1**2) ** 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.certify_all([[0.1], [0.2]], [0]), "there are 2 inputs but 1 labels"),
        (lambda m: m.certify_all(np.array([[0.1], [np.nan]])), "input 1 has NaN or infinite values"),
        (lambda m: m.certify_all([np.zeros(1), np.zeros(2)]), r"input 1 has shape \(2,\)"),
        (lambda m: m.certify_all(np.zeros((2, 1)), [0, 2]), "input 1 has label 2: labels are numbers from 0 to 1"),
        (lambda m: m.certify_all(np.zeros((2, 1)), ids=[3, 3]), "ids must be 2 different numbers"),
        (lambda m: m.certify_all([]), "the data is empty"),
        (lambda m: m.certify([0.1], label=5), "the input has label 5"),
        (lambda m: smoothed(noise=sc.Gaussian(1e300)), "1e.300 is too large for float32"),
        (lambda m: smoothed(nn.Linear(1, 2, device="meta")), "on the meta device"),
    ],
)
def test_what_cannot_be_in_memory_is_one_sentence(call, message):
    with pytest.raises(sc.InvalidInput, match=message):
        call(smoothed())


def test_a_missing_label_is_named_by_its_place():
    plan, some, inputs = sc.Fixed(100, known_labels=True), smoothed(), np.full((3, 2), 0.6, np.float32)
    some.certify_all(inputs, [1, 1, 1], plan=plan)
    with pytest.raises(sc.InvalidInput, match=r"^input 1 has no label"):
        some.certify_all(inputs, [1, None, 1], plan=plan)
    with pytest.raises(sc.InvalidInput, match=r"^the input has no label"):
        some.certify([0.6, 0.0], plan=plan)


def test_an_error_of_the_model_has_its_own_error_as_the_cause():
    def model(x):
        if len(x) > 8:
            raise RuntimeError("broken")
        return x

    smoothed = sc.Smoothed(model, noise=sc.Gaussian(0.5), classes=2, device="cpu", batch=100)
    with pytest.raises(sc.InvalidInput, match=r"^the model fails with RuntimeError: broken$") as caught:
        smoothed.certify([0.0, 1.0])
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_of_our_own_is_not_blamed_on_the_model(monkeypatch):
    code = compile("def find_logits(*outputs, **options): return 1 / 0", prepare.__code__.co_filename, "exec")
    exec(code, ours := {})
    monkeypatch.setattr("smoothcert.smoothed.prepare.find_logits", ours["find_logits"])
    smoothed = sc.Smoothed(lambda x: x, noise=sc.Gaussian(0.5), classes=2, device="cpu", batch=100)
    with pytest.raises(ZeroDivisionError):
        smoothed.certify([0.0, 1.0])
