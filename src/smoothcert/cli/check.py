"""Commands that check a run: `audit`, `attack` and `gate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import Progress

import smoothcert as sc
from smoothcert._files import check_output, write_output
from smoothcert.cli.command import Group, Output, Table
from smoothcert.cli.options import PlaceOptions, numbers
from smoothcert.errors import number_of

if TYPE_CHECKING:
    from smoothcert.tasks.audit import Audit

_GATE_CODES = {"passes": 0, "fails": 1, "undecided": 3}
_MOST_LISTED = 10  # inputs that an attack has broken


def audit(
    run: Path,
    *,
    places: PlaceOptions,
    redraw: int = 5,
    seed: int | None = None,
    evidence: Path | None = None,
    about: Path | None = None,
) -> Output:
    """Derive every radius again from its votes, draw some inputs again, and check the plan's alpha.

    The exit code is 1 if a certificate does not hold or if the plan breaks its alpha.

    Args:
        run: The run's folder.
        redraw: How many randomly chosen inputs to draw again.
        seed: Chooses the inputs to draw again. Default: others each time.
        evidence: Also write an evidence page: the claim, its basis, and this audit.
        about: A TOML file with system, version, purpose and signed_by, for the evidence page.
    """
    from smoothcert.report.evidence import About, write_evidence

    fields = None if about is None else About.read(about)
    if evidence is not None:
        check_output(evidence, reads=[about, *places.settings().values()])
    result = sc.audit(run, redraw=redraw, seed=seed, **places.settings())
    if evidence is not None:
        write_evidence(run, result, evidence, about=fields)
    return Output(result.plain(), _audit_lines(run, result), code=0 if result.holds else 1)


def _audit_lines(run: Path, audit: Audit) -> Iterator[str]:
    """What an audit found, in words."""
    for finding in audit.findings:
        yield f"input {finding.id}: {finding.reason}"
    checked = number_of(max(audit.checked, audit.asked), "certificate")
    if audit.checked < audit.asked:
        checked = f"{audit.checked} of {checked}"
    labels = ""
    if not audit.labels_checked:
        labels = " (labels not compared, because the data was not found)"
    if not audit.plans_checked:
        yield (
            "The clock of version 1.0 decided about the plans of this budget, so they cannot be "
            "derived again: nothing is known about their alpha."
        )
    drawn = f"{audit.redrawn} drawn again"
    yield f"{run}: {checked} checked{labels}, {drawn}: {_audit_outcome(run, audit)}."
    yield from _beside_certificates(audit)
    if not audit.plans_checked:
        return
    if audit.coverage is None:
        yield "Nothing is known about the alpha of the plan."
    else:
        yield audit.coverage.sentence


def _beside_certificates(audit: Audit) -> Iterator[str]:
    if audit.questions:
        yield f"Its answers to {number_of(audit.questions, 'question')} were checked, too."
    if audit.left_out:
        yield f"Inputs that are unreadable and left out: {audit.left_out:,}."


def _audit_outcome(run: Path, audit: Audit) -> str:
    from smoothcert.runs.words import all_together

    if audit.findings:
        return f"{len(audit.findings)} do NOT hold"
    outcome = "all radii follow from their votes"
    if audit.keeps_alpha:
        outcome += f"; {all_together(sc.open_run(run))}"
    return outcome


@dataclass(frozen=True)
class SearchOptions(Group):
    """How changes are searched.

    Args:
        norm: Default: the norm of the certificates.
        ids: Attack these inputs, as in 0,5,10-20. Default: all.
        limit: Attack at most this many inputs.
        steps: Steps of gradient ascent in an attempt.
        copies: Noisy copies over which a gradient is averaged.
        attempts: Searches for each input, by gradients and by votes.
        samples: The most samples to decide whether an attempt succeeded.
        alpha: The largest probability to call an input broken that is not.
        restart: Attack again, with other settings. Earlier results are deleted.
    """

    norm: Literal["l1", "l2", "linf"] | None = None
    ids: str | None = None
    limit: int | None = None
    steps: int = 20
    copies: int = 16
    attempts: int = 8
    samples: int = 10_000
    alpha: float = 0.001
    restart: bool = False


def attack(
    run: Path, *, places: PlaceOptions, search: SearchOptions, radii: str | None = None
) -> Output:
    """Search the smallest change of each input that alters the answer. Run it again to resume.

    Args:
        run: The run's folder.
        radii: Radii to show, separated by commas.
    """
    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("attacked inputs", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        attacks = sc.attack(run, progress=show, **search.settings(), **places.settings())
    plain = attacks.plain(numbers("--radii", radii))
    return Output(plain, _attack_lines(run, attacks, plain))


def _attack_lines(run: Path, attacks: sc.Attacks, plain: dict[str, Any]) -> Iterator[str | Table]:
    """What attacks achieved, in words."""
    accuracies = (plain["certified_accuracy"], plain["attacked_accuracy"])
    yield Table(
        f"{run}, changes in {attacks.norm}",
        ["r", "certified", "not broken by attacks"],
        [
            [f"{radius:g}", f"{certified:.1%}", f"{attacked:.1%}"]
            for radius, certified, attacked in zip(plain["radii"], *accuracies, strict=True)
        ],
        caption=f"{number_of(len(attacks), 'input')}. The truth lies between the two columns.",
    )
    lengths = [length for length in plain["smallest_change"].values() if length]
    if lengths:
        shortest = f"smallest change {min(lengths):.3f}, median {median(lengths):.3f}"
        yield f"answers altered: {len(lengths)}; {shortest}"
    if len(attacks.broken):
        count = f"{len(attacks.broken)} broken WITHIN the certified radius (alpha allows some)"
        yield f"{count}: inputs {', '.join(map(str, attacks.broken[:_MOST_LISTED]))}"
    else:
        yield "no input was broken within its certified radius"


def gate(
    run: Path,
    *,
    policy: Path,
    places: PlaceOptions,
    baseline: Path | None = None,
    junit: Path | None = None,
) -> Output:
    """Check a run against a policy.

    The exit code is 0 if it passes, 1 if it fails and 3 if that cannot be decided.

    Args:
        run: The run's folder.
        policy: The rules, a TOML file.
        baseline: The run to compare with, if it is not the one that the policy names.
        junit: Also write the outcome as JUnit XML.
    """
    if junit is not None:
        check_output(junit, reads=[policy, *places.settings().values()])
    result = sc.gate(run, policy, baseline=baseline, **places.settings())
    if junit is not None:
        write_output(junit, result.junit())
    lines = [f"{rule.outcome:<9}  {rule.name}: {rule.reason}" for rule in result.rules]
    few = " with so few inputs" if result.outcome == "undecided" else ""
    lines.append(f"{run}: {result.outcome}{few}")
    lines.append(result.guaranteed)
    return Output(result.plain(), lines, code=_GATE_CODES[result.outcome])
