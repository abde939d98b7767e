"""Masks of inputs select them, and arrays with masked entries are refused at every door."""

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch.masked import masked_tensor

import smoothcert as sc

INPUTS = np.linspace(0, 1, 6, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32)
LABELS = np.array([0, 0, 0, 1, 1, 1])
HIDDEN = np.array([False, True, False, False, False, False])


def _model(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def _certify(data=INPUTS, labels=LABELS, **settings):
    return sc.certify(_model, data, labels, plan=sc.Fixed(100), sigma=0.25, **settings)


@pytest.mark.parametrize("form", [np.array, torch.tensor, list])
def test_the_inputs_of_a_mask_are_certified(form, tmp_path):
    mask = form((LABELS == 1).tolist())
    assert _certify(ids=mask).id.tolist() == [3, 4, 5]
    assert _certify(ids=mask, out=tmp_path / "run").id.tolist() == [3, 4, 5]
    with refused("mask-of-another-length", length=6, count=5):
        _certify(INPUTS[:5], LABELS[:5], ids=mask)


@pytest.mark.annexes
def test_masks_are_about_the_data_not_about_a_run(on_disk):
    run = on_disk("masked", sc.Fixed(1_000), inputs=4)
    mask = np.array([False, True, False, False])
    for task in (lambda: sc.attack(run, ids=mask), lambda: sc.explain(run, mask)):
        with refused("mask-of-another-length", length=4):
            task()


@pytest.mark.annexes
def test_masked_labels_are_refused():
    labels = np.ma.array(LABELS, mask=HIDDEN)
    with refused("masked-entries", name="labels"):
        _certify(labels=labels)
    with refused("masked-entries", name="labels"):
        _certify(list(INPUTS), labels=labels)
    with refused("masked-entries"):
        sc.certify(_model, (INPUTS, labels), sigma=0.25)
    with refused("masked-entries", name="labels"):
        sc.CertifiedAccuracy([0], sc.Gaussian(0.25)).update(_model, torch.tensor(INPUTS), labels)
    pairs = list(zip(INPUTS, labels, strict=True))
    assert len(_certify(pairs, None, ids=[0, 2])) == 2
    with refused("unreadable-input", id=1):
        _certify(pairs, None)
    assert len(_certify(labels=np.ma.array(LABELS))) == 6


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.annexes
def test_masked_inputs_are_refused(dtype):
    masked = np.ma.array(INPUTS.astype(dtype), mask=np.stack([HIDDEN, ~HIDDEN], 1))
    tasks = [
        lambda: _certify(masked),
        lambda: _certify(masked, None),
        lambda: sc.certify(_model, (masked, LABELS), sigma=0.25),
        lambda: _certify(list(masked)),
        lambda: sc.Smoothed(_model, sigma=0.25).predict(masked),
        lambda: sc.probe(_model, data=(masked, LABELS), sigmas=[0.25]),
        lambda: sc.CertifiedAccuracy([0], sc.Gaussian(0.25)).update(_model, masked, LABELS),
    ]
    for task in tasks:
        with refused("masked-entries", name="the data"):
            task()


@pytest.mark.filterwarnings("ignore")
def test_masked_tensors_are_refused():
    masked = masked_tensor(torch.tensor(INPUTS), torch.tensor(np.stack([HIDDEN, ~HIDDEN], 1)))
    with refused("masked-entries"):
        _certify(masked, None)


@pytest.mark.parametrize("form", [np.array, torch.tensor, list])
def test_truth_values_are_no_labels(form):
    with refused("not-whole", name="the label of input 0"):
        _certify(labels=form((LABELS == 1).tolist()))


def test_truth_values_are_no_numbers():
    for truth in (True, np.True_, torch.tensor(True)):
        for settings in ({"limit": truth}, {"skip": truth}):
            with refused("not-whole"):
                _certify(**settings)
        with refused("not-whole", name="samples"):
            sc.Fixed(truth)
