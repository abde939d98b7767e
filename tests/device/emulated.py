"""Runs the stage kernels on the CPU: g++ compiles the kernel's own source together with an emulator of a GPU."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

from smoothcert.device.resnet import classifier
from smoothcert.device.resnet.classifier import Arguments, StageClassifier, pack_network

AVAILABLE = shutil.which("g++") is not None
_HERE = Path(__file__).parent / "emulator"


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
        return _Kernel((*options, *self.layouts[number].options()))


class _Kernel:
    def __init__(self, options):
        self._run = ctypes.CDLL(str(_built(options))).run

    def launch(self, blocks, threads, arguments):
        assert isinstance(arguments, Arguments)
        assert self._run(ctypes.byref(arguments), blocks) == threads


@lru_cache
def _built(options):
    folder = Path(classifier.__file__).parent
    sources = (_HERE / "device.h", folder / "noise.cu", folder / "stage.cu", _HERE / "run.h")
    text = "\n".join(path.read_text() for path in sources)
    name = hashlib.sha256("\0".join([text, *options]).encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"smoothcert-emulator-{name}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            (source := Path(scratch) / "kernel.cpp").write_text(text)
            command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-w", "-ffp-contract=off", *options]
            subprocess.run([*command, str(source), "-o", str(Path(scratch) / "kernel.so")], check=True)
            shutil.move(Path(scratch) / "kernel.so", target)
    return target
