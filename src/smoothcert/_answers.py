"""Are recorded answers and votes those of the classifier of today, up to rounding?

Other GPUs and numbers of threads round differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeAlias

Answer: TypeAlias = tuple[int, float]
"""The label that a model gives to an input, and its margin over the next label."""

_LABELS = 0.05
"""The share of labels or votes that may differ."""
_MARGIN = 0.02
"""The share of a margin by which it may differ."""


def same_answers(there: Sequence[Answer] | None, now: Sequence[Answer] | None) -> bool:
    """Whether the labels and margins of a model are the same up to rounding.

    Without answers to compare, they are.

    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 1.001), (4, 0.001)])
    True
    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 0.9), (5, 0.001)])
    False
    """
    if there is None or now is None:
        return True
    if len(there) != len(now):
        return False
    typical = median([margin for _, margin in [*there, *now]] or [0.0])
    others = 0
    for (label, margin), (label_now, margin_now) in zip(there, now, strict=True):
        # Where the label has changed, one class had to catch up, and the other one took the lead.
        lead_now = margin_now if label == label_now else -margin_now
        if abs(margin - lead_now) > _MARGIN * (typical + min(margin, margin_now)):
            others += 1
    return others <= _LABELS * len(there)


def same_votes(there: Mapping[int, int], now: Mapping[int, int]) -> bool:
    """Whether the votes of the same samples are the same up to rounding, which can decide a few.

    >>> same_votes({3: 90, 5: 10}, {3: 91, 5: 9}), same_votes({3: 90, 5: 10}, {3: 80, 5: 20})
    (True, False)
    """
    changed = sum(abs(there.get(c, 0) - now.get(c, 0)) for c in {*there, *now}) / 2
    return changed <= 1 + _LABELS * sum(there.values())
