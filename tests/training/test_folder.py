"""The folder of a training run: what is kept, and what is refused."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.refusals import refused
from torch import nn

from smoothcert.errors import InvalidInput
from smoothcert.models import Classifier, load_classifier, state_hash
from smoothcert.training import (
    Augmentation,
    Consistency,
    Denoising,
    Macer,
    Recipe,
    SmoothAdv,
    train,
)


def recipe(method=Augmentation(0.25), epochs=1, **other):  # noqa: B008
    return Recipe(
        "fashion-cnn", method, epochs=epochs, **{"batch": 64, "learning_rate": 0.05} | other
    )


def own(module):
    return Classifier(
        module.eval(), classes=4, name="mine:network", weights_hash=state_hash(module)
    )


class Interrupted(Exception):
    pass


def stop(epoch):
    raise Interrupted


def test_weights_without_a_checkpoint_are_a_finished_run(small, tmp_path):
    first = train(recipe(), *small, out=tmp_path, device="cpu")
    content = first.weights.read_bytes()
    (tmp_path / "checkpoint.safetensors").unlink()
    again = train(recipe(), *small, out=tmp_path, device="cpu", on_step=pytest.fail)
    assert again.epochs_now == 0
    assert again.accuracy == pytest.approx(first.accuracy, abs=1e-4)
    with pytest.raises(
        InvalidInput, match=r"another training run: it differs in .*sigma \(there 0\.25, now 0\.5\)"
    ):
        train(recipe(Augmentation(0.5)), *small, out=tmp_path, device="cpu")
    with pytest.raises(InvalidInput, match=r"differs in .*method"):
        train(Recipe("unet-small", Denoising(0.25), epochs=1), *small, out=tmp_path, device="cpu")
    assert first.weights.read_bytes() == content


@pytest.mark.parametrize(
    "metadata", [None, {"format": "pt"}, {"method": "gaussian", "fingerprint": "0"}]
)
@pytest.mark.parametrize("epochs_done", [0, 1, 2])
def test_weights_of_somebody_else_are_never_overwritten(metadata, epochs_done, small, tmp_path):
    if epochs_done == 1:
        with pytest.raises(Interrupted):
            train(recipe(epochs=2), *small, out=tmp_path, device="cpu", on_epoch=stop)
    elif epochs_done == 2:
        train(recipe(epochs=2), *small, out=tmp_path, device="cpu")
    weights = tmp_path / "weights.safetensors"
    save_file({"weight": torch.ones(2)}, weights, metadata)
    content = weights.read_bytes()
    with pytest.raises(
        InvalidInput, match=r"(does not belong to a|holds another) training run.*out=DIR"
    ):
        train(recipe(epochs=2), *small, out=tmp_path, device="cpu")
    assert weights.read_bytes() == content


def test_whole_numbers_in_a_recipe_are_the_same_settings(small, tmp_path):
    train(recipe(Consistency(0.25, weight=5.0)), *small, out=tmp_path, device="cpu")
    assert (
        train(recipe(Consistency(0.25, weight=5)), *small, out=tmp_path, device="cpu").epochs_now
        == 0
    )


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = self.a
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        x = nn.functional.avg_pool2d(x, 7).flatten(1)
        return self.last(self.b(self.a(x).relu()))


def resumed_as_if_whole(make, small, tmp_path):
    """The weights of a resumed run, which are those of a run without interruption."""
    torch.manual_seed(0)
    given = {"device": "cpu", "classifier": own(make())}
    whole = train(recipe(epochs=2), *small, out=tmp_path / "whole", **given)
    with pytest.raises(Interrupted):
        train(recipe(epochs=2), *small, out=tmp_path / "broken", on_epoch=stop, **given)
    resumed = train(recipe(epochs=2), *small, out=tmp_path / "broken", **given)
    assert resumed.epochs_now == 1
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()
    return whole.weights


def test_tied_weights_are_saved_and_resumed(small, tmp_path):
    state = load_file(resumed_as_if_whole(Tied, small, tmp_path))
    assert torch.equal(state["a.weight"], state["b.weight"])
    Tied().load_state_dict(state)


@pytest.mark.parametrize(
    "method",
    [
        Augmentation(np.float32(0.25)),
        Consistency(np.float32(0.25), weight=np.float32(5), copies=np.int64(2)),
        Macer(np.float32(0.25), weight=np.int32(4), copies=np.int64(2), hinge=np.float32(8)),
        SmoothAdv(np.float32(0.25), epsilon=np.float32(0.5), copies=np.int64(2), steps=np.int64(1)),
    ],
    ids=lambda method: method.name,
)
def test_numpy_numbers_are_numbers(method, small, tmp_path):
    numbers = {
        "batch": np.int64(64),
        "learning_rate": np.float32(0.05),
        "seed": np.int64(3),
        "epochs": 1.0,
    }
    trained = train(recipe(method, **numbers), *small, out=tmp_path, device="cpu")
    assert load_classifier(None, weights=trained.weights).trained_sigma == 0.25


def test_a_checkpoint_of_a_network_with_other_trained_layers_is_refused(small, tmp_path):
    module = nn.Sequential(
        nn.AvgPool2d(7), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)
    )
    module[2].requires_grad_(False)
    with pytest.raises(Interrupted):
        train(
            recipe(epochs=2),
            *small,
            out=tmp_path,
            device="cpu",
            classifier=own(module),
            on_epoch=stop,
        )
    with refused("other-layers", layer="momentum.2.bias"):
        train(
            recipe(epochs=2),
            *small,
            out=tmp_path,
            device="cpu",
            classifier=own(module.requires_grad_()),
        )
