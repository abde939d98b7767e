"""Reduced number formats: they may not certify another classifier than the user's."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import Gaussian, InputSpecific, Smoothed, certify
from smoothcert.device.runtime import Runtime, settle_dtype
from smoothcert.errors import SmoothcertWarning
from smoothcert.runs.progress import Display, Progress
from smoothcert.runs.table import table
from smoothcert.smoothed import number_format
from smoothcert.smoothed.number_format import Comparison, choose_format, settle_number_format

pytestmark = pytest.mark.filterwarnings("ignore:.*not in .0, 1.")
BFLOAT16 = Runtime("cpu", "bfloat16", "none", 256)
PLAN = InputSpecific(10_000, decline=0.1)


@pytest.fixture(autouse=True)
def bfloat16_by_default(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)


def tabular(dtype=torch.float32):
    """A linear model on features such as a year and an income, and an input near its boundary.

    The distance is 0.010.
    """
    model = nn.Linear(2, 2, dtype=dtype)
    weight = torch.tensor([0.6, -0.8], dtype=torch.float64)
    x = torch.tensor([2023.0, 1517.25], dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.stack([weight, -weight]) / 2)
        model.bias.copy_(torch.tensor([0.5, -0.5]) * (0.010 - float(weight @ x)))
    return model, x.float()


def test_a_model_that_bfloat16_changes_is_certified_in_float32():
    model, x = tabular()
    sure = Smoothed(
        model, noise=Gaussian(1.0), classes=2, device="cpu", dtype="bfloat16", batch=256
    )
    assert sure.certify(x[None], plan=PLAN)[0].radius > 1  # what the format made of the model
    smoothed = Smoothed(model, noise=Gaussian(1.0), classes=2, device="cpu", batch=256)
    with pytest.warns(UserWarning, match="runs in float32"):
        results = smoothed.certify(x[None], plan=PLAN)
    assert results[0].abstained
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*runs in float32")
        smoothed.certify(x[None], plan=PLAN)  # one warning is enough


def test_a_run_says_the_format_that_it_used_and_is_resumed_in_it(tmp_path):
    model, x = tabular()
    data = (np.stack([x.numpy()] * 3), np.zeros(3, dtype=int))
    settings = {
        "noise": Gaussian(1.0),
        "plan": PLAN,
        "device": "cpu",
        "batch": 256,
        "progress": Progress(),
    }
    with pytest.warns(UserWarning, match="runs in float32"):
        run = certify(model, data, out=tmp_path, ids=[0], classes=2, **settings)
    assert run.manifest.dtype == "float32"
    assert bool(run.abstained.all())
    with warnings.catch_warnings():
        # The format is recorded, so nothing is compared again.
        warnings.filterwarnings("error", "in bfloat16")
        run = certify(model, data, out=tmp_path, classes=2, **settings)
    assert run.manifest.dtype == "float32"
    assert len(run) == 3


@pytest.mark.annexes
def test_a_resumed_run_is_compiled_as_it_was_begun(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    data = (np.zeros((2, 4), dtype=np.float32), np.zeros(2, dtype=int))
    settings = {
        "noise": Gaussian(1.0),
        "plan": PLAN,
        "device": "cpu",
        "dtype": "float32",
        "progress": Progress(),
    }
    begun = certify(model, data, out=tmp_path, ids=[0], classes=2, compile="fast", **settings)
    resumed = certify(model, data, out=tmp_path, classes=2, **settings)
    assert begun.manifest.compile == resumed.manifest.compile == "fast"


def test_a_format_that_gives_the_same_labels_is_kept():
    model = nn.Linear(2, 2)
    few = [torch.rand(2) for _ in range(3)]
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[4.0, 1.0], [-4.0, -1.0]]))
    settled = settle_number_format(BFLOAT16, model, few, classes=2, noise=Gaussian(0.25))
    assert settled.runtime == BFLOAT16
    differing, words = settled.comparison.split(" ", 1)
    assert int(differing) <= 0.02 * 512
    assert words == "of 512 labels differ from float32"
    assert model.weight.dtype == torch.float32


def test_the_comparison_ends_in_time(monkeypatch):
    calls = []

    class Slow(nn.Linear):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

    monkeypatch.setattr(number_format, "_MOST_SECONDS", 0.0)
    settle_number_format(BFLOAT16, Slow(2, 2), [torch.zeros(2)], classes=2, noise=Gaussian(1.0))
    assert len(calls) == 2


def test_a_float64_model_stays_in_float64():
    model, x = tabular(torch.float64)
    assert settle_dtype("auto", model) == "float64"
    assert settle_dtype("float32", model) == "float32"
    smoothed = Smoothed(model, noise=Gaussian(1.0), classes=2, device="cpu", batch=256)
    assert smoothed.certify(x[None], plan=PLAN)[0].abstained
    assert model.weight.dtype == torch.float64


def test_the_summary_and_the_table_name_the_format(tmp_path, capsys):
    model = nn.Linear(4, 2)
    data = (np.zeros((2, 4), dtype=np.float32), np.zeros(2, dtype=int))
    runs = []
    for dtype in ("bfloat16", "float32"):
        settings = {
            "noise": Gaussian(1.0),
            "plan": PLAN,
            "device": "cpu",
            "dtype": dtype,
            "batch": 256,
        }
        runs.append(
            certify(model, data, out=tmp_path / dtype, classes=2, progress=Display(), **settings)
        )
        assert f" per input, in {dtype}; all sampling took" in capsys.readouterr().err
    assert "number format" in table(runs).titles
    assert "number format" not in table(runs[:1]).titles


def agreeing(dtype, differing=0, lost=0):
    return Comparison(dtype, 512, differing, lost)


@pytest.mark.parametrize(
    ("comparisons", "expected"),
    [
        ([agreeing("float16", 10)], "float16"),
        ([agreeing("float16", 11), agreeing("bfloat16", 10)], "bfloat16"),
        ([agreeing("float16", 1, lost=1), agreeing("bfloat16")], "bfloat16"),
        ([agreeing("float16", 400), agreeing("bfloat16", 11)], "float32"),
        ([agreeing("float16", lost=3), agreeing("bfloat16", lost=1)], "float32"),
    ],
)
def test_the_first_format_is_chosen_that_is_finite_and_changes_at_most_2_percent(
    comparisons, expected, monkeypatch
):
    by_format = {comparison.dtype: comparison for comparison in comparisons}
    assert choose_format(["float16", "bfloat16"], by_format.get) == (expected, comparisons)
    monkeypatch.setattr(number_format, "_compared", lambda runtime, *_: by_format[runtime.dtype])
    runtime = Runtime("cuda", "float16", "fast", 256)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settled = settle_number_format(
            runtime, nn.Linear(2, 2), [torch.zeros(2)], classes=2, noise=Gaussian(1.0)
        )
    assert settled.runtime == replace(runtime, dtype=expected)
    assert [warning.message.fields["chosen"] for warning in caught] == [expected] * (
        expected != "float16"
    )


def overflowing():
    """A linear model whose outputs are far beyond 65,504, the largest number of float16."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(1e6 * torch.tensor([[4.0, 1.0], [-4.0, -1.0]]))
    return model


def test_a_network_that_overflows_in_float16_runs_in_another_format():
    runtime = Runtime("cpu", "float16", "none", 256)
    settings = {"classes": 2, "noise": Gaussian(0.25)}
    few = [torch.rand(2) for _ in range(3)]
    with pytest.warns(SmoothcertWarning, match="outputs are not finite"):
        settled = settle_number_format(runtime, overflowing(), few, **settings)
    assert settled.runtime.dtype == "bfloat16"
    small = nn.Linear(2, 2)
    assert settle_number_format(runtime, small, few, **settings).runtime.dtype == "float16"


def test_the_formats_of_a_device_are_tried_from_the_finest_fast_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for capability, formats in {
        (9, 0): ["float16", "bfloat16"],
        (7, 5): ["float16"],
        (6, 1): ["float32"],
    }.items():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert Runtime.resolve("cuda").formats == formats
        assert Runtime.resolve("cuda", "bfloat16").formats[0] == "bfloat16"


def test_the_summary_says_how_the_comparison_ended_also_after_a_resume(tmp_path, capsys):
    model = nn.Linear(4, 2)
    data = (np.random.default_rng(0).random((3, 4), np.float32), np.zeros(3, dtype=int))
    settings = {"noise": Gaussian(0.25), "plan": PLAN, "device": "cpu", "batch": 256, "classes": 2}
    for ids in ([0], [0, 1, 2]):
        run = certify(model, data, out=tmp_path, ids=ids, progress=Display(), **settings)
        said = capsys.readouterr().err
        assert f", in bfloat16 ({run.manifest.circumstances['comparison']}); all" in said
    assert run.manifest.circumstances["comparison"].endswith("of 512 labels differ from float32")
