"""A model name leads to the right source. The errors of all sources are one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.refusals import refused
from torch import nn

from smoothcert.errors import InvalidInput, MissingExtra
from smoothcert.models import load_classifier, state_hash
from smoothcert.models.architectures import Normalize


def test_untrained_networks_are_the_same_every_time() -> None:
    first = load_classifier("cifar-resnet20", weights="none")
    torch.rand(1)
    assert load_classifier("cifar_resnet20", weights="none").weights_hash == first.weights_hash


@pytest.mark.parametrize(
    "stochastic", [False, True]
)  # the denoiser before it may be what is random
def test_loaded_modules_are_in_evaluation_mode(stochastic: bool) -> None:
    module = load_classifier("cifar-resnet20", weights="none", stochastic=stochastic).module
    assert isinstance(module, nn.Module)
    assert not any(part.training for part in module.modules())


def test_bundled_weights_are_those_trained_nearest_to_the_noise() -> None:
    trained = {
        sigma: load_classifier("fashion-cnn", sigma=sigma).trained_sigma
        for sigma in (None, 0.1, 0.25, 0.45, 2)
    }
    assert trained == {None: 0.25, 0.1: 0.25, 0.25: 0.25, 0.45: 0.5, 2: 0.5}


def test_the_clean_model_is_the_same_for_every_sigma_and_says_that_it_saw_no_noise() -> None:
    clean = [
        load_classifier(name, sigma=sigma)
        for name in ("fashion-cnn-clean", "Fashion_CNN_clean")
        for sigma in (0, 1)
    ]
    assert len({c.weights_hash for c in clean}) == 1
    assert {c.trained_sigma for c in clean} == {0.0}
    assert load_classifier("fashion-cnn").trained_sigma == 0.25  # never the weights without noise
    untrained = load_classifier("fashion-cnn-clean", weights="none")
    assert untrained.weights_hash == load_classifier("fashion-cnn", weights="none").weights_hash


def test_the_clean_model_is_accurate_without_noise() -> None:
    from smoothcert.data import load_dataset

    images, labels = zip(*load_dataset("fashion-mnist"), strict=True)
    with torch.inference_mode():
        answers = load_classifier("fashion-cnn-clean").module(torch.stack(images)).argmax(1)
    assert (answers == torch.tensor(labels)).float().mean() > 0.9


@pytest.mark.parametrize("spec", ["resnet-9000", ":", "torchvision:", ":factory", ""])
def test_the_error_for_an_unknown_model_lists_the_choices(spec: str) -> None:
    with refused("unknown-model"):
        load_classifier(spec)


def test_weights_without_architecture_need_a_model(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1)}, tmp_path / "w.pth")
    with refused("no-model"):
        load_classifier(None, weights=tmp_path / "w.pth")
    with refused("no-model"):
        load_classifier(None)


@pytest.mark.parametrize("classes", [1, 0, -3, "ten"])
def test_too_few_classes_are_refused(classes: int) -> None:
    with pytest.raises(InvalidInput, match="classes must be"):
        load_classifier("fashion-cnn", weights="none", classes=classes)


def test_the_hash_sees_values_names_and_types() -> None:
    layer = nn.Linear(2, 2)
    same, other, renamed = nn.Linear(2, 2), nn.Linear(2, 2), nn.Module()
    same.load_state_dict(layer.state_dict())
    renamed.weights, renamed.bias = layer.weight, layer.bias
    hashes = [
        state_hash(module)
        for module in (layer, other, renamed, nn.Linear(2, 2).double(), nn.Linear(2, 2).half())
    ]
    assert state_hash(same) == hashes[0]
    assert len(set(hashes)) == len(hashes)


def test_the_hash_sees_layers_and_constants_but_no_addresses() -> None:
    class Applied(nn.Module):
        def __init__(self, function: object) -> None:
            super().__init__()
            self.function = function

        def extra_repr(self) -> str:
            return repr(self.function)

    layer = nn.Linear(2, 2)
    bright, dark = (Normalize((mean,), (0.5,)) for mean in (0.5, 0.1))
    modules = [nn.Sequential(layer, part) for part in (nn.ReLU(), nn.Tanh(), bright, dark)]
    assert len(set(map(state_hash, modules))) == 4
    assert state_hash(Applied(lambda x: x)) == state_hash(Applied(lambda x: x))


@pytest.mark.filterwarnings("ignore")  # torch warns that quantization will move to another package
def test_quantized_models_have_a_hash() -> None:
    layer = nn.Sequential(nn.Linear(2, 2))
    same, again = (torch.ao.quantization.quantize_dynamic(layer) for _ in range(2))
    other = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))
    assert state_hash(same) == state_hash(again) != state_hash(other)


@pytest.mark.parametrize(
    ("spec", "module", "extra"),
    [
        ("torchvision:resnet18", "torchvision", "vision"),
        ("timm:resnet18", "timm", "vision"),
        ("hf:some/model", "transformers", "hf"),
        ("onnx:{tmp}/model.onnx", "onnxruntime", "onnx"),
    ],
)
def test_the_error_for_a_missing_extra_gives_the_pip_command(
    spec: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx").touch()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'smoothcert\[{extra}\]'"):
        load_classifier(spec.format(tmp=tmp_path))


@pytest.mark.parametrize("named", ["{tmp}/trap.py:network", "trap:network", "builtins:breakpoint"])
def test_code_that_weights_name_is_not_executed(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('executed')\n")
    monkeypatch.chdir(tmp_path)
    save_file(
        {"weight": torch.zeros(2)}, "w.safetensors", {"architecture": named.format(tmp=tmp_path)}
    )
    with refused("weights-name-code"):
        load_classifier(None, weights="w.safetensors")
