"""Classifiers from the user's own code: `module:factory`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.refusals import refused

from smoothcert.models import load_classifier
from smoothcert.models.denoisers import load_denoiser
from smoothcert.models.load import as_classifier


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_models.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def network(): return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(12, 3))\n"
        "def function(): return lambda batch: batch.flatten(1).sum(1).long()\n"
        "def logits(): return lambda batch: batch.flatten(1)\n"
        "def convolution(): return nn.Sequential(nn.Conv2d(1, 4, 2), nn.Dropout(), nn.Flatten())\n"
        "def ready():\n"
        "    from smoothcert.models import Classifier\n"
        "    return Classifier(lambda batch: batch, 2, 'another name')\n"
        "def labels():\n"
        "    from smoothcert.models import Classifier\n"
        "    return Classifier(lambda batch: batch.flatten(1).argmax(1), 0, 'unknown classes')\n"
        "def number(): return 7\n"
        "class Estimator:\n"
        "    def predict_proba(self, x): ...\n"
        "constant = 7\n"
        "built = network()\n"
    )
    (tmp_path / "users_broken.py").write_text("import package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("users_models", None)


def test_a_module_in_the_current_folder_is_found() -> None:
    loaded = load_classifier("users_models:network")
    assert loaded.classes == 0  # the first input will tell
    assert loaded.name == "users_models:network"
    batch = torch.rand(2, 12)
    assert torch.equal(loaded.module(batch), loaded.module(batch))  # dropout is off


def test_a_module_needs_no_factory() -> None:
    loaded = load_classifier("users_models:built")
    assert not loaded.module.training


def test_a_module_loads_weights(tmp_path: Path) -> None:
    state = {"module.2.weight": torch.ones(3, 12), "module.2.bias": torch.arange(3.0)}
    torch.save({"state_dict": state, "sigma": 0.5}, tmp_path / "trained.pth")
    loaded = load_classifier("users_models:network", weights="trained.pth")
    assert loaded.module(torch.zeros(1, 12)).tolist() == [[0, 1, 2]]
    assert loaded.trained_sigma == 0.5


def test_a_random_module_stays_in_the_mode_in_which_it_is_returned() -> None:
    loaded = load_classifier("users_models:network", stochastic=True)
    batch = torch.rand(2, 12)
    assert not torch.equal(loaded.module(batch), loaded.module(batch))  # dropout is on


def test_the_logits_of_a_function_and_of_any_module_are_counted() -> None:
    for name in ("logits", "convolution"):
        loaded = load_classifier(f"users_models:{name}")
        assert as_classifier(loaded, classes=None, example=torch.rand(1, 2, 2)).classes == 4


def test_a_function_takes_no_weights(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1)}, tmp_path / "w.pth")
    with refused("takes-no-weights"):
        load_classifier("users_models:function", weights="w.pth", classes=2)


def test_a_classifier_has_the_name_that_the_user_gave(tmp_path: Path) -> None:
    assert load_classifier("users_models:ready").name == "users_models:ready"
    with refused("other-classes", model="users_models:ready", wanted=7):
        load_classifier("users_models:ready", classes=7)
    assert load_classifier("users_models:labels", classes=7).classes == 7
    torch.save({"weight": torch.zeros(1)}, tmp_path / "w.pth")
    with refused("takes-no-weights", kind="Classifier"):
        load_classifier("users_models:ready", weights="w.pth")


@pytest.mark.parametrize(
    ("spec", "code", "fields"),
    [
        ("users_nothing:network", "user-code-failed", {"doing": "importing users_nothing"}),
        ("users_models:nothing", "no-function", {"name": "nothing"}),
        ("users_models:constant", "no-function", {"name": "constant"}),
        ("users_models:number", "returned-no-model", {"kind": "int", "hint": ""}),
        (
            "users_models:Estimator",
            "returned-no-model",
            {"hint": ": give lambda x: model.predict_proba(x.cpu().numpy())"},
        ),
        ("users_nothing.py:network", "no-file", {}),
    ],
)
def test_mistakes_are_explained(spec: str, code: str, fields: dict[str, str]) -> None:
    with refused(code, **fields):
        load_classifier(spec)


@pytest.mark.parametrize(
    "spec", ["users_models.py:network", "./users_models.py:network", "./users_models:network"]
)
def test_a_file_is_imported_as_a_module(spec: str) -> None:
    assert load_classifier(spec).name == "users_models:network"


def test_a_file_in_another_folder_finds_its_neighbours(tmp_path: Path) -> None:
    (folder := tmp_path / "deeper").mkdir()
    (folder / "users_neighbour.py").write_text("from torch import nn\n")
    (folder / "users_file.py").write_text(
        "from users_neighbour import nn\n\n\ndef network():\n    return nn.Linear(3, 2)\n"
    )
    assert load_classifier("deeper/users_file.py:network").module.out_features == 2
    (folder / "users-file.py").write_text("")
    with refused("not-importable"):
        load_classifier("deeper/users-file.py:network")


def test_a_factory_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "users_failure.py").write_text(
        "def network():\n    raise RuntimeError('no GPU here\\nand more')\n"
    )
    for load, what in ((load_classifier, "model"), (load_denoiser, "denoiser")):
        with refused(
            "user-code-failed", doing="calling users_failure:network", reason="no GPU here"
        ) as caught:
            load("users_failure:network")
        assert caught.value.fields["place"].endswith("users_failure.py, line 2)")
        assert caught.value.fields["hint"].endswith(f"must return the {what}")


def test_an_import_that_fails_inside_the_users_module_is_not_hidden() -> None:
    with refused("user-code-failed", doing="importing users_broken") as caught:
        load_classifier("users_broken:network")
    assert "package_that_is_not_there" in caught.value.fields["reason"]
    assert caught.value.fields["place"].endswith("users_broken.py, line 1)")


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        ("x = 1\ny = undefined\n", "NameError", 2),
        ("def network(:\n    pass\n", "SyntaxError", 1),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError", 3),
    ],
)
def test_a_module_that_fails_on_import_is_one_sentence_with_its_line(
    text: str, error: str, line: int, tmp_path: Path
) -> None:
    name = f"users_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    with refused("user-code-failed", error=error) as caught:
        load_classifier(f"{name}:network")
    assert caught.value.fields["place"].endswith(f"{name}.py, line {line})")
    assert "\n" not in str(caught.value)


def test_a_module_that_ends_the_program_on_import_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "script_of_user.py").write_text("import sys\nsys.exit(2)\n")
    with refused("program-ended", exit=2):
        load_classifier("script_of_user:make")
