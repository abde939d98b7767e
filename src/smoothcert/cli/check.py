"""Commands that check a run: `audit`, `attack` and `gate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress

import smoothcert as sc
from smoothcert._files import check_output, write_output
from smoothcert._text_table import TextTable
from smoothcert.cli.command import Output
from smoothcert.cli.options import PlaceOptions
from smoothcert.errors import InvalidInput, number_of

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
    check_output(evidence, reads=[about, *vars(places).values()])
    result = sc.audit(run, redraw=redraw, seed=seed, **vars(places))
    lines = [str(result)]
    if evidence is not None:
        lines.append(f"{write_evidence(run, result, evidence, about=fields)}: the evidence page")
    return Output(result.plain(), lines, code=0 if result.holds else 1)


@dataclass(frozen=True)
class SearchOptions:
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
    run: Path, *, places: PlaceOptions, search: SearchOptions, radii: Sequence[float] | None = None
) -> Output:
    """Search the smallest change of each input that alters the answer. Run it again to resume.

    Args:
        run: The run's folder.
        radii: Radii to show.
    """
    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("attacked inputs", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        attacks = sc.attack(run, progress=show, **vars(search), **vars(places))
    plain = attacks.plain(radii)
    return Output(plain, _attack_lines(run, attacks, plain))


def _attack_lines(
    run: Path, attacks: sc.Attacks, plain: dict[str, Any]
) -> Iterator[str | TextTable]:
    """What attacks achieved, in words."""
    accuracies = (plain["certified_accuracy"], plain["attacked_accuracy"])
    yield TextTable(
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
    policy: Path | None = None,
    init: Path | None = None,
    places: PlaceOptions,
    baseline: Path | None = None,
    junit: Path | None = None,
) -> Output:
    """Check a run against a policy.

    The exit code is 0 if it passes, 1 if it fails and 3 if that cannot be decided.

    Args:
        run: The run's folder.
        policy: The rules, a TOML file.
        init: Write rules that this run passes to this file, with comments, and stop.
        baseline: The run to compare with, if it is not the one that the policy names.
        junit: Also write the outcome as JUnit XML.
    """
    if init is not None:
        return _written_policy(run, init)
    if policy is None or not policy.exists():
        raise InvalidInput(
            "no-policy",
            "there is no policy: give --policy FILE with the rules; "
            "smoothcert gate {run} --init {policy} writes one",
            run=run,
            policy=policy or "policy.toml",
        )
    check_output(junit, reads=[policy, *vars(places).values()])
    result = sc.gate(run, policy, baseline=baseline, **vars(places))
    if junit is not None:
        write_output(junit, result.junit())
    lines = [f"{rule.outcome:<9}  {rule.name}: {rule.reason}" for rule in result.rules]
    few = " with so few inputs" if result.outcome == "undecided" else ""
    lines.append(f"{run}: {result.outcome}{few}")
    if result.guaranteed:
        lines.append(typer.style(result.guaranteed, bold=True))
    return Output(result.plain(), lines, code=_GATE_CODES[result.outcome])


def _written_policy(run: Path, file: Path) -> Output:
    from smoothcert.tasks.gate import policy_for

    if file.exists():
        raise InvalidInput(
            "policy-exists", "{file} exists already: name a new file with --init", file=file
        )
    write_output(file, policy_for(run).encode())
    line = f"{file}: set its numbers, then run smoothcert gate {run} --policy {file}"
    return Output({"policy": str(file)}, [line])
