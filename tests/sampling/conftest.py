import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch


class Drawer:
    """Gets noise from a process that runs `drawing.py`."""

    def __init__(self, kind, folder):
        command = [sys.executable, Path(__file__).with_name("drawing.py"), kind, folder]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *segments, shape=(12,), **settings):
        defaults = {
            "seed": 0,
            "batch": sum(count for _, _, count in segments),
            "law": "normal",
            "scale": 1.0,
            "x": 0.0,
            "dtype": "float32",
        }
        request = {"segments": segments, "shape": shape} | defaults | settings
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return np.load(self.process.stdout.readline().strip())


@pytest.fixture(
    scope="session", params=["host", "interpreted", pytest.param("cuda", marks=pytest.mark.gpu)]
)
def draw(request, tmp_path_factory):
    """The noise of segments (id, first sample, count), from every available stream."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA here")
    drawer = Drawer(request.param, tmp_path_factory.mktemp(request.param))
    with drawer.process:
        yield drawer
        drawer.process.stdin.close()
