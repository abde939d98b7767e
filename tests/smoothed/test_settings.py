"""One table of settings: constructor, options, records and text follow from it."""

import inspect
import pickle
import re
from dataclasses import fields

import pytest
import torch
from torch import nn

import smoothcert as sc
from smoothcert._settings import NAMES, OPTIONS, Settings, recorded_settings
from smoothcert.cli.options import SubjectOptions
from smoothcert.data import find_dataset
from smoothcert.smoothed import Subject

DATASET = find_dataset(torch.rand((2, 4), generator=torch.Generator().manual_seed(0)))


def smoothed(**settings):
    torch.manual_seed(0)
    return sc.Smoothed(nn.Linear(4, 3).eval(), sigma=0.5, **settings)


def test_the_constructor_takes_the_model_and_every_setting():
    assert list(inspect.signature(sc.Smoothed).parameters) == ["model", *NAMES]


def test_every_setting_is_documented_once():
    assert re.findall(r"^ {8}(\w+): ", Settings.__doc__, re.M) == list(NAMES)


def test_the_command_line_has_every_setting_but_the_noise_and_those_of_calls_in_memory():
    assert [option.name for option in fields(SubjectOptions)] == ["model", *OPTIONS]
    assert set(NAMES) - set(OPTIONS) == {"noise", "sigma", "transform", "pad"}


def test_a_run_records_what_differs_from_the_default_and_always_whether_it_is_random():
    assert recorded_settings(smoothed()) == {"stochastic": False}
    assert recorded_settings(smoothed(seed=3, batch=64, stochastic=True)) == {"stochastic": True}


def test_the_text_shows_every_setting_that_is_not_a_default():
    shown = repr(smoothed(seed=3, device="cpu", compile="none", pad=False))
    assert shown == "<Smoothed: Linear, sigma=0.5, seed=3, device=cpu, compile=none, pad=False>"


@pytest.mark.parametrize("name", NAMES)
def test_no_setting_can_be_changed(name):
    before = repr(smoothed())
    some = smoothed()
    with pytest.raises(sc.InvalidInput):
        setattr(some, name, 1)
    assert repr(some) == before


def test_a_bound_subject_leaves_nothing_open_and_can_be_sent_to_a_worker():
    bound = smoothed(device="cpu", batch=64).bind(DATASET, [0, 1])
    assert "auto" not in [getattr(bound, name) for name in NAMES]
    bound.ready  # noqa: B018 (what belongs to this process is not sent)
    sent = pickle.loads(pickle.dumps(bound))
    assert isinstance(sent, Subject)
    assert (sent.runtime, sent.noise, sent.shape) == (bound.runtime, bound.noise, (4,))

    def votes(subject):
        engine = subject.prepare().engine(sc.Fixed(100))
        [certificate] = engine.certify([subject.read(DATASET, 0)])
        return certificate.looks

    assert votes(sent) == votes(bound)


def test_other_settings_of_the_classifier_unbind_a_subject():
    bound = smoothed(device="cpu", batch=64).bind(DATASET, ())
    assert bound.with_settings(seed=7).classifier is bound.classifier
    with pytest.raises(AttributeError):
        bound.with_settings(stochastic=True).classifier  # noqa: B018
