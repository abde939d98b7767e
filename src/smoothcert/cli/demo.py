"""`smoothcert demo`: certify bundled images with a bundled model, and write a report."""

from __future__ import annotations

from pathlib import Path

from smoothcert.cli.options import Folder, Json, print_json

_RADII = (0.0, 0.25, 0.5)


def command(*, out: Folder = Path("runs/demo"), json: Json = False) -> None:
    """Certify 500 bundled images with a bundled model: fixed, input-specific, and at chosen radii by two bounds.

    Args:
        out: The folder for the runs and the report.
    """
    from smoothcert.noises import Gaussian
    from smoothcert.plans import AtRadii, Fixed, InputSpecific
    from smoothcert.report import write_report
    from smoothcert.runs.table import table
    from smoothcert.tasks.certify import certify

    plans = {
        "fixed": Fixed(10_000),
        "input-specific": InputSpecific(10_000, decline=0.05),
        "radii": AtRadii(_RADII, 10_000, known_labels=True),
        "radii-runner-up": AtRadii(_RADII, 10_000, known_labels=True, bound="runner-up"),
    }
    runs = [
        certify("fashion-cnn", "fashion-mnist", noise=Gaussian(0.25), plan=plan, out=out / name)
        for name, plan in plans.items()
    ]
    rows = table(runs, radii=_RADII)
    page = write_report(runs, out / "report.html", radii=_RADII)
    if json:
        print_json(rows.plain())
        return
    print(rows.render())
    fixed, _, radii, _ = (run.average_samples or 1 for run in runs)
    print(f"The table of certified accuracy at three radii took {fixed / radii:.0f} times fewer samples than usual.")
    print(f"The report is {page}: open it in a browser.")
