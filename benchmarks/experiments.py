"""What an experiment is: a function with settings, what it needs, and the file that it writes."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import results


@dataclass(frozen=True)
class Inputs:
    """Where an experiment finds its inputs, and where it keeps unfinished runs."""

    work: Path
    weights: Path | None = None
    data: Path | None = None
    logs: Path | None = None
    imagenet: Path | None = None
    resnet50: Path | None = None


@dataclass(frozen=True)
class Experiment:
    """One function of this package, `module.function(inputs, **settings)`, which returns the numbers."""

    name: str
    function: str
    minutes: float
    needs: str = ""
    """What it cannot run without: "gpu", packages, and names of `Inputs`."""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        folders = [
            f"--{need} {need.upper()}"
            for need in self.needs.split()
            if need in Inputs.__dataclass_fields__
        ]
        return " ".join(["python -m benchmarks", self.name, *folders])

    def state(self, folder: Path) -> str:
        """Whether its file is "current", or why it should run."""
        if (found := results.read(self.name, folder)) is None:
            return "missing"
        if found["version"] != results.VERSION:
            return f"of version {found['version']}"
        return "current" if found["settings"] == self.settings else "of other settings"

    def lacks(self, inputs: Inputs) -> list[str]:
        """What it needs and this machine does not have."""
        return [need for need in self.needs.split() if not _has(need, inputs)]

    def run(self, inputs: Inputs, folder: Path) -> Path:
        """Run it and write its file. Its unfinished runs are kept until then, and only for this version."""
        module, function = self.function.split(".")
        own = replace(inputs, work=inputs.work / results.VERSION / self.name)
        own.work.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        numbers = getattr(import_module(f"benchmarks.{module}"), function)(own, **self.settings)
        seconds = time.perf_counter() - start
        path = results.write(
            self.name, self.command, self.settings, numbers, seconds, folder=folder
        )
        shutil.rmtree(own.work, ignore_errors=True)
        return path


def _has(need: str, inputs: Inputs) -> bool:
    if need == "gpu":
        os.environ.setdefault(
            "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
        )  # so that this process may be forked
        import torch

        return torch.cuda.is_available()
    if need in Inputs.__dataclass_fields__:
        path = getattr(inputs, need)
        return path is not None and path.exists()
    return find_spec(need) is not None
