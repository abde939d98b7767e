"""Which of several runs is best: the end of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.runs.comparison_rules import check_comparable
from smoothcert.runs.formats import Source, collect
from smoothcert.runs.results import Results
from smoothcert.runs.summary import usual_radii
from smoothcert.statistics import metrics


@dataclass(frozen=True)
class AtRadius:
    """The run that certifies most inputs at a radius.

    Args:
        radius: The radius r.
        best: The name of the run.
        share: Its certified accuracy.
        as_good: Other runs that differ from it by no more than chance (95% at all radii together,
            paired on the inputs), with their shares.
    """

    radius: float
    best: str
    share: float
    as_good: dict[str, float]

    @property
    def good(self) -> dict[str, float]:
        """The best run and those that are as good, with their shares."""
        return {self.best: self.share, **self.as_good}


@dataclass(frozen=True)
class Recommendation:
    """The run to take.

    Args:
        run: Its name.
        radii: What is best at each radius. Radii at which no run certifies anything are left out.
        alpha: The probability that any certificate of one input is wrong, over all runs.
        inputs: The number of inputs.
    """

    run: str
    radii: tuple[AtRadius, ...]
    alpha: float
    inputs: int

    @property
    def reasons(self) -> list[str]:
        """Why, in sentences."""
        good = [at for at in self.radii if self.run in at.good]
        others = [at for at in self.radii if self.run not in at.good]
        where = f"{len(good)} of {len(self.radii)} radii" if others else "every radius"
        where += f" ({_listed(good)})"
        return [
            f"Take {self.run}: at {where}, no other run certifies more inputs beyond chance.",
            *(
                f"At radius {at.radius:g}, take {at.best}, which certifies {at.share:.1%}."
                for at in others
            ),
            *self._chance(good),
            "This depends on the radii: ask for those that matter to you. It was chosen on these "
            "inputs: for figures without selection, certify other inputs. The certificates that "
            f"all runs give to one input hold together with probability {1 - self.alpha:g}.",
        ]

    def _chance(self, good: Sequence[AtRadius]) -> Iterator[str]:
        """Which differences these inputs do not show."""
        rivals = {name for at in good for name in at.good} - {self.run}
        for rival in sorted(rivals):
            alike = [at for at in good if rival in at.good]
            ahead = [at for at in alike if at.good[rival] > at.good[self.run]]
            more = f", although {rival} certifies more of them at {_listed(ahead)}" if ahead else ""
            yield (
                f"Chance may explain the difference to {rival} at {_listed(alike)}: "
                f"these {self.inputs:,} inputs do not tell them apart{more}."
            )

    def plain(self) -> dict[str, Any]:
        """The recommendation as a dictionary for JSON."""
        return {"run": self.run, "reasons": self.reasons, "radii": [vars(at) for at in self.radii]}


def recommend(
    results: Sequence[Source], *, radii: Sequence[float] | None = None
) -> Recommendation | None:
    """The run that is best, or as good as the best within chance, at most radii.

    With a tie, the one with larger ACR is recommended.

    Args:
        results: Runs that `compare` would compare, on the same inputs, or their folders.
        radii: The radii r at which certified accuracy counts. Default: those of `table`.

    Returns:
        The recommendation; None if no input is certified for its label.
    """
    runs = collect(results)
    if not any(run.labelled for run in runs):
        return None
    _check_comparable(runs)
    radii = usual_radii(runs) if radii is None else radii
    alpha_of_radius = (1 - metrics.CONFIDENCE) / max(len(radii), 1)
    runs = [run.without_copies() for run in runs]
    compared = [_best_at(runs, float(radius), alpha_of_radius) for radius in radii]
    shown = [at for at in compared if at.share]
    if not shown:
        return None

    def rank(run: Results) -> tuple[int, float]:
        return sum(run.name in at.good for at in shown), run.acr

    alpha_of_all = sum(run.plan.alpha for run in runs if run.plan is not None)
    return Recommendation(max(runs, key=rank).name, tuple(shown), alpha_of_all, len(runs[0]))


def _check_comparable(runs: Sequence[Results]) -> None:
    """Refuse runs that cannot be compared, or have different inputs."""
    for run in runs:
        if not np.array_equal(run.id, runs[0].id):
            raise InvalidInput(
                "other-inputs", "the runs have different inputs, so they cannot be compared"
            )
        check_comparable(runs[0], run)


def _best_at(runs: Sequence[Results], radius: float, alpha: float) -> AtRadius:
    certified = [run.certified([radius])[:, 0] for run in runs]
    shares = [float(values.mean()) for values in certified]
    best, good = metrics.best_of(certified, alpha=alpha)
    as_good = {runs[place].name: shares[place] for place in good if place != best}
    return AtRadius(radius, runs[best].name, shares[best], as_good)


def _listed(radii: Sequence[AtRadius]) -> str:
    return ", ".join(f"{at.radius:g}" for at in radii)
