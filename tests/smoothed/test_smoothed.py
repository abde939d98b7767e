import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.data import find_dataset
from smoothcert.device.runtime import Runtime
from smoothcert.executors import LocalExecutor
from smoothcert.smoothed import prepare as prepare_module

CHECKS = 2
"""How often a function that returns labels is called at the start of each call, to check it again."""
CHECKED_ROWS = 8 + 64
"""The rows of these calls."""
PLAN = sc.InputSpecific(2000, decline=0.1)
FEW = sc.Fixed(100)


def positive(x):
    return (x[:, 0] > 0).long()


@dataclass(frozen=True)
class UniformCube(sc.Noise):
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


def certificates(results):
    """Everything but the time that they took."""
    return [replace(c, seconds=0.0) for c in results]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)).eval()


NETWORK = network()
IMAGES = torch.rand((9, 3, 4), generator=torch.Generator().manual_seed(0))


def test_certify_proves_at_most_the_true_radius():
    [certificate] = smoothed().certify([[0.6, 0.0]], plan=PLAN)
    assert certificate.prediction == 1
    assert 0.4 < certificate.radius < 0.6
    assert certificate.samples == sum(look.samples for look in certificate.looks)


@pytest.mark.parametrize("distance", [0.1, 0.3, 0.45])
def test_any_noise_that_says_how_it_is_drawn_proves_at_most_the_true_radius(distance):
    """Under uniform noise the half-space at distance d has p = 1/2 + d, and d is its largest l1 radius."""
    [certificate] = smoothed(noise=UniformCube(0.5)).certify(
        [[distance, 0.0]], plan=sc.Fixed(20_000)
    )
    assert certificate.count / certificate.counted == pytest.approx(0.5 + distance, abs=0.02)
    assert distance - 0.03 < certificate.radius < distance


def test_certify_abstains_on_a_tie_and_counts_what_it_cost():
    [certificate] = smoothed().certify([[0.0]], plan=sc.Fixed(1000))
    assert certificate.prediction is None
    assert (certificate.radius, certificate.samples) == (0, 1100)


def test_without_a_plan_it_is_input_specific_sampling():
    assert smoothed().certify([[0.1]]).plan == sc.InputSpecific()


@pytest.mark.parametrize(
    "x", [[[0.4, 0.1]], np.array([[0.4, 0.1]]), torch.tensor([[0.4, 0.1]], requires_grad=True)]
)
def test_lists_arrays_and_tensors_are_the_same_batch(x):
    assert certificates(smoothed().certify(x, plan=PLAN)) == certificates(
        smoothed().certify([torch.tensor([0.4, 0.1])], plan=PLAN)
    )


@pytest.mark.filterwarnings("ignore:array. bytes are divided by 255")
def test_bytes_are_divided_by_255():
    found = [
        smoothed(lambda x: (x[:, 0] > 0.5).long()).certify(x, plan=PLAN)
        for x in (np.array([[255, 0]], np.uint8), [[1.0, 0.0]])
    ]
    assert certificates(found[0]) == certificates(found[1])


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 28, 28), (8,)])
@pytest.mark.parametrize(
    "call", [lambda m, x: m.certify(x), lambda m, x: m.predict(x), lambda m, x: m(x)]
)
def test_one_input_without_a_batch_axis_is_refused_with_the_call_that_works(shape, call):
    model, x = smoothed(lambda x: x.flatten(1)[:, :2]), torch.full(shape, 0.4)
    with refused("no-batch-axis", shape=shape):
        call(model, x)
    call(model, x[None])


def test_a_batch_of_few_matrices_is_not_taken_for_an_image_if_others_were_certified():
    model = smoothed(NETWORK, classes=None)
    with refused("no-batch-axis", shape=(3, 3, 4)):
        model.certify(IMAGES[:3], plan=FEW)
    assert len(model.certify(list(IMAGES[:3]), plan=FEW)) == 3
    assert len(model.certify(IMAGES[:1], plan=FEW)) == 1


def test_the_shape_that_the_model_takes_tells_an_input_from_a_batch():
    model = sc.Smoothed("fashion-cnn", sigma=0.5, device="cpu", batch=100)
    with refused("no-batch-axis", shape=(1, 28, 28)):
        model.certify(np.zeros((1, 28, 28), np.float32))


def test_a_call_gives_labels_and_minus_one_for_an_abstention():
    x = torch.tensor([[0.9], [0.0]])
    assert smoothed()(x).tolist() == [1, -1]
    assert smoothed()(x).device == x.device


def test_values_outside_the_unit_interval_are_told():
    model = smoothed()
    model.certify([[0.5]], plan=FEW)
    with pytest.warns(UserWarning, match=r"values lie in \[3, 255\], not in \[0, 1\]"):
        model.certify([[255.0, 3.0]], plan=FEW)


def test_sigma_is_gaussian_noise():
    by_sigma, by_noise = (
        smoothed(**n).certify([[0.3]], plan=PLAN) for n in ({"noise": None, "sigma": 0.5}, {})
    )
    assert certificates(by_sigma) == certificates(by_noise)


def test_classes_are_found_out_where_the_model_returns_logits():
    votes = smoothed(NETWORK, classes=None).certify(IMAGES, plan=FEW)[0].looks[0].votes
    assert certificates(smoothed(NETWORK, classes=None).certify(IMAGES, plan=FEW)) == certificates(
        smoothed(NETWORK, classes=3).certify(IMAGES, plan=FEW)
    )
    assert sum(votes.values()) == FEW.pilot
    with refused("unknown-classes"):
        smoothed(classes=None).certify([[0.1]])


def test_its_text_says_what_is_certified():
    assert repr(smoothed(noise=None, sigma=0.25, dtype="float32")) == (
        "<Smoothed: positive, 2 classes, sigma=0.25, device=cpu, dtype=float32, batch=500>"
    )
    assert (
        repr(smoothed(nn.Linear(2, 2), classes=None, device="auto", batch="auto"))
        == "<Smoothed: Linear, Gaussian(sigma=0.5)>"
    )
    named = sc.Smoothed("fashion-cnn", noise=sc.Laplace(0.2))
    assert repr(named) == f"<Smoothed: fashion-cnn, 10 classes, {sc.Laplace(0.2)}>"


def _loaded(model):
    model.load_state_dict({name: -value for name, value in model.state_dict().items()})


def _step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    nn.functional.cross_entropy(
        model(IMAGES), torch.zeros(len(IMAGES), dtype=torch.long)
    ).backward()
    optimizer.step()


def _data(model):
    for parameter in model.parameters():
        parameter.data.neg_()


def _moved(model):
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.flip(0))


def _swapped(model):
    one, other = model[3].weight.data[0, 1:3].tolist()
    model[3].weight.data[0, 1], model[3].weight.data[0, 2] = 99 + other, one - 99  # the sum stays


def _hooked(model):
    model.register_forward_hook(lambda module, inputs, outputs: -outputs)


def _patched(model):
    model.forward = lambda x: -x.flatten(1)[:, :3]


def _replaced(model):
    model[3] = nn.Linear(16, 3)


@pytest.mark.parametrize(
    "change", [_loaded, _step, _data, _moved, _swapped, _hooked, _patched, _replaced]
)
def test_after_a_change_of_the_weights_the_next_call_uses_the_new_ones(change):
    model = network()
    before = smoothed(model, classes=None)
    first = before.certify(IMAGES, plan=FEW)
    change(model)
    after = smoothed(model, classes=None)
    after.certify(IMAGES, plan=FEW)
    assert certificates(before.certify(IMAGES, plan=FEW)) == certificates(
        after.certify(IMAGES, plan=FEW)
    )
    assert before.certify(IMAGES, plan=FEW).count.tolist() != first.count.tolist()


def test_a_classifier_is_prepared_once_unless_it_changes():
    def ready(subject):
        return subject.bind(find_dataset(IMAGES), (), in_memory=True).ready

    model = network()
    some = smoothed(model, classes=None)
    first = ready(some)
    some.certify(IMAGES, plan=FEW)
    some.predict(IMAGES, samples=50)
    assert ready(some) is first
    model.register_buffer("unused", torch.tensor(math.nan))
    second = ready(some)
    assert second is not first
    some.certify(IMAGES, plan=FEW)
    assert ready(some) is second


def test_a_model_that_is_being_trained_is_refused():
    model = nn.Sequential(network(), nn.Dropout()).eval()
    some = smoothed(model, classes=None)
    some.certify(IMAGES, plan=FEW)
    model.train()
    with refused("training-mode", layer="Dropout"):
        some.certify(IMAGES, plan=FEW)
    model.eval()
    some.certify(IMAGES, plan=FEW)


def test_an_executor_chooses_the_runtime_of_its_own_machine():
    class Elsewhere(LocalExecutor):
        def resolve(self, device, dtype, compile, batch):
            return Runtime.resolve(device, "float64", compile, batch)

        def start(self, job, say):
            self.job = job
            return super().start(job, say)

    some, executor = smoothed(), Elsewhere()
    some.certify([[0.3]], plan=FEW)
    some.certify([[0.3]], plan=FEW, executor=executor)
    assert executor.job.subject.runtime.dtype == "float64"


def test_each_shape_has_a_batch_size_of_its_own():
    model = smoothed(batch="auto")
    ready = []
    for x in ([[0.5]], [[0.5, 0.5]]):
        assert model.certify(x, plan=PLAN).prediction.tolist() == [1]
        bound = model.bind(find_dataset(np.array(x)), (), in_memory=True)
        assert bound.batch == "auto"
        assert bound.ready.runtime.batch > 0
        ready.append(bound.ready)
    assert ready[0] is not ready[1]


def test_every_call_draws_new_noise_and_the_same_seed_repeats_the_calls():
    model, again = smoothed(), smoothed()
    first, second = model.certify([[0.1]], plan=PLAN), model.certify([[0.1]], plan=PLAN)
    assert first[0].looks != second[0].looks
    assert certificates(again.certify([[0.1]], plan=PLAN)) == certificates(first)
    assert certificates(again.certify([[0.1]], plan=PLAN)) == certificates(second)
    assert smoothed(seed=1).certify([[0.1]], plan=PLAN)[0].looks != first[0].looks


def test_a_run_draws_other_noise_than_a_call_in_memory_with_the_same_seed(tmp_path):
    """Otherwise, what is chosen in a notebook would be certified with the votes that it was chosen by."""
    x = np.full((20, 1), 0.1, np.float32)
    on_disk, in_memory = (
        smoothed().certify(x, plan=FEW, out=tmp_path),
        smoothed().certify(x, plan=FEW),
    )
    assert isinstance(on_disk, sc.Run)
    assert not isinstance(in_memory, sc.Run)
    assert on_disk.count.tolist() != in_memory.count.tolist()
    assert (
        on_disk.count.tolist()
        == sc.certify(smoothed(), x, plan=FEW, out=tmp_path / "again").count.tolist()
    )


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

    model, calm = smoothed(interrupting, batch=50), smoothed(batch=50)
    model.certify([[0.3]], plan=PLAN)
    interrupted_at = calls + CHECKS + 1 + call
    with pytest.raises(KeyboardInterrupt):
        model.certify([[0.1]], plan=PLAN)
    for _ in range(2):
        calm.certify([[0.1]], plan=PLAN)
    assert certificates(model.certify([[0.3]], plan=PLAN)) == certificates(
        calm.certify([[0.3]], plan=PLAN)
    )


def test_many_inputs_get_the_certificates_of_each_alone_in_their_order():
    labels = [0, 1, 2, None, 0, 1, 2, -1, 0]
    rows = 0

    def counting(x):
        nonlocal rows
        rows += len(x)
        return NETWORK(x)

    def certify(**choice):
        """As the first call of a new classifier, so that the noise is the same; and the rows that it forwards."""
        some = smoothed(counting, classes=3, dtype="float32", batch="auto").certify
        before = rows
        return certificates(some(IMAGES, labels, plan=PLAN, **choice)), rows - before

    together, forwarded = certify()
    alone = [certify(ids=[id]) for id in range(9)]
    assert together == [certificate for [certificate], _ in alone]
    assert [(c.id, c.label) for c in together] == [
        (i, x if x != -1 else None) for i, x in enumerate(labels)
    ]
    assert certify(ids=range(8, -1, -1))[0] == together
    # Inputs that are certified together share batches, so there is less padding.
    assert forwarded < sum(one for _, one in alone) / 2


def test_data_with_labels_can_be_certified_in_memory():
    data = [(torch.rand(3, 4), label) for label in (0, 2)]
    assert smoothed(NETWORK, classes=3).certify(data, plan=PLAN).label.tolist() == [0, 2]


def test_results_in_memory_are_results_like_those_of_a_run(tmp_path):
    pytest.importorskip("pandas")
    labels = [0, 1, 2] * 3
    found = smoothed(NETWORK, classes=None).certify(IMAGES, labels, plan=PLAN)
    assert len(found) == 9
    assert [c.radius for c in found] == found.radius.tolist()
    assert found[4].id == 4
    assert found[4] in found
    with pytest.raises(KeyError, match="no certificate of input 9"):
        found[9]
    with pytest.raises(KeyError, match=r"no certificate of input slice\(0, 3, None\)"):
        found[0:3]
    assert found.acr == pytest.approx(np.mean([c.radius * c.correct for c in found]))
    assert found.certified_accuracy([0, 0.1]).tolist() == [
        np.mean([c.correct and c.radius > r for c in found]) for r in (0, 0.1)
    ]
    assert found.complete
    frame, on_disk = (
        found.to_pandas(),
        smoothed(NETWORK, classes=None).certify(IMAGES, labels, plan=PLAN, out=tmp_path),
    )
    assert frame.columns.tolist() == on_disk.to_pandas().columns.tolist()
    assert frame.radius.tolist() == found.radius.tolist()


def test_one_input_forwards_little_more_than_its_samples():
    forwarded = 0

    def counting(x):
        nonlocal forwarded
        forwarded += len(x)
        return positive(x)

    model = smoothed(counting, batch="auto")
    model.certify([[0.3]], plan=PLAN)
    prepared = forwarded
    [certificate] = model.certify([[0.6]], plan=PLAN)
    assert (
        certificate.samples
        <= forwarded - prepared
        <= certificate.samples + 31 * len(certificate.looks) + CHECKED_ROWS
    )


def test_the_votes_of_smaller_batches_are_those_of_full_ones():
    fitted, full = (smoothed(NETWORK, classes=3, dtype="float32", batch=b) for b in ("auto", 500))
    assert certificates(fitted.certify(IMAGES[:2], plan=PLAN)) == certificates(
        full.certify(IMAGES[:2], plan=PLAN)
    )


def test_a_given_batch_size_is_kept():
    def only_64(x):
        assert len(x) in (4, 8, 64)  # the check of the classifier has batches of 4 and 8
        return positive(x)

    assert smoothed(only_64, batch=64).certify([[0.6]], plan=PLAN).prediction.tolist() == [1]


def test_without_a_label_nothing_is_correct_or_wrong():
    found = smoothed().certify([[0.6], [0.6], [0.6], [0.0]], [None, 1, 0, 0], plan=sc.Fixed(1000))
    assert [c.correct for c in found] == [None, True, False, False]


@pytest.mark.parametrize("dtype", [torch.float64, "float64"])
@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu"])
def test_devices_and_number_formats_of_torch_are_taken(device, dtype, tmp_path):
    manifest = (
        smoothed(device=device, dtype=dtype).certify([[0.5]], plan=FEW, out=tmp_path).manifest
    )
    assert (manifest.device, manifest.dtype) == ("cpu", "float64")


def test_a_random_classifier_is_certified_if_it_is_said_to_be_one():
    def randomised(x):
        return (x[:, 0] + 0.1 * torch.randn(len(x)) > 0.5).long()

    with refused("answer-changes"):
        smoothed(randomised).certify([[0.9]], plan=PLAN)
    before = torch.random.get_rng_state()
    [first], [again] = (
        smoothed(randomised, stochastic=True, batch=b).certify([[0.9]], plan=sc.Fixed(2000))
        for b in (100, 300)
    )
    assert first.looks == again.looks
    assert torch.equal(before, torch.random.get_rng_state())
    # The added noise makes the radius smaller: sigma 0.5 becomes a vote with deviation sqrt(0.5^2 + 0.1^2).
    assert 0.3 < first.radius < 0.4 * 0.5 / (0.5**2 + 0.1**2) ** 0.5


@pytest.mark.parametrize("noise", [sc.GridGaussian(0.25), sc.Ablation(45), sc.Discrete(0.2, 256)])
def test_a_noise_may_be_given_as_on_the_command_line(noise):
    assert smoothed(noise=noise.short).noise == noise


def test_a_transformation_may_be_given_as_on_the_command_line():
    turned = smoothed(noise=None, sigma=0.25, transform="rotation:40")
    assert turned.noise == sc.Rotation(sc.Gaussian(0.25), 40)
    assert smoothed(noise="gaussian:0.25", transform="zoom").noise == sc.Zoom(sc.Gaussian(0.25))
    assert "transform" not in repr(turned)


@pytest.mark.parametrize(
    ("call", "code", "fields"),
    [
        (lambda: smoothed(3), "not-a-model", {"kind": "int"}),
        (lambda: smoothed(classes=1), "too-small", {"name": "classes", "least": 2}),
        (lambda: smoothed(seed=-1), "too-small", {"name": "seed", "least": 0}),
        (lambda: smoothed(noise=0.25), "not-a-noise", {"noise": 0.25}),
        (lambda: smoothed(noise=UniformCube), "not-a-noise", {"noise": UniformCube}),
        (lambda: smoothed(noise="pink:0.5"), "unknown-name", {"value": "pink"}),
        (lambda: smoothed(transform=30), "not-a-transformation", {"value": 30}),
        (lambda: smoothed(noise="zoom:5"), "noise-is-transformation", {"name": "zoom"}),
        (lambda: smoothed(noise="laplace:1", transform="zoom"), "not-for-transformations", {}),
        (lambda: smoothed(noise=None), "noise-or-sigma", {}),
        (lambda: smoothed(sigma=0.5), "noise-or-sigma", {}),
        (
            lambda: smoothed(noise=None, sigma=sc.Gaussian(0.5)),
            "not-between",
            {"name": "sigma"},
        ),
        (lambda: smoothed(nn.Linear(1, 2, device="meta")), "no-weights-yet", {}),
        (lambda: smoothed(weights="checkpoint.pth"), "weights-without-name", {}),
        (
            lambda: sc.certify(smoothed(), [[0.1]], sigma=0.5),
            "settings-of-smoothed",
            {"names": "sigma"},
        ),
    ],
)
def test_what_cannot_be_is_refused(call, code, fields):
    with refused(code, **fields):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: smoothed(seed=2**64),
            "seed must be from 0 to 9223372036854775807, got 18446744073709551616",
        ),
        (lambda: smoothed().certify([[0.1]], plan="fixed"), "plan must be a plan such as"),
        (lambda: smoothed().certify([[0.1]], plan=sc.Fixed), "plan must be a plan such as"),
        (
            lambda: smoothed().certify([[0.1]], progress=sc.Progress()),
            "progress= is for certificates on disk",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(call, message):
    with pytest.raises(sc.InvalidInput, match=message):
        call()


def test_an_error_of_the_model_has_its_own_error_as_the_cause():
    def model(x):
        if len(x) > 8:
            raise RuntimeError("broken")
        return x

    with refused("model-failed", error="RuntimeError", reason="broken") as caught:
        smoothed(model, batch=100).certify([[0.0, 1.0]])
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_of_our_own_is_not_blamed_on_the_model(monkeypatch):
    code = compile(
        "def find_logits(*outputs, **options): return 1 / 0", prepare_module.__file__, "exec"
    )
    exec(code, ours := {})
    monkeypatch.setattr("smoothcert.models.outputs.find_logits", ours["find_logits"])
    with pytest.raises(ZeroDivisionError):
        smoothed(lambda x: x, batch=100).certify([[0.0, 1.0]])
