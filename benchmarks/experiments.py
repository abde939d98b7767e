"""The list of experiments. Each takes less than ten minutes and writes docs/results/NAME.json."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import results
from smoothcert._version import __version__


@dataclass(frozen=True)
class Inputs:
    """Where an experiment finds its inputs, and where it keeps unfinished runs."""

    work: Path
    weights: Path | None = None
    data: Path | None = None
    logs: Path | None = None
    imagenet: Path | None = None


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
        folders = [f"--{need} {need.upper()}" for need in self.needs.split() if need in Inputs.__dataclass_fields__]
        return " ".join(["python -m benchmarks", self.name, *folders])

    def state(self, folder: Path) -> str:
        """Whether its file is "current", or why it should run."""
        if (found := results.read(self.name, folder)) is None:
            return "missing"
        if found["version"] != __version__:
            return f"of version {found['version']}"
        return "current" if found["settings"] == self.settings else "of other settings"

    def lacks(self, inputs: Inputs) -> list[str]:
        """What it needs and this machine does not have."""
        return [need for need in self.needs.split() if not _has(need, inputs)]

    def run(self, inputs: Inputs, folder: Path) -> Path:
        """Run it and write its file. Its unfinished runs are kept until then, and only for this version."""
        module, function = self.function.split(".")
        own = replace(inputs, work=inputs.work / __version__ / self.name)
        start = time.perf_counter()
        numbers = getattr(import_module(f"benchmarks.{module}"), function)(own, **self.settings)
        seconds = time.perf_counter() - start
        path = results.write(self.name, self.command, self.settings, numbers, seconds, folder=folder)
        shutil.rmtree(own.work, ignore_errors=True)
        return path


def _has(need: str, inputs: Inputs) -> bool:
    if need == "gpu":
        return shutil.which("nvidia-smi") is not None
    if need in Inputs.__dataclass_fields__:
        folder = getattr(inputs, need)
        return folder is not None and folder.is_dir()
    return find_spec(need) is not None


def chosen(names: list[str]) -> Iterator[Experiment]:
    """The experiments with these names, or all of them. A name that ends in `*` stands for all that begin like it."""
    for experiment in EXPERIMENTS:
        if not names or any(
            experiment.name.startswith(name[:-1]) if name.endswith("*") else experiment.name == name for name in names
        ):
            yield experiment


EXPERIMENTS = [
    Experiment("demo", "commands.demo", 1.5),
    # CIFAR-10. The first three models have the paper's 24 rows.
    Experiment("cifar10-models", "cifar10.models", 0.1, "weights"),
    *(
        Experiment(
            f"cifar10-{method}-{sigma:.2f}",
            "cifar10.plans",
            minutes,
            "gpu weights data",
            {"model": f"{method}-{sigma:.2f}", "sigma": sigma, "ceilings": ceilings},
        )
        for method, minutes, ceilings in (("consistency", 2.2, [100_000, 500_000]), ("gaussian", 1.5, [100_000]))
        for sigma in (0.5, 0.25, 1.0)
    ),
    Experiment("cifar10-whole", "cifar10.whole", 1.7, "gpu weights data", {"model": "consistency-0.50", "sigma": 0.5}),
    # The paper, replayed on published logs.
    *(
        Experiment(
            f"paper-{table}-{model}",
            "paper.table",
            1,
            "logs",
            {"table": table, "model": model, "sigmas": sigmas, "alpha": alpha},
        )
        for table, model, sigmas, alpha in (
            ("imagenet-ad", "consistency", [0.5, 1.0], 0.001),
            ("imagenet-rd", "consistency", [0.5, 1.0], 0.001),
            ("cifar10-ad", "consistency", [0.25, 0.5, 1.0], 0.001),
            ("cifar10-ad", "gaussian", [0.25, 0.5], 0.01),  # their largest radii show this alpha
        )
    ),
    Experiment("paper-figures", "paper.figures", 3, "logs"),
    Experiment("paper-map", "paper.map_runtime", 0.1),
]
