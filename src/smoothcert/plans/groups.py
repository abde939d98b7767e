"""Groups of classes.

A group question is about the smoothed group classifier: votes for the classes of a group are summed
before anything is decided or proved. So every plan and noise answers it as it answers a question
about classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from smoothcert._check import NO_CLASS
from smoothcert.plans.votes import Look, ManyVotes


@dataclass(frozen=True)
class Groups:
    """One level: a fixed map from classes to groups.

    Args:
        title: The name of the level.
        names: The names of the groups.
        of: The number of the group of each class.
    """

    title: str
    names: tuple[str, ...]
    of: tuple[int, ...]

    @classmethod
    def of_members(
        cls,
        title: str,
        members: Mapping[str, Sequence[int]],
        classes: int,
        class_names: Sequence[str] | None = None,
    ) -> Groups:
        """The level of these groups. Every other class is a group of its own.

        Args:
            title: The name of the level.
            members: The classes of each group, by its name; empty for the level of the classes.
            classes: The number of classes.
            class_names: Their names, if they are known.
        """
        of = {c: group for group, chosen in enumerate(members.values()) for c in chosen}
        names = list(members)
        for c in range(classes):
            if c not in of:
                of[c] = len(names)
                name = str(c) if class_names is None else class_names[c]
                names.append(f"{name} ({c})" if name in names else name)
        return cls(title, tuple(names), tuple(of[c] for c in range(classes)))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.names)

    @property
    def text(self) -> str:
        """The level as a run records it: by numbers, so that it needs no names of classes."""
        numbers = np.array(self.of)
        members = {
            name: _ranges(np.flatnonzero(numbers == group).tolist())
            for group, name in enumerate(self.names)
        }
        return json.dumps({self.title: members})

    def label(self, label: int) -> int:
        """The group of a label; an unknown label stays unknown.

        Args:
            label: The class, or -1.
        """
        return NO_CLASS if label == NO_CLASS else self.of[label]

    def look(self, look: Look) -> Look:
        """Votes for classes as votes for groups.

        Args:
            look: The votes of one look.
        """
        votes: dict[int, int] = {}
        for c, count in look.votes.items():
            votes[self.of[c]] = votes.get(self.of[c], 0) + count
        return Look(look.samples, votes)

    def many(self, votes: ManyVotes) -> ManyVotes:
        """The same for the votes of one look at many inputs.

        Args:
            votes: The votes by class.
        """
        belongs = np.array(self.of)[:, None] == np.arange(len(self.names))
        return ManyVotes(votes.samples, votes.votes @ belongs.astype(np.int64))


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in a short text.

    >>> _ranges([0, 1, 2, 7])
    '0-2,7'
    """
    parts = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        following = [number for _, number in run]
        first = following[0]
        last = following[-1]
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)
