import logging
import sys

import torch
from torch import nn

from smoothcert.device.runtime import Runtime
from smoothcert.smoothed.prepare import prepare


def test_without_the_folder_of_kernels_a_network_runs_as_it_is(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "smoothcert.kernels", None)  # as if it was not installed
    runtime = Runtime.resolve("cpu", dtype="float32", compile="fast", batch=8)
    with caplog.at_level(logging.INFO, logger="smoothcert"):
        classify, used = prepare(nn.Linear(4, 3), 3, (4,), runtime)
    assert used.compile == "none"
    assert "the kernels are not installed" in caplog.text
    assert classify(torch.zeros(8, 4)).shape == (8,)
