"""What makes another classifier, and what does not."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from smoothcert.classifiers.identity import model_hash
from smoothcert.errors import InvalidInput


class Norm:
    def __init__(self, mean: Any) -> None:
        self._mean = mean

    def apply(self, x):
        return x - self._mean

    def set(self, mean: Any) -> Norm:
        self._mean = mean
        return self


class Doubled(Norm):
    def apply(self, x):
        return 2 * x - self._mean


class Slotted:
    __slots__ = ("__mean", "scale")

    def __init__(self, mean: float) -> None:
        self.__mean = mean

    def __call__(self, x):
        return x - self.__mean


@dataclass(frozen=True)
class Settings:
    mean: float


class Net(nn.Module):
    def __init__(self, private: Any = None, public: Any = None) -> None:
        super().__init__()
        self._t = private
        self.t = public

    def forward(self, x):
        return x


class Moving(nn.Module):
    def __init__(self, mean: float) -> None:
        super().__init__()
        self._mean = torch.tensor(mean)

    def forward(self, x):
        self._mean = self._mean.to(x.device)
        return x - self._mean


class Late(Net):
    def forward(self, x):
        if self._t is None:
            self._t = 1.0
        return x / self._t


def constant(value: Any) -> Any:
    class Constant:
        mean = value

        def __call__(self, x):
            return x - self.mean

    return Constant()


def behind(norm: Any) -> Any:
    return lambda x: norm.apply(x)


def constructed(cls: type) -> Any:
    return lambda x: cls(0.5).apply(x)


def hooked(mean: float) -> nn.Module:
    network = nn.Linear(2, 2, bias=False)
    nn.init.ones_(network.weight)
    network.register_forward_pre_hook(lambda module, args: (args[0] - mean,))
    return network


def patched(mean: float) -> nn.Module:
    network = nn.ReLU()
    network.forward = lambda x: x - mean  # type: ignore[method-assign]
    return network


def decorated(mean: float) -> Any:
    def plain(x):
        return x

    @functools.wraps(plain)
    def wrapper(x):
        return plain(x - mean)

    return wrapper


def sharing(*values: Any) -> Net:
    return Net(public=list(values))


ONE, TWO = Norm(1), Norm(2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Net(0.1), Net(0.2)),
        (Net(torch.zeros(2)), Net(torch.ones(2))),
        (Net(public=Norm(torch.zeros(2))), Net(public=Norm(torch.ones(2)))),
        (Net(public=Norm(0.1)), Net(public=Doubled(0.1))),
        (Net(Norm(0.1)), Net(Norm(0.1).set(0.2))),
        (Net([Norm(0.1)]), Net([Norm(0.2)])),
        (Net(Settings(0.1)), Net(Settings(0.2))),
        (Net(SimpleNamespace(mean=torch.zeros(2000))), Net(SimpleNamespace(mean=torch.arange(2000) == 1000))),
        (Net(torch.eye(2).to_sparse()), Net(2 * torch.eye(2).to_sparse())),
        (Net(type("Norm", (Norm,), {})), Net(type("Norm", (Doubled,), {}))),
        (Moving(0.1), Moving(0.2)),
        (Late(0.1), Late(0.2)),
        (behind(Norm(0.1)), behind(Norm(0.2))),
        (behind(Norm(nn.Linear(2, 2))), behind(Norm(nn.Linear(2, 2)))),
        (constructed(Norm), constructed(Doubled)),
        (Slotted(0.1), Slotted(0.2)),
        (constant(0.1), constant(0.2)),
        (constant(staticmethod(lambda: 1)), constant(staticmethod(lambda: 2))),
        (constant(property(lambda self: 1)), constant(property(lambda self: 2))),
        (hooked(0.1), hooked(0.2)),
        (patched(0.1), patched(0.2)),
        (decorated(0.1), decorated(0.2)),
        (functools.wraps(nn.functional.relu)(lambda x: x), functools.wraps(nn.functional.relu)(lambda x: -x)),
        (sharing(ONE, TWO, ONE), sharing(ONE, TWO, TWO)),
    ],
)
def test_what_answers_otherwise_is_another_classifier(one: Any, other: Any) -> None:
    assert model_hash(one) != model_hash(other)
    assert model_hash(one) == model_hash(one)


def through_globals(x):
    return HELPERS.norm(WRAPPER.apply(x))


WRAPPER = Norm(nn.Linear(2, 2))
HELPERS = ModuleType("helpers")
HELPERS.norm = Norm(0.5).apply


def test_objects_and_modules_among_globals_are_part_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = [model_hash(through_globals)]
    monkeypatch.setitem(globals(), "WRAPPER", Norm(nn.Linear(2, 2)))
    hashes.append(model_hash(through_globals))
    monkeypatch.setattr(HELPERS, "norm", Norm(0.6).apply)
    hashes.append(model_hash(through_globals))
    assert len(set(hashes)) == 3


PROGRAM = """
import enum, functools, logging, threading
import torch
from torch import nn
from types import SimpleNamespace
from smoothcert.classifiers.identity import model_hash


class Kind(enum.Enum):
    ONE = 1
    OTHER = 2


class Node:
    def __init__(self, parent=None):
        self.parent, self.children, self.kind = parent, [], Kind.ONE


@functools.lru_cache
def table(size):
    return torch.arange(size)


class Network(nn.Module):
    seen = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.tree = Node()
        self.tree.children = [Node(self.tree) for _ in range(12)]
        self._names, self._nodes, self._numbers = {"a", "b", "c"}, {Node(), Node()}, {self.tree: 1, Kind.OTHER: 2}
        self._file, self._log, self._lock = open(__file__), logging.getLogger("network"), threading.Lock()
        self._threads = [threading.Thread(target=print), threading.local()]
        self._mean, self.last, self.calls = torch.ones(4), None, 0

    @functools.cached_property
    def scale(self):
        return torch.ones(1)

    def remember(self, x):
        self.last = x

    @torch.no_grad()
    def forward(self, x):
        self._mean = self._mean.to(x.device)
        self.calls += 1
        Network.seen += 1
        self.remember(x)
        if x.ndim == 1:
            super().forward(x)
        return self.layer(x * self.scale + table(4) - self._mean)


network, state = Network(), SimpleNamespace(calls=0)


def counting(x):
    state.calls += 1
    return network(x)


before = model_hash(network), model_hash(counting)
counting(torch.rand(2, 4))
assert before == (model_hash(network), model_hash(counting))
print(*before)
"""


def test_the_same_program_makes_the_same_classifier_and_calls_do_not_change_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(seed: int) -> str:
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        call = [sys.executable, program]
        return subprocess.run(call, env=environment, check=True, capture_output=True, text=True).stdout

    first = run(1)
    assert len(set(first.split())) == 2
    assert run(2) == first


def test_compiling_a_module_in_place_does_not_change_it() -> None:
    network = Net(0.1)
    before = model_hash(network)
    network.compile(backend="eager")
    assert model_hash(network) == before


def test_objects_that_refer_to_each_other_are_gone_through_once() -> None:
    nodes = [Norm(None) for _ in range(30)]
    for node in nodes:
        node.set(nodes)
    network = Net(nodes)
    assert model_hash(network) == model_hash(network)


def test_settings_of_library_layers_are_seen():
    def layer(**settings):
        torch.manual_seed(0)
        return nn.TransformerEncoderLayer(16, **{"nhead": 2, "dim_feedforward": 16} | settings)

    layers = layer(), layer(nhead=4), layer(norm_first=True), layer(activation="gelu")
    assert len({model_hash(made) for made in layers}) == 4
    assert model_hash(layer()) == model_hash(layers[0])


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.shift = torch.full((1,), scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("convert", [torch.jit.script, lambda module: torch.jit.trace(module, torch.rand(2))])
def test_constants_of_a_scripted_module_are_seen(convert):
    assert model_hash(convert(Scaled(1.0))) == model_hash(convert(Scaled(1.0))) != model_hash(convert(Scaled(2.0)))


def test_a_layer_without_weights_yet_is_refused():
    with pytest.raises(InvalidInput, match="layers without weights yet"):
        model_hash(nn.LazyLinear(3))
