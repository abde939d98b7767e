"""Models from timm contain the normalisation of their data configuration. No test uses the network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.refusals import refused

from smoothcert.models import load_classifier

timm = pytest.importorskip("timm")


def test_the_classifier_normalises_as_the_model_needs() -> None:
    loaded = load_classifier(
        "timm:vit_tiny_patch16_224", weights="none", classes=7
    )  # mean and deviation are 0.5
    batch = torch.rand(2, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(
            loaded.module(batch), loaded.module.network((batch - 0.5) / 0.5), rtol=1e-4, atol=1e-5
        )
    assert (loaded.classes, loaded.input_shape) == (7, (3, 224, 224))


def test_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    network = timm.create_model("resnet18", num_classes=5)
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}},
        tmp_path / "c.pth",
    )
    loaded = load_classifier("timm:resnet18", weights=tmp_path / "c.pth", classes=5)
    assert torch.equal(loaded.module.network.fc.weight, network.fc.weight)


def test_unknown_names_and_tags_are_refused() -> None:
    with refused("unknown-name", source="timm"):
        load_classifier("timm:resnet5o")
    with refused("timm-failed", name="resnet18.nobody"):
        load_classifier("timm:resnet18.nobody")
