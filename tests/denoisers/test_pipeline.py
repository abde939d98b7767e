"""A published pipeline in small: a checkpoint of a diffusion network, and a classifier of another size behind it."""

import os
import pickle

import numpy as np
import pytest
import torch
from benchmarks.unets import Shape, random_weights
from safetensors import safe_open
from tests.denoisers.test_openai import REFERENCE, needs_reference
from tests.users_code import forget
from typer.testing import CliRunner

import smoothcert as sc
from smoothcert.cli import app
from smoothcert.errors import InvalidInput

SMALL = Shape(8, 32, (1, 2), 1, (4,), resamples_in_blocks=False)
NETWORK = """
import torch
from torch import nn

def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 2, 16), nn.Flatten())
"""


class Killed(Exception):
    """Stands for a process that dies in the middle of a run."""


class KilledAfterTwo(sc.Progress):
    """Kills a run after two certificates."""

    left = 2

    def update(self, certificate, status):
        self.left -= 1
        if not self.left:
            raise Killed


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """Options of the pipeline, in a folder with its files."""
    monkeypatch.chdir(tmp_path)
    torch.save(random_weights(SMALL), "unet.pt")
    (tmp_path / "pipeline_network.py").write_text(NETWORK)
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 8, 8), dtype=np.uint8)
    np.savez("data.npz", x=images, y=[0, 1, 0, 1])
    yield {
        "weights": None,
        "denoiser": "openai:unet.pt",
        "resize": "16,bicubic",
        "sigma": 0.25,
        "device": "cpu",
        "dtype": "float32",
        "batch": 16,
    }
    forget("pipeline_network")


def command(name, *arguments, **options):
    options = [f"--{key}={value}" for key, value in options.items() if value is not None]
    return CliRunner().invoke(app, [name, *arguments, *options])


def votes(run):
    return [certificate.looks for certificate in sc.open_run(run)]


def test_a_killed_run_is_resumed_by_the_command_and_audited(pipeline):
    settings = pipeline | {"local": "2,0.1"}
    files = {"model": "pipeline_network.py:network", "data": "data.npz"}
    plan = {"method": "fixed", "samples": 32, "pilot": 8}
    whole = command("certify", out="whole", **files, **plan, **settings)
    assert whole.exit_code == 0, whole.output
    with pytest.raises(Killed):
        sc.certify(
            "pipeline_network.py:network",
            "data.npz",
            out="killed",
            plan=sc.Fixed(32, pilot=8),
            progress=KilledAfterTwo(),
            **settings,
        )
    assert 0 < len(sc.open_run("killed")) < 4
    resumed = command("certify", out="killed", **files, **plan, **settings)
    assert resumed.exit_code == 0, resumed.output
    assert votes("killed") == votes("whole")
    audited = command("audit", "killed", **files)
    assert audited.exit_code == 0, audited.output


def test_a_run_does_not_continue_with_another_size(pipeline):
    files = {"model": "pipeline_network.py:network", "data": "data.npz", "samples": 64, "limit": 1}
    assert command("certify", out="run", **files, **pipeline).exit_code == 0
    other = command("certify", out="run", **files, **pipeline | {"resize": "16"})
    assert isinstance(other.exception, InvalidInput)
    assert other.exception.code == "other-configuration"
    assert other.exception.fields["names"] == ["resize"]


class Code:
    """What a file must not run."""

    def __reduce__(self):
        return os.system, ("touch executed",)


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_a_layer(path):
    state = torch.load(path)
    del state["middle_block.1.qkv.weight"]
    torch.save(state, path)


def with_code(path):
    path.write_bytes(pickle.dumps({"weights": Code()}))


def of_a_classifier(path):
    torch.save({"fc.weight": torch.zeros(10, 4)}, path)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_off, without_a_layer, with_code, of_a_classifier, empty])
def test_a_checkpoint_that_cannot_be_used_is_one_sentence(pipeline, tmp_path, damage):
    damage(tmp_path / "unet.pt")
    found = command(
        "certify", model="pipeline_network.py:network", data="data.npz", out="run", **pipeline
    )
    assert isinstance(found.exception, InvalidInput)
    assert "unet.pt" in str(found.exception)
    assert str(found.exception).count("\n") == 0
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "executed").exists()


@needs_reference
@pytest.mark.parametrize("family", ["improved", "guided"])
def test_random_networks_have_the_tensors_of_published_ones(family):
    is_guided = family == "guided"
    with safe_open(REFERENCE / f"{family}-diffusion-small.safetensors", "pt") as file:
        names = [name for name in file.keys() if name.startswith("state.")]  # noqa: SIM118
        expected = {
            name.removeprefix("state."): list(file.get_slice(name).get_shape()) for name in names
        }
    levels, attention = ((1, 1, 2, 2), (16, 8)) if is_guided else ((1, 2, 2, 2), (16, 8))
    shape = Shape(64 if is_guided else 32, 32, levels, 1, attention, is_guided)
    assert {name: list(value.shape) for name, value in random_weights(shape).items()} == expected
