import pytest
import torch
from tests.refusals import refused
from torch import nn

from smoothcert.models import Classifier
from smoothcert.models.base import state_hash
from smoothcert.models.load import as_classifier

EXAMPLE = torch.zeros(4)


def first_three(x):
    return x[:, :3]


def test_the_number_of_classes_is_the_number_of_logits():
    assert as_classifier(first_three, classes=None, example=EXAMPLE).classes == 3
    assert (
        as_classifier(nn.Linear(4, 5, dtype=torch.double), classes=None, example=EXAMPLE).classes
        == 5
    )


def test_a_module_is_identified_by_its_weights_and_a_function_by_its_name():
    network = nn.Linear(4, 5)
    assert as_classifier(network, classes=None, example=EXAMPLE).weights_hash == state_hash(network)
    wrapped = as_classifier(first_three, classes=3, example=EXAMPLE)
    assert wrapped.name.endswith(":first_three")
    assert wrapped.weights_hash is None
    assert wrapped.input_shape == (4,)


def test_a_classifier_is_returned_unchanged():
    classifier = Classifier(first_three, 3, "mine")
    for classes in (None, 3):
        assert as_classifier(classifier, classes=classes, example=EXAMPLE) == classifier


def test_a_model_that_normalises_in_place_does_not_change_the_example():
    example = torch.ones(4)
    assert as_classifier(lambda x: x.sub_(0.5), classes=None, example=example).classes == 4
    assert torch.equal(example, torch.ones(4))


@pytest.mark.parametrize(
    ("model", "code", "fields"),
    [
        (lambda x: x.sum(1), "other-task", {"task": "regression"}),
        (lambda x: x[:, :, None], "no-classifier", {"output": "float32 of shape (1, 4, 1)"}),
        (nn.Linear(4, 1), "too-few-classes", {"classes": 1}),
        (nn.Linear(4, 3, dtype=torch.complex64), "complex-weights", {"what": "the model"}),
    ],
)
def test_other_objects_are_refused(model, code, fields):
    with refused(code, **fields):
        as_classifier(model, classes=None, example=EXAMPLE)
