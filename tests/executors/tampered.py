"""A model and data that misbehave on order, in whatever process they are."""

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from smoothcert.datasets.arrays import ArrayDataset


class TamperedModel(nn.Module):
    """A linear classifier that takes its time and leaves a sign of each process that has it."""

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
    """`trouble` strikes whoever reads input `at`, the first `times` times.

    raise: reading fails; kill: the process is killed; nan: there are no numbers in it. Of another kind is wait: reading
    `at` or any later input waits until `times` processes have come so far.
    """

    def __init__(self, inputs, labels, signs: Path, *, trouble: str = "", at: int = 10, times: int = 1) -> None:
        super().__init__(inputs, labels, name="tampered")
        self.signs, self.trouble, self.at, self.times = signs, trouble, at, times

    def __getitem__(self, index):
        if index >= self.at and self.trouble == "wait":
            (self.signs / f"reader.{os.getpid()}").touch()
            deadline = time.monotonic() + 60
            while len(list(self.signs.glob("reader.*"))) < self.times and time.monotonic() < deadline:
                time.sleep(0.05)
        elif index == self.at and self.trouble and self._again():
            if self.trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.trouble == "nan":
                return torch.full((8,), torch.nan), 0
            raise RuntimeError("the disk is on fire")
        return super().__getitem__(index)

    def _again(self) -> bool:
        strikes = len(list(self.signs.glob("strike.*")))
        if strikes < self.times:
            (self.signs / f"strike.{strikes}").touch()
        return strikes < self.times
