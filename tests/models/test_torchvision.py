"""Models from torchvision contain their normalisation. No test uses the network."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refused
from torch import Tensor

from smoothcert.models import load_classifier

models = pytest.importorskip("torchvision").models

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def test_the_classifier_normalises() -> None:
    loaded = load_classifier("torchvision:resnet18", weights="none")
    batch = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(
            loaded.module(batch),
            loaded.module.network((batch - MEAN) / DEVIATION),
            rtol=1e-4,
            atol=1e-5,
        )
    assert (loaded.classes, loaded.input_shape) == (1000, (3, 224, 224))


def test_cohens_imagenet_checkpoint_needs_no_name(tmp_path: Path) -> None:
    torch.manual_seed(4)
    network = models.resnet50().eval()
    state = {f"1.module.{key}": value for key, value in network.state_dict().items()}
    file = tmp_path / "noise_0.50" / "checkpoint.pth.tar"
    file.parent.mkdir()
    torch.save({"epoch": 90, "arch": "resnet50", "state_dict": state, "optimizer": {}}, file)
    loaded = load_classifier(None, weights=file)
    assert loaded.name == "torchvision:resnet50"
    batch = torch.rand(1, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(
            loaded.module(batch), network((batch - MEAN) / DEVIATION), rtol=1e-4, atol=1e-5
        )


def test_published_weights_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    published = models.resnet18().state_dict()
    asked: list[dict[str, Any]] = []

    def download(url: str, **options: Any) -> dict[str, Tensor]:
        asked.append(options)
        return published

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    loaded = load_classifier("torchvision:resnet18")
    assert torch.equal(loaded.module.network.fc.weight, published["fc.weight"])
    assert asked[0]["weights_only"]


def test_the_error_without_a_connection_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    with refused("weights-not-loaded"):
        load_classifier("torchvision:resnet18")


def test_another_number_of_classes_needs_other_weights() -> None:
    with refused("other-classes", classes=1000, wanted=10):
        load_classifier("torchvision:resnet18", classes=10)
    loaded = load_classifier("torchvision:resnet18", classes=10, weights="none")
    assert loaded.classes == 10
    assert loaded.module(torch.rand(1, 3, 64, 64)).shape == (1, 10)


@pytest.mark.parametrize("name", ["resnet5", "fcn_resnet50"])
def test_the_error_for_an_unknown_name_suggests_similar_ones(name: str) -> None:
    with refused("unknown-name", source="torchvision", name=name) as caught:
        load_classifier(f"torchvision:{name}")
    assert "resnet50" in caught.value.fields["hint"]
