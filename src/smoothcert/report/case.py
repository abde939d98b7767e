"""The safety case: one page about the certificates of a run that an auditor can check and sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.report.page import write_page
from smoothcert.report.pictures import pictures_of
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.run import open_run

if TYPE_CHECKING:
    from smoothcert.tasks.audit import Audit


def write_case(folder: str | Path, audit: Audit, out: str | Path) -> Path:
    """Write the safety case of a run.

    It says how many of all inputs have a wrong certificate at most. `certify(joint=True)` divides
    alpha by their number beforehand, so that none is wrong.

    Args:
        folder: The run's folder.
        audit: What an audit of this run found.
        out: The page to write.

    Returns:
        The path of the page.
    """
    run = open_run(folder)
    certified = [c for c in run.certificates() if c.prediction is not None]
    dataset = dataset_of([run.manifest])
    pictures = {}
    class_names = None
    if dataset is not None:
        pictures = pictures_of(dataset, [run], [c.id for c in certified])
        class_names = dataset.class_names
    return write_page(
        out,
        "case.html",
        [run],
        run=run,
        audit=audit,
        certified=certified,
        pictures=pictures,
        class_names=class_names,
    )
