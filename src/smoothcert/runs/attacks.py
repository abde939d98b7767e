"""What attacks on a run achieved: for each input, the nearest change that alters the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.errors import InvalidInput
from smoothcert.runs.journal import Journal
from smoothcert.runs.run import Run, open_run
from smoothcert.statistics import metrics


@dataclass(frozen=True, eq=False)
class Attacks:
    """One value per attacked input, sorted by id.

    The truth lies between the two sides: a certificate proves that no change below `radius` alters
    the answer, and an attack shows that a change of length `distance` does.

    Args:
        norm: In what changes are measured.
        settings: How the inputs were attacked.
        id: The number of each input.
        radius: The certified radius of the right answer, 0 where it is not certified.
        distance: The length of the smallest change that was found; 0 if the answer is wrong without
            one, infinite if no attack succeeded.
        certified: Whether the right answer is certified.
        decided_radii: The radii that the plan decides, in this norm; None if it measures the
            radius. A decided radius is known to be below the true one.
    """

    norm: str
    settings: Mapping[str, Any]
    id: NDArray[np.int64]
    radius: NDArray[np.float64]
    distance: NDArray[np.float64]
    certified: NDArray[np.bool_]
    decided_radii: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return len(self.id)

    def attacked_accuracy(self, radii: ArrayLike) -> NDArray[np.float64]:
        """The share of inputs whose answer is right and was not altered by changes up to length r.

        Args:
            radii: The radii r.
        """
        radii = np.asarray(radii, float)
        return np.asarray((self.distance > radii[..., None]).mean(axis=-1))

    def certified_accuracy(self, radii: ArrayLike) -> NDArray[np.float64]:
        """Certified accuracy on the attacked inputs.

        Args:
            radii: The radii r.
        """
        closed = self.decided_radii is not None
        return metrics.certified_accuracy(self.radius, self.certified, radii, closed=closed)

    def plain(self, radii: ArrayLike | None = None) -> dict[str, Any]:
        """Both sides as a dictionary for JSON.

        Args:
            radii: The radii of certified and attacked accuracy. Default: those that the plan
                decides, or steps up to the largest radius.
        """
        if radii is None:
            radii = self.decided_radii or metrics.default_radii(float(self.radius.max()))
        shown = _check.radii(np.atleast_1d(np.asarray(radii)).tolist())
        return {
            "norm": self.norm,
            "settings": dict(self.settings),
            "inputs": len(self),
            "radii": shown,
            "certified_accuracy": self.certified_accuracy(shown).tolist(),
            "attacked_accuracy": self.attacked_accuracy(shown).tolist(),
            "broken_within_certified_radius": self.broken.tolist(),
            "smallest_change": {
                int(id): d if np.isfinite(d) else None
                for id, d in zip(self.id, self.distance.tolist(), strict=True)
            },
        }

    @property
    def broken(self) -> NDArray[np.int64]:
        """Inputs whose answer was altered within their certified radius.

        Alpha allows one in a thousand by default.
        """
        is_below = np.less if self.decided_radii is None else np.less_equal
        return np.asarray(self.id[self.certified & is_below(self.distance, self.radius)])


def read_attacks(run: Run | str | Path, norm: str | None = None) -> Attacks | None:
    """What attacks on a run achieved so far; None if it was not attacked.

    Args:
        run: The run, or its folder.
        norm: In what changes are measured. Default: the norm of the certificates.
    """
    run = open_run(run)
    norm = norm or run.noise.norm
    with Journal(run.path) as journal:
        recorded = journal.attacks(norm)
    if recorded is None:
        return None
    settings, distances = recorded
    return attacks_on(run, norm, settings, distances) if distances else None


def attacks_on(
    run: Run, norm: str, settings: Mapping[str, Any], distances: Mapping[int, float]
) -> Attacks:
    """What attacks on a run achieved, from the smallest change by id."""

    def in_norm(radii: ArrayLike) -> NDArray[np.float64]:
        if norm != run.noise.norm:
            radii = run.noise.other_radii(radii, settings["shape"])[norm]
        return np.asarray(radii, float)

    unknown = sorted(set(distances).difference(run.id.tolist()))
    if unknown:
        raise InvalidInput(
            "attack-without-certificate",
            "{run} is damaged: it has an attack on input {id}, but no certificate of it",
            run=run.path,
            id=unknown[0],
        )
    attacked = np.isin(run.id, list(distances))
    ids = run.id[attacked]
    is_right = ~run.abstained & ((run.prediction == run.label) | (run.label == NO_CLASS))
    decided = run.decided_radii
    return Attacks(
        norm=norm,
        settings=settings,
        id=ids,
        radius=np.where(is_right, in_norm(run.radius), 0.0)[attacked],
        distance=np.array([distances[id] for id in ids.tolist()]),
        certified=is_right[attacked],
        decided_radii=None if decided is None else tuple(in_norm(decided).tolist()),
    )
