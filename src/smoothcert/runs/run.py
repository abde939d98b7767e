"""A run on disk, as results that can be read while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smoothcert.certificate import Certificate, conclude
from smoothcert.errors import InvalidInput
from smoothcert.noise import Noise
from smoothcert.plans import Plan, Together
from smoothcert.plans.base import describe
from smoothcert.plans.together import looks_of
from smoothcert.runs.formats import restore
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import expand_ids
from smoothcert.runs.results import Results


@dataclass(frozen=True, eq=False, repr=False)
class Run(Results):
    """The results in a run's folder."""

    path: Path = Path()

    @property
    def complete(self) -> bool:
        """Whether every input that was asked for has its certificate."""
        return set(self.id.tolist()) == set(expand_ids(self.manifest["ids"]))

    def certificates(self) -> Iterator[Certificate]:
        """The full records, votes included."""
        with Journal(self.path) as journal:
            yield from journal.certificates(plan=self.plan, noise=self.noise)  # type: ignore[arg-type]

    def split(self) -> list[Results]:
        """Of a run with plans `Together`: what each of them would have certified alone.

        The time of each is its share of the samples; only a run of its own measures it.
        """
        shared = list(self.certificates())
        pace = self.total_seconds / max(sum(c.samples for c in shared), 1)
        plans = self.plan.plans if isinstance(self.plan, Together) else (self.plan,)
        return [
            Results.from_certificates(
                str(plan),
                [_alone(plan, c, pace) for c in shared],
                manifest=dict(self.manifest) | {"plan": describe(plan)},
            )
            for plan in plans
            if plan is not None
        ]

    def table(self) -> str:
        """The run's row as `smoothcert table` prints it."""
        from smoothcert.table import compare

        return compare([self]).render()


def read_settings(journal: Journal) -> tuple[dict[str, Any], Plan, Noise]:
    """A run's manifest, and the plan and noise in it."""
    if not (manifest := journal.read_manifest()):
        raise InvalidInput(f"{journal.path} is empty: its run stopped before it began; certify into it again")
    if missing := [key for key in ("plan", "noise", "seed", "ids") if manifest.get(key) is None]:
        raise InvalidInput(f"{journal.path} is damaged: its manifest has no {', '.join(missing)}")
    try:
        return manifest, restore(manifest["plan"]), restore(manifest["noise"])
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{journal.path}: its plan or noise cannot be read: {error}") from None


def _alone(plan: Plan, shared: Certificate, seconds_per_sample: float) -> Certificate:
    looks = looks_of(plan, shared.looks, shared.noise)
    alone = conclude(looks, plan=plan, noise=shared.noise, id=shared.id, label=shared.label)
    return replace(alone, seconds=seconds_per_sample * alone.samples)


def open_run(path: str | Path) -> Run:
    """The run in a folder, finished or not."""
    path = Path(path)
    with Journal(path) as journal:
        manifest, plan, noise = read_settings(journal)
        certificates = list(journal.certificates(plan=plan, noise=noise))
    columns = Results.from_certificates(path.name, certificates)
    return Run(name=path.name, **columns.columns, noise=noise, plan=plan, manifest=manifest, path=path)
