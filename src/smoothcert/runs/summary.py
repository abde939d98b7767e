"""What a run found and what it took, in three lines."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from smoothcert.plans.coverage import caveat
from smoothcert.runs.run import Run
from smoothcert.statistics.metrics import confidence, default_radii, round_down

_MOST_RADII = 5
_MUCH = Decimal("0.99")


def summary(run: Run, *, radii: Sequence[float] | None = None, seconds: float | None = None) -> str:
    """Certified accuracy, or the radii where there are no labels; abstentions, samples and time.

    Args:
        run: The run.
        radii: The radii r of certified accuracy. Default: those that the plan decides, or a few steps.
        seconds: How long the whole command took, if that is known.
    """
    asked = "" if run.complete else f" of {len(run.manifest.ids):,}"
    without = "not certified" if run.plan.known_labels else "abstained"
    decided = " at the decided radii" if run.decided_radii else ""
    lines = [
        f"{run.path}: {len(run):,}{asked} input{'' if len(run) == 1 else 's'}, {int(run.abstained.sum()):,} {without}"
        + (f", ACR {round_down(run.acr)}{decided} ({run.noise.norm})" if run.labelled else "")
        + (f", {run.unlabelled:,} without a label counted as 0" if run.labelled and run.unlabelled else "")
    ]
    if run.labelled:
        radii = radii or run.decided_radii or _few(default_radii(float(run.radius.max(initial=0.0))))
        shares = zip(radii, run.certified_accuracy(radii), strict=True)
        lines.append(
            "certified accuracy: " + ", ".join(f"{share:.1%} at radius {radius:g}" for radius, share in shares)
        )
    elif run.certified_radii is not None:
        figures = ", ".join(f"{name} {round_down(value)}" for name, value in run.certified_radii.items())
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
    together = confidence(run.plan.alpha, len(run.manifest.ids))
    return f"all certificates hold together with confidence {together:%}" if together > _MUCH else ""


def _few(radii: list[float]) -> list[float]:
    """Every radius, or every second one if they are many."""
    return radii if len(radii) <= _MOST_RADII else radii[::2]
