"""A safety case: one page about the certificates of named inputs that an auditor can check and sign."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from smoothcert._files import write_whole
from smoothcert.report.page import dataset_of, fill
from smoothcert.report.pictures import picture_of, values_of
from smoothcert.report.wording import class_name
from smoothcert.runs.run import open_run
from smoothcert.statistics.metrics import confidence
from smoothcert.tasks.audit import Audit


def write_case(folder: str | Path, found: Audit, out: str | Path) -> Path:
    """Write the page: what is claimed, on what it rests, how to check it again.

    The claim is joint: all certificates of the run hold together with probability 1 - N alpha, for its N inputs
    (Bonferroni). `certify(joint=True)` divides alpha by N beforehand.

    Args:
        folder: The run's folder.
        found: What an audit of this run found.
        out: The page to write.

    Returns:
        The path of the page.
    """
    run = open_run(folder)
    certified = [c for c in run.certificates() if c.prediction is not None]
    dataset = dataset_of([run])
    page = fill(
        "case.html",
        [],
        [run],
        {},
        run=run,
        audit=found,
        certified=certified,
        each=confidence(run.plan.alpha),
        together=confidence(run.plan.alpha, len(run.manifest.ids)),
        pictures={c.id: picture_of(dataset[c.id][0], values_of([run])) for c in certified} if dataset else {},
        class_name=partial(class_name, names=dataset.class_names if dataset else None),
    )
    write_whole(out, page.encode())
    return Path(out)
