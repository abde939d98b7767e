"""`gate`: may this model ship?

A run is checked against a policy, and every rule passes, fails or stays undecided.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack
from xml.etree import ElementTree

import numpy as np
from scipy.special import ndtri

from smoothcert import _check
from smoothcert._files import read_toml
from smoothcert._settings import PLACE_NAMES
from smoothcert.errors import InvalidInput, number_of
from smoothcert.plans.coverage import exact_coverage
from smoothcert.runs.comparison import Difference, compare_runs
from smoothcert.runs.run import Run, check_has_certificates, open_run
from smoothcert.runs.summary import usual_radii
from smoothcert.runs.words import caveat_of_budget, guaranteed
from smoothcert.statistics.bounds import lower_bound, upper_bound
from smoothcert.statistics.comparison import difference_interval
from smoothcert.statistics.metrics import CONFIDENCE, round_down

if TYPE_CHECKING:
    from smoothcert.tasks.recorded_subject import Places

Outcome = Literal["passes", "fails", "undecided"]


@dataclass(frozen=True)
class Rule:
    """A rule of a policy, checked.

    Args:
        name: What it asks for.
        outcome: A rule is undecided if more inputs could show that it passes or that it fails.
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
        guaranteed: What the certificates are about, and what has to be deployed. Empty if the run
            does not pass.
    """

    run: str
    rules: tuple[Rule, ...]
    guaranteed: str

    @property
    def outcome(self) -> Outcome:
        """It fails if one rule fails, and passes if all do. Without rules, nothing is decided."""
        outcomes = {rule.outcome for rule in self.rules}
        if "fails" in outcomes:
            return "fails"
        return "passes" if outcomes == {"passes"} else "undecided"

    def plain(self) -> dict[str, Any]:
        """The outcome as a dictionary for JSON."""
        return {"outcome": self.outcome} | asdict(self)

    def junit(self) -> bytes:
        """The outcome as JUnit XML. An undecided rule is an error there, not a failure."""
        outcomes = [rule.outcome for rule in self.rules]
        suite = ElementTree.Element(
            "testsuite",
            name="smoothcert gate",
            tests=str(len(outcomes)),
            failures=str(outcomes.count("fails")),
            errors=str(outcomes.count("undecided")),
        )
        tags = {"fails": "failure", "undecided": "error"}
        for rule in self.rules:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"smoothcert.{self.run}", name=rule.name
            )
            if rule.outcome in tags:
                ElementTree.SubElement(case, tags[rule.outcome], message=rule.reason)
        if self.guaranteed:
            ElementTree.SubElement(suite, "system-out").text = self.guaranteed
        return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


class _Subject(NamedTuple):
    """What the rules of a policy are about."""

    run: Run
    confidence: float
    folder: Path
    baseline: str | Path | None
    places: Places


_POLICY = """\
# Rules for `smoothcert gate RUN --policy THIS`. Every rule is optional. The run that they were
# written from passes them: set them to what you need.

# The confidence of everything that is shown about other inputs of this kind.
confidence = 0.95
# The least number of inputs.
inputs = {inputs}
# The largest alpha. The plan must provably keep it.
alpha = {alpha:g}
# The number formats that the classifier may have been run in.
dtype = ["{dtype}"]
# Every radius must follow from its votes. So many inputs are drawn again: for a model of your own
# code, gate needs --model again.
audit = 5

# The least percentage of all inputs of this kind, by radius, as in "0.5" = 60. It needs labels.
{shares}

# Not worse than a released model, whose run is named relative to this file. The margin is how
# many points of certified accuracy may be lost. A smaller one needs more inputs than this run has.
# [baseline]
# run = "runs/released"
# margin = {margin}
# radius = [{radii}]
"""
_MARGIN = 2
"""Points that a first policy leaves between its numbers and what a run has shown."""
_MOST_INPUTS = 1_000_000
"""A rule that would need more inputs does not say how many."""


def policy_for(run: Run | str | Path) -> str:
    """A policy with comments that a run passes, as a start.

    Args:
        run: The run, or its folder.
    """
    run = open_run(run).without_copies()
    check_has_certificates(run)
    radii = run.decided_radii or usual_radii([run])
    counts = run.certified(radii).sum(axis=0)
    least = np.floor(100 * lower_bound(counts, len(run), alpha=1 - CONFIDENCE)) - _MARGIN
    # What these inputs show of a model that certifies the same ones.
    equal = difference_interval(0, 0, len(run), alpha=(1 - CONFIDENCE) / len(radii))
    shares = [
        f'"{radius:g}" = {int(share)}'
        for radius, share in zip(radii, least, strict=True)
        if run.labelled and share > 0
    ]
    return _POLICY.format(
        inputs=len(run),
        alpha=run.plan.alpha,
        dtype=run.manifest.dtype,
        shares="\n".join(shares and ["[certified_accuracy]", *shares]),
        margin=min(ceil(-100 * equal.low) + _MARGIN, 99),
        radii=", ".join(f"{radius:g}" for radius in radii),
    )


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
        policy: A TOML file, or its content as a dictionary. All rules are optional: `inputs` (the
            least number), `alpha` (the largest one, which the plan must provably keep), `dtype`
            (the number formats allowed), `audit` (how many inputs to draw again),
            `certified_accuracy` (the least percentage by radius), `baseline` (`run`, `margin` in
            points and `radius`) and `confidence` (of what is shown, by default 0.95).
        baseline: The run to compare with, if it is not the one that the policy names, relative to
            the policy's folder.
        **places: Where model and data are now, for the audit. See `audit`.
    """
    _check.names("gate", places, PLACE_NAMES)
    folder = Path()
    if not isinstance(policy, Mapping):
        folder = Path(policy).parent
        policy = read_toml(policy)
    _check_names(policy)
    if baseline is not None and "baseline" not in policy:
        raise InvalidInput(
            "no-baseline-rule",
            "the policy compares with no run, so `baseline={baseline}` would check nothing: add "
            "[baseline] with margin = 5 (points) to it, or take the marks away before its lines",
            baseline=baseline,
        )
    run = open_run(run)
    check_has_certificates(run)
    confidence = _check.confidence("confidence", policy.get("confidence", CONFIDENCE))
    subject = _Subject(run.without_copies(), confidence, folder, baseline, places)
    rules = [*_completeness(run)]
    for name, check in _RULES.items():
        if name in policy:
            rules += check(subject, policy[name])
    checked = Gate(run.path.name, tuple(rules), guaranteed="")
    if checked.outcome != "passes":
        return checked
    return replace(checked, guaranteed=guaranteed([run]))


def _check_names(policy: Mapping[str, Any]) -> None:
    """Check that a policy has rules, and no others than ours."""
    rules = ", ".join(_RULES)
    for name in policy:
        if name not in ("confidence", *_RULES):
            raise InvalidInput(
                "unknown-rule",
                "the policy has no rule {name!r}: choose among confidence, {rules}",
                name=name,
                rules=rules,
            )
    if not set(policy) - {"confidence"}:
        raise InvalidInput(
            "empty-policy", "the policy is empty: give at least one of {rules}", rules=rules
        )


def _completeness(run: Run) -> Iterator[Rule]:
    """The rules that every policy has: nothing can be said about inputs without a certificate."""
    if not run.complete:
        yield Rule("the run is finished", "undecided", f"{len(run):,} of {run.asked:,} inputs")
    if run.left_out:
        reason = f"{number_of(run.left_out, 'input')} could not be read"
        yield Rule("no input was left out", "undecided", reason)


def _inputs(subject: _Subject, value: Any) -> Iterator[Rule]:
    least = _check.whole("inputs", value, least=1)
    count = len(subject.run)
    outcome: Outcome = "passes" if count >= least else "undecided"
    reason = number_of(count, "input")
    copies = len(subject.run.manifest.copies)
    if copies:
        reason += f", and {copies:,} copies, which do not count"
    yield Rule(f"at least {number_of(least, 'input')}", outcome, reason)


def _alpha(subject: _Subject, value: Any) -> Iterator[Rule]:
    largest = _check.alpha("alpha", value)
    coverage = exact_coverage(subject.run.plan, subject.run.noise)
    reason = f"alpha {coverage.alpha:g}; does the plan keep it: {coverage.verdict}"
    holds = coverage.proved and coverage.alpha <= largest
    if not subject.run.manifest.plans_known:
        reason = "the clock of version 1.0 decided about the plans"
        holds = False
    yield Rule(f"alpha at most {largest:g}, kept", _passes(holds), reason)


def _dtype(subject: _Subject, value: Any) -> Iterator[Rule]:
    allowed = np.atleast_1d(value).tolist()
    dtype = subject.run.manifest.dtype
    yield Rule(f"number format {' or '.join(map(str, allowed))}", _passes(dtype in allowed), dtype)


def _audit(subject: _Subject, value: Any) -> Iterator[Rule]:
    from smoothcert.tasks.audit import audit  # it needs torch

    result = audit(subject.run.path, redraw=_check.whole("audit", value), **subject.places)
    first = [f"Input {finding.id}: {finding.reason}." for finding in result.findings[:1]]
    yield Rule("the audit holds", _passes(result.holds), " ".join([*result.sentences(), *first]))


def _passes(holds: bool) -> Outcome:
    return "passes" if holds else "fails"


def _certified_accuracy(subject: _Subject, value: Any) -> Iterator[Rule]:
    run = subject.run
    _check_not_timed(run)
    if run.manifest.until_clear:
        raise InvalidInput(
            "ended-when-clear",
            "{run} ended when a comparison was clear, so its certified accuracy may be chance: "
            "certify it alone",
            run=run.path,
        )
    if not run.labelled:
        raise InvalidInput(
            "no-labels", "certified accuracy cannot be checked: the run has no labels"
        )
    thresholds = _thresholds(value)
    for radius, percent in thresholds:
        if run.decided_radii and radius not in run.decided_radii:
            raise InvalidInput(
                "undecided-radius",
                "certified accuracy at {radius:g} cannot be checked: the run decides only the "
                "radii {decided}",
                radius=radius,
                decided=", ".join(f"{r:g}" for r in run.decided_radii),
            )
        yield _certified(run, radius, percent / 100, 1 - subject.confidence, len(thresholds))


def _check_not_timed(run: Run) -> None:
    if run.manifest.timed:
        raise InvalidInput(
            "timed-run",
            "{run} had a budget of minutes, so what its inputs got depended on the clock, and "
            "their share proves nothing about others: certify it with `budget=SAMPLES` or with a "
            "plan",
            run=run.path,
        )


def _thresholds(percentages: Any) -> list[tuple[float, float]]:
    """The radii of the policy, each with the least certified accuracy in percent."""
    if not isinstance(percentages, Mapping) or not percentages:
        raise _no_threshold(percentages)
    pairs = []
    for radius, percent in percentages.items():
        try:
            pairs.append((float(radius), float(percent)))
        except (TypeError, ValueError):
            raise _no_threshold(f'"{radius}" = {percent}') from None
    for radius, percent in pairs:
        _check.at_least("each radius of certified_accuracy", radius, 0)
        # A value of at most 1 was meant as a share.
        _check.between(f"certified_accuracy at {radius:g}, a percentage,", percent, 1, 100)
    return pairs


def _no_threshold(value: object) -> InvalidInput:
    return InvalidInput(
        "no-thresholds",
        'certified_accuracy needs a percentage by radius, as in "0.5" = 60, got {value}',
        value=value,
    )


def _certified(run: Run, radius: float, least: float, alpha: float, rules: int) -> Rule:
    """The rule about certified accuracy at one radius.

    A gate passes only if every rule passes, so each rule may use all of alpha to pass. It fails if
    any rule fails, so the rules share alpha to fail.
    """
    inputs = len(run)
    count = int(run.certified([radius]).sum())
    share = count / inputs
    low = lower_bound(count, inputs, alpha=alpha)
    high = upper_bound(count, inputs, alpha=alpha / rules)
    outcome: Outcome = "undecided"
    if low >= least:
        outcome = "passes"
    elif high < least:
        outcome = "fails"
    most = 100 - float(round_down(100 * (1 - high), 1))  # rounded up
    limits = f"at least {round_down(100 * low, 1)}% and at most {most:.1f}%"
    reason = f"{share:.1%} of {inputs:,} inputs; shown: {limits}"
    if outcome == "undecided" and share != least:
        needed = ndtri(alpha) ** 2 * least * (1 - least) / (share - least) ** 2
        reason += f"; about {needed:,.0f} other inputs would decide such a share"
    rough = caveat_of_budget(run)
    if rough is not None:
        reason += f"; {rough}"
    return Rule(f"certified accuracy at {radius:g} at least {100 * least:g}%", outcome, reason)


def _baseline(subject: _Subject, value: Any) -> Iterator[Rule]:
    _check_not_timed(subject.run)
    is_table = isinstance(value, Mapping) and not set(value) - {"run", "margin", "radius"}
    if not is_table or (subject.baseline is None and "run" not in value):
        raise InvalidInput(
            "not-a-baseline",
            "baseline needs run, margin (in points) and radius, and nothing else",
            value=value,
        )
    # No number of inputs shows equality, and nothing is more than 100 points below.
    margin = _check.between("margin of the baseline", value.get("margin"), 0, 100)
    baseline = subject.baseline or subject.folder / str(value["run"])
    comparison = compare_runs(
        baseline,
        subject.run,
        radius=value.get("radius"),
        margin=margin,
        confidence=subject.confidence,
    )
    notes = [note.removesuffix(".") for note in comparison.notes]
    if Path(baseline).resolve() == Path(subject.run.path).resolve():
        notes.append("the run is its own baseline")
    for difference in comparison.differences:
        name = f"at most {margin:g} points below {difference.a} at {difference.radius:g}"
        outcome, reasons = _compared(difference, len(comparison.differences))
        yield Rule(name, outcome, "; ".join([*reasons, *notes]))


def _compared(difference: Difference, radii: int) -> tuple[Outcome, list[str]]:
    """What a difference at one of several radii says about the run, and why."""
    if not any(difference.shares):
        raise InvalidInput(
            "nothing-to-compare",
            "neither the run nor its baseline certifies an input at {radius:g}, so nothing shows "
            "that the run is not worse there: choose a smaller radius",
            radius=difference.radius,
        )
    if difference.verdict != "undecided":
        return _passes(difference.verdict != "worse"), [difference.figures]
    needed = _deciding_inputs(difference, radii)
    return "undecided", [difference.figures, *filter(None, [needed])]


def _deciding_inputs(difference: Difference, radii: int) -> str | None:
    """About how many inputs would decide a difference like this one, in words."""

    def is_decided(inputs: int) -> bool:
        factor = inputs / difference.inputs
        only_a = round(factor * len(difference.only_a))
        only_b = round(factor * len(difference.only_b))
        alpha = (1 - difference.confidence) / radii
        low, high = difference_interval(only_a, only_b, inputs, alpha=alpha)
        return bool(low > -difference.margin or high < -difference.margin)

    candidates = range(difference.inputs, _MOST_INPUTS)
    needed = bisect_left(candidates, True, key=is_decided)
    if needed == len(candidates):
        return None
    return f"about {candidates[needed]:,} other inputs would decide such a difference"


_RULES: dict[str, Callable[[_Subject, Any], Iterator[Rule]]] = {
    "inputs": _inputs,
    "alpha": _alpha,
    "dtype": _dtype,
    "audit": _audit,
    "certified_accuracy": _certified_accuracy,
    "baseline": _baseline,
}
"""The rules in the order in which they are checked."""
