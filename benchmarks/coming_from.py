"""Compare time and samples of `smoothcert.compat` with the programs that it replaces, on bundled data.

    OMP_NUM_THREADS=1 python benchmarks/coming_from.py --inputs 20 --samples 10000

This script prints one row per program: the loop of Cohen et al. (2019), `compat.cohen` in its place, and the same with
a decline of 0.05. If the Adversarial Robustness Toolbox is installed, rows for it and for `compat.art` follow. All
programs run in one process on the CPU with the same batch size. `compat.art` packs the inputs, the others take one
after the other.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np
import torch
from scipy.stats import beta, norm
from torch import nn

from smoothcert.compat.art import PyTorchRandomizedSmoothing
from smoothcert.compat.cohen import Smooth
from smoothcert.data import load_dataset
from smoothcert.models import load_classifier

ALPHA, SIGMA, PILOT = 0.001, 0.25, 100
Certified = Sequence[tuple[int, float]]


class Published:
    """One input at a time: repeat it, add noise, classify, and count votes one by one in Python."""

    def __init__(self, model: Callable[[torch.Tensor], torch.Tensor], classes: int, sigma: float) -> None:
        self.model, self.classes, self.sigma = model, classes, sigma

    def certify(self, x: torch.Tensor, n0: int, n: int, alpha: float, batch_size: int) -> tuple[int, float]:
        chosen = int(self._votes(x, n0, batch_size).argmax())
        count = self._votes(x, n, batch_size)[chosen]
        lower = beta.ppf(alpha, count, n - count + 1) if count else 0.0
        return (-1, 0.0) if lower < 0.5 else (chosen, float(self.sigma * norm.ppf(lower)))

    @torch.no_grad()
    def _votes(self, x: torch.Tensor, n: int, batch_size: int) -> np.ndarray:
        votes = np.zeros(self.classes, int)
        for number in range(ceil(n / batch_size)):
            rows = x.repeat((min(batch_size, n - number * batch_size), 1, 1, 1))
            for label in self.model(rows + torch.randn_like(rows) * self.sigma).argmax(1).numpy():
                votes[label] += 1
        return votes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20, help="how many test images")
    parser.add_argument("--samples", type=int, default=10_000, help="n, after a pilot of 100")
    parser.add_argument("--batch", type=int, default=1000, help="rows per forward pass")
    parser.add_argument("--decline", type=float, default=0.05)
    args = parser.parse_args()

    network = load_classifier("fashion-cnn", sigma=SIGMA).module
    data = load_dataset("fashion-mnist")
    images, labels = zip(*(data[i] for i in range(args.inputs)), strict=True)
    print(f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s), torch {torch.__version__}")
    print(f"fashion-cnn, {args.inputs} inputs, sigma {SIGMA}, n0 {PILOT}, n {args.samples}, batch {args.batch}\n")
    print("| program | s per input | rows per input | ACR |\n|---|---:|---:|---:|")
    for name, certify in _programs(network, images, args):
        rows = _counted(certify, network)
        start = time.perf_counter()
        found = certify(network)
        seconds = time.perf_counter() - start
        acr = np.mean([radius * (answer == label) for (answer, radius), label in zip(found, labels, strict=True)])
        n = len(images)
        print(f"| {name} | {seconds / n:.3f} | {rows / n:,.0f} | {acr:.3f} |", flush=True)


def _counted(certify: Callable[[Any], Certified], network: nn.Module) -> int:
    """Count the rows that go through the classifier, in a separate run, which also serves as a warm-up."""
    rows = []

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows.append(len(x))
            return network(x)  # type: ignore[no-any-return]

    certify(Counting())
    return sum(rows)


def _programs(network: Any, images: Sequence[torch.Tensor], args: argparse.Namespace) -> list[tuple[str, Any]]:
    def cohen(cls: Callable[..., Any], **more: Any) -> Callable[[Any], Certified]:
        def certify(model: Any) -> Certified:
            smooth = cls(model, 10, SIGMA, **more)
            return [smooth.certify(x, PILOT, args.samples, ALPHA, args.batch) for x in images]

        return certify

    def art(cls: Callable[..., Any], **more: Any) -> Callable[[Any], Certified]:
        def certify(model: Any) -> Certified:
            estimator = cls(
                model,
                nn.CrossEntropyLoss(),
                input_shape=(1, 28, 28),
                nb_classes=10,
                device_type="cpu",
                sample_size=PILOT,
                scale=SIGMA,
                alpha=ALPHA,
                **more,
            )
            answers, radii = estimator.certify(np.stack([x.numpy() for x in images]), args.samples, args.batch)
            return list(zip(answers.tolist(), radii.tolist(), strict=True))

        return certify

    programs: list[tuple[str, Any]] = [
        ("the published loop", cohen(Published)),
        ("`compat.cohen`", cohen(Smooth)),
        (f"`compat.cohen`, `decline={args.decline}`", cohen(Smooth, decline=args.decline)),
    ]
    try:
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing as Theirs

        programs.append(("ART", art(Theirs)))
    except ImportError:
        print("ART is not installed: pip install adversarial-robustness-toolbox\n")
    return [
        *programs,
        ("`compat.art`", art(PyTorchRandomizedSmoothing)),
        (f"`compat.art`, `decline={args.decline}`", art(PyTorchRandomizedSmoothing, decline=args.decline)),
    ]


if __name__ == "__main__":
    main()
