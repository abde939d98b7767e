"""Hugging Face folders, saved offline: the classifier contains the arithmetic of the image processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused
from torch import nn

from smoothcert.models import load_classifier

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        id2label={0: "cat", 1: "dog"},
    )
    torch.manual_seed(6)
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path)
    write_processor(tmp_path)
    return tmp_path


def write_processor(folder: Path, **changed: Any) -> None:
    settings = {
        "do_normalize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.5, 0.25, 0.2],
        "size": {"height": 32, "width": 48},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps({**settings, **changed}))


@pytest.mark.parametrize(
    ("processor", "settings"),
    [
        ("ViTImageProcessor", {}),
        ("ViTImageProcessor", {"do_normalize": False}),
        ("ViTImageProcessor", {"do_rescale": False}),
        (
            "EfficientNetImageProcessor",
            {"rescale_factor": 1 / 127.5, "rescale_offset": True, "include_top": False},
        ),
    ],
)
def test_a_saved_folder_computes_what_its_image_processor_and_model_compute(
    folder: Path, processor: str, settings: dict[str, Any]
) -> None:
    prepare = getattr(transformers, processor)(
        do_resize=False,
        do_center_crop=False,
        size={"height": 32, "width": 48},
        image_mean=[0.1, 0.2, 0.3],
        image_std=[0.5, 0.25, 0.2],
        **settings,
    )
    prepare.save_pretrained(folder)
    loaded = load_classifier(f"hf:{folder}")
    model: nn.Module = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    inputs = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        expected = model(
            **prepare(Image.fromarray(pixels), return_tensors="pt").to(torch.float32)
        ).logits
        torch.testing.assert_close(loaded.module(inputs), expected, rtol=1e-4, atol=1e-4)
    assert (loaded.classes, loaded.input_shape) == (2, (3, 32, 48))


def test_given_weights_and_random_weights_replace_the_saved_ones(
    folder: Path, tmp_path: Path
) -> None:
    saved = load_classifier(f"hf:{folder}")
    fresh = load_classifier(f"hf:{folder}", weights="none")
    state = saved.module.network.model.state_dict()
    torch.save({"state_dict": state, "sigma": 0.25}, tmp_path / "own.pth")
    own = load_classifier(f"hf:{folder}", weights=tmp_path / "own.pth")
    assert saved.weights_hash == own.weights_hash != fresh.weights_hash
    assert own.trained_sigma == 0.25


def test_an_unknown_normalisation_is_refused(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    with refused("no-image-processor"):
        load_classifier(f"hf:{folder}")
    (folder / "preprocessor_config.json").write_text('{"do_normalize": true}')
    with refused("no-normalisation", entry="image_mean"):
        load_classifier(f"hf:{folder}")


def test_other_ways_to_give_the_image_size_are_understood(folder: Path) -> None:
    for changed, expected in [
        ({"size": 64}, (3, 64, 64)),
        ({"size": {"shortest_edge": 256}}, None),
        ({"do_center_crop": True, "crop_size": {"height": 24, "width": 24}}, (3, 24, 24)),
    ]:
        write_processor(folder, **changed)
        assert load_classifier(f"hf:{folder}").input_shape == expected


def test_other_models_are_refused(tmp_path: Path) -> None:
    with refused("weights-not-loaded"):
        load_classifier(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with refused("not-an-image-classifier"):
        load_classifier(f"hf:{tmp_path}", weights="none")
