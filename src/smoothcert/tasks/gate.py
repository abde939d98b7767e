"""`gate`: may this model ship? A run is held against a policy, and every rule passes, fails or stays undecided."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack
from xml.etree import ElementTree

import numpy as np
from scipy.special import ndtri

from smoothcert import _check
from smoothcert.errors import InvalidInput, number_of, setting
from smoothcert.plans.coverage import exact_coverage
from smoothcert.runs.comparison import compare_runs
from smoothcert.runs.run import Run, open_run
from smoothcert.runs.words import caveat_of_budget
from smoothcert.statistics.bounds import lower_bound, upper_bound
from smoothcert.statistics.metrics import CONFIDENCE, round_down

if TYPE_CHECKING:
    from smoothcert.tasks.recorded_subject import Places

Outcome = Literal["passes", "fails", "undecided"]
_RULES = ("confidence", "inputs", "alpha", "dtype", "audit", "certified_accuracy", "baseline")


@dataclass(frozen=True)
class Rule:
    """A rule of a policy, checked.

    Args:
        name: What it asks for.
        outcome: What came out. A rule is undecided if more inputs could show that it passes or that it fails.
        reason: Why, in words.
    """

    name: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Gate:
    """The check of a run against a policy.

    Args:
        run: The name of the run.
        rules: All rules in the order of the policy.
    """

    run: str
    rules: tuple[Rule, ...]

    @property
    def outcome(self) -> Outcome:
        """It fails if one rule fails, and passes if all do. Without rules, nothing is decided."""
        outcomes = {rule.outcome for rule in self.rules}
        if "fails" in outcomes:
            return "fails"
        return "passes" if outcomes == {"passes"} else "undecided"

    def plain(self) -> dict[str, Any]:
        """The outcome as a dictionary for JSON."""
        return {
            "run": self.run,
            "outcome": self.outcome,
            "rules": [vars(rule) for rule in self.rules],
        }

    def junit(self) -> bytes:
        """The outcome as JUnit XML. An undecided rule is an error there, not a failure."""
        outcomes = [rule.outcome for rule in self.rules]
        counts = {
            "tests": len(outcomes),
            "failures": outcomes.count("fails"),
            "errors": outcomes.count("undecided"),
        }
        suite = ElementTree.Element(
            "testsuite", {"name": "smoothcert gate", **{k: str(v) for k, v in counts.items()}}
        )
        for rule in self.rules:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"smoothcert.{self.run}", name=rule.name
            )
            if rule.outcome != "passes":
                ElementTree.SubElement(
                    case, "failure" if rule.outcome == "fails" else "error", message=rule.reason
                )
        return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def gate(
    run: Run | str | Path,
    policy: str | Path | Mapping[str, Any],
    *,
    baseline: str | Path | None = None,
    **places: Unpack[Places],
) -> Gate:
    """Check a run against a policy.

    Args:
        run: The run, or its folder.
        policy: A TOML file, or its content as a dictionary. All rules are optional: `inputs` (the least number),
            `alpha` (the largest one, which the plan must provably keep), `dtype` (the number formats allowed), `audit`
            (how many inputs to draw again), `certified_accuracy` (the least percentage by radius), `baseline` (`run`,
            `margin` in points and `radius`) and `confidence` (of what is shown, by default 0.95).
        baseline: The run to compare with, if it is not the one that the policy names, relative to the policy's folder.
        **places: Where model and data are now, for the audit. See `audit`.
    """
    content, folder = (
        (policy, Path())
        if isinstance(policy, Mapping)
        else (_read(Path(policy)), Path(policy).parent)
    )
    if unknown := [name for name in content if name not in _RULES]:
        raise InvalidInput(
            f"the policy has no rule {unknown[0]!r}: choose among {', '.join(_RULES)}"
        )
    if not set(content) - {"confidence"}:
        raise InvalidInput(f"the policy is empty: give at least one of {', '.join(_RULES[1:])}")
    if (
        isinstance(versus := content.get("baseline"), Mapping)
        and baseline is None
        and "run" in versus
    ):
        baseline = folder / str(versus["run"])
    run = open_run(run)
    if not len(run):
        raise InvalidInput(
            "no-certificates",
            "{run} has no certificates yet: there is nothing to check",
            run=run.path,
        )
    return Gate(run.path.name, tuple(_checked(run, content, baseline, places)))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not a policy in TOML: {error}") from None


def _checked(
    run: Run, policy: Mapping[str, Any], baseline: str | Path | None, places: Places
) -> Iterator[Rule]:
    confidence = _check.confidence("confidence", policy.get("confidence", CONFIDENCE))
    if not run.complete:
        yield Rule("the run is finished", "undecided", f"{len(run):,} of {run.asked:,} inputs")
    if run.left_out:
        yield Rule(
            "no input was left out",
            "undecided",
            f"{number_of(run.left_out, 'input')} could not be read",
        )
    if "inputs" in policy:
        least = _check.whole("inputs", policy["inputs"], least=1)
        yield Rule(
            f"at least {number_of(least, 'input')}",
            "passes" if len(run) >= least else "undecided",
            number_of(len(run), "input"),
        )
    if "alpha" in policy:
        alpha = _check.alpha("alpha", policy["alpha"])
        plan = run.plan.primary
        kept = exact_coverage(plan, run.noise)
        keeps = kept.proved and plan.alpha <= alpha
        reason = f"alpha {plan.alpha:g}; does the plan keep it: {kept.verdict}"
        yield Rule(f"alpha at most {alpha:g}, kept", "passes" if keeps else "fails", reason)
    if "dtype" in policy:
        formats = np.atleast_1d(policy["dtype"]).tolist()
        outcome: Outcome = "passes" if run.manifest.dtype in formats else "fails"
        yield Rule(f"number format {' or '.join(map(str, formats))}", outcome, run.manifest.dtype)
    if "audit" in policy:
        from smoothcert.tasks.audit import audit  # it needs torch

        found = audit(run.path, redraw=_check.whole("audit", policy["audit"]), **places)
        wrong = "".join(f"; input {finding.id}: {finding.reason}" for finding in found.findings[:1])
        wrong += "; the plan does not keep its alpha" if not (found.findings or found.holds) else ""
        wrong += "" if found.labels_checked else "; labels not compared with the data"
        wrong += "" if found.plans_checked else "; plans of the budget cannot be derived again"
        reason = f"{found.checked:,} checked, {found.redrawn} drawn again, {len(found.findings)} do not hold{wrong}"
        yield Rule("the audit holds", "passes" if found.holds else "fails", reason)
    if run.manifest.timed and {"certified_accuracy", "baseline"} & set(policy):
        raise InvalidInput(
            f"{run.path} had a budget of minutes, so what its inputs got depended on the clock, and their share proves "
            f"nothing about others: certify it with {setting('budget', 'SAMPLES')} or with a plan"
        )
    if "certified_accuracy" in policy:
        thresholds = _thresholds(run, policy["certified_accuracy"])
        for radius, percent in thresholds.items():
            yield _certified(run, radius, percent / 100, 1 - confidence, len(thresholds))
    if "baseline" in policy:
        yield from _against(run, policy["baseline"], baseline, confidence)


def _read_thresholds(wanted: Any) -> dict[float, float]:
    """Percentages by radius, as the policy has them."""
    try:
        pairs = [(float(radius), float(percent)) for radius, percent in dict(wanted).items()]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise InvalidInput(
            "no-thresholds",
            'certified_accuracy needs a percentage by radius, as in "0.5" = 60, got {value}',
            value=wanted,
        )
    radii = [radius for radius, _ in pairs]
    for radius in radii:
        if radii.count(radius) > 1:
            raise InvalidInput(
                "repeated-radius",
                "certified_accuracy has two percentages at the radius {radius:g}: leave one of "
                "them out",
                radius=radius,
            )
    return dict(pairs)


def _thresholds(run: Run, wanted: Any) -> dict[float, float]:
    """The least certified accuracy in percent, by radius, after a check that the run shows it."""
    found = _read_thresholds(wanted)
    for radius, percent in found.items():
        _check.at_least("each radius of certified_accuracy", radius, 0)
        _check.between(f"certified_accuracy at {radius:g}, a percentage,", percent, 0, 100)
        if percent <= 1:
            raise InvalidInput(
                f"certified_accuracy at {radius:g} is in percent, got {percent:g}: write {100 * percent:g} for it"
            )
        if not run.labelled or radius not in (run.decided_radii or found):
            decided = ", ".join(f"{r:g}" for r in run.decided_radii or ())
            known = (
                f"the run decides only the radii {decided}"
                if run.labelled
                else "the run has no labels"
            )
            raise InvalidInput(f"certified accuracy at {radius:g} cannot be checked: {known}")
    if run.manifest.until_clear:
        raise InvalidInput(
            f"{run.path} ended when a comparison was clear, so its certified accuracy may be chance: certify it alone"
        )
    return found


def _certified(run: Run, radius: float, least: float, alpha: float, rules: int) -> Rule:
    """The rule about certified accuracy at one radius.

    A gate passes only if every rule passes, so each rule may use all of alpha to pass. It fails if any rule fails, so
    the rules share alpha to fail.
    """
    count, n = int(run.certified([radius]).sum()), len(run)
    low, high = lower_bound(count, n, alpha=alpha), upper_bound(count, n, alpha=alpha / rules)
    outcome: Outcome = "passes" if low >= least else "fails" if high < least else "undecided"
    most = 100 - float(round_down(100 * (1 - high), 1))  # rounded up
    reason = f"{count / n:.1%} of {n:,} inputs; shown: at least {round_down(100 * low, 1)}% and at most {most:.1f}%"
    if outcome == "undecided" and count / n != least:
        needed = ndtri(alpha) ** 2 * least * (1 - least) / (count / n - least) ** 2
        reason += f"; about {needed:,.0f} inputs would decide such a share: certify this many other inputs"
    rough = caveat_of_budget(run)
    if rough is not None:
        reason += f"; {rough}"
    return Rule(f"certified accuracy at {radius:g} at least {100 * least:g}%", outcome, reason)


def _against(
    run: Run, wanted: Any, baseline: str | Path | None, confidence: float
) -> Iterator[Rule]:
    if (
        not isinstance(wanted, Mapping)
        or set(wanted) - {"run", "margin", "radius"}
        or baseline is None
    ):
        raise InvalidInput("baseline needs run, margin (in points) and radius, and nothing else")
    # No number of inputs shows equality, and nothing is more than 100 points below.
    margin = _check.between("margin of the baseline", wanted.get("margin"), 0, 100)
    found = compare_runs(
        baseline, run, radius=wanted.get("radius"), margin=margin, confidence=confidence
    )
    outcomes: dict[str, Outcome] = {"worse": "fails", "undecided": "undecided"}
    for d in found.differences:
        if not any(d.shares):
            raise InvalidInput(
                "nothing-to-compare",
                "neither the run nor its baseline certifies an input at {radius:g}, so nothing "
                "shows that the run is not worse there: choose a smaller radius",
                radius=d.radius,
            )
        name = f"at most {margin:g} points below {d.a} at {d.radius:g}"
        rough = filter(None, map(caveat_of_budget, (found.a, found.b)))
        yield Rule(name, outcomes.get(d.verdict, "passes"), "; ".join([d.figures, *rough]))
