"""A run on disk, as results. It can be opened while it is going on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan
from smoothcert.plans.combined import Combined, looks_seen_by
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.results import Results


@dataclass(frozen=True, eq=False, repr=False)
class Run(Results):
    """The results in a run's folder.

    Args:
        path: The folder.

    The other arguments are those of `Results`. A run always has a noise, a plan and a manifest.
    """

    path: Path = Path()
    noise: Noise = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    manifest: Manifest = field(kw_only=True)

    @property
    def complete(self) -> bool:
        """Whether every input of the run has its certificate.

        A run that is continued has them when it is finished.
        """
        goes_on = bool(self.plan.earlier_plans) and self.manifest.finished is None
        return set(self.id.tolist()) == set(self.manifest.ids) and not goes_on

    def certificates(self) -> Iterator[Certificate]:
        ids = set(self.id.tolist())  # a run that goes on has more by now
        with Journal(self.path) as journal:
            for certificate in journal.certificates(plan=self.plan, noise=self.noise):
                if certificate.id in ids:
                    yield certificate

    def __getitem__(self, id: int) -> Certificate:
        if id not in self:
            return super().__getitem__(id)  # it raises the error
        with Journal(self.path) as journal:
            return journal.certificate(int(id), plan=self.plan, noise=self.noise)

    def split(self) -> list[Results]:
        """For a combined plan: the results that each of its plans would have alone.

        The time of each plan is estimated from its share of the samples. Only a separate run would
        measure it.
        """
        plans = self.plan.plans if isinstance(self.plan, Combined) else (self.plan,)
        shared = list(self.certificates())
        seconds_per_sample = self.total_seconds / max(sum(c.samples for c in shared), 1)
        parts = []
        for plan in plans:
            alone = [_alone(plan, certificate, seconds_per_sample) for certificate in shared]
            manifest = replace(self.manifest, plan=plan)
            parts.append(Results.from_certificates(str(plan), alone, manifest=manifest))
        return parts


def open_run(path: Run | str | Path) -> Run:
    """Open the run in a folder. It does not have to be complete.

    Args:
        path: The folder. A run that is open already is returned as it is.
    """
    if isinstance(path, Run):
        return path
    path = folder_of(path)
    with Journal(path) as journal:
        manifest = journal.manifest()
        columns = journal.columns()
    return Run(
        path.name, **columns, noise=manifest.noise, plan=manifest.plan, manifest=manifest, path=path
    )


def check_has_certificates(run: Run, ids: Iterable[int] = ()) -> None:
    """Refuse a run without certificates, or without those of these inputs."""
    if not len(run):
        raise InvalidInput("no-certificates", "{run} has no certificates yet", run=run.path)
    missing = sorted(set(ids).difference(run.id.tolist()))
    if missing:
        raise InvalidInput(
            "no-certificate",
            "{run} has no certificate of input {id}; it has {count}, for inputs {first} to {last}",
            run=run.path,
            id=missing[0],
            count=len(run),
            first=run.id.min(),
            last=run.id.max(),
        )


def folder_of(run: Results | str | Path) -> Path:
    """The folder of a run, from the run or its folder. Results in memory have none."""
    if isinstance(run, Run):
        return run.path
    if isinstance(run, Results):
        raise InvalidInput(
            "needs-run-on-disk",
            "this needs a run on disk: certify with {out}",
            out=setting("out", "DIR"),
        )
    return Path(run)


def _alone(plan: Plan, shared: Certificate, seconds_per_sample: float) -> Certificate:
    """The certificate that one plan of a combined plan would have alone."""
    looks = looks_seen_by(plan, shared.looks, shared.noise, shared.label)
    alone = Certificate.from_votes(
        looks, plan=plan, noise=shared.noise, id=shared.id, label=shared.label
    )
    return replace(alone, seconds=seconds_per_sample * alone.samples)
