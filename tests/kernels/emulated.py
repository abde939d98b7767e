"""Runs the kernels on the CPU: g++ compiles their source together with an emulator of a GPU."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from smoothcert.kernels import stages
from smoothcert.kernels.stages import StageClassifier, pack_network
from smoothcert.sampling.grid_noise import grid_noise

AVAILABLE = shutil.which("g++") is not None
_HERE = Path(__file__).parent / "emulator"
_FOLDER = Path(stages.__file__).parent


class EmulatedClassifier(StageClassifier):
    """A `StageClassifier` without a GPU."""

    def __init__(self, network, dtype, layouts):
        packed = pack_network(network, dtype, torch.device("cpu"))
        self._load(network, packed, layouts)
        self._kernels = [self._compile(number) for number in range(len(packed))]
        self._drawing = {}

    def _compile(self, number, noise=0):
        return _Kernel((*self._options(number, noise), "-DKERNEL=stage"))


class _Kernel:
    def __init__(self, options, sources=(_FOLDER / "noise.cu", _FOLDER / "stage.cu")):
        self._run = ctypes.CDLL(
            str(_build([_HERE / "device.h", *sources, _HERE / "run.h"], "", options))
        ).run

    def launch(self, blocks, threads, arguments):
        assert self._run(ctypes.byref(arguments), blocks) == threads


def layer_kernel(name, options, device, shared_memory):
    """Takes the place of `layers._kernel`."""
    return _Kernel((*options, f"-DKERNEL={name}"), [_FOLDER / "layers.cu"])


def _build(sources, extra, options):
    """Compile for the CPU; returns the path of the library."""
    return _built(tuple(map(str, sources)), extra, options)


@lru_cache
def _built(sources, extra, options):
    text = "\n".join([*(Path(path).read_text() for path in sources), extra])
    name = hashlib.sha256("\0".join([text, *options]).encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"smoothcert-emulator-{name}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "kernel.cpp"
            source.write_text(text)
            command = [
                "g++",
                "-std=c++17",
                "-O2",
                "-shared",
                "-fPIC",
                "-w",
                "-ffp-contract=off",
                *options,
            ]
            subprocess.run(
                [*command, str(source), "-o", str(Path(scratch) / "kernel.so")], check=True
            )
            shutil.move(Path(scratch) / "kernel.so", target)
    return target


def normal_numbers(seed, elements, sample, id):
    """The noise of the kernel: four numbers for each element of the counter."""
    kernel = "noise[4]; draw_normal(noise, seed, element, sample, id)"
    extra = f"""
extern "C" void draw(float* out, int elements, u64 seed, u32 sample, u32 id) {{
  for (int element = 0; element < elements; element++) {{
    float {kernel}; memcpy(out + 4 * element, noise, 16); }} }}
char memory[1];
"""
    draw = ctypes.CDLL(
        str(_build([_HERE / "device.h", _FOLDER / "noise.cu"], extra, ("-DHALF_IS_BFLOAT16=1",)))
    ).draw
    out = torch.empty(elements, 4)
    draw(
        ctypes.c_void_p(out.data_ptr()),
        elements,
        ctypes.c_uint64(seed),
        ctypes.c_uint32(sample),
        ctypes.c_uint32(id),
    )
    return out.numpy()


_GRID = """
extern "C" void draw(float* out, int elements, u64 seed, u32 sample, u32 id, const Grid* grid) {
  for (int element = 0; element < elements; element++) {
    float steps[4]; draw_grid(steps, *grid, seed, element, sample, id);
    memcpy(out + 4 * element, steps, 16); } }
extern "C" void decide(float* out, int count, const u32* high, const u32* low, const Grid* grid) {
  for (int i = 0; i < count; i++) {
    bool is_open; out[i] = grid_number(high[i], *grid, is_open);
    if (is_open) out[i] = search_grid(high[i], low[i], *grid); } }
char memory[1];
"""


class _Grid(ctypes.Structure):
    _fields_ = (
        ("table", ctypes.c_void_p),
        ("length", ctypes.c_int),
        ("smallest", ctypes.c_int),
        ("ratio", ctypes.c_float),
        ("tail", ctypes.c_float),
    )


def _grid_library():
    return ctypes.CDLL(
        str(_build([_HERE / "device.h", _FOLDER / "noise.cu"], _GRID, ("-DHALF_IS_BFLOAT16=1",)))
    )


def _grid(draw):
    noise = grid_noise(draw, torch.device("cpu"))
    return noise, _Grid(
        noise.table.data_ptr(), len(noise.table), noise.smallest, noise.ratio, noise.tail
    )


def grid_numbers(draw, seed, elements, sample, id):
    """The noise of the kernel on a grid, in steps: four numbers for each element of the counter."""
    _table, grid = _grid(draw)
    out = torch.empty(elements, 4)
    _grid_library().draw(
        ctypes.c_void_p(out.data_ptr()),
        elements,
        ctypes.c_uint64(seed),
        ctypes.c_uint32(sample),
        ctypes.c_uint32(id),
        ctypes.byref(grid),
    )
    return out.numpy()


def grid_decisions(draw, words):
    """The number of the kernel for given 64-bit words."""
    _table, grid = _grid(draw)
    high, low = ((words >> np.uint64(shift)).astype(np.uint32) for shift in (32, 0))
    out = np.empty(len(words), np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (out, high, low)]
    _grid_library().decide(pointers[0], len(words), *pointers[1:], ctypes.byref(grid))
    return out
