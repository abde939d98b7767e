"""Which changes make another classifier, and which do not."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from smoothcert.models.base import state_hash
from smoothcert.models.outputs import fingerprint
from smoothcert.plans.votes import same_answers

EXAMPLE = torch.linspace(0, 1, 16)


def agree(one: Any, other: Any) -> bool:
    return same_answers(answers_of(one), answers_of(other))


def answers_of(model: Any) -> list[tuple[int, float]] | None:
    return fingerprint(model, EXAMPLE, torch.device("cpu"), torch.float32)


class Network(nn.Module):
    """A network whose weights are always the same; its other attributes are not part of the weights."""

    def __init__(self, mean: Any = 0.5, *, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 3)
        self._mean, self.factor = mean, factor
        self.began, self.seen = time.time(), {}

    def forward(self, x):
        self.seen[x.shape] = x
        return self.factor * self.layer(x - self._mean)


class Softer(Network):
    def forward(self, x):
        return super().forward(x).tanh()


Softer.__name__ = Softer.__qualname__ = "Network"


def hooked(by: float) -> nn.Module:
    network = Network()
    network.register_forward_pre_hook(lambda module, args: (args[0] - by,))
    return network


def encoder(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, **{"nhead": 2, "dim_feedforward": 16} | settings)
    return nn.Sequential(nn.Unflatten(1, (1, 16)), layer.eval(), nn.Flatten())


def as_function(network: nn.Module) -> Any:
    return lambda x: network(x)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Network(0.5), Network(0.4)),
        (Network(torch.zeros(16)), Network(torch.linspace(0, 0.1, 16))),
        (Network(), Network(factor=1.1)),
        (Network(), Softer()),
        (Network(), hooked(0.1)),
        (as_function(Network()), as_function(Network(0.4))),
        (encoder(), encoder(norm_first=True)),
        (encoder(), encoder(activation="gelu")),
        (lambda x: x[:, :3], lambda x: x[:, [0, 2, 1]]),
        (lambda x: x.argmax(1), lambda x: x.argmin(1)),
        (lambda x: (x.mean(1) > 0.5).long(), lambda x: (x.mean(1) > 0.6).long()),
        (lambda x: 900 + x.argmax(1), lambda x: 909 + x.argmax(1)),
        (
            as_function(nn.Sequential(Network(), nn.LogSoftmax(1))),
            as_function(nn.Sequential(Network(0.4), nn.LogSoftmax(1))),
        ),
    ],
)
def test_other_code_around_the_same_weights_shows_in_the_answers(one: Any, other: Any) -> None:
    if isinstance(one, nn.Module):
        assert state_hash(one) == state_hash(other)
    assert not agree(one, other)
    assert agree(one, one)


def test_a_second_instance_is_the_same_and_calls_do_not_change_it() -> None:
    first, second = Network(), Network()
    first(torch.rand(2, 16))
    assert state_hash(first) == state_hash(second)
    assert answers_of(first) == answers_of(second)


def test_rounding_is_no_difference() -> None:
    network, rounded = Network(), Network().bfloat16()
    assert answers_of(network) != answers_of(rounded)
    assert agree(network, rounded)
    assert agree(lambda x: network(x).argmax(1), lambda x: rounded(x.bfloat16()).argmax(1))


class Stateful(nn.Module):
    """Counts its calls, and keeps a mean with the type and device of the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.mean: torch.Tensor | None = None

    def forward(self, x):
        self.calls += 1
        if self.mean is None:
            self.mean = torch.full((16,), 0.5, dtype=x.dtype, device=x.device)
        return self.layer(x - self.mean)


def test_the_comparison_does_not_change_a_model() -> None:
    model = Stateful()
    before = state_hash(model)
    assert answers_of(model)
    assert state_hash(model) == before
    assert model.mean is None


def test_a_module_with_integer_weights_gets_float_inputs() -> None:
    class Quantized(nn.Module):
        def __init__(self, mean: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(
                torch.arange(48, dtype=torch.int8).view(16, 3), requires_grad=False
            )
            self.mean = mean

        def forward(self, x):
            return (x - self.mean) @ self.weight.to(x)

    assert not agree(Quantized(0.0), Quantized(0.4))


def test_answers_that_are_not_finite_can_be_compared() -> None:
    assert agree(lambda x: x / 0, lambda x: x / 0)


def test_a_model_that_fails_has_no_answers() -> None:
    assert answers_of(nn.Linear(5, 3)) is None
    assert agree(nn.Linear(5, 3), Network())
    assert answers_of(lambda x: x.mean(0)) is None
    assert answers_of(lambda x: x.mean()) is None
    assert fingerprint(lambda x: x, EXAMPLE, torch.device("cuda", 99), torch.float32) is None


def test_a_masked_class_does_not_hide_differences_of_the_others() -> None:
    def manswers_of(threshold: float) -> Any:
        def model(x):
            distance = x.mean(1) - threshold
            return torch.stack([distance, -distance, torch.full_like(distance, -1e4)], 1)

        return model

    assert agree(manswers_of(0.3), manswers_of(0.3))
    assert not agree(manswers_of(0.3), manswers_of(0.35))


@pytest.mark.parametrize("sure", [1, 3])
def test_a_few_certain_answers_do_not_hide_that_others_changed(sure: int) -> None:
    recorded = [(0, 1e4)] * sure + [(1, 0.5)] * (8 - sure)
    assert same_answers(recorded, recorded)
    assert same_answers(recorded, [(0, 1.001e4)] * sure + [(1, 0.501)] * (8 - sure))
    assert not same_answers(recorded, [(0, 1e4)] * sure + [(1, 0.6)] * (8 - sure))
    assert not same_answers(recorded, [(0, 1e4)] * sure + [(2, 0.5)] * (8 - sure))
    assert not same_answers(recorded, [(0, 1e4)] * 7 + [(1, 0.5)])
