"""`smoothcert compare`: is B as robust as A?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from smoothcert.cli.groups import CertifiedNoiseOptions, SubjectOptions
from smoothcert.cli.options import Ids, Json, Limit, Skip, numbers, print_json, print_table


def command(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    *,
    noise: CertifiedNoiseOptions,
    subject: SubjectOptions,
    radius: str | None = None,
    margin: float = 0.0,
    confidence: float = 0.95,
    report: Path | None = None,
    data: str | None = None,
    out: Path | None = None,
    samples: int = 100_000,
    alpha: float = 0.001,
    bound: Literal["binary", "runner-up"] = "binary",
    skip: Skip = None,
    limit: Limit = None,
    ids: Ids = None,
    json: Json = False,
) -> None:
    """Compare two runs on their common inputs, or two models: certify both until the difference is clear.

    Args:
        a: A run; with --data, a model or a checkpoint.
        b: What to compare with it.
        radius: The radius of certified accuracy, or several: 0.25,0.5.
        margin: How many points of certified accuracy B may lose and still count as not worse.
        confidence: The confidence of the intervals.
        report: Also write a page with pictures, as in compare.html.

    Models instead of runs:
        data: The data, as for certify: A and B are models.
        out: The folder of both runs. The same command resumes them.
        samples: The ceiling for each input.
        alpha: Probability that one certificate is wrong, at most.
        bound: runner-up: also bound the other classes.
    """
    from smoothcert.runs.comparison import Comparison
    from smoothcert.tasks.compare import compare

    def show(part: Comparison) -> None:
        figures = "; ".join(f"at {d.radius:g} {d.figures}" for d in part.differences)
        print(f"{len(part.a):,} inputs: {figures}", file=sys.stderr)

    models: dict[str, Any] = {"data": data, "out": out, "ids": ids, "skip": skip, "limit": limit, "sigma": noise.sigma}
    models["noise"] = None if noise.sigma is not None else noise.given()
    if any(value is not None for value in models.values()):
        models |= {**subject.settings(), "samples": samples, "alpha": alpha, "bound": bound, "on_part": show}
    else:
        models.clear()
    radii = None if radius is None else numbers("--radius", radius)
    found = compare(a, b, radius=radii, margin=margin, confidence=confidence, **models)
    if report is not None:
        from smoothcert.report import write_report

        write_report(found, report)
    if json:
        print_json(found.plain())
        return
    rows = [
        [f"{d.radius:g}", *(f"{share:.1%}" for share in d.shares), f"{d.both}", f"{len(d.only_a)}", f"{len(d.only_b)}"]
        for d in found.differences
    ]
    title = f"A: {found.a.name}, B: {found.b.name}, {len(found.a):,} inputs"
    print_table(title, ["radius", "A certifies", "B certifies", "both", "only A", "only B"], rows)
    print(found)
    if report is not None:
        print(f"{report}: {report.stat().st_size / 1e6:.1f} MB")
