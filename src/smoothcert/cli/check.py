"""Commands that check a run: `audit`, `attack` and `gate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smoothcert._files import check_output, write_output
from smoothcert.cli.command import Group, Output, Table
from smoothcert.cli.options import PlaceOptions, numbers
from smoothcert.errors import number_of


def audit(
    run: Path,
    *,
    places: PlaceOptions,
    redraw: int = 5,
    seed: int | None = None,
    page: Path | None = None,
) -> Output:
    """Derive every radius again from its votes, draw some inputs again, and say whether the plan keeps its alpha.

    The exit code is 1 if a certificate does not hold or if the plan breaks its alpha.

    Args:
        run: The run's folder.
        redraw: How many randomly chosen inputs to draw again.
        seed: Chooses the inputs to draw again. Default: others each time.
        page: Also write a safety case: one page with the claim, its basis and this audit.
    """
    from smoothcert.runs.run import open_run
    from smoothcert.runs.words import all_together
    from smoothcert.tasks.audit import audit, write_case

    if page is not None:
        check_output(page, reads=places.settings().values())
    found = audit(run, redraw=redraw, seed=seed, **places.settings())
    if page is not None:
        write_case(run, found, page)
    shown = [f"input {finding.id}: {finding.reason}" for finding in found.findings]
    outcome = f"{len(found.findings)} do NOT hold"
    if not found.findings:
        outcome = "all radii follow from their votes"
        if found.keeps_alpha:
            outcome = all_together(open_run(run)) or "all hold"
    checked = f"{found.checked} of " if found.checked < found.asked else ""
    checked += number_of(max(found.checked, found.asked), "certificate")
    labels = (
        "" if found.labels_checked else " (labels not compared, because the data was not found)"
    )
    if not found.plans_checked:
        shown.append(
            "The clock of version 1.0 decided about the plans of this budget, so they cannot be "
            "derived again: nothing is known about their alpha."
        )
    shown.append(f"{run}: {checked} checked{labels}, {found.redrawn} drawn again: {outcome}.")
    shown.append(
        "Nothing is known about the alpha of the plan."
        if found.coverage is None
        else found.coverage.sentence
    )
    return Output(found.plain(), shown, code=0 if found.holds else 1)


@dataclass(frozen=True)
class SearchOptions(Group):
    """How changes are searched.

    Args:
        norm: Default: the norm of the certificates.
        ids: Attack these inputs, as in 0,5,10-20. Default: all.
        limit: Attack at most this many inputs.
        steps: Steps of gradient ascent in an attempt.
        copies: Noisy copies over which a gradient is averaged.
        attempts: Searches for each input.
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
    from statistics import median

    from rich.console import Console
    from rich.progress import Progress

    from smoothcert.tasks.attack import attack

    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("attacked inputs", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        found = attack(run, progress=show, **search.settings(), **places.settings())
    plain = found.plain(numbers("--radii", radii))
    accuracies = zip(
        plain["radii"], plain["certified_accuracy"], plain["attacked_accuracy"], strict=True
    )
    table = Table(
        f"{run}, changes in {found.norm}",
        ["r", "certified", "not broken by attacks"],
        [
            [f"{radius:g}", f"{proved:.1%}", f"{survived:.1%}"]
            for radius, proved, survived in accuracies
        ],
        caption=f"{number_of(len(found), 'input')}. The truth lies between the two columns.",
    )
    shown: list[str | Table] = [table]
    if altered := [length for length in plain["smallest_change"].values() if length]:
        figures = f"smallest change {min(altered):.3f}, median {median(altered):.3f}"
        shown.append(f"answers altered: {len(altered)}; {figures}")
    broken = "no input was broken within its certified radius"
    if len(found.broken):
        listed = ", ".join(map(str, found.broken[:10]))
        broken = f"{len(found.broken)} broken WITHIN the certified radius (alpha allows some): inputs {listed}"
    return Output(plain, [*shown, broken])


def gate(
    run: Path,
    *,
    policy: Path,
    places: PlaceOptions,
    baseline: Path | None = None,
    junit: Path | None = None,
) -> Output:
    """Check a run against a policy. The exit code is 0 if it passes, 1 if it fails and 3 if that cannot be decided.

    Args:
        run: The run's folder.
        policy: The rules, a TOML file.
        baseline: The run to compare with, if it is not the one that the policy names.
        junit: Also write the outcome as JUnit XML.
    """
    from smoothcert.tasks.gate import gate

    if junit is not None:
        check_output(junit, reads=[policy, *places.settings().values()])
    found = gate(run, policy, baseline=baseline, **places.settings())
    if junit is not None:
        write_output(junit, found.junit())
    shown = [f"{rule.outcome:<9}  {rule.name}: {rule.reason}" for rule in found.rules]
    shown.append(
        f"{run}: {found.outcome}" + (" with so few inputs" if found.outcome == "undecided" else "")
    )
    return Output(
        found.plain(), shown, code={"passes": 0, "fails": 1, "undecided": 3}[found.outcome]
    )
