"""How many inputs have nothing proved at a radius: by the class alone, and with groups of classes.

On a GPU, for CIFAR-10 and the weights of several sigmas, in folders of `WORK`:

    python -m benchmarks.asking DATA WEIGHTS WORK [RADIUS]

DATA is a data set as for --data, as in cifar10:/data/cifar10, and WEIGHTS a folder with
METHOD-SIGMA.safetensors, as in gaussian-0.50.safetensors. Every network gets 20,000 samples of 500 inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import smoothcert as sc

METHODS = ("gaussian", "consistency")
SIGMAS = ("0.25", "0.50", "1.00")
LEVELS = {
    "kind": {"vehicle": "0,1,8,9", "animal": "2-7"},
    "group": {
        "plane or ship": "0,8",
        "car or truck": "1,9",
        "cat or dog": "3,5",
        "deer or horse": "4,7",
    },
}


def nothing_proved(data: str, weights: Path, work: Path, radius: float) -> tuple[float, float]:
    """The shares of inputs without a right answer: of the class, and of any level."""
    sigma = float(weights.stem.split("-")[-1])
    plan = sc.Fixed(20_000, known_labels=True)
    run = sc.certify(
        "cifar-resnet110",
        data,
        weights=str(weights),
        sigma=sigma,
        plan=plan,
        skip=20,
        out=work / weights.stem,
    )
    coarse, *_ = sc.ask(run.path, groups=LEVELS, finest=True, radii=[radius])
    shares = [results.certified_accuracy([radius])[0] for results in (run, coarse)]
    return 1 - float(shares[0]), 1 - float(shares[1])


def main(data: str, weights: str, work: str, radius: str = "0.5") -> None:
    """Print a line for every network."""
    files = [
        Path(weights) / f"{method}-{sigma}.safetensors" for method in METHODS for sigma in SIGMAS
    ]
    for file in files:
        alone, grouped = nothing_proved(data, file, Path(work), float(radius))
        print(
            f"{file.stem}: nothing proved at {radius}: class {alone:.1%}, any level {grouped:.1%}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
