"""What a run found and took, in a few sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeVar

from smoothcert._registry import defining_module
from smoothcert.errors import number_of, phrase, setting
from smoothcert.noises import Noise
from smoothcert.plans import Combined, InputSpecific, Price, TwoStagePlan
from smoothcert.plans.coverage import caveat, exact_coverage
from smoothcert.plans.follow import unanimous
from smoothcert.plans.top_class import TopClass
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run
from smoothcert.runs.summary import certified_radii, least_certificate, usual_radii
from smoothcert.statistics.metrics import most_wrong, round_down

Common = TypeVar("Common")

_MOST_RADII = 5
_VOTE = "What is guaranteed is the vote. The network alone has no certificate."
_PREDICTED = TopClass(samples=1_000, alpha=0.001)
"""The defaults of `Smoothed.predict`."""


def summary(
    run: Run,
    *,
    radii: Sequence[float] | None = None,
    seconds: float | None = None,
    command: bool = False,
) -> str:
    """Certified accuracy, or the radii where there are no labels; abstentions, samples and time.

    Args:
        run: The run.
        radii: The radii r of certified accuracy. Default: those that the plan decides, or a few
            steps.
        seconds: How long the whole command took, if that is known.
        command: Whether to name options of the command line, and not arguments in Python.
    """
    usual = usual_radii([run])
    few = usual if len(usual) <= _MOST_RADII else usual[::2]
    shown = list(radii or run.decided_radii or few)
    lines = [_inputs(run), _robustness(run, shown), *_other_plans(run), _costs(run, seconds)]
    lines.append(caveat(run.plan) or all_together(run))
    lines += [_failure(run), out_of_reach(run, shown)]
    if run.abstained.any() and least_certificate(run.noise, run.decided_radii) is not None:
        top = run.plan.top if run.plan else 1
        lines.append(f"no certificate means that {shortfall(run.noise, run.decided_radii, top)}")
    missing = int(run.missing.sum())
    if missing:
        lines.append(f"{missing:,} outputs were not finite or no class, and counted for none")
    lines.append(phrase(_understatement(run, shown), command=command))
    return "\n".join(filter(None, lines))


def _inputs(run: Run) -> str:
    """How many inputs there are, how many have no certificate, and the ACR."""
    inputs = number_of(len(run), "input")
    if not run.complete:
        inputs = f"{len(run):,} of {number_of(run.asked, 'input')}"
    parts = [f"{run.path}: {inputs}", f"{int(run.abstained.sum()):,} {uncertified(run)}"]
    if run.labelled:
        at_radii = " at the decided radii" if run.decided_radii else ""
        parts.append(f"ACR {round_down(run.acr)}{at_radii} ({norm_in_brackets(run.noise)})")
        if run.unlabelled:
            parts.append(f"{run.unlabelled:,} without a label counted as 0")
    return ", ".join(filter(None, [*parts, run.left_out_in_words]))


def uncertified(run: Results) -> str:
    """The word for an input without a certificate."""
    return "not certified" if run.known_labels else "abstained"


def _robustness(run: Run, radii: Sequence[float]) -> str:
    """Certified accuracy at some radii or, without labels, the radii; empty if there are none."""
    if run.labelled:
        shares = zip(radii, run.certified_accuracy(radii), strict=True)
        listed = ", ".join(f"{share:.1%} at radius {radius:g}" for radius, share in shares)
        return f"certified accuracy: {listed}"
    figures = certified_radii(run)
    if figures is None:
        return ""
    listed = ", ".join(f"{name} {round_down(value)}" for name, value in figures.items())
    return f"certified radius ({run.noise.norm}): {listed}"


def _other_plans(run: Run) -> list[str]:
    """What the other plans of a combined one have found."""
    if not isinstance(run.plan, Combined) or not run.labelled:
        return []
    return [f"{part.plan}: ACR {round_down(part.acr)}" for part in run.split()[1:]]


def _failure(run: Run) -> str:
    """How often a plan fails that counts its pilot again; empty for every other plan."""
    plan = run.certified_by
    if not isinstance(plan, TwoStagePlan) or not plan.reused:
        return ""
    coverage = exact_coverage(plan, run.noise)
    return (
        f"failure probability of a certificate: {coverage.worst_failure:.6f} for a class fixed in "
        f"advance, {coverage.tie_failure:.6f} for two tied classes"
    )


def _understatement(run: Run, radii: Sequence[float]) -> str:
    """That a plan which aims at the average radius certifies too little at small radii."""
    if not run.labelled or not isinstance(run.certified_by, InputSpecific | Price):
        return ""
    if run.certified_accuracy(radii).min() == 1:
        return ""
    return (
        "certified accuracy at small radii is understated, because this plan aims at the average "
        f"radius: {setting('radii', radii)} in another {setting('out', 'DIR')} decides them, and "
        f"{setting('method', 'radii,input-specific')} has both"
    )


def out_of_reach(run: Results, radii: Sequence[float]) -> str:
    """That even unanimous votes prove none of the larger radii; empty if they do."""
    most = run.largest_radius
    if run.decided_radii or most is None or max(radii) < most:
        return ""
    return f"{run.name} has too few samples to prove a radius above {round_down(most)}"


def _costs(run: Run, seconds: float | None) -> str:
    samples = f"{int(run.samples.sum()):,} samples, {run.average_samples or 0:,.0f} per input"
    if run.manifest.dtype:
        samples += f", in {run.manifest.dtype}"
    comparison = run.manifest.circumstances.get("comparison")
    if comparison:
        samples += f" ({comparison})"
    took = f"all sampling took {run.total_seconds:.1f} s"
    if seconds is not None:
        took += f", this command {seconds:.1f} s"
    return f"{samples}; {took}"


def duration(seconds: float) -> str:
    """A duration in seconds if it is below two minutes, else in minutes or hours.

    >>> duration(75), duration(750)
    ('75.0 s', '12.5 min')
    """
    for unit, size in (("s", 1), ("min", 60)):
        if seconds < 120 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 3600:.1f} h"


def all_together(results: Results) -> str:
    """How many certificates of a run with a plan are wrong at most, in a sentence."""
    assert results.plan is not None
    count, probability = most_wrong(results.plan.alpha, results.tried)
    has = "has" if count == 1 else "have"
    claim = f"of these {results.tried:,} inputs, at most {count:,} {has} a wrong certificate"
    if not count:
        claim = "no certificate is wrong"
    claim += f", with probability {probability}"
    for noise in (results.noise, getattr(results.noise, "noise", None)):
        if noise is not None and defining_module(type(noise)) is not None:
            claim += f", if the theorem of {type(noise).__name__} holds, which nothing here checks"
    return claim


def guaranteed(runs: Sequence[Results]) -> str:
    """What the certificates of these runs are about, and what has to be deployed."""
    return f"{_VOTE} {what_to_deploy(runs)}"


def what_to_deploy(runs: Sequence[Results]) -> str:
    """What keeps the guarantee of these runs, and what it costs. Several are named."""
    names = grouped((_deployed(run), run.name) for run in runs)
    if len(runs) < 2:
        return "".join(f"To keep it, {words}." for words in names)
    return " ".join(f"To keep it for {' and '.join(of)}, {words}." for words, of in names.items())


def grouped(named: Iterable[tuple[Common, str]]) -> dict[Common, list[str]]:
    """The names of runs by what they have in common."""
    names: dict[Common, list[str]] = {}
    for common, name in named:
        names.setdefault(common, []).append(name)
    return names


def _deployed(run: Results) -> str:
    """What keeps the guarantee of a run, and what it costs per request."""
    if run.noise is None:
        return "deploy the vote over noisy copies"
    passes = run.noise.outcomes
    cost = f"A request costs {passes} forward passes instead of one"
    if passes is None:
        least = unanimous(_PREDICTED, run.noise).spent
        cost = (
            f"A request with clear votes costs {least} forward passes instead of one; others cost "
            "more, up to the ceiling that you give"
        )
    arguments = ", ".join(_arguments(run.noise.short, run.manifest))
    return f"deploy Smoothed(model, {arguments}).predict. {cost}"


def _arguments(noise: str, manifest: Manifest | None) -> list[str]:
    """The settings without which a model is another classifier, as in Python."""
    arguments = [f"noise={noise}" if "(" in noise else f'noise="{noise}"']
    if manifest is None:
        return arguments
    if manifest.dtype:
        arguments.append(f'dtype="{manifest.dtype}"')
    if manifest.denoiser is not None:
        arguments.append("denoiser=...")
    for name, value in manifest.settings.items():
        if value:
            shown = "groups=..." if name == "groups" else phrase(setting(name, value))
            arguments.append(shown)
    return arguments


def caveat_of_budget(results: Results) -> str | None:
    """What a budget does to intervals over inputs, in words; None without a budget."""
    if results.budget is None:
        return None
    return (
        f"{results.name} had a budget: later inputs got the samples that earlier ones left, so "
        "intervals over inputs are rough"
    )


def shortfall(noise: Noise | None, radii: Sequence[float] | None, top: int = 1) -> str:
    """Why an input has no certificate. A class may win the vote, and have too few votes for one."""
    if top > 1:
        return f"no class is provably among the top {top}"
    least = least_certificate(noise, radii)
    if least is None:
        return "no class provably wins the vote"
    radius, p = least
    percent = ceil(10_000 * p) / 100
    return (
        f"no class provably wins by enough: a radius of {radius:g} needs {percent:g}% of the votes "
        "against a single rival"
    )


def norm_in_brackets(noise: Noise) -> str:
    """What radii measure, without brackets of its own, as in "l2" or "rotation in degrees"."""
    return noise.norm.replace(" (", " in ").removesuffix(")")


def bias_of_p(results: Results) -> str | None:
    """Where sampling stopped, and what that does to the share of votes `p`, in words.

    None if votes did not decide when to stop.
    """
    if isinstance(results.certified_by, Price):
        return (
            "stopped where votes were bad, so p is too small on average for inputs with few samples"
        )
    if results.decided_radii is not None:
        return "stopped where votes were clear, so p is too large on average for certified inputs"
    return None
