"""Draw the figure of docs/norms.md: certified accuracy with one panel per norm and one line per run.

python benchmarks/norms_chart.py runs/*-certified --out docs/images/norms
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from smoothcert import Run, open_run
from smoothcert.report.charts import certified_accuracy
from smoothcert.report.figures import save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    runs = [open_run(path) for path in args.runs]
    named = [replace(run, name=type(run.noise).__name__) for run in runs]
    norms = sorted({_norm(run) for run in named})
    panels = [certified_accuracy([run for run in named if _norm(run) == norm], bands=False) for norm in norms]
    save([replace(panel, title=norm) for panel, norm in zip(panels, norms, strict=True)], args.out, ["svg"])


def _norm(run: Run) -> str:
    return run.noise.norm.removesuffix(" of pixels")  # a grey pixel is one value


if __name__ == "__main__":
    main()
