"""Training of classifiers behind a fixed denoiser."""

import copy
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.refusals import refused

from smoothcert import Progress, certify
from smoothcert.errors import InvalidInput
from smoothcert.models import Classifier, load_classifier, state_hash
from smoothcert.models.denoisers import build_unet
from smoothcert.plans import Fixed
from smoothcert.training import Augmentation, Consistency, Finetune, Recipe, SmoothAdv, train
from smoothcert.training.methods.base import Frozen


@pytest.fixture(scope="module")
def clean(small, tmp_path_factory):
    """A classifier that was trained without noise."""
    recipe = Recipe("fashion-cnn", Augmentation(0.0), epochs=3, batch=64, learning_rate=0.05)
    trained = train(recipe, *small, out=tmp_path_factory.mktemp("clean"), device="cpu")
    return load_classifier(None, weights=trained.weights)


@pytest.fixture(scope="module")
def denoiser():
    torch.manual_seed(0)
    return build_unet("unet-small", shape=(1, 28, 28), sigmas=(0.2, 1.0)).eval()


def recipe(method=Finetune(0.3), **other):  # noqa: B008
    return Recipe("fashion-cnn", method, **{"epochs": 3, "batch": 32} | other)


def test_fine_tuning_adapts_the_classifier_and_leaves_the_denoiser(
    small, clean, denoiser, tmp_path
):
    before = copy.deepcopy(denoiser.state_dict())
    epochs = []
    trained = train(
        recipe(),
        *small,
        out=tmp_path,
        device="cpu",
        classifier=clean,
        denoiser=denoiser,
        on_epoch=epochs.append,
    )
    assert trained.accuracy == epochs[-1].accuracy > 0.7  # chance is 0.25
    assert epochs[-1].loss < epochs[0].loss
    assert all(map(torch.equal, before.values(), denoiser.state_dict().values()))
    assert not denoiser.training


def test_the_file_is_a_normal_classifier_that_names_its_denoiser(small, clean, denoiser, tmp_path):
    given = {"out": tmp_path, "device": "cpu", "classifier": clean, "denoiser": denoiser}
    trained = train(recipe(epochs=1), *small, **given)
    classifier = load_classifier(None, weights=trained.weights)
    assert classifier.module.state_dict().keys() == clean.module.state_dict().keys()
    assert classifier.weights_hash != clean.weights_hash
    assert (classifier.trained_sigma, classifier.classes) == (0.3, 4)
    with safe_open(trained.weights, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["denoiser"] == state_hash(denoiser)
    assert metadata["classifier"] == clean.weights_hash
    assert train(recipe(epochs=1), *small, **given).epochs_now == 0
    with pytest.raises(InvalidInput, match="differs in denoiser"):
        train(
            recipe(epochs=1),
            *small,
            **given | {"denoiser": build_unet("unet", shape=(1, 28, 28), sigmas=(0, 1))},
        )


def test_certify_warns_unless_the_denoiser_is_the_one_of_the_training(
    small, clean, denoiser, tmp_path
):
    given = {"device": "cpu", "classifier": clean, "denoiser": denoiser}
    tuned = train(recipe(epochs=1, batch=512), *small, out=tmp_path / "tuned", **given).weights
    settings = {
        "sigma": 0.3,
        "weights": tuned,
        "limit": 1,
        "plan": Fixed(samples=10),
        "device": "cpu",
        "batch": 10,
    }

    def warned(denoiser, name):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            certify(
                None,
                small[1],
                denoiser=denoiser,
                out=tmp_path / name,
                progress=Progress(),
                **settings,
            )
        return [str(warning.message) for warning in found]

    assert warned(denoiser, "same") == []
    message = "fashion-cnn was trained behind a denoiser and is certified {}; radii are true, but often small"
    assert warned(None, "none") == [message.format("without one")]
    other = build_unet("unet-small", shape=(1, 28, 28), sigmas=(0.2, 1.0)).eval()
    assert warned(other, "other") == [message.format("behind another one")]


def test_the_accuracy_is_that_of_the_classifier_behind_the_denoiser(
    small, clean, denoiser, tmp_path
):
    gentle = recipe(epochs=1, learning_rate=1e-9)
    trained = train(gentle, *small, out=tmp_path, device="cpu", classifier=clean, denoiser=denoiser)
    images = torch.stack([x for x, _ in small[1]])
    torch.manual_seed(0)
    with torch.no_grad():
        noisy = images + 0.3 * torch.randn_like(images)
        labels = clean.module(denoiser(noisy, torch.tensor(0.3))).argmax(1)
    assert trained.accuracy == pytest.approx(
        (labels == torch.tensor(small[1].labels)).float().mean().item(), abs=0.15
    )


@pytest.mark.parametrize(
    "method", [Consistency(0.3, weight=2.0), SmoothAdv(0.3, epsilon=0.5, copies=1, steps=2)]
)
def test_other_methods_train_behind_a_denoiser(method, small, clean, denoiser, tmp_path):
    own = recipe(method, epochs=1, learning_rate=0.01)
    trained = train(own, *small, out=tmp_path, device="cpu", classifier=clean, denoiser=denoiser)
    assert trained.accuracy > 0.5


def test_any_module_can_be_fine_tuned(small, denoiser, tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.AvgPool2d(7), torch.nn.Flatten(), torch.nn.Linear(16, 4))
    own = Classifier(module.eval(), classes=4, name="mine:network", weights_hash=state_hash(module))
    tuned = Recipe("mine:network", Finetune(0.3), epochs=3, batch=32, learning_rate=0.3)
    trained = train(tuned, *small, out=tmp_path, device="cpu", classifier=own, denoiser=denoiser)
    assert trained.accuracy > 0.7
    assert load_file(trained.weights).keys() == module.state_dict().keys()


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    small, clean, denoiser, tmp_path
):
    class Interrupted(Exception):
        pass

    def stop(epoch):
        raise Interrupted

    given = {"device": "cpu", "classifier": clean, "denoiser": denoiser}
    whole = train(recipe(), *small, out=tmp_path / "whole", **given)
    with pytest.raises(Interrupted):
        train(recipe(), *small, out=tmp_path / "broken", on_epoch=stop, **given)
    resumed = train(recipe(), *small, out=tmp_path / "broken", **given)
    assert resumed.epochs_now == 2
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()


def test_frozen_layers_stay_as_they_are_and_a_frozen_network_is_trained(small, tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.AvgPool2d(7),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 4),
    ).eval()
    module[2].requires_grad_(False)
    own = Classifier(module, classes=4, name="mine:network", weights_hash=state_hash(module))
    gaussian = Recipe("mine:network", Augmentation(0.3), epochs=1, batch=64)
    before = copy.deepcopy(module.state_dict())
    for name, frozen in (("some", True), ("all", False)):
        trained = load_file(
            train(gaussian, *small, out=tmp_path / name, device="cpu", classifier=own).weights
        )
        assert torch.equal(trained["2.weight"], before["2.weight"]) is frozen
        assert not torch.equal(trained["4.weight"], before["4.weight"])
        module.requires_grad_(False)


def test_a_module_without_parameters_is_refused(small, tmp_path):
    module = torch.nn.Sequential(torch.nn.AvgPool2d(14), torch.nn.Flatten())
    own = Classifier(module.eval(), classes=4, name="mine:network", weights_hash=state_hash(module))
    with refused("no-parameters", model="mine:network"):
        train(
            Recipe("mine:network", Augmentation(0.3), epochs=1),
            *small,
            out=tmp_path,
            device="cpu",
            classifier=own,
        )


def test_fine_tuning_needs_a_classifier_and_a_denoiser_that_fits(small, clean, denoiser, tmp_path):
    with refused("finetune-needs-both"):
        train(recipe(), *small, out=tmp_path, device="cpu", denoiser=denoiser)
    with refused("finetune-needs-both"):
        train(recipe(), *small, out=tmp_path, device="cpu", classifier=clean)
    colour = build_unet("unet-small", shape=(3, 32, 32), sigmas=(0.2, 1.0))
    with refused("other-shape", expected=(3, 32, 32)):
        train(recipe(), *small, out=tmp_path, device="cpu", classifier=clean, denoiser=colour)


def test_a_frozen_network_stays_in_evaluation_mode_and_has_no_gradients():
    inner = torch.nn.Sequential(torch.nn.BatchNorm2d(1), torch.nn.Dropout())
    frozen = Frozen(inner)
    torch.nn.Sequential(frozen).train()
    assert not any(module.training for module in frozen.modules())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert inner.training
    assert inner[0].weight.requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.filterwarnings("ignore")  # warnings of the compiler
def test_fine_tuning_works_on_cuda_compiled_and_captured(
    small, clean, denoiser, tmp_path, own_records
):
    trained = train(
        recipe(), *small, out=tmp_path, device="cuda", classifier=clean, denoiser=denoiser
    )
    assert not own_records()  # a failed capture is logged
    assert trained.accuracy > 0.7
