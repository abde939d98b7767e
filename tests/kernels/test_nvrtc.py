"""NVRTC compiles without a GPU; only loading and launching need one."""

import ctypes
import hashlib

import pytest
import torch

from smoothcert.kernels import nvrtc
from smoothcert.kernels.layout import Layout
from smoothcert.kernels.nvrtc import CudaError, Kernel, cache_folder, compiled, read_source

ADD = """
struct A { int* x; int by; };
extern "C" __global__ void add(const A a) { a.x[threadIdx.x] += a.by; }
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(autouse=True)
def _needs_nvrtc():
    try:
        nvrtc._nvrtc()
    except CudaError as error:
        pytest.skip(str(error))


def test_a_second_compilation_reads_the_cache():
    assert compiled(ADD, [], (8, 0)).startswith(b"\x7fELF")
    (path,) = cache_folder().iterdir()
    other = b"another program"
    path.write_bytes(hashlib.sha256(other).digest() + other)
    assert compiled(ADD, [], (8, 0)) == other
    assert compiled(ADD, [], (9, 0)).startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: b"", lambda content: b"x" + content]
)
def test_a_damaged_file_is_compiled_again(damage):
    first = compiled(ADD, [], (8, 0))
    (path,) = cache_folder().iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert compiled(ADD, [], (8, 0)) == first
    assert path.read_bytes()[32:] == first


def test_without_a_writable_folder_nothing_is_cached(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled(ADD, [], (8, 0)).startswith(b"\x7fELF")


def test_a_newer_device_gets_code_for_the_driver_to_compile():
    assert b".target" in compiled(ADD, [], (99, 0))


def test_a_mistake_in_the_source_is_shown():
    with pytest.raises(CudaError, match="undefined_name"):
        compiled('extern "C" __global__ void f() { undefined_name(); }', [], (8, 0))


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize(("bfloat16", "noise"), [(0, 1), (1, 1), (0, 2), (1, 2)])
def test_the_stage_kernel_compiles(capability, bfloat16, noise):
    flags = {"HALF_IS_BFLOAT16": bfloat16, "INPUT_CHANNELS": 3, "STRIDE": 2, "NOISE": noise}
    for layout, is_first, is_last in [
        (Layout(16, 32, 1, 8, 1, 2), 1, 0),
        (Layout(64, 8, 4, 8, 4, 2), 0, 1),
    ]:
        next_channels = 0 if is_last else 32
        values = flags | {
            "IS_FIRST": is_first,
            "IS_LAST": is_last,
            "NEXT_CHANNELS": next_channels,
        }
        options = [*layout.options(), *(f"-D{name}={value}" for name, value in values.items())]
        assert compiled(read_source("noise", "stage"), options, capability).startswith(b"\x7fELF")


class Add(ctypes.Structure):
    _fields_ = (("x", ctypes.c_void_p), ("by", ctypes.c_int))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_a_kernel_runs_on_the_current_stream_and_in_a_cuda_graph():
    kernel = Kernel(ADD, "add", [], torch.device("cuda"))
    x = torch.zeros(64, device="cuda", dtype=torch.int32)
    kernel.launch(1, 64, Add(x.data_ptr(), 3))
    assert x.tolist() == [3] * 64
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kernel.launch(1, 64, Add(x.data_ptr(), 4))
    assert x.tolist() == [3] * 64
    graph.replay()
    graph.replay()
    assert x.tolist() == [11] * 64
    assert kernel.resident_blocks(64) > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_a_file_that_the_driver_rejects_is_compiled_again():
    Kernel(ADD, "add", [], torch.device("cuda"))
    (path,) = cache_folder().iterdir()
    wrong = b"not a program"
    path.write_bytes(hashlib.sha256(wrong).digest() + wrong)
    x = torch.zeros(1, device="cuda", dtype=torch.int32)
    Kernel(ADD, "add", [], torch.device("cuda")).launch(1, 1, Add(x.data_ptr(), 5))
    assert x.item() == 5
