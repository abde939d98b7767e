"""Which of several runs on the same inputs is best, at which radii, and how sure that is: the end of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.runs.collect import Source, collect
from smoothcert.runs.table import usual_radii
from smoothcert.statistics.comparison import mcnemar
from smoothcert.statistics.metrics import CONFIDENCE


@dataclass(frozen=True)
class AtRadius:
    """The run that certifies most inputs at a radius.

    Args:
        radius: The radius r.
        best: The name of the run.
        share: Its certified accuracy.
        as_good: Other runs that differ from it by no more than chance (95%, paired on the inputs), with their shares.
    """

    radius: float
    best: str
    share: float
    as_good: dict[str, float]


@dataclass(frozen=True)
class Recommendation:
    """The run to take.

    Args:
        run: Its name.
        radii: What is best at each radius. Radii at which no run certifies anything are left out.
        alpha: The probability that any certificate of one input is wrong, over all runs.
    """

    run: str
    radii: tuple[AtRadius, ...]
    alpha: float

    @property
    def reasons(self) -> list[str]:
        """Why, in sentences."""
        good = [at for at in self.radii if self.run == at.best or self.run in at.as_good]
        others = [at for at in self.radii if at not in good]
        where = f"{len(good)} of {len(self.radii)} radii" if others else "every radius"
        where += f" ({', '.join(f'{at.radius:g}' for at in good)})"
        return [
            f"Take {self.run}: at {where}, no other run certifies more inputs beyond chance.",
            *(f"At radius {at.radius:g}, take {at.best}, which certifies {at.share:.1%}." for at in others),
            "This depends on the radii: ask for those that matter to you. It was chosen on these inputs: for figures "
            "without selection, certify other inputs. The certificates that all runs give to one input hold together "
            f"with probability {1 - self.alpha:g}.",
        ]

    def plain(self) -> dict[str, Any]:
        """The recommendation as a dictionary for JSON."""
        return {"run": self.run, "reasons": self.reasons, "radii": [vars(at) for at in self.radii]}


def recommend(results: Sequence[Source], *, radii: Sequence[float] | None = None) -> Recommendation | None:
    """The run that is best, or as good as the best within chance, at most radii; with a tie, the one with larger ACR.

    Args:
        results: Runs on the same inputs, with radii in the same norm, or their folders.
        radii: The radii r at which certified accuracy counts. Default: those of `table`.

    Returns:
        The recommendation; None if no input is certified for its label.
    """
    runs = collect(results)
    if any(not np.array_equal(run.id, runs[0].id) for run in runs):
        raise InvalidInput("the runs have different inputs, so they cannot be compared")
    level = (1 - CONFIDENCE) / max(len(runs) - 1, 1)
    found = []
    for radius in radii if radii is not None else usual_radii(runs):
        proved = {run.name: run.certified([radius])[:, 0] for run in runs}
        best = max(proved, key=lambda name: proved[name].sum())
        if proved[best].any():
            as_good = {
                name: float(mine.mean())
                for name, mine in proved.items()
                if name != best
                and mcnemar(int((mine & ~proved[best]).sum()), int((proved[best] & ~mine).sum())) > level
            }
            found.append(AtRadius(float(radius), best, float(proved[best].mean()), as_good))
    if not found:
        return None
    good = {run.name: sum(run.name == at.best or run.name in at.as_good for at in found) for run in runs}
    chosen = max(runs, key=lambda run: (good[run.name], run.acr))
    alpha = sum(run.plan.alpha for run in runs if run.plan is not None)
    return Recommendation(chosen.name, tuple(found), alpha)
