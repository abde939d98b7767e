"""Denoisers on the command line."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from smoothcert.models.denoisers import build_unet

SETTINGS = "--model fashion-cnn-clean --data fashion-mnist --samples 100 --limit 2 --device cpu --batch 64 --quiet"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a denoiser for Fashion-MNIST."""
    torch.manual_seed(0)
    network = build_unet("unet-small", shape=(1, 28, 28), sigmas=(0.1, 0.5))
    metadata = {"method": "denoiser", "architecture": "unet-small", "shape": "[1, 28, 28]"}
    metadata |= {"sigma_low": "0.1", "sigma_high": "0.5"}
    save_file(dict(network.state_dict()), tmp_path / "d.safetensors", metadata)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_certify_and_audit_with_a_denoiser(smoothcert, folder):
    assert smoothcert(f"certify {SETTINGS} --sigma 0.25 --denoiser d.safetensors --out run") == (
        0,
        "",
        "",
    )
    code, out, _ = smoothcert("audit run --redraw 1")
    assert (code, out) == (
        0,
        "run: 2 certificates checked, 1 drawn again: all radii follow from their votes; "
        "no certificate is wrong, with probability 0.998.\n"
        "The plan keeps its alpha of 0.001.\n",
    )
    Path("d.safetensors").rename("moved.safetensors")
    code, _, error = smoothcert("audit run --redraw 1")
    assert code == 2
    assert "--denoiser" in error
    assert smoothcert("audit run --redraw 1 --denoiser moved.safetensors")[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sigma 0.75 --denoiser d.safetensors", "sigma from 0.1 to 0.5, not 0.75"),
        (
            "--sigma 0.25 --weights d.safetensors",
            "holds a denoiser, not a classifier: give it as --denoiser",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(smoothcert, folder, options, message):
    code, out, error = smoothcert(f"certify {SETTINGS} {options} --out run")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error
