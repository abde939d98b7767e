"""Weights files of every published form load without changes. The error for a broken file is one sentence."""

from __future__ import annotations

import argparse
import math
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.refusals import refused
from torch import nn

from smoothcert.errors import InvalidInput
from smoothcert.models import load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.checkpoint import read_checkpoint


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    """A network whose weights and batch statistics differ from every initialisation."""
    module = build("cifar-resnet20", classes=10)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module.train()(torch.rand(16, 3, 32, 32))
    return module.eval()


def own_state(module: nn.Module, prefix: str = "") -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in module.network.state_dict().items()}


def agree(first: nn.Module, second: nn.Module) -> bool:
    batch = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        return torch.equal(first(batch), second(batch))


FORMS = {
    "cohen-cifar.pth.tar": lambda m: {
        "epoch": 90,
        "arch": "cifar_resnet20",
        "state_dict": own_state(m, "1."),
    },
    "cohen-imagenet.pth.tar": lambda m: {
        "arch": "cifar_resnet20",
        "state_dict": own_state(m, "1.module."),
    },
    "parallel.pth": lambda m: {"arch": "cifar_resnet20", "state_dict": own_state(m, "module.")},
    "parallel-outside.pth": lambda m: {
        "arch": "cifar_resnet20",
        "state_dict": own_state(m, "module.1."),
    },
    "compiled.pth": lambda m: {"arch": "cifar_resnet20", "state_dict": own_state(m, "_orig_mod.")},
    "tutorial.pth": lambda m: {
        "epoch": 5,
        "model_state_dict": m.state_dict(),
        "optimizer_state_dict": {"lr": 0.1},
    },
    "macer.pth": lambda m: {"net": own_state(m, "module."), "epoch": 440},
    "bare.pth": own_state,
    "whole-module.pth": lambda m: m.state_dict(),
}


@pytest.mark.parametrize("form", FORMS)
def test_published_forms_load_as_they_are(form: str, tmp_path: Path, trained: nn.Module) -> None:
    torch.save(FORMS[form](trained), tmp_path / form)
    loaded = load_classifier("cifar-resnet20", weights=tmp_path / form)
    assert agree(loaded.module, trained)


def test_a_file_that_states_its_architecture_needs_no_name(
    tmp_path: Path, trained: nn.Module
) -> None:
    torch.save(FORMS["cohen-cifar.pth.tar"](trained), tmp_path / "checkpoint.pth.tar")
    loaded = load_classifier(None, weights=tmp_path / "checkpoint.pth.tar")
    assert agree(loaded.module, trained)
    assert loaded.input_shape == (3, 32, 32)


def test_safetensors_state_architecture_classes_and_noise(tmp_path: Path) -> None:
    network = build("cifar-resnet20", classes=7).eval()
    about = {
        "architecture": "cifar-resnet20",
        "classes": "7",
        "sigma": "0.5",
        "method": "consistency",
        "epochs": "60",
    }
    save_file(network.state_dict(), tmp_path / "weights.safetensors", about)
    loaded = load_classifier(None, weights=tmp_path / "weights.safetensors")
    assert (loaded.classes, loaded.trained_sigma) == (7, 0.5)
    assert agree(loaded.module, network)


def test_old_files_without_batch_counters_load(tmp_path: Path, trained: nn.Module) -> None:
    state = {
        key: value
        for key, value in own_state(trained).items()
        if not key.endswith("num_batches_tracked")
    }
    torch.save(state, tmp_path / "old.pth")
    assert agree(load_classifier("cifar-resnet20", weights=tmp_path / "old.pth").module, trained)


def test_sparse_weights_load_and_complex_ones_are_refused(tmp_path: Path, trained) -> None:
    state = own_state(trained)
    sparse = {**state, "fc.weight": state["fc.weight"].to_sparse()}
    torch.save(sparse, tmp_path / "sparse.pth")
    assert agree(load_classifier("cifar-resnet20", weights=tmp_path / "sparse.pth").module, trained)
    torch.save({**state, "fc.weight": state["fc.weight"] + 1j}, tmp_path / "complex.pth")
    with refused("complex-weights", key="fc.weight"):
        load_classifier("cifar-resnet20", weights=tmp_path / "complex.pth")


def test_training_noise_is_what_the_file_states_and_not_its_name(tmp_path: Path) -> None:
    file = tmp_path / "noise_0.25.pth"
    torch.save({"state_dict": {"weight": torch.zeros(1)}, "sigma": 0.5}, file)
    assert read_checkpoint(file).sigma == 0.5
    torch.save({"state_dict": {"weight": torch.zeros(1)}}, file)
    assert read_checkpoint(file).sigma is None


def test_another_architecture_is_refused_with_its_keys(tmp_path: Path, trained: nn.Module) -> None:
    torch.save(FORMS["cohen-cifar.pth.tar"](trained), tmp_path / "c.pth")
    with refused("weights-do-not-fit", stated="; the file is for cifar_resnet20"):
        load_classifier("cifar-resnet110", weights=tmp_path / "c.pth")
    torch.save({**own_state(trained), "head.weight": torch.zeros(1)}, tmp_path / "more.pth")
    with refused("weights-do-not-fit", problems="head.weight unexpected"):
        load_classifier("cifar-resnet20", weights=tmp_path / "more.pth")


def test_another_number_of_classes_is_refused_with_the_shapes(
    tmp_path: Path, trained: nn.Module
) -> None:
    torch.save(own_state(trained), tmp_path / "c.pth")
    with refused("weights-do-not-fit") as caught:
        load_classifier("cifar-resnet20", weights=tmp_path / "c.pth", classes=100)
    assert "fc.weight (10, 64) for (100, 64)" in caught.value.fields["problems"]


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, ("exploded",))


@pytest.mark.parametrize(
    ("payload", "named"), [(Bomb(), "mkdir"), (argparse.Namespace(lr=0.1), "Namespace")]
)
def test_pickled_code_is_refused_and_not_run(
    payload: object, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"weight": torch.zeros(1)}, "args": payload}, "c.pth")
    with refused("python-objects") as caught:
        read_checkpoint("c.pth")
    assert named in caught.value.fields["object"]
    assert not Path("exploded").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_with_code_is_refused_and_not_run(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (Bomb(), {"state_dict": Bomb()}):
        Path("c.pth").write_bytes(pickle.dumps(content, protocol=protocol))
        with pytest.raises(InvalidInput) as caught:
            read_checkpoint("c.pth")
        assert caught.value.code in ("python-objects", "damaged-checkpoint")
    assert not Path("exploded").exists()


@pytest.mark.parametrize("name", ["resnet.pth", "w.safetensors"])
@pytest.mark.parametrize(
    "content", ["<!DOCTYPE html><html>404</html>", "version https://git-lfs.github.com/spec/v1"]
)
def test_what_was_saved_instead_of_a_download_is_no_checkpoint(name, content, tmp_path) -> None:
    (tmp_path / name).write_text(content)
    with refused("damaged-checkpoint"):
        read_checkpoint(tmp_path / name)


@pytest.mark.parametrize("kept", [0, 3, 100, 2000, 0.5, 0.99])
@pytest.mark.parametrize("suffix", ["zip.pth", "legacy.pth", "safetensors"])
def test_truncated_files_are_refused(kept: float, suffix: str, tmp_path: Path) -> None:
    whole = tmp_path / f"whole.{suffix}"
    state = {"weight": torch.arange(1000.0), "bias": torch.zeros(10)}
    if suffix == "safetensors":
        save_file(state, whole)
    else:
        torch.save(state, whole, _use_new_zipfile_serialization=suffix == "zip.pth")
    content = whole.read_bytes()
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with refused("damaged-checkpoint") as caught:
        read_checkpoint(cut)
    assert caught.value.__cause__ is not None  # what the library says


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"epoch": 3},
        {"state_dict": {}},
        {"weight": [1, 2]},
        {0: torch.zeros(1)},
        [torch.zeros(1)],
    ],
)
def test_files_without_weights_are_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "c.pth")
    with refused("no-weights", kind=type(content).__name__):
        read_checkpoint(tmp_path / "c.pth")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with refused("no-weights-file"):
        read_checkpoint(tmp_path / "nowhere.pth")


def test_safetensors_are_recognised_by_their_content(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "model.pth")
    assert read_checkpoint(tmp_path / "model.pth").state["weight"].tolist() == [1, 1]


def test_numbers_that_are_not_finite_are_ignored(tmp_path: Path) -> None:
    torch.save(
        {"state_dict": {"weight": torch.zeros(1)}, "sigma": math.inf, "classes": math.nan},
        tmp_path / "w.pth",
    )
    assert (
        read_checkpoint(tmp_path / "w.pth").sigma,
        read_checkpoint(tmp_path / "w.pth").classes,
    ) == (None, None)


@pytest.mark.parametrize("classes", ["1e99", "-3", "1", "2.5e9"])
def test_a_number_of_classes_that_no_file_has_is_ignored(classes: str, tmp_path: Path) -> None:
    save_file({"w": torch.zeros(3)}, tmp_path / "model.safetensors", {"classes": classes})
    assert read_checkpoint(tmp_path / "model.safetensors").classes is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_file_says_how_to_use_it(tmp_path: Path) -> None:
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)).save(tmp_path / "model.pt")
    with refused("torchscript-file"):
        read_checkpoint(tmp_path / "model.pt")
