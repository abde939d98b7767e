from functools import partial

import pytest
import torch
from torch import nn

from smoothcert.classifiers import Classifier
from smoothcert.classifiers.identity import model_hash, state_hash
from smoothcert.classifiers.wrap import as_classifier
from smoothcert.errors import InvalidInput

EXAMPLE = torch.zeros(4)


def first_three(x):
    return x[:, :3]


def test_the_number_of_classes_is_read_off_the_logits():
    assert as_classifier(first_three, classes=None, example=EXAMPLE).classes == 3
    assert as_classifier(nn.Linear(4, 5, dtype=torch.double), classes=None, example=EXAMPLE).classes == 5


def test_a_module_is_known_by_its_weights_and_a_function_by_its_name_and_code():
    network = nn.Linear(4, 5)
    assert as_classifier(network, classes=None, example=EXAMPLE).weights_hash == state_hash(network)
    wrapped = as_classifier(first_three, classes=3, example=EXAMPLE)
    assert wrapped.name.endswith(":first_three")
    assert wrapped.weights_hash == model_hash(first_three)
    assert wrapped.input_shape == (4,)


def test_a_classifier_is_taken_as_it_is():
    classifier = Classifier(first_three, 3, "mine")
    for classes in (None, 3):
        assert as_classifier(classifier, classes=classes, example=EXAMPLE) is classifier
    with pytest.raises(InvalidInput, match="mine has 3 classes, not 7"):
        as_classifier(classifier, classes=7, example=EXAMPLE)


def test_other_code_is_another_function():
    functions = [lambda x: x[:, :3], lambda x: x[:, :4], lambda x: x.relu(), lambda x: x.tanh()]
    assert len({model_hash(function) for function in functions}) == 4
    assert model_hash(lambda x: x[:, :3]) == model_hash(functions[0])


def scaled(factor, network, power=1):
    return lambda x: network(factor * x**power)


class Shifted(nn.Module):
    def __init__(self, by=0.1):
        super().__init__()
        self.by = by
        self.network = nn.Identity()

    def forward(self, x):
        return self.network(x) + self.by


class Turned(Shifted):
    def forward(self, x):
        return self.network(-x) + self.by


Turned.__qualname__ = Turned.__name__ = "Shifted"


class Answering:
    def __init__(self, by):
        self.by = by

    @torch.no_grad()
    def __call__(self, x):
        return x + self.by


@torch.inference_mode()
def up(x):
    return x + 1


@torch.inference_mode()
def down(x):
    return x - 1


class Recursive(nn.Module):
    def forward(self, x):
        return x if self.training else RECURSIVE.train()(x)


RECURSIVE = Recursive()


def test_what_is_decorated_called_or_refers_to_itself_is_seen():
    models = [up, down, Answering(1), Answering(2), Answering(1).__call__, RECURSIVE]
    models += [torch.fx.symbolic_trace(Shifted(by)) for by in (0.1, 0.2)]
    hashes = [model_hash(model) for model in models]
    assert len(set(hashes)) == len(models) - 1  # an object is what is called of it
    assert None not in hashes
    assert model_hash(torch.relu) is None


def test_code_and_numbers_of_a_module_are_part_of_it():
    models = [Shifted(), Shifted(0.2), Turned(), nn.Sequential(Shifted(0.3))]
    hashes = [model_hash(model) for model in models]
    assert len(set(hashes)) == len(models)
    assert hashes[0] == model_hash(Shifted().eval())


def through_global(x):
    return torch.stack([NETWORK(row) for row in x])


NETWORK = nn.Linear(4, 3)


def test_what_a_function_refers_to_is_part_of_it(monkeypatch):
    one, other = nn.Linear(4, 3), nn.Linear(4, 3)
    functions = [
        scaled(0.1, one),
        scaled(0.9, one),
        scaled(0.1, other),
        scaled(0.1, one, power=2),
        partial(scaled(0.1, one)),
        partial(scaled(0.1, one), power=2),
        one.forward,
        other.forward,
        lambda x: [row + 1 for row in x],
        lambda x: [row + 2 for row in x],
        lambda x, by=1: x + by,
        lambda x, by=2: x + by,
    ]
    hashes = [model_hash(function) for function in functions]
    assert len(set(hashes)) == len(functions)
    assert hashes == [model_hash(function) for function in functions]
    before = model_hash(through_global)
    monkeypatch.setitem(globals(), "NETWORK", other)
    assert model_hash(through_global) != before
    monkeypatch.setitem(globals(), "NETWORK", through_global)  # refers to itself, as local functions can
    assert model_hash(through_global) != before


def test_a_model_that_normalises_in_place_leaves_the_example_alone():
    example = torch.ones(4)
    assert as_classifier(lambda x: x.sub_(0.5), classes=None, example=example).classes == 4
    assert torch.equal(example, torch.ones(4))


@pytest.mark.parametrize(
    ("model", "classes", "message"),
    [
        (3, None, "model must be a name, a module or a function, got int"),
        (first_three, 1, "classes must be at least 2, got 1"),
        (lambda x: x.argmax(1), None, "give classes="),
        (nn.Linear(4, 1), None, "has 1 output, and a single one is no answer between two classes"),
        (lambda x: [x], None, "must return a tensor"),
        (nn.Linear(7, 3), None, "the model fails on a float32 batch"),
        (nn.Sequential(nn.BatchNorm1d(4)), None, "training mode"),
    ],
)
def test_what_is_no_classifier_is_refused(model, classes, message):
    with pytest.raises(InvalidInput, match=message):
        as_classifier(model, classes=classes, example=EXAMPLE)
