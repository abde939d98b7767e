import pytest
import torch
from safetensors.torch import save_file
from tests.refusals import refused
from torch import nn

from smoothcert.models.denoisers import load_denoiser
from smoothcert.models.load import names_code

X = torch.rand(3, 1, 8, 8)


def test_a_checkpoint_gives_the_denoiser_that_was_saved(unet, checkpoint):
    loaded = load_denoiser(checkpoint)
    sigma = torch.tensor([0.25])
    assert torch.equal(loaded(X, sigma), unet(X, sigma))
    assert not torch.allclose(loaded(X, sigma), X)
    assert (loaded.sigmas, loaded.values, loaded.shape) == ((0.1, 0.5), (0.0, 1.0), (1, 8, 8))
    assert loaded.name == str(checkpoint)
    assert not loaded.training


def test_a_denoiser_is_taken_as_it_is(unet):
    assert load_denoiser(unet) is unet


def test_any_module_is_a_denoiser_for_any_noise():
    denoiser = load_denoiser(nn.Hardtanh(0, 1))
    assert torch.equal(denoiser.at(7.0)(5 * X), (5 * X).clamp(0, 1))
    assert "Hardtanh" in denoiser.name


@pytest.mark.parametrize("wrong", ["", None, 3])
def test_something_else_is_refused(wrong):
    with refused("not-a-denoiser"):
        load_denoiser(wrong)


def test_a_missing_file_is_refused():
    with refused("no-weights-file"):
        load_denoiser("nowhere.safetensors")


@pytest.mark.parametrize("metadata", [{}, {"architecture": "fashion-cnn", "method": "gaussian"}])
def test_a_file_with_a_classifier_is_refused(tmp_path, metadata):
    save_file({"weight": torch.zeros(2)}, tmp_path / "w.safetensors", metadata)
    with refused("not-a-denoiser-file"):
        load_denoiser(tmp_path / "w.safetensors")


def test_a_denoiser_may_come_from_code_of_the_user(tmp_path, monkeypatch):
    (tmp_path / "own_denoiser.py").write_text(
        "import torch\n"
        "from smoothcert.models.denoisers import build_unet\n"
        "def clamp(): return torch.nn.Hardtanh(0, 1)\n"
        "def unet(): return build_unet('unet-small', shape=(1, 8, 8), sigmas=(0.1, 0.5)).train()\n"
        "def number(): return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    clamp, unet = (load_denoiser(f"own_denoiser:{name}") for name in ("clamp", "unet"))
    assert torch.equal(clamp.at(1.0)(5 * X), (5 * X).clamp(0, 1))
    assert (unet.name, unet.sigmas, unet.training) == ("own_denoiser:unet", (0.1, 0.5), False)
    assert load_denoiser(
        "own_denoiser:unet", stochastic=True
    ).training  # dropout may be what makes it random
    assert load_denoiser("./own_denoiser.py:clamp").name == "own_denoiser:clamp"
    with refused("returned-no-module", name="own_denoiser:number", kind="int"):
        load_denoiser("own_denoiser:number")
    with refused("no-function"):
        load_denoiser("own_denoiser:missing")


@pytest.mark.parametrize(
    "name",
    [
        "weights.safetensors",
        r"C:\runs\weights.safetensors",
        "a:b/c.pt",
        "hf:folder",
        "timm:hf-hub:name",
        "onnx:file",
    ],
)
def test_names_of_files_are_not_code(name):
    assert not names_code(name)


@pytest.mark.parametrize("name", ["package.module:factory", "own.py:unet", r"C:\own.py:unet"])
def test_names_of_functions_are_code(name):
    assert names_code(name)
