"""Regenerate the paper's tables and figures from published certification logs: `make paper [LOGS=FOLDER]`.

Writes README.md and the figures beside this file.
"""

from __future__ import annotations

import sys
import timeit
from functools import partial
from pathlib import Path

import numpy as np
import plots
import tables
from jinja2 import Environment, StrictUndefined

from smoothcert import Gaussian, SampleMap
from smoothcert.runs.logs import Log, read_log
from smoothcert.statistics.sample_map import paper_grid

HERE = Path(__file__).parent
MODELS = ("consistency", "gaussian")
NEEDED = [f"{data}-consistency-{sigma}" for data in ("imagenet", "cifar10") for sigma in ("0.50", "1.00")]
ALPHA = {("cifar10", "gaussian"): 0.01}
"""Logs that were not made at alpha .001: their largest radius tells."""
PUBLIC = """\
{folder} does not hold the certification logs that this needs. Public ones, of 100,000 samples per input:
  https://github.com/jh-jeong/smoothing-consistency  data/certify/{{imagenet,cifar10}}/consistency/...
  https://github.com/locuslab/smoothing              data/certify/{{imagenet,cifar10}}/...
Save them as {{imagenet,cifar10}}-{{consistency,gaussian}}-SIGMA.tsv, as in imagenet-consistency-0.50.tsv, into one
folder, and run: make paper LOGS=FOLDER"""

PAPER_MAP_SECONDS = {
    ("absolute", 0.01): 0.70,
    ("absolute", 0.05): 0.65,
    ("absolute", 0.10): 0.57,
    ("relative", 0.01): 39.47,
    ("relative", 0.05): 13.52,
    ("relative", 0.10): 7.50,
}


def main(folder: Path) -> None:
    logs = {path.stem: read_log(path) for model in MODELS for path in sorted(folder.glob(f"*-{model}-*.tsv"))}
    if not set(NEEDED) <= set(logs):
        sys.exit(PUBLIC.format(folder=folder))
    # The paper's 500 CIFAR-10 inputs: 0, 20, ..., 9980.
    logs = {
        name: tables.subset(log, np.arange(0, 10_000, 20)) if name.startswith("cifar10") else log
        for name, log in logs.items()
    }
    imagenet = {sigma: logs[f"imagenet-consistency-{sigma:.2f}"] for sigma in (0.5, 1.0)}
    cifar10 = {sigma: logs[f"cifar10-consistency-{sigma:.2f}"] for sigma in (0.5, 1.0)}
    plots.trade_off({"ImageNet": ("imagenet-ad", imagenet), "CIFAR-10": ("cifar10-ad", cifar10)}, HERE / "trade-off")
    plots.sample_maps(HERE / "sample-maps")
    crossing = plots.iss_minus_ias(HERE / "iss-minus-ias")
    context = {
        "radius": plots.radius_against_samples(HERE / "radius-against-samples"),
        "crossing": crossing,
        "p": plots.distribution_of_p(imagenet[0.5], crossing["as_run"], HERE / "distribution-of-p"),
        "pilot": plots.pilot_share(imagenet, HERE / "pilot-share"),
    }
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(
        (HERE / "template.md").read_text(encoding="utf-8")
    )
    page = template.render(context, table=partial(_table, logs), runtime=_map_runtime())
    (HERE / "README.md").write_text(page, encoding="utf-8")


def _table(logs: dict[str, Log], table: str, model: str) -> str:
    """Every row that the paper prints in this table, for one model at all its noises."""
    data = table.partition("-")[0]
    parts, everything = [], []
    for sigma in sorted({iss.sigma for iss, _ in tables.printed(table)}):
        if log := logs.get(f"{data}-{model}-{sigma:.2f}"):
            found = list(tables.compare(table, log, sigma=sigma, log_alpha=ALPHA.get((data, model), 0.001)))
            everything += found
            parts += [
                f"### Sigma {sigma:g}",
                tables.main_table(found),
                "Certified accuracy (%) beyond a radius, the paper's in brackets:",
                tables.accuracy_table(found),
            ]
    return "\n\n".join(["", *parts, tables.differences(everything), ""])


def _map_runtime() -> str:
    lines = ["| decline | here, ms | paper, ms |", "|---|---:|---:|"]
    for (kind, decline), paper in PAPER_MAP_SECONDS.items():
        psi = SampleMap(Gaussian(0.5), 100_000, decline, kind)
        best = min(timeit.repeat(lambda psi=psi: psi.table(paper_grid()), number=1, repeat=5))
        lines.append(f"| {kind} {decline:g} | {1000 * best:.0f} | {1000 * paper:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
