"""The evidence page: the certificates of a run, for an auditor to check and sign."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

from smoothcert._files import read_toml
from smoothcert.errors import InvalidInput
from smoothcert.report.page import inputs_of, write_page
from smoothcert.runs.run import open_run
from smoothcert.statistics.metrics import most_wrong

if TYPE_CHECKING:
    from smoothcert.tasks.audit import Audit


@dataclass(frozen=True)
class About:
    """What the evidence is about, in the words of those who use it.

    Args:
        system: The system that contains the classifier.
        version: The version of the system.
        purpose: What the system is used for.
        signed_by: Who signs the page.
    """

    system: str = ""
    version: str = ""
    purpose: str = ""
    signed_by: str = ""

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The fields of a TOML file."""
        entries = read_toml(path)
        names = [field.name for field in fields(cls)]
        for name, value in entries.items():
            if name not in names or not isinstance(value, str):
                raise InvalidInput(
                    "not-about",
                    "the evidence page is about {names}, each a text; it has no {name} = {value!r}",
                    names=", ".join(names),
                    name=name,
                    value=value,
                )
        return cls(**entries)


def write_evidence(
    folder: str | Path,
    audit: Audit,
    out: str | Path,
    *,
    about: About | None = None,
) -> Path:
    """Write the evidence page of a run.

    It says how many of all inputs have a wrong certificate at most. `certify(joint=True)` divides
    alpha by their number beforehand, so that none is wrong.

    Args:
        folder: The run's folder.
        audit: What an audit of this run found.
        out: The page to write.
        about: System, version, purpose and who signs. What is not given is left blank.

    Returns:
        The path of the page.
    """
    run = open_run(folder)
    certified = [c for c in run.certificates() if c.prediction is not None]
    return write_page(
        out,
        "evidence.html",
        [run],
        about=about or About(),
        run=run,
        audit=audit,
        certified=certified,
        most_wrong=most_wrong(run.plan.alpha, run.tried)[0],
        **inputs_of([run], None, [c.id for c in certified]),
    )
