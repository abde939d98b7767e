import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.refusals import refused

from smoothcert.data import ArrayDataset
from smoothcert.errors import InvalidInput
from smoothcert.models import load_classifier
from smoothcert.training import (
    Augmentation,
    CatRs,
    Consistency,
    Macer,
    Recipe,
    SmoothAdv,
    SmoothMix,
    train,
)

METHODS = [
    Augmentation(0.25),
    Consistency(0.25, weight=5.0),
    Macer(0.25, weight=4.0, copies=4),
    SmoothAdv(0.25, epsilon=0.5, copies=2, steps=2, warmup=2),
    SmoothMix(0.25, epsilon=2.0, steps=1),
    CatRs(0.25, weight=1.0, copies=2, steps=1),
]


def recipe(method=METHODS[0], epochs=4, **other):
    return Recipe(
        "fashion-cnn", method, epochs=epochs, **{"batch": 64, "learning_rate": 0.05} | other
    )


class Interrupted(Exception):
    pass


def interrupt_after(epochs):
    def on_epoch(epoch):
        if epoch.number == epochs:
            raise Interrupted

    return on_epoch


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_learns(method, small, tmp_path):
    epochs = []
    trained = train(
        recipe(method, epochs=6),
        *small,
        out=tmp_path,
        device="cpu",
        checkpoint_seconds=0,
        on_epoch=epochs.append,
    )
    assert trained.accuracy == epochs[-1].accuracy > 0.95  # chance is 0.25
    assert epochs[-1].loss < 0.7 * epochs[0].loss
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5, 6]


def test_equal_seeds_give_equal_files_and_other_seeds_do_not(small, tmp_path):
    files = [
        train(
            recipe(epochs=2, seed=seed), *small, out=tmp_path / name, device="cpu"
        ).weights.read_bytes()
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert files[0] == files[1]
    assert files[0] != files[2]


@pytest.mark.parametrize("method", [METHODS[1], METHODS[3]], ids=lambda method: method.name)
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(method, small, tmp_path):
    whole = train(recipe(method), *small, out=tmp_path / "whole", device="cpu")
    for epochs in (1, 3):
        with pytest.raises(Interrupted):
            train(
                recipe(method),
                *small,
                out=tmp_path / "broken",
                device="cpu",
                checkpoint_seconds=0,
                on_epoch=interrupt_after(epochs),
            )
    resumed = train(recipe(method), *small, out=tmp_path / "broken", device="cpu")
    assert resumed.epochs_now == 1
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()


def test_a_run_that_stopped_before_it_wrote_the_weights_writes_them_when_repeated(small, tmp_path):
    trained = train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    whole = trained.weights.read_bytes()
    trained.weights.unlink()
    again = train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    assert again.epochs_now == 0
    assert again.weights.read_bytes() == whole


def test_a_finished_run_is_recognised(small, tmp_path):
    first = train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    untouched = first.weights.stat().st_mtime_ns
    again = train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    assert again.epochs_now == 0
    assert again.accuracy == pytest.approx(first.accuracy, abs=1e-4)  # the file stores four digits
    assert first.weights.stat().st_mtime_ns == untouched


def test_other_settings_in_the_same_folder_are_an_error_that_names_them(small, tmp_path):
    train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    with pytest.raises(
        InvalidInput, match=r"sigma \(there 0.25, now 0.5\).*weight \(there the default, now"
    ) as caught:
        train(recipe(Consistency(0.5, weight=3.0), epochs=1), *small, out=tmp_path, device="cpu")
    assert "epochs 1" not in str(caught.value)
    with pytest.raises(InvalidInput, match="fingerprint"):
        train(recipe(epochs=1), small[1], small[1], out=tmp_path, device="cpu")


def test_weights_say_what_they_are_and_load_without_other_settings(small, tmp_path):
    trained = train(recipe(epochs=2), *small, out=tmp_path, device="cpu")
    classifier = load_classifier("fashion-cnn", weights=trained.weights)
    assert classifier.classes == 4
    assert classifier.trained_sigma == 0.25
    images = torch.stack([small[1][index][0] for index in range(64)])
    right = classifier.module(images).argmax(1) == torch.tensor(small[1].labels[:64])
    assert right.float().mean() > 0.9


def test_a_checkpoint_is_not_taken_for_the_weights(small, tmp_path):
    train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    with refused("training-checkpoint"):
        load_classifier(None, weights=tmp_path / "checkpoint.safetensors")


def test_training_leaves_the_callers_random_state_alone(small, tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    assert torch.equal(torch.rand(3), expected)


def test_colour_images_train_a_residual_network(tmp_path):
    rng = np.random.default_rng(0)
    data = ArrayDataset(
        rng.integers(0, 256, (32, 3, 32, 32), np.uint8), rng.integers(0, 10, 32), name="colours"
    )
    steps = []
    own = Recipe("cifar-resnet20", Consistency.published(0.5), epochs=1, batch=16)
    trained = train(
        own, data, data, out=tmp_path, device="cpu", dtype="bfloat16", on_step=steps.append
    )
    assert steps == [16, 16]
    assert load_classifier("cifar-resnet20", weights=trained.weights).trained_sigma == 0.5


@pytest.mark.parametrize(
    ("change", "code", "fields"),
    [
        ({"batch": 1000}, "batch-too-large", {"batch": 1000, "inputs": 512}),
        ({"epochs": 0}, "too-small", {"name": "epochs", "least": 1}),
        ({"learning_rate": -1}, "not-between", {"name": "learning_rate", "low": 0}),
        ({"weight_decay": -1}, "not-at-least", {"name": "weight_decay", "value": -1}),
        ({"schedule": "linear"}, "not-one-of", {"name": "schedule", "value": "linear"}),
        ({"learning_rate": 1e6}, "diverged", {"learning_rate": 1e6}),
    ],
)
def test_a_bad_recipe_is_refused(change, code, fields, small, tmp_path):
    with refused(code, **fields):
        train(recipe(**change), *small, out=tmp_path, device="cpu")


def test_the_learning_rate_is_the_methods_own_unless_given():
    macer, gaussian = Macer.published(0.5), Augmentation(0.5)
    assert [
        Recipe("fashion-cnn", method, epochs=1).learning_rate for method in (macer, gaussian)
    ] == [0.01, 0.1]
    assert Recipe("fashion-cnn", macer, epochs=1, learning_rate=0.03).rate(0) == 0.03


def test_data_of_another_shape_is_refused(small, tmp_path):
    colour = Recipe("cifar-resnet20", Augmentation(0.25), epochs=1)
    with refused("other-shape", network="cifar-resnet20", shape=(1, 28, 28)):
        train(colour, *small, out=tmp_path, device="cpu")


def labelled(images, labels, **other):
    return ArrayDataset(images, np.asarray(labels), name="own", **other)


@pytest.mark.parametrize(
    ("labels", "others", "code", "label"),
    [
        ([0, 1] * 8, [0, 5] * 8, "label-without-class", 5),
        ([0, 3_000_000] * 8, [0, 1] * 8, "classes-without-examples", 3_000_000),
    ],
)
def test_labels_without_a_class_or_without_examples_are_refused(
    labels, others, code, label, tmp_path
):
    images = np.zeros((16, 1, 28, 28), np.uint8)
    training, validation = labelled(images, labels), labelled(images, others)
    with refused(code, label=label):
        train(recipe(batch=16), training, validation, out=tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("names", "number"), [(("b", "a"), 0), (("a", "c"), 1), (("a", "b", "c"), 2)]
)
def test_validation_data_with_other_classes_is_refused(names, number, tmp_path):
    images = np.zeros((16, 1, 28, 28), np.uint8)
    training = labelled(images, [0, 1] * 8, class_names=("a", "b"))
    validation = labelled(images, [0, 1] * 8, class_names=names)
    with refused("different-classes", number=number):
        train(recipe(batch=16), training, validation, out=tmp_path, device="cpu")


@pytest.mark.filterwarnings("ignore:.*values lie in")
def test_smoothadv_refuses_data_that_its_attack_would_change(tmp_path):
    images = np.linspace(-1, 1, 16 * 784, dtype=np.float32).reshape(16, 1, 28, 28)
    data = labelled(images, [0, 1] * 8)
    with refused("values-out-of-range", taker="method smoothadv", which="own"):
        train(recipe(METHODS[3], batch=16), data, data, out=tmp_path, device="cpu")
    train(
        recipe(epochs=1, batch=16), data, data, out=tmp_path, device="cpu"
    )  # the other methods take them


def test_a_last_step_that_diverges_is_not_a_success(small, tmp_path):
    last = recipe(epochs=1, batch=512, learning_rate=1e30)  # one step: its loss is still finite
    with refused("diverged", symptom="the outputs for validation inputs are not finite numbers"):
        train(last, *small, out=tmp_path, device="cpu")
    assert not (tmp_path / "weights.safetensors").exists()
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_a_damaged_checkpoint_is_named(small, tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"torn")
    with refused("damaged-file", file=tmp_path / "checkpoint.safetensors"):
        train(recipe(epochs=1), *small, out=tmp_path, device="cpu")


def test_a_checkpoint_of_something_else_is_named(small, tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "checkpoint.safetensors")
    with refused("not-a-training-run", file=tmp_path / "checkpoint.safetensors"):
        train(recipe(epochs=1), *small, out=tmp_path, device="cpu")


def test_the_validation_accuracy_is_that_of_the_weights_in_the_file(small, tmp_path):
    trained = train(recipe(epochs=1), *small, out=tmp_path, device="cpu")
    module = load_classifier("fashion-cnn", weights=trained.weights).module
    images = torch.stack([small[1][index][0] for index in range(128)]).repeat(20, 1, 1, 1)
    labels = torch.tensor(small[1].labels).repeat(20)
    torch.manual_seed(3)
    accuracy = (
        (module(images + 0.25 * torch.randn_like(images)).argmax(1) == labels).float().mean().item()
    )
    deviation = math.sqrt(max(accuracy * (1 - accuracy), 0.01) / 128)
    assert trained.accuracy == pytest.approx(accuracy, abs=4 * deviation)


def test_short_epochs_go_without_checkpoints_and_end_with_the_same_weights(small, tmp_path):
    def reported(seconds):
        epochs = []
        trained = train(
            recipe(),
            *small,
            out=tmp_path / str(seconds),
            device="cpu",
            checkpoint_seconds=seconds,
            on_epoch=epochs.append,
        )
        return [epoch.number for epoch in epochs], trained.weights.read_bytes()

    numbers, every = reported(0)
    assert numbers == [1, 2, 3, 4]
    numbers, few = reported(1e6)
    assert numbers == [1, 4]
    assert few == every
