"""Runs the kernels on the CPU: g++ compiles the kernel's own source together with an emulator of a GPU."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

from smoothcert.device.layers import kernels
from smoothcert.device.resnet import classifier
from smoothcert.device.resnet.classifier import StageClassifier, pack_network

AVAILABLE = shutil.which("g++") is not None
_HERE = Path(__file__).parent / "emulator"
_FOLDER = Path(classifier.__file__).parent


class EmulatedClassifier(StageClassifier):
    """A `StageClassifier` without a GPU."""

    def __init__(self, network, dtype, layouts):
        self.shape, self.classes, self.dtype, self.device = network.shape, network.classes, dtype, torch.device("cpu")
        self.layouts = layouts
        packed = pack_network(network)
        self._kernels = [self._compile(packed, number, False) for number in range(len(packed))]
        self._drawing = self._compile(packed, 0, True)
        self._affine = torch.stack([network.factor, network.offset], 1).contiguous()
        self._linear = network.linear.T.contiguous()
        self._linear_bias = network.linear_bias
        self._stages = [classifier._on_device(stage, dtype, self.device) for stage in packed]

    def _compile(self, packed, number, draws_noise):
        options = packed[number].options(
            is_first=number == 0, input_channels=self.shape[0], dtype=self.dtype, draws_noise=draws_noise
        )
        return _Kernel((*options, *self.layouts[number].options(), "-DKERNEL=stage"))


class _Kernel:
    def __init__(self, options, sources=(_FOLDER / "noise.cu", _FOLDER / "stage.cu")):
        self._run = ctypes.CDLL(str(_build([_HERE / "device.h", *sources, _HERE / "run.h"], "", options))).run

    def launch(self, blocks, threads, arguments):
        assert self._run(ctypes.byref(arguments), blocks) == threads


def layer_kernel(name, options, device):
    """Takes the place of `layers.kernels._kernel`."""
    return _Kernel((*options, f"-DKERNEL={name}"), [Path(kernels.__file__).parent / "layers.cu"])


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
            (source := Path(scratch) / "kernel.cpp").write_text(text)
            command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-w", "-ffp-contract=off", *options]
            subprocess.run([*command, str(source), "-o", str(Path(scratch) / "kernel.so")], check=True)
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
    draw = ctypes.CDLL(str(_build([_HERE / "device.h", _FOLDER / "noise.cu"], extra, ("-DHALF_IS_BFLOAT16=1",)))).draw
    out = torch.empty(elements, 4)
    draw(ctypes.c_void_p(out.data_ptr()), elements, ctypes.c_uint64(seed), ctypes.c_uint32(sample), ctypes.c_uint32(id))
    return out.numpy()
