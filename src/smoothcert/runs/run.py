"""A run on disk, as results, and what it found and took in a few lines. It can be opened while it is going on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan
from smoothcert.plans.combined import Combined, looks_seen_by
from smoothcert.plans.coverage import caveat
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.results import Results, usual_radii
from smoothcert.statistics.metrics import confidence, round_down

_MOST_RADII = 5
_MUCH = Decimal("0.99")


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
        """Whether every input of the run has its certificate. A run that is continued has them when it is finished."""
        continued = bool(self.plan.earlier_plans) and self.manifest.finished is None
        return set(self.id.tolist()) == set(self.manifest.ids) and not continued

    def certificates(self) -> Iterator[Certificate]:
        known = set(self.id.tolist())  # a run that goes on has more by now
        with Journal(self.path) as journal:
            yield from (
                c for c in journal.certificates(plan=self.plan, noise=self.noise) if c.id in known
            )

    def __getitem__(self, id: int) -> Certificate:
        if id not in self:
            return super().__getitem__(id)  # it raises the error
        with Journal(self.path) as journal:
            return journal.certificate(int(id), plan=self.plan, noise=self.noise)

    def split(self) -> list[Results]:
        """For a combined plan: the results that each of its plans would have alone.

        The time of each plan is estimated from its share of the samples. Only a separate run would measure it.
        """
        shared = list(self.certificates())
        pace = self.total_seconds / max(sum(c.samples for c in shared), 1)
        plans = self.plan.plans if isinstance(self.plan, Combined) else (self.plan,)
        return [
            Results.from_certificates(
                str(plan),
                [_alone(plan, c, pace) for c in shared],
                manifest=replace(self.manifest, plan=plan),
            )
            for plan in plans
        ]

    def table(self) -> str:
        """The run's row as `smoothcert table` prints it."""
        from smoothcert.runs.table import table  # that module imports this one

        return table([self]).render()


def open_run(path: Run | str | Path) -> Run:
    """Open the run in a folder. It does not have to be complete.

    Args:
        path: The folder. A run that is open already is returned as it is.
    """
    if isinstance(path, Run):
        return path
    path = folder_of(path)
    with Journal(path) as journal:
        manifest, columns = journal.manifest(), journal.columns()
    return Run(
        path.name, **columns, noise=manifest.noise, plan=manifest.plan, manifest=manifest, path=path
    )


def folder_of(run: Results | str | Path) -> Path:
    """The folder of a run, from the run or its folder. Results in memory have none, and are refused."""
    if isinstance(run, Run):
        return run.path
    if isinstance(run, Results):
        raise InvalidInput(f"this needs a run on disk: certify with {setting('out', 'DIR')}")
    return Path(run)


def summary(run: Run, *, radii: Sequence[float] | None = None, seconds: float | None = None) -> str:
    """Certified accuracy, or the radii where there are no labels; abstentions, samples and time.

    Args:
        run: The run.
        radii: The radii r of certified accuracy. Default: those that the plan decides, or a few steps.
        seconds: How long the whole command took, if that is known.
    """
    asked = "" if run.complete else f" of {run.asked:,}"
    without = "not certified" if run.plan.known_labels else "abstained"
    decided = " at the decided radii" if run.decided_radii else ""
    lines = [
        f"{run.path}: {len(run):,}{asked} input{'' if len(run) == 1 else 's'}, {int(run.abstained.sum()):,} {without}"
        + (f", ACR {round_down(run.acr)}{decided} ({run.noise.norm})" if run.labelled else "")
        + (
            f", {run.unlabelled:,} without a label counted as 0"
            if run.labelled and run.unlabelled
            else ""
        )
        + (f", {run.left_out:,} unreadable and left out" if run.left_out else "")
    ]
    if run.labelled:
        steps = usual_radii([run])
        radii = radii or run.decided_radii or (steps if len(steps) <= _MOST_RADII else steps[::2])
        shares = zip(radii, run.certified_accuracy(radii), strict=True)
        lines.append(
            "certified accuracy: "
            + ", ".join(f"{share:.1%} at radius {radius:g}" for radius, share in shares)
        )
    elif run.certified_radii is not None:
        figures = ", ".join(
            f"{name} {round_down(value)}" for name, value in run.certified_radii.items()
        )
        lines.append(f"certified radius ({run.noise.norm}): {figures}")
    lines.append(
        f"{int(run.samples.sum()):,} samples, {run.average_samples or 0:,.0f} per input"
        + (f", in {run.manifest.dtype}" if run.manifest.dtype else "")
        + f"; all sampling took {run.total_seconds:.1f} s"
        + (f", this command {seconds:.1f} s" if seconds is not None else "")
    )
    if about_all := caveat(run.plan) or all_together(run):
        lines.append(about_all)
    if missing := int(run.missing.sum()):
        lines.append(f"{missing:,} outputs were not finite or no class, and counted for none")
    return "\n".join(lines)


def all_together(run: Run) -> str:
    """The sentence about all certificates at once, where it says much: for few inputs, or with --joint."""
    together = confidence(run.plan.alpha, run.asked)
    return (
        f"all certificates hold together with confidence {together:%}" if together > _MUCH else ""
    )


def _alone(plan: Plan, shared: Certificate, seconds_per_sample: float) -> Certificate:
    """The certificate that one plan of a combined plan would have alone."""
    looks = looks_seen_by(plan, shared.looks, shared.noise, shared.label)
    alone = Certificate.from_votes(
        looks, plan=plan, noise=shared.noise, id=shared.id, label=shared.label
    )
    return replace(alone, seconds=seconds_per_sample * alone.samples)
