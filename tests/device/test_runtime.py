import gc
import weakref
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
import torch
from tests.refusals import refused
from tests.subjects import bound
from torch import nn

from smoothcert import Fixed, Gaussian
from smoothcert.device.compilation import CapturedGraph, captured
from smoothcert.device.runtime import Runtime, settle_dtype
from smoothcert.errors import InvalidInput
from smoothcert.models.outputs import LabelClassifier
from smoothcert.smoothed.prepare import prepare

CPU = Runtime.resolve("cpu", batch=64)


def test_a_label_out_of_range_is_a_vote_for_no_class():
    labels = torch.tensor([0, 2, 3, -1, 1])
    assert LabelClassifier(lambda x: labels, 3)(labels).tolist() == [0, 2, 3, 3, 1]


def test_the_callers_module_stays_as_it_is():
    network = nn.Linear(4, 3)
    classify, _ = prepare(network, 3, (4,), Runtime.resolve("cpu", dtype="bfloat16", batch=8))
    assert network.weight.dtype == torch.float32
    assert classify(torch.zeros((8, 4), dtype=torch.bfloat16)).shape == (8,)


@pytest.mark.parametrize("inference", [False, True])
def test_a_classifier_is_compiled_once_with_its_weights_as_constants(monkeypatch, inference):
    compiled = []

    def backend(graph, inputs):
        compiled.append([tuple(x.shape) for x in inputs])
        return graph.forward

    compile = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda module, options, **rest: compile(module, backend=backend, **rest)
    )
    with torch.inference_mode(inference):  # the caller may or may not be in inference mode
        runtime = Runtime.resolve("cpu", "float32", "default", 8)
        subject = bound(nn.Linear(4, 3), 3, Gaussian(0.5), runtime, torch.zeros(4))
        engine = subject.prepare().engine(Fixed(100, pilot=10))
        assert len(list(engine.certify([(0, torch.rand(4), None)]))) == 1
    assert compiled == [[(8, 4)]]


def test_any_number_of_classifiers_is_compiled(monkeypatch):
    compiled = []
    compile = torch.compile

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch, "compile", lambda module, options, **rest: compile(module, backend=backend, **rest)
    )
    runtime = Runtime.resolve("cpu", "float32", "default", 8)
    for _ in range(12):
        prepare(nn.Linear(4, 3), 3, (4,), runtime)
    assert len(compiled) == 12


@pytest.mark.parametrize("fallback", [False, True], ids=["replayed", "not replayed"])
def test_a_captured_graph_keeps_the_network_alive(monkeypatch, fallback):
    def capture(work):
        result = work()
        return CapturedGraph(lambda: None if fallback else result.copy_(work()), result, work)

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: MagicMock())
    monkeypatch.setattr(torch.cuda, "Event", MagicMock())
    classifier = LabelClassifier(Constant(), 3)
    network = weakref.ref(classifier.module)
    classify = captured(classifier, torch.zeros(8, 4), capture=capture)
    del classifier
    gc.collect()
    assert network() is not None
    # A graph whose replay writes nothing is not used.
    assert isinstance(classify, LabelClassifier) is fallback


class Constant(nn.Module):
    """The same answers for every batch of eight rows."""

    def forward(self, x):
        return torch.eye(8)[:, :3]


def test_a_failing_compilation_is_one_warning(monkeypatch):
    def fails(x):
        raise RuntimeError("no compiler\nand a page of advice")

    monkeypatch.setattr(torch, "compile", lambda *args, **options: fails)
    with pytest.warns(UserWarning, match=r"runs uncompiled: no compiler$") as warned:
        classify, runtime = prepare(
            nn.Linear(4, 3), 3, (4,), Runtime.resolve("cpu", "float32", "default", 8)
        )
    assert len(warned) == 1
    assert runtime.compile == "none"
    assert classify(torch.zeros(8, 4)).shape == (8,)


def test_a_compiled_classifier_with_other_answers_is_not_used(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda classifier, **options: lambda x: classifier(-x))
    with pytest.warns(
        UserWarning,
        match=r"runs uncompiled: this form gives other labels for \d+.\d% of noisy inputs",
    ):
        classify, runtime = prepare(
            Identity(), 4, (4,), Runtime.resolve("cpu", "float32", "default", 8)
        )
    assert runtime.compile == "none"
    assert classify(torch.eye(4).repeat(2, 1)).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


class Identity(nn.Module):
    def forward(self, x):
        return x


def test_auto_chooses_a_batch_that_fits():
    def hungry(x):
        if len(x) > 100:
            raise torch.OutOfMemoryError("no more")
        return x[:, :3]

    _, chosen = prepare(hungry, 3, (4,), Runtime.resolve("cpu"))
    assert chosen.batch == 64


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), RuntimeError("x: can't allocate memory: y")]
)
def test_a_batch_that_does_not_fit_is_one_sentence(error):
    def hungry(x):
        if len(x) > 8:
            raise error
        return x[:, :3]

    sentence = r'a batch of 64 does not fit .* batch="auto" or a smaller batch$'
    with pytest.raises(InvalidInput, match=sentence):
        prepare(hungry, 3, (4,), CPU)


@pytest.mark.parametrize(
    ("device", "code"),
    [
        ("gpu", "unknown-device"),
        ("cuda:77", "device-not-available"),
        ("cpu:1", "device-not-available"),
    ],
)
def test_a_device_that_is_not_here_is_refused(device, code):
    with refused(code, device=device):
        Runtime.resolve(device)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("dtype", "int8", "not-one-of"),
        ("compile", "yes", "not-one-of"),
        ("batch", "-5", "not-number-or-auto"),
    ],
)
def test_invalid_settings_are_refused(name, value, code):
    with refused(code, name=name, value=value):
        Runtime.resolve("cpu", **{name: value})


def test_mps_has_no_float64(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert Runtime.resolve("mps", "float32").dtype == "float32"
    with refused("float64-on-mps"):
        Runtime.resolve("mps", "float64")


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_a_cpu_uses_bfloat16_only_if_the_hardware_supports_it(monkeypatch, native, dtype):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: native, raising=False)
    assert Runtime.resolve("cpu").dtype == Runtime.resolve("cpu:0").dtype == dtype


def test_devices_and_number_formats_of_torch_are_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Runtime.resolve(1, torch.float16) == Runtime.resolve("cuda:1", "float16")
    assert Runtime.resolve(torch.device("cpu"), torch.float32) == Runtime.resolve("cpu", "float32")
    assert settle_dtype(torch.bfloat16, torch.nn.Linear(2, 2)) == "bfloat16"


def test_only_a_module_is_converted():
    assert settle_dtype("auto", lambda x: x) == "float32"
    assert settle_dtype("auto", torch.nn.Linear(2, 2)) == "auto"
    assert settle_dtype("bfloat16", lambda x: x) == "bfloat16"
