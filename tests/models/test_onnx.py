"""ONNX exports give the same answers as the torch module, for batches of any size."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.device.runtime import settle_dtype
from smoothcert.errors import MissingExtra
from smoothcert.models import load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.load import as_classifier
from smoothcert.models.onnx import OnnxModule, _hash
from smoothcert.models.outputs import check_classifier

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def export(
    module: nn.Module, path: Path, *, batch: int | None, shape: tuple[int, ...] = (1, 28, 28)
) -> Path:
    dynamic = None if batch else ({0: torch.export.Dim("batch", min=1, max=4096)},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecation warnings of the exporter
        torch.onnx.export(
            module.eval(),
            (torch.rand(batch or 2, *shape),),
            path,
            dynamic_shapes=dynamic,
            dynamo=True,
            verbose=False,
        )
    return path


def external(path: Path, location: str) -> Path:
    """A linear layer with its weights in a separate file, `location`."""
    onnx = pytest.importorskip("onnx")
    export(nn.Linear(64, 32), path, batch=None, shape=(64,))
    (path.parent / location).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        onnx.load(path), path, save_as_external_data=True, location=location, size_threshold=0
    )
    return path


@pytest.fixture(scope="module")
def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build("fashion-cnn", classes=10).eval()


@pytest.fixture(scope="module", params=[None, 4], ids=["dynamic", "fixed"])
def file(
    request: pytest.FixtureRequest, network: nn.Module, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return export(
        network, tmp_path_factory.mktemp("onnx") / "cnn-sigma0.25.onnx", batch=request.param
    )


@pytest.mark.parametrize("count", [1, 4, 11])
def test_votes_agree_with_the_torch_module(file: Path, network: nn.Module, count: int) -> None:
    loaded = load_classifier(f"onnx:{file}")
    noisy = torch.rand(count, 1, 28, 28) + 0.25 * torch.randn(count, 1, 28, 28)
    with torch.inference_mode():
        logits = loaded.module(noisy)
        assert torch.equal(logits.argmax(1), network(noisy).argmax(1))
        torch.testing.assert_close(logits, network(noisy), rtol=1e-4, atol=1e-5)


def test_classes_shape_and_noise_are_read_from_the_file(file: Path) -> None:
    loaded = load_classifier(f"onnx:{file}")
    assert (loaded.classes, loaded.input_shape) == (10, (1, 28, 28))


def test_half_precision_batches_are_accepted(file: Path, network: nn.Module) -> None:
    batch = torch.rand(4, 1, 28, 28).bfloat16()
    with torch.inference_mode():
        torch.testing.assert_close(
            load_classifier(f"onnx:{file}").module(batch),
            network(batch.float()),
            rtol=1e-4,
            atol=1e-5,
        )


def test_a_copy_for_another_process_opens_its_own_session(file: Path) -> None:
    module = load_classifier(f"onnx:{file}").module
    batch = torch.rand(4, 1, 28, 28)
    assert torch.equal(pickle.loads(pickle.dumps(module))(batch), module(batch))


def test_the_number_format_is_that_of_the_graph(file: Path) -> None:
    module = load_classifier(f"onnx:{file}").module
    assert settle_dtype("auto", module) == settle_dtype("float32", module) == "float32"
    with refused("fixed-dtype", dtype="float32"):
        settle_dtype("bfloat16", module)


def test_other_weights_have_another_hash(file: Path, tmp_path: Path) -> None:
    other = export(build("fashion-cnn", classes=10), tmp_path / "other.onnx", batch=None)
    hashes = [load_classifier(f"onnx:{path}").weights_hash for path in (file, file, other)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("location", ["weights.bin", "parts/of the model/0", "w" * 150])
def test_weights_in_a_file_of_any_name_are_part_of_the_hash(location: str, tmp_path: Path) -> None:
    path = external(tmp_path / "cnn.onnx", location)
    (tmp_path / "other.bin").write_bytes(b"the graph does not use this file")
    before = load_classifier(f"onnx:{path}").weights_hash
    (tmp_path / "other.bin").unlink()
    assert load_classifier(f"onnx:{path}").weights_hash == before
    weights = bytearray((tmp_path / location).read_bytes())
    weights[3] ^= 1
    (tmp_path / location).write_bytes(weights)
    assert load_classifier(f"onnx:{path}").weights_hash != before


def test_weights_are_not_read_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = external(tmp_path / "in" / "cnn.onnx", "aa/weights.bin")
    path.write_bytes(path.read_bytes().replace(b"aa/weights.bin", b"../weights.bin"))
    with refused("weights-outside-folder", location="../weights.bin"):
        _hash(path)


@pytest.mark.parametrize("place", ["branch", "function"])
def test_weights_in_branches_and_functions_are_part_of_the_hash(place: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weights = helper.make_tensor("w", floats, [2], b"\0" * 8, raw=True)
    onnx.external_data_helper.set_external_data(weights, "weights.bin")
    output = helper.make_tensor_value_info("y", floats, [2])
    branch = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "branch", [], [output], [weights]
    )
    constant = helper.make_node("Constant", [], ["y"], value=weights)
    function = helper.make_function(
        "own", "F", [], ["y"], [constant], [helper.make_opsetid("", 18)]
    )
    if place == "branch":
        node = helper.make_node(
            "If", ["c"], ["y"], then_branch=branch, else_branch=helper.make_graph([], "", [], [])
        )
    else:
        node = helper.make_node("F", [], ["y"], domain="own")
    model = helper.make_model(
        helper.make_graph([node], "graph", [], [output]),
        functions=[function] if place == "function" else [],
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    hashes = set()
    for content in (b"12345678", b"12345679"):
        (tmp_path / "weights.bin").write_bytes(content)
        hashes.add(_hash(tmp_path / "model.onnx"))
    assert len(hashes) == 2


def test_without_the_onnx_package_the_error_gives_the_pip_command(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it was not installed
    with refused("missing-extra", MissingExtra, extra="onnx"):
        load_classifier(f"onnx:{file}")


def test_labels_need_the_number_of_classes(tmp_path: Path) -> None:
    class Labels(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.argmax(1)

    path = export(Labels(), tmp_path / "labels.onnx", batch=None, shape=(5,))
    with refused("unknown-classes"):
        as_classifier(load_classifier(f"onnx:{path}"), classes=None, example=torch.rand(5))
    assert load_classifier(f"onnx:{path}", classes=5).module(torch.eye(5)).tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_mistakes_are_one_sentence(file: Path, tmp_path: Path) -> None:
    (tmp_path / "page.onnx").write_text("<html>404</html>")
    (tmp_path / "cut.onnx").write_bytes(file.read_bytes()[:500])
    for name in ("nowhere.onnx", "page.onnx", "cut.onnx"):
        with refused("damaged-onnx", path=tmp_path / name):
            load_classifier(f"onnx:{tmp_path}/{name}")
    with refused("other-classes", classes=10, wanted=12):
        load_classifier(f"onnx:{file}", classes=12)
    with refused("own-weights"):
        load_classifier(f"onnx:{file}", weights="none")


def test_a_runtime_without_cuda_says_so_instead_of_falling_back(file: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with refused("onnx-without-cuda"):
        OnnxModule(file)._session(torch.device("cuda", 0))


class CentredAndMasked(nn.Module):
    def forward(self, x):
        mean = (x - x.mean(0)).mean((1, 2, 3))
        return torch.stack([mean, -mean, torch.full_like(mean, -1e4)], 1)


def test_a_graph_that_centres_its_batch_is_refused_also_with_a_masked_class(tmp_path: Path) -> None:
    loaded = load_classifier(
        f"onnx:{export(CentredAndMasked(), tmp_path / 'net.onnx', batch=None)}"
    )
    with refused("answer-changes"):
        check_classifier(loaded.module, 3, torch.rand(8, 1, 28, 28))


@pytest.mark.parametrize("batch", [None, 1])
def test_a_graph_that_is_quantized_dynamically_needs_single_rows(
    batch: int | None, tmp_path: Path
) -> None:
    """Its rows depend on each other by less than the checks tolerate, and its votes do not."""
    onnx = pytest.importorskip("onnx")
    quantization = pytest.importorskip("onnxruntime.quantization")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    plain = onnx.load(export(module, tmp_path / "plain.onnx", batch=batch, shape=(16,)))
    del plain.graph.value_info[:]  # the quantizer takes the shapes of the exporter for others
    path = tmp_path / "dynamic.onnx"
    quantization.quantize_dynamic(plain, path)
    data = [(torch.full((16,), i / 4), 0) for i in range(3)]

    def certify(**settings: Any) -> Any:
        return sc.certify(f"onnx:{path}", data, sigma=0.25, plan=sc.Fixed(200), **settings)

    if batch == 1:
        assert len(certify()) == 3
        return
    with refused("dynamic-quantization", layer="DynamicQuantizeLinear"):
        certify()
    assert len(certify(stochastic=True)) == 3
