"""What makes another classifier, and what does not."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from smoothcert.classifiers.identity import answers, state_hash
from smoothcert.errors import InvalidInput
from smoothcert.runs.manifest import same_answers

EXAMPLE = torch.linspace(0, 1, 16)


def alike(one: Any, other: Any) -> bool:
    return same_answers({"answers": answers(one, EXAMPLE)}, {"answers": answers(other, EXAMPLE)})


class Network(nn.Module):
    """Its weights are always the same, and do not tell of the rest."""

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


def within(network: nn.Module) -> Any:
    return lambda x: network(x)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Network(0.5), Network(0.4)),
        (Network(torch.zeros(16)), Network(torch.linspace(0, 0.1, 16))),
        (Network(), Network(factor=1.1)),
        (Network(), Softer()),
        (Network(), hooked(0.1)),
        (within(Network()), within(Network(0.4))),
        (encoder(), encoder(norm_first=True)),
        (encoder(), encoder(activation="gelu")),
        (lambda x: x[:, :3], lambda x: x[:, [0, 2, 1]]),
        (lambda x: x.argmax(1), lambda x: x.argmin(1)),
    ],
)
def test_other_code_around_the_same_weights_shows_in_the_answers(one: Any, other: Any) -> None:
    if isinstance(one, nn.Module):
        assert state_hash(one) == state_hash(other)
    assert not alike(one, other)
    assert alike(one, one)


def test_what_is_made_again_is_the_same_and_calls_do_not_change_it() -> None:
    first, second = Network(), Network()
    first(torch.rand(2, 16))
    assert state_hash(first) == state_hash(second)
    assert answers(first, EXAMPLE) == answers(second, EXAMPLE)


def test_rounding_is_no_difference() -> None:
    network = Network()
    assert answers(network, EXAMPLE) != answers(Network().bfloat16(), EXAMPLE)
    assert alike(network, Network().bfloat16())


def test_answers_that_are_no_numbers_can_be_compared() -> None:
    assert alike(lambda x: x / 0, lambda x: x / 0)


def test_where_there_is_no_answer_nothing_is_said() -> None:
    assert answers(nn.Linear(5, 3), EXAMPLE) is None
    assert alike(nn.Linear(5, 3), Network())


def test_a_layer_without_weights_yet_is_refused() -> None:
    with pytest.raises(InvalidInput, match="layers without weights yet"):
        state_hash(nn.LazyLinear(3))
