"""What `python -m benchmarks.bench` measures."""

import json

import numpy as np
import pytest
from benchmarks.bench import application

pytestmark = pytest.mark.annexes


@pytest.fixture
def bench(smoothcert):
    return lambda line: smoothcert(line, application)


def test_bench_sets_the_sampler_beside_its_limit_and_the_published_loop(bench):
    answer = bench("--model fashion-cnn --sigma 0.25 --device cpu --batch 64 --seconds 0.05 --json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["batch"] == 64
    assert found["of_limit"] == found["sampler"] / found["forward"]
    assert found["speedup"] == {
        batch: found["sampler"] / rate for batch, rate in found["published"].items()
    }
    assert 0.9 < found["counted_rows"] <= 1
    assert 0 <= found["disagreement"] < 0.05


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_no_time_to_measure_is_refused(bench, seconds):
    answer = bench(f"--model fashion-cnn --sigma 0.25 --device cpu --seconds {seconds}")
    assert answer.code == 2
    assert "seconds must be a number above 0" in answer.err


def test_timing_needs_no_weights(bench):
    command = "--model cifar-resnet20 --sigma 0.25 --device cpu --batch 8 --seconds 0.01 --json"
    assert "--weights none for an untrained network" in bench(command).err
    assert bench(f"{command} --weights none").code == 0


def test_a_slow_machine_is_given_less_to_do(bench, tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(
        "import time, torch\n"
        "def classify(x):\n"
        "    time.sleep(2e-4 * len(x))\n"
        "    return torch.zeros(len(x), dtype=torch.long)\n"
        "def model():\n"
        "    return classify\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    answer = bench(
        "--model slow:model --classes 2 --data fashion-mnist --sigma 0.25 --device cpu --batch 8 --seconds 0.03"
        " --json"
    )
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["ceiling"] == 1_000
    assert list(found["published"]) == ["200"]
    assert "leaving out the published loop at batch 1000" in answer.err


def test_what_cannot_be_timed_is_said(bench):
    answer = bench("--model onnx:nowhere.onnx --sigma 0.25 --device cpu --seconds 0.01")
    assert answer.code == 2
    assert "nowhere.onnx" in answer.err
    assert "leave out --weights" not in answer.err


def test_little_noise_is_timed_too(bench):
    assert (
        bench("--model fashion-cnn --sigma 0.01 --device cpu --batch 64 --seconds 0.01").code == 0
    )


def test_one_input_is_enough(bench, tmp_path):
    np.savez(tmp_path / "one.npz", x=np.zeros((1, 1, 28, 28), np.uint8))
    command = "--model fashion-cnn --sigma 0.25 --device cpu --batch 8 --seconds 0.01 --json"
    answer = bench(f"{command} --data {tmp_path / 'one.npz'}")
    assert answer.code == 0, answer.err
