"""A model and data that misbehave on purpose, in whatever process they are used."""

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from smoothcert.data.base import ArrayDataset


class TamperedModel(nn.Module):
    """A slow linear classifier that leaves a file for each process that runs it."""

    def __init__(self, signs: Path) -> None:
        super().__init__()
        self.signs = signs
        self.linear = nn.Linear(8, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.linspace(-1, 1, 24).reshape(3, 8).sin())
            self.linear.bias.zero_()

    def forward(self, x):
        (self.signs / f"worker.{os.getpid()}").touch()
        time.sleep(0.005)
        return self.linear(x)


class TamperedData(ArrayDataset):
    """Data with a fault at input `at`, which occurs the first `times` times that the input is read.

    Args:
        inputs: The inputs.
        labels: Their labels.
        signs: A folder shared by all processes, for files that count faults and readers.
        trouble: The fault. raise: reading raises an error. kill: the process is killed. wait: reading `at` or a later
            input waits until `times` processes have reached it.
        at: The input with the fault.
        times: How often the fault occurs; for wait, how many processes to wait for.
    """

    def __init__(
        self, inputs, labels, signs: Path, *, trouble: str = "", at: int = 10, times: int = 1
    ) -> None:
        super().__init__(inputs, labels, name="tampered")
        self.signs, self.trouble, self.at, self.times = signs, trouble, at, times

    def __getitem__(self, index):
        if index >= self.at and self.trouble == "wait":
            (self.signs / f"reader.{os.getpid()}").touch()
            deadline = time.monotonic() + 60
            while (
                len(list(self.signs.glob("reader.*"))) < self.times and time.monotonic() < deadline
            ):
                time.sleep(0.05)
        elif index == self.at and self.trouble and self._strikes():
            if self.trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the disk is on fire")
        return super().__getitem__(index)

    def _strikes(self) -> bool:
        """Whether the fault occurs this time."""
        strikes = len(list(self.signs.glob("strike.*")))
        if strikes < self.times:
            (self.signs / f"strike.{strikes}").touch()
        return strikes < self.times
