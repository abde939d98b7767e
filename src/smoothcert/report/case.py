"""The safety case: one page about the certificates of a run that an auditor can check and sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.report.page import write_page
from smoothcert.report.pictures import pictures_of
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.run import open_run
from smoothcert.statistics.metrics import confidence

if TYPE_CHECKING:
    from smoothcert.tasks.audit import Audit


def write_case(folder: str | Path, audit: Audit, out: str | Path) -> Path:
    """Write the safety case of a run.

    The claim is joint: all certificates of the run hold together with probability 1 - N alpha, for
    its N inputs (Bonferroni). `certify(joint=True)` divides alpha by N beforehand.

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
        each=confidence(run.plan.alpha),
        together=confidence(run.plan.alpha, len(run.manifest.ids)),
        pictures=pictures,
        class_names=class_names,
    )
