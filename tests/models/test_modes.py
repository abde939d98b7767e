"""Checks leave the modules of the user as they are: their buffers, and the mode of every layer."""

from contextlib import nullcontext, suppress

import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.models.base import in_evaluation_mode

IMAGES = torch.rand((8, 3, 4, 4), generator=torch.Generator().manual_seed(0))
FEW = sc.Fixed(100)


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.Flatten(), nn.Linear(16, 3))


class Merging(nn.Linear):
    """As layers with adapters: evaluation mode merges weights, training mode splits them again."""

    merged = False

    def train(self, mode=True):
        self.merged = not mode
        return super().train(mode)


def modes(model):
    return [module.training for module in model.modules()]


def partly_frozen():
    model = nn.Sequential(network(nn.BatchNorm2d(4), nn.Dropout()), Merging(3, 3)).train()
    model[0][1].eval()
    return model


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.seen = 0

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        return x


LAYERS = {
    "batch norm": lambda: nn.BatchNorm2d(4),
    "instance norm": lambda: nn.InstanceNorm2d(4, track_running_stats=True),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
    "old spectral norm": lambda: nn.utils.spectral_norm(nn.Conv2d(4, 4, 1)),
    "counting": Counting,
}


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_module_is_as_before_also_if_it_is_refused(layer, training, classes):
    model = network(layer()).train(training)
    model[0].eval()
    before = state(model), modes(model), getattr(model[1], "seen", None)
    some = sc.Smoothed(model, sigma=0.25, classes=classes, device="cpu", batch=64)
    with suppress(sc.InvalidInput) if training else nullcontext():
        some.certify(IMAGES, plan=FEW)
    after = state(model), modes(model), getattr(model[1], "seen", None)
    assert before[1:] == after[1:]
    assert all(torch.equal(value, after[0][name]) for name, value in before[0].items())


@pytest.mark.parametrize("fails", [False, True])
def test_each_layer_gets_its_own_mode_back(fails):
    model = partly_frozen()
    before = modes(model)
    try:
        with in_evaluation_mode(model):
            assert not any(modes(model))
            assert model[1].merged
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert modes(model) == before
    assert not model[1].merged


def test_a_layer_that_two_parents_share_keeps_its_mode():
    shared = nn.Dropout().eval()
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(nn.ReLU(), shared)).train()
    shared.eval()
    before = modes(model)
    with in_evaluation_mode(model):
        pass
    assert modes(model) == before


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.annexes
def test_a_metric_leaves_frozen_layers_in_evaluation_mode(fails):
    model = partly_frozen()
    before = state(model), modes(model)
    metric = sc.CertifiedAccuracy([0], sc.Gaussian(0.25), samples=10)
    labels = [5 if fails else 0] * len(IMAGES)
    try:
        metric.update(model, IMAGES, labels)
    except sc.InvalidInput:
        assert fails
    assert modes(model) == before[1]
    assert all(torch.equal(value, state(model)[name]) for name, value in before[0].items())


@pytest.mark.annexes
def test_a_metric_takes_the_module_of_an_exported_program():
    rows = torch.export.Dim("rows", min=1, max=4096)
    program = torch.export.export(network().eval(), (IMAGES,), dynamic_shapes=({0: rows},))
    metric = sc.CertifiedAccuracy([0], sc.Gaussian(0.25), samples=10)
    metric.update(program.module(), IMAGES, [0] * len(IMAGES))
    assert set(metric.compute()) == {0}


@pytest.mark.annexes
def test_training_with_attacks_leaves_frozen_layers_in_evaluation_mode():
    from smoothcert.training import SmoothAdv

    model = partly_frozen()
    before = modes(model)
    method = SmoothAdv(0.25, epsilon=0.5, copies=2, steps=1)
    method.objective(model, IMAGES, torch.zeros(8, dtype=torch.long), torch.zeros(()))
    assert modes(model) == before


def test_a_network_in_training_mode_is_refused_before_it_is_called():
    model = network(nn.BatchNorm2d(4)).train()
    before = state(model)
    for classifier in (model, lambda x: model(x), lambda x: model(x).argmax(1)):
        with refused("training-mode", layer="BatchNorm2d"):
            sc.Smoothed(classifier, sigma=0.25, classes=3, device="cpu", batch=64).predict(IMAGES)
    assert all(torch.equal(value, state(model)[name]) for name, value in before.items())
