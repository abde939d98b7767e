"""A run on disk: as results, and open for writing.

Results can be opened while a run is going on. A run has one writer at a time. The writer opens the
journal once and reads what is recorded then. It remembers the numbers of all certificates that it
keeps, so it does not read them back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert._files import exclusive
from smoothcert._registry import check_settings
from smoothcert.errors import InvalidInput, either
from smoothcert.noises import Noise
from smoothcert.plans import BettingRadii, Certificate, Look, Plan
from smoothcert.plans.combined import Combined, looks_seen_by
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest, circumstances
from smoothcert.runs.results import COLUMNS, Results, columns_of, numbers_of
from smoothcert.runs.summary import sensitive_place

if TYPE_CHECKING:
    from smoothcert.executors.base import Status


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

    def certificates(self) -> Iterator[Certificate]:
        ids = set(self.id.tolist())  # a run that goes on has more by now
        with Journal(self.path) as journal:
            for certificate in journal.certificates(self.manifest):
                if certificate.id in ids:
                    yield certificate

    def __getitem__(self, id: int) -> Certificate:
        if id not in self:
            return super().__getitem__(id)  # it raises the error
        with Journal(self.path) as journal:
            return journal.certificate(int(id), self.manifest)

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
            "this needs a run on disk: certify with `out=DIR`",
        )
    if not isinstance(run, (str, Path)):
        raise InvalidInput(
            "not-one-run", "expected a run or its folder, got {type}", type=type(run).__name__
        )
    return Path(run)


def _alone(plan: Plan, shared: Certificate, seconds_per_sample: float) -> Certificate:
    """The certificate that one plan of a combined plan would have alone."""
    looks = looks_seen_by(plan, shared.looks, shared.noise, shared.label)
    alone = Certificate.from_votes(
        looks, plan=plan, noise=shared.noise, id=shared.id, label=shared.label
    )
    return replace(alone, seconds=seconds_per_sample * alone.samples)


_MOVABLE = ("data", "in_memory", "weights", "denoiser")
"""Entries of the manifest that say where things are. They may change between two calls."""


@contextmanager
def locked_journal(out: str | Path) -> Iterator[Journal]:
    """The journal in a folder, for the only process that writes into this folder."""
    with exclusive(out) as folder, Journal(folder, write=True) as journal:
        yield journal


@contextmanager
def open_writer(out: str | Path) -> Iterator[RunWriter]:
    """The run in a folder, open for writing. A folder without a run gets a new one."""
    with locked_journal(out) as journal:
        yield RunWriter(journal)


class RunWriter:
    """A run that is open for writing.

    Args:
        journal: Its journal.
    """

    manifest: Manifest
    """The manifest of the run as it goes on, from `begin` on."""

    def __init__(self, journal: Journal) -> None:
        self.folder = journal.path.parent
        self._journal = journal
        self._opened_with = journal.columns()
        self._new_rows: dict[int, list[Any]] = {}
        self._changing_entries: dict[str, Any] = {}
        self._of_earlier_plans: dict[int, Certificate] = {}
        # A run without certificates has no settings to keep.
        has_certificates = len(self._opened_with["id"]) > 0
        self.recorded = journal.manifest() if has_certificates else None

    @property
    def ids(self) -> set[int]:
        """The inputs that have a certificate."""
        return {*self._opened_with["id"].tolist(), *self._new_rows}

    def begin(self, wanted: Manifest) -> None:
        """Begin a run, or continue the recorded one; other settings than recorded are refused."""
        if self.recorded is None:
            about = {**wanted.circumstances, **circumstances()}
            self.manifest = replace(wanted, circumstances=about, started=_now())
            self._journal.write_manifest(self.manifest.plain())
            return
        self.manifest = continued(wanted, self.recorded, self.folder, self.ids)
        plan = self.manifest.plan
        if not plan.earlier_plans:
            return
        if self.recorded.plan in plan.earlier_plans:
            self._journal.keep_plans(self.recorded.plan)
        certificates = self._journal.certificates(self.manifest)
        self._of_earlier_plans = {c.id: c for c in certificates if c.plan != plan}

    def votes_to_continue(self, ids: Collection[int]) -> dict[int, Sequence[Look]]:
        """The votes of inputs that were certified by an earlier plan of a run that goes on."""
        earlier = self._of_earlier_plans
        return {id: earlier[id].looks for id in ids if id in earlier}

    def left(self, ids: Iterable[int]) -> list[int]:
        """Of these inputs, those that have no certificate, or only one of an earlier plan."""
        done = self.ids.difference(self._of_earlier_plans)
        return [id for id in ids if id not in done]

    def start(self, *, batch: int, compile: str) -> None:
        """Record how the classifier is run, before the first sample. It must run as before."""
        before = self.manifest
        if before.batch and (batch, compile) != (before.batch, before.compile):
            raise InvalidInput(
                "other-runtime",
                "the run was begun with batch {batch_there}, compiled: {compile_there}, and would "
                "go on with batch {batch}, compiled: {compile}; choose another `out=DIR`",
                batch_there=before.batch,
                compile_there=before.compile,
                batch=batch,
                compile=compile,
            )
        self.manifest = replace(before, batch=batch, compile=compile, finished=None)
        self._journal.write_manifest(self.manifest.plain())

    def record(self, **entries: Any) -> None:
        """Change entries of the manifest."""
        self.manifest = replace(self.manifest, **entries)
        plain = self.manifest.plain()
        self._journal.write_manifest({name: plain[name] for name in entries})

    def keep(self, certificates: Iterable[Certificate], status: Status) -> None:
        """Keep certificates that were finished together, and how far the executor is."""
        lowest, highest = self.manifest.values or (status.lowest, status.highest)
        self._changing_entries = {
            "forwarded": self.manifest.forwarded + status.forwarded,
            "values": (min(lowest, status.lowest), max(highest, status.highest)),
        }
        has_budget = self.manifest.budget is not None
        may_differ = has_budget or bool(self.manifest.plan.earlier_plans)
        with self._journal.transaction():
            for certificate in certificates:
                earlier = self._of_earlier_plans.get(certificate.id)
                if earlier is not None:
                    seconds = certificate.seconds + earlier.seconds
                    certificate = replace(certificate, seconds=seconds)
                self._journal.add(certificate, self._changing_entries, own_plan=may_differ)
                self._new_rows[certificate.id] = numbers_of(certificate)
                self._of_earlier_plans.pop(certificate.id, None)

    def leave_out(self, id: int) -> None:
        """Record that an input cannot be read. The next call leaves it out, unless it names it."""
        self.record(unreadable=tuple(sorted({*self.manifest.unreadable, id})))

    def finish(self) -> None:
        """Record the inputs of the run and, if all have certificates, when it was finished."""
        finished = None
        if not self.left(self.manifest.ids):
            finished = self.manifest.finished or _now()
        self.record(
            ids=self.manifest.ids,
            unreadable=self.manifest.unreadable,
            finished=finished,
        )

    def results(self) -> Run:
        """The run with the certificates that it has now."""
        new = columns_of(self._new_rows.values())
        untouched = ~np.isin(self._opened_with["id"], list(self._new_rows))
        columns: dict[str, Any] = {
            name: np.concatenate([self._opened_with[name][untouched], new[name]])
            for name in COLUMNS
        }
        manifest = replace(self.manifest, **self._changing_entries)
        return Run(
            self.folder.name,
            **columns,
            noise=manifest.noise,
            plan=manifest.plan,
            manifest=manifest,
            path=self.folder,
        )

    def finished_before(self) -> Run:
        """The run without the inputs that a new plan continues."""
        results = self.results()
        return results.only(~np.isin(results.id, list(self._of_earlier_plans)))

    def certificates(self) -> Iterator[Certificate]:
        """The certificates that the run had when it was opened."""
        return self._journal.certificates(self.manifest)

    def sensitive_input(self) -> Certificate:
        """A cheap input with divided votes. If the classifier changes, its votes change first."""
        results = self.results()
        id = int(results.id[sensitive_place(results)])
        return self._journal.certificate(id, self.manifest)


def continued(
    wanted: Manifest, recorded: Manifest, folder: Path, done: Collection[int]
) -> Manifest:
    """The manifest of a recorded run that goes on, with all inputs that it has or will have.

    Inputs that could not be read are left out unless they are asked for again, or `done` already.
    """
    if recorded.plan in wanted.plan.earlier_plans:
        recorded = replace(recorded, plan=wanted.plan, finished=None)
    left_out = set(recorded.unreadable).difference(wanted.ids, done)
    ids = tuple(id for id in recorded.ids if id not in left_out)
    recorded = replace(recorded, ids=ids, unreadable=tuple(sorted(left_out)))
    _check_same_settings(wanted, recorded, folder)
    if wanted.budget is not None and set(recorded.ids) != set(wanted.ids):
        raise InvalidInput(
            "budget-for-other-inputs",
            "{folder} has a budget for {inputs:,} inputs: certify the same ones",
            folder=folder,
            inputs=len(recorded.ids),
        )
    if wanted.budget is not None and recorded.spending is None:
        raise InvalidInput(
            "budget-without-spending",
            "{folder} is damaged: it has a budget, and does not say how much of it is spent; "
            "choose another `out=DIR`",
            folder=folder,
        )
    places = {name: getattr(wanted, name) for name in _MOVABLE}
    ids = wanted.ids
    if not set(recorded.ids) <= set(wanted.ids):
        ids = recorded.ids
    copies = tuple(sorted({*wanted.copies, *recorded.copies}))
    shard = wanted.shard or recorded.shard
    return replace(recorded, **places, shard=shard, ids=ids, copies=copies)


def _check_same_settings(wanted: Manifest, recorded: Manifest, folder: Path) -> None:
    """Refuse to continue a run with other settings; say so where another plan could go on."""
    differing = wanted.differences(recorded)
    # The stages of a plan that goes on follow from its other settings.
    differing = [name for name in differing if not name.startswith("plan.earlier")] or differing
    hint = ""
    if differing and all(name.startswith(("plan.samples", "plan.radii")) for name in differing):
        plan = _plan_that_goes_on(wanted.plan)
        hint = f" ({plan} goes on with more samples, or with radii above its largest)"
    check_settings(folder, differing, what="run", hint=hint)


def _plan_that_goes_on(plan: Plan) -> str:
    if isinstance(plan, BettingRadii):
        return "this plan"
    rule = either('AtRadii(..., bound="runner-up")', "--method radii --bound runner-up")
    return f"only {rule}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
