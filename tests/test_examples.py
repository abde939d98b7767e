"""Examples that are programs run, and do what they say."""

import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import smoothcert as sc

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_an_own_model_on_own_data_is_certified_from_python_and_by_its_name(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "own_model_and_data.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "majority right" in shown
    assert "CA 0.25" in shown
    run = sc.certify(
        f"{EXAMPLES / 'own_model_and_data.py'}:network",
        "drawings.npz",
        weights="drawings.pth",
        sigma=0.25,
        radii=[0, 0.25],
        samples=1_000,
        device="cpu",
        limit=12,
        out="run",
    )
    assert run.certified_accuracy([0.25])[0] > 0.7
    assert sc.load_dataset("drawings.npz").class_names == ("lines", "squares", "crosses")


@dataclass
class EpsilonValueResult:
    """The record of VERONA, with its fields in their order."""

    verification_context: Any
    epsilon: float
    smallest_sat_value: Any
    time: float | None = None
    verifier: str | None = None


class EpsilonValueEstimator:
    """The interface of VERONA: a list of epsilons and a verifier."""

    def __init__(self, epsilon_value_list, verifier):
        self.epsilon_value_list = epsilon_value_list
        self.verifier = verifier


@pytest.fixture
def verona(monkeypatch):
    """VERONA is large, so we stand in for the two names that the example takes from it."""
    parts = {
        "ada_verona.database.epsilon_value_result": EpsilonValueResult,
        "ada_verona.epsilon_value_estimator.epsilon_value_estimator": EpsilonValueEstimator,
    }
    for path, member in parts.items():
        names = path.split(".")
        for length in range(1, len(names) + 1):
            name = ".".join(names[:length])
            monkeypatch.setitem(sys.modules, name, sys.modules.get(name, ModuleType(name)))
        setattr(sys.modules[path], member.__name__, member)


@pytest.mark.usefixtures("verona")
@pytest.mark.parametrize(("label", "epsilon"), [(0, 0.5), (1, 0)])
def test_the_estimator_of_epsilons_proves_the_largest_one_that_it_can(label, epsilon):
    example = runpy.run_path(str(EXAMPLES / "verona_epsilon.py"))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[0.0] * 4, [1.0] + [0.0] * 3]))
        model[1].bias.copy_(torch.tensor([0.0, -0.7]))
    context = SimpleNamespace(
        network=SimpleNamespace(load_pytorch_model=lambda: model),
        data_point=SimpleNamespace(id="0", label=label, data=torch.zeros(1, 2, 2)),
    )
    estimator = example["SmoothingEstimator"](
        [0, 0.25, 0.5, 1.0], sigma=0.5, samples=2_000, device="cpu", batch=500
    )
    result = estimator.compute_epsilon_value(context)
    assert (result.epsilon, result.smallest_sat_value) == (epsilon, "undefined")
    assert result.verifier == "smoothcert"
