import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from smoothcert.classifiers import load_classifier
from smoothcert.cli import app, main


@pytest.fixture
def options(small, tmp_path):
    training, _ = small
    np.savez(tmp_path / "data.npz", x=[training[i][0].numpy() for i in range(128)], y=training.labels[:128])
    given = {"arch": "fashion-cnn", "data": tmp_path / "data.npz", "out": tmp_path / "run", "sigma": 0.25}
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
    assert result == {"weights": str(tmp_path / "run" / "weights.safetensors"), "epochs": 2, "epochs_now": 0}


def test_sigma_0_trains_without_noise_and_says_so(options, tmp_path):
    done = CliRunner().invoke(app, [*options, "--sigma", "0"])
    assert done.exit_code == 0, done.output
    assert "noisy" not in done.output
    assert load_classifier(None, weights=tmp_path / "run" / "weights.safetensors").trained_sigma == 0


def test_a_denoiser_is_trained_and_then_a_classifier_behind_it(options, tmp_path):
    given = [*options, "--method", "denoiser", "--arch", "unet-small", "--out", tmp_path / "denoiser", "--json"]
    trained = CliRunner().invoke(app, list(map(str, given)))
    assert trained.exit_code == 0, trained.output
    assert "PSNR: training" in trained.stderr
    denoiser = json.loads(trained.stdout)
    assert denoiser["psnr"] > 0
    again = CliRunner().invoke(app, list(map(str, given[:-1])))
    assert "complete already: PSNR of training inputs 12.04 dB noisy, " in again.stdout

    CliRunner().invoke(app, [*options, "--sigma", "0"])
    start = ["--weights", str(tmp_path / "run" / "weights.safetensors"), "--denoiser", denoiser["weights"]]
    tuned = CliRunner().invoke(app, [*options, "--method", "finetune", *start, "--out", str(tmp_path / "tuned")])
    assert tuned.exit_code == 0, tuned.output
    assert "of noisy training inputs right" in tuned.stdout
    stable = ["--method", "denoiser", "--arch", "unet-small", "--stability", "--weight", "0.5", *start[:2]]
    found = CliRunner().invoke(app, [*options, *stable, "--out", str(tmp_path / "stable")])
    assert found.exit_code == 0, found.output


def test_a_denoiser_takes_a_range_of_sigmas(options, tmp_path):
    own = [part for part in options if part not in ("--sigma", "0.25")]
    own += ["--method", "denoiser", "--arch", "unet-small", "--epochs", "1"]
    found = CliRunner().invoke(app, [*own, "--sigmas", "0.1,0.4"])
    assert found.exit_code == 0, found.output
    assert "PSNR of training inputs 13.98 dB noisy" in found.stdout  # -10 log10(0.1 * 0.4)


DENOISER = ["--method", "denoiser", "--arch", "unet-small"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--sigmas", "0.1,0.5"], "--sigmas is for --method denoiser: give --sigma with --method gaussian"),
        ([*DENOISER, "--sigmas", "0.1,0.5"], "--sigmas is the noise already: leave out --sigma and --noise"),
        (["--stability"], "--stability is for --method denoiser: leave it out with --method gaussian"),
        ([*DENOISER, "--stability"], "--stability needs the classifier: give --model or --weights"),
        ([*DENOISER, "--model", "fashion-cnn"], "--model and --weights are for --stability with --method denoiser"),
        ([*DENOISER, "--weight", "2"], "--weight is for --stability with --method denoiser: give both of them or none"),
        ([*DENOISER, "--copies", "2"], "method denoiser has no copies; it has sigma_low, stability"),
        (["--model", "fashion-cnn"], "--arch fashion-cnn and --model fashion-cnn exclude one another"),
        (["--method", "finetune"], "method finetune needs a denoiser"),
        (["--denoiser", "nowhere.safetensors"], "no weights file at nowhere.safetensors"),
        (["--epsilon", "1"], "method gaussian has no epsilon; it has no constants"),
        (["--arch", "resnet9"], "unknown architecture 'resnet9'"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--data", "nowhere"], "no data at 'nowhere'"),
        (["--sigma", "-1"], "sigma must be a number above 0, got -1.0"),
        (["--sigma", "0", "--method", "consistency"], "sigma must be a number above 0, got 0.0"),
        (["--batch", "0"], "batch must be at least 1, got 0"),
        (["--out", ""], "the value is empty (is a shell variable not set?): name a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(options, more, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["smoothcert", *options, *more])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
