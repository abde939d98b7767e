import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from smoothcert.denoisers import load_denoiser
from smoothcert.errors import InvalidInput

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


@pytest.mark.parametrize("wrong", ["", None, 3, "nowhere.safetensors"])
def test_something_else_is_refused(wrong):
    with pytest.raises(InvalidInput, match=r"denoiser must be|no weights file"):
        load_denoiser(wrong)


@pytest.mark.parametrize("metadata", [{}, {"architecture": "fashion-cnn", "method": "gaussian"}])
def test_a_file_with_a_classifier_is_refused(tmp_path, metadata):
    save_file({"weight": torch.zeros(2)}, tmp_path / "w.safetensors", metadata)
    with pytest.raises(InvalidInput, match="is not a denoiser"):
        load_denoiser(tmp_path / "w.safetensors")
