"""A run on disk, as results that can be read while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.certificate import Certificate
from smoothcert.errors import InvalidInput
from smoothcert.noise import Noise
from smoothcert.plans.base import Plan
from smoothcert.runs.formats import restore
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import expand_ids
from smoothcert.runs.results import Results


@dataclass(frozen=True, eq=False)
class Run(Results):
    """The results in a run's folder."""

    path: Path = Path()

    @property
    def complete(self) -> bool:
        """Whether every input that was asked for has its certificate."""
        return len(self) == len(expand_ids(self.manifest["ids"]))

    def certificates(self) -> Iterator[Certificate]:
        """The full records, votes included."""
        with Journal(self.path) as journal:
            yield from journal.certificates(plan=self.plan, noise=self.noise)  # type: ignore[arg-type]

    def table(self) -> str:
        """The run's row as `smoothcert table` prints it."""
        from smoothcert.table import compare

        return compare([self]).render()


def read_settings(journal: Journal) -> tuple[dict[str, Any], Plan, Noise]:
    """A run's manifest, and the plan and noise in it."""
    if not (manifest := journal.read_manifest()):
        raise InvalidInput(f"{journal.path} is empty: its run stopped before it began; certify into it again")
    return manifest, restore(manifest["plan"]), restore(manifest["noise"])


def open_run(path: str | Path) -> Run:
    """The run in a folder, finished or not."""
    path = Path(path)
    with Journal(path) as journal:
        manifest, plan, noise = read_settings(journal)
        certificates = list(journal.certificates(plan=plan, noise=noise))
    columns = Results.from_certificates(path.name, certificates)
    return Run(name=path.name, **columns.columns, noise=noise, plan=plan, manifest=manifest, path=path)
