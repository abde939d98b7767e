import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from tests.users_code import forget
from typer.testing import CliRunner

from smoothcert.cli import app, main
from smoothcert.data import load_dataset
from smoothcert.models import load_classifier
from smoothcert.models.denoisers import build_unet
from smoothcert.training import Augmentation, Recipe, train


def save_denoiser(path):
    """The weights of a denoiser that was not trained."""
    metadata = {"method": "denoiser", "architecture": "unet-small", "shape": "[1, 28, 28]"}
    metadata |= {"sigma_low": "0.1", "sigma_high": "0.5"}
    network = build_unet("unet-small", shape=(1, 28, 28), sigmas=(0.1, 0.5))
    save_file(dict(network.state_dict()), path, metadata)


@pytest.fixture
def options(small, tmp_path):
    training, _ = small
    np.savez(
        tmp_path / "data.npz",
        x=[training[i][0].numpy() for i in range(128)],
        y=training.labels[:128],
    )
    given = {
        "arch": "fashion-cnn",
        "data": tmp_path / "data.npz",
        "out": tmp_path / "run",
        "sigma": 0.25,
    }
    given |= {"epochs": 2, "batch": 32, "device": "cpu"}
    return ["train", *(str(part) for name, value in given.items() for part in (f"--{name}", value))]


def test_train_reports_each_epoch_and_the_second_time_that_it_is_complete(options, tmp_path):
    first = CliRunner().invoke(app, options)
    assert first.exit_code == 0, first.output
    lines = first.stderr.splitlines()
    assert "of noisy training inputs right" in first.stdout  # an .npz file has no validation part
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert all("images/s" in line and "afterwards" in line and "s left" in line for line in lines)
    again = CliRunner().invoke(app, [*options, "--json"])
    result = json.loads(again.stdout)
    assert result.pop("accuracy") > 0
    assert result == {
        "weights": str(tmp_path / "run" / "weights.safetensors"),
        "epochs": 2,
        "epochs_now": 0,
    }


def test_sigma_0_trains_without_noise_and_says_so(options, tmp_path):
    done = CliRunner().invoke(app, [*options, "--sigma", "0"])
    assert done.exit_code == 0, done.output
    assert "noisy" not in done.output
    assert (
        load_classifier(None, weights=tmp_path / "run" / "weights.safetensors").trained_sigma == 0
    )


def test_a_denoiser_is_trained_and_then_a_classifier_behind_it(options, tmp_path):
    given = [
        *options,
        "--method",
        "denoiser",
        "--arch",
        "unet-small",
        "--out",
        tmp_path / "denoiser",
        "--json",
    ]
    trained = CliRunner().invoke(app, list(map(str, given)))
    assert trained.exit_code == 0, trained.output
    assert "PSNR: training" in trained.stderr
    denoiser = json.loads(trained.stdout)
    assert denoiser["psnr"] > 0
    again = CliRunner().invoke(app, list(map(str, given[:-1])))
    assert "complete already: PSNR of training inputs 12.04 dB noisy, " in again.stdout

    CliRunner().invoke(app, [*options, "--sigma", "0"])
    start = [
        "--weights",
        str(tmp_path / "run" / "weights.safetensors"),
        "--denoiser",
        denoiser["weights"],
    ]
    tuned = CliRunner().invoke(
        app, [*options, "--method", "finetune", *start, "--out", str(tmp_path / "tuned")]
    )
    assert tuned.exit_code == 0, tuned.output
    assert "of noisy training inputs right" in tuned.stdout
    stable = [
        "--method",
        "denoiser",
        "--arch",
        "unet-small",
        "--stability",
        "--weight",
        "0.5",
        *start[:2],
    ]
    found = CliRunner().invoke(app, [*options, *stable, "--out", str(tmp_path / "stable")])
    assert found.exit_code == 0, found.output


def test_a_denoiser_takes_a_range_of_sigmas(options, tmp_path):
    own = [part for part in options if part not in ("--sigma", "0.25")]
    own += ["--method", "denoiser", "--arch", "unet-small", "--epochs", "1"]
    found = CliRunner().invoke(app, [*own, "--sigmas", "0.1,0.4"])
    assert found.exit_code == 0, found.output
    assert "PSNR of training inputs 13.98 dB noisy" in found.stdout  # -10 log10(0.1 * 0.4)


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run a command that is a mistake; returns its message."""

    def run(arguments):
        monkeypatch.setattr(sys, "argv", ["smoothcert", *arguments])
        monkeypatch.setattr(
            warnings, "showwarning", warnings.showwarning
        )  # `main` replaces it; this restores it
        with pytest.raises(SystemExit) as exit:
            main()
        assert exit.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return run


NETWORKS = """
import torch
from torch import nn

class Network(nn.Module):
    classes = 4

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 4)

class Twice(Network):
    def forward(self, x):
        return (x, self.layer(x.flatten(1)))

class Fails(Network):
    def forward(self, x):
        raise ValueError("no luck")

class Labels(Network):
    def forward(self, x):
        return self.layer(x.flatten(1)).argmax(1)

def convolution():
    return nn.Sequential(nn.Conv2d(1, 4, 28), nn.Flatten())

def labels():
    return nn.Sequential(nn.Conv2d(1, 4, 28), Labelled())

class Labelled(nn.Module):
    def forward(self, x):
        return x.flatten(1).argmax(1)

class Constant(Network):
    def forward(self, x):
        return self.layer(x.flatten(1)).detach()
"""
DENOISER = ["--method", "denoiser", "--arch", "unet-small"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--sigmas", "0.1,0.5"], "--sigmas 0.1,0.5: give the smallest and the largest sigma"),
        (
            [*DENOISER, "--sigmas", "0.1,0.5"],
            "with --method denoiser and without --sigma and --noise",
        ),
        (["--stability"], "method gaussian has no stability: that is for denoiser"),
        (
            [*DENOISER, "--stability"],
            "needs a classifier and a weight above 0: give --stability, and --model",
        ),
        ([*DENOISER, "--model", "fashion-cnn"], "needs a classifier and a weight above 0"),
        (
            ["--model", "fashion-cnn"],
            "--arch fashion-cnn and --model fashion-cnn exclude one another",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(options, more, message, refused, tmp_path):
    assert message in refused([*options, *more])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--sigma", "0.25"],
            "--arch is missing: name the architecture to train, as in --arch unet-small",
        ),
        (
            ["--arch", "unet-small", "--noise", "laplace:0.3"],
            "method denoiser trains with Gaussian noise only, not with Laplace(scale=0.3): give --sigma, or "
            "--method gaussian\n",
        ),
    ],
)
def test_a_mistake_with_a_denoiser_names_options(options, more, message, refused):
    own = ["train", "--method", "denoiser", *options[3 : options.index("--sigma")], "--epochs", "1"]
    assert message in refused([*own, *more])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "Twice",
            "fashion-cnn behind own:Twice: it fails on a float32 batch of shape (2, 1, 28, 28): unsupported operand",
        ),
        (
            "Fails",
            "fashion-cnn behind own:Fails: it fails on a float32 batch of shape (2, 1, 28, 28): no luck",
        ),
    ],
)
def test_a_denoiser_that_cannot_be_used_is_refused_before_training(
    options, refused, name, reason, tmp_path
):
    (tmp_path / "own.py").write_text(NETWORKS)
    own = [
        *options,
        "--method",
        "finetune",
        "--arch",
        "fashion-cnn",
        "--denoiser",
        f"{tmp_path}/own.py:{name}",
    ]
    assert reason in refused(own)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Twice", "and it returned tuple"),
        ("Fails", "it fails on a float32 batch of shape (2, 1, 28, 28): no luck"),
        ("labels", "and it returned int64 of shape (2,)"),
        ("Constant", "its logits have no gradient"),
    ],
)
def test_a_classifier_that_cannot_be_trained_is_refused_before_training(
    options, refused, name, reason, tmp_path
):
    (tmp_path / "own.py").write_text(NETWORKS)
    own = [part for part in options if part not in ("--arch", "fashion-cnn")]
    error = refused([*own, "--model", f"{tmp_path}/own.py:{name}"])
    assert f"cannot train with own:{name}: " in error
    assert reason in error


def test_a_network_whose_number_of_classes_is_unknown_is_trained(options, tmp_path):
    (tmp_path / "own.py").write_text(NETWORKS)
    own = [part for part in options if part not in ("--arch", "fashion-cnn")]
    trained = CliRunner().invoke(app, [*own, "--model", f"{tmp_path}/own.py:convolution"])
    assert trained.exit_code == 0, trained.output
    assert (
        load_classifier("own:convolution", weights=tmp_path / "run" / "weights.safetensors").classes
        == 4
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--sigma", "0.5"], 0.5),
        (["--noise", "gaussian:0.5"], 0.5),
        (["--noise", "grid-gaussian:0.5"], 0.5),
        (["--sigma", "0"], 0.25),
        (["--sigma", "0.4", "--method", "finetune", "--denoiser", "d.safetensors"], 0.25),
        (["--sigma", "0.5", "--method", "denoiser", "--arch", "unet-small", "--stability"], 0.25),
        (
            ["--sigmas", "0.1,0.5", "--method", "denoiser", "--arch", "unet-small", "--stability"],
            0.25,
        ),
    ],
)
def test_the_bundled_weights_to_start_from_are_those_that_certify_takes(
    more, expected, options, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    save_denoiser("d.safetensors")
    given = ["--data", "data.npz", "--out", "run", "--epochs", "1", "--batch", "128"]
    done = CliRunner().invoke(app, ["train", "--model", "fashion-cnn", *given, *more])
    assert done.exit_code == 0, done.output
    with safe_open("run/weights.safetensors", framework="pt") as file:
        start = file.metadata()["classifier"]
    assert start == load_classifier("fashion-cnn", sigma=expected).weights_hash


@pytest.mark.filterwarnings("ignore:.*values lie in")
@pytest.mark.parametrize("method", ["denoiser", "finetune"])
def test_data_that_a_denoiser_does_not_take_is_refused(options, method, refused, tmp_path):
    with np.load(tmp_path / "data.npz") as data:
        np.savez(tmp_path / "negative.npz", x=2 * data["x"] - 1, y=data["y"])
    own = [*options, "--data", str(tmp_path / "negative.npz"), "--method", method]
    if method == "denoiser":
        own += ["--arch", "unet-small"]
    else:
        save_denoiser(tmp_path / "d.safetensors")
        own += ["--denoiser", str(tmp_path / "d.safetensors")]
    assert "the denoiser takes inputs with values from 0 to 1: scale the data" in refused(own)


EXAMPLE = Path(__file__).parents[2] / "examples" / "own_training.py"


def test_a_method_from_a_file_of_the_user_trains_and_resumes(options, tmp_path):
    own = ["--import", str(EXAMPLE), *options, "--method", "stability", "--weight", "0.5"]
    trained = CliRunner().invoke(app, own)
    assert trained.exit_code == 0, trained.output
    with safe_open(tmp_path / "run" / "weights.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert (metadata["method"], metadata["weight"], metadata["sigma"]) == (
        "stability",
        "0.5",
        "0.25",
    )
    again = CliRunner().invoke(app, own)
    assert again.stdout.startswith("complete already: ")


METHOD = """
from dataclasses import dataclass
import torch
from smoothcert.training import Method, Objective

@dataclass(frozen=True)
class Mine(Method):
    name = "mine"
    sigma: float

    def objective(self, module, x, labels, epoch):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('nothing')", "Mine.objective fails (KeyError): 'nothing' ("),
        ("return module(x).mean()", "Mine.objective must return an Objective: a loss, which is a"),
        ("return Objective(torch.tensor(1.0), x)", "a scalar that depends on the weights"),
    ],
)
def test_a_method_of_the_user_that_fails_is_one_sentence(options, body, message, refused, tmp_path):
    (tmp_path / "mine.py").write_text(METHOD.format(body=body))
    forget("mine")
    error = refused(["--import", str(tmp_path / "mine.py"), *options, "--method", "mine"])
    assert message in error
    forget("mine")


def test_a_method_that_nobody_has_written_is_refused(options, refused):
    assert "did you mean smoothmix?" in refused([*options, "--method", "smothmix"])


def test_a_resumed_training_says_what_was_left(options, tmp_path):
    def stop(epoch):
        raise KeyboardInterrupt

    data = load_dataset(tmp_path / "data.npz")
    recipe = Recipe("fashion-cnn", Augmentation(0.25), epochs=2, batch=32)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, data, data, out=tmp_path / "run", device="cpu", on_epoch=stop)
    resumed = CliRunner().invoke(app, options)
    assert resumed.stdout.startswith("trained 1 of 2 epochs now: ")
