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


@pytest.mark.parametrize(
    ("more", "message"),
    [
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
