"""What is not supported is said in words, and warnings point at the line of the user."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc

SETTINGS = {"sigma": 0.25, "device": "cpu", "batch": 16, "samples": 200}
IMAGES = np.random.default_rng(0).random((3, 3, 8, 8), dtype=np.float32)


def certify(model, data=IMAGES, labels=(0, 0, 0), **settings):
    return sc.certify(model, data, list(labels), **SETTINGS | settings)


@pytest.mark.parametrize(
    ("returned", "task"),
    [
        (lambda x: torch.zeros(len(x), 5, 8, 8), "segmentation"),
        (lambda x: {"out": torch.zeros(len(x), 5, 8, 8)}, "segmentation"),
        (lambda x: torch.zeros(len(x), 8, 8).long(), "segmentation"),
        (lambda x: dict.fromkeys(("out", "aux"), torch.zeros(len(x), 5, 8, 8)), "segmentation"),
        (lambda x: x.mean((1, 2, 3)), "regression"),
        (
            lambda x: [{"boxes": torch.zeros(3, 4), "scores": torch.zeros(3)} for _ in x],
            "detection",
        ),
        (
            lambda x: {
                "logits": torch.zeros(len(x), 9, 3),
                "pred_boxes": torch.zeros(len(x), 9, 4),
            },
            "detection",
        ),
        (lambda x: ["a cat"] * len(x), "text"),
    ],
)
def test_a_model_that_is_no_classifier_is_told_what_is_not_supported(returned, task):
    with refused("other-task", task=task) as raised:
        certify(returned)
    assert f"{task} is not supported" in str(raised.value)


def test_a_model_with_one_number_and_inputs_that_are_texts_are_told_so():
    with refused("too-few-classes"):
        certify(lambda x: x.mean((1, 2, 3))[:, None])
    with refused("not-numbers", kind="str"):
        certify(lambda x: x, ["a cat", "a dog"], [0, 0])


def test_what_a_pipeline_returns_leads_to_its_network():
    with refused("names-and-scores"):
        certify(lambda x: [{"label": "cat", "score": 0.5}] * len(x))

    class Estimator:
        def predict_proba(self, x):
            return np.zeros((len(x), 2))

    with refused("not-a-model", kind="Estimator") as raised:
        certify(Estimator())
    assert "predict_proba(x.cpu().numpy())" in str(raised.value)


def test_an_onnx_file_needs_no_prefix_and_is_not_a_weights_file(tmp_path):
    file = tmp_path / "release.onnx"
    file.write_bytes(b"no graph")
    with refused("weights-are-a-model"):
        sc.Smoothed(None, weights=file, sigma=0.25)
    pytest.importorskip("onnxruntime")
    with refused("damaged-onnx", sc.SmoothcertError):
        sc.Smoothed(str(file), sigma=0.25)


def test_the_rows_of_a_data_frame_are_inputs():
    pandas = pytest.importorskip("pandas")
    values = np.random.default_rng(0).random((6, 2))
    frame = pandas.DataFrame(values, columns=["width", "height"], index=list("abcdef"))
    labels = pandas.Series([0, 1, 0, 1, 0, 1], index=frame.index)

    def model(x):
        return (x[:, 0] > 0.5).long()

    for data in ((frame, labels), (values, labels.tolist())):
        results = certify(model, *data, classes=2)
        assert results.label.tolist() == [0, 1, 0, 1, 0, 1]
    assert len(sc.certify(model, (frame, labels), classes=2, **SETTINGS)) == 6
    with refused("columns-without-numbers"):
        certify(model, frame.assign(name="x"), labels, classes=2)
    with refused("model-fails") as raised:
        certify(torch.nn.Linear(2, 2).eval(), frame.assign(label=0.0), labels)
    assert "labels=" in str(raised.value)


def test_columns_that_vary_too_differently_for_one_sigma_are_told_and_scaled_ones_are_not():
    def model(x):
        return (x[:, 0] > 0).long()

    scaled = np.random.default_rng(0).normal(size=(30, 2))
    labels = (scaled[:, 0] > 0).astype(int).tolist()
    unscaled = scaled * [0.1, 20_000]
    probes = []
    for rows, is_told in ((unscaled, True), (scaled, False)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            probes.append(sc.probe(model, rows, labels, sigmas=[9], classes=2, device="cpu"))
            list_of_rows = list(rows.astype(np.float32))
            sc.certify(model, list_of_rows, labels, **SETTINGS | {"sigma": 9}, classes=2)
        uneven = [w.message.fields for w in told if w.message.code == "uneven-columns"]
        assert [(f["widest"], f["narrowest"]) for f in uneven] == [(1, 0)] * 2 * is_told
    assert "scale the columns" in probes[0].reading
    assert "scale" not in probes[1].reading
    assert "denoiser" not in probes[1].reading


def test_a_warning_points_at_the_line_of_the_caller():
    here = Path(__file__).name
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        smoothed = sc.Smoothed(lambda x: (x[:, 0] > 2).long(), sigma=0.5, classes=2, device="cpu")
        smoothed.certify(np.array([[3.0, 0.0]]), samples=100)
        sc.certify(smoothed, np.array([[3.0, 0.0]]), protocol="iss", samples=100)
    assert len(told) >= 3
    assert {Path(warning.filename).name for warning in told} == {here}


def test_an_unknown_argument_names_itself_and_the_function():
    model = torch.nn.Linear(2, 2).eval()
    data = (np.zeros((4, 2)), [0, 1, 0, 1])
    calls = {
        "certify": lambda **wrong: sc.certify(model, data, sigma=0.5, **wrong),
        "forecast": lambda **wrong: sc.forecast(model, data, sigma=0.5, **wrong),
        "probe": lambda **wrong: sc.probe(model, data, **wrong),
        "compare": lambda **wrong: sc.compare(model, model, data, radius=0, out="x", **wrong),
        "audit": lambda **wrong: sc.audit("run", **wrong),
        "attack": lambda **wrong: sc.attack("run", **wrong),
        "explain": lambda **wrong: sc.explain("run", [0], **wrong),
        "gate": lambda **wrong: sc.gate("run", {"inputs": 1}, **wrong),
    }
    for function, call in calls.items():
        with refused("unknown-argument", function=function, name="colour"):
            call(colour="red")
    with pytest.raises(TypeError, match=r"Smoothed\(\) got an unexpected keyword argument 'sgima'"):
        sc.Smoothed(model, sgima=0.5)
