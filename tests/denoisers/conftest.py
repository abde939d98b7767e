import json

import pytest
import torch
from safetensors.torch import save_file

from smoothcert.models.denoisers import build_unet

SHAPE = (1, 8, 8)


@pytest.fixture
def unet():
    """A small U-Net with weights that do something."""
    torch.manual_seed(0)
    denoiser = build_unet("unet-small", shape=SHAPE, sigmas=(0.1, 0.5))
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return denoiser.requires_grad_(False).eval()


@pytest.fixture
def checkpoint(unet, tmp_path):
    """The same U-Net in a file, as training writes it."""
    path = tmp_path / "denoiser.safetensors"
    metadata = {
        "method": "denoiser",
        "architecture": "unet-small",
        "sigma_low": "0.1",
        "sigma_high": "0.5",
        "shape": json.dumps(SHAPE),
    }
    save_file(dict(unet.state_dict()), path, metadata)
    return path
