"""Draw the figure of docs/norms.md: certified accuracy with one panel per norm and one line per run.

python benchmarks/norms_chart.py runs/*-certified --out docs/images/norms
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from smoothcert import Run, open_run
from smoothcert.report.figures import paper_style, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    runs = [open_run(path) for path in args.runs]
    norms = sorted({_norm(run) for run in runs})
    with paper_style():
        figure, axes = plt.subplots(1, len(norms), figsize=(2.4 * len(norms), 2.6), sharey=True, squeeze=False)
        for ax, norm in zip(axes[0], norms, strict=True):
            for run in (run for run in runs if _norm(run) == norm):
                radii = np.linspace(0, 1.02 * run.radius.max(), 300)
                name = type(run.manifest.noise).__name__
                ax.plot(radii, 100 * run.certified_accuracy(radii), label=name)
            ax.set_xlabel(f"radius ({norm.removeprefix('l2 of the ')})")
            ax.set_ylim(0, 100)
            ax.legend(frameon=False, fontsize=7, loc="lower left")
        axes[0][0].set_ylabel("certified accuracy (%)")
        figure.tight_layout()
        save(figure, args.out, ["svg"])


def _norm(run: Run) -> str:
    return run.manifest.noise.norm.removesuffix(" of pixels")  # a grey pixel is one value


if __name__ == "__main__":
    main()
