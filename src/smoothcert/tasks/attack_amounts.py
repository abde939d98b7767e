"""The attack on certificates of turned or zoomed pictures: a search over amounts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from smoothcert.data import Dataset
from smoothcert.noises import Transformed
from smoothcert.plans import Certificate
from smoothcert.runs.journal import Attack
from smoothcert.smoothed import Subject
from smoothcert.tasks.predict import predict
from smoothcert.transformations.pictures import transform

_TOGETHER = 8
"""Inputs that are searched together."""
_COPIES = 4
"""Every amount is looked at with this many times the noisy copies of a step."""


class AmountAttacker:
    """Searches the smallest amount that alters the answer.

    A few votes show at which amounts of a grid another class may lead. The smallest of these are
    asked about with as many samples as a proof needs.

    Args:
        smoothed: The classifier.
        subject: The same, bound to the data.
        dataset: The data.
        steps: Amounts on each side of 0.
        copies: Sets how many noisy copies show where to ask.
        attempts: How many amounts of an input are asked about, at most.
        samples: The most samples of an answer.
        alpha: The probability to call an input broken that is not, at most.
    """

    ways = ("amounts",)

    def __init__(
        self,
        smoothed: Subject,
        subject: Subject,
        dataset: Dataset,
        *,
        steps: int,
        copies: int,
        attempts: int,
        samples: int,
        alpha: float,
    ) -> None:
        assert isinstance(subject.noise, Transformed)
        self.smoothed = smoothed
        self.subject = subject
        self.dataset = dataset
        self.noise = subject.noise
        side = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[1:] * self.noise.largest
        self.amounts = torch.cat([torch.zeros(1, dtype=torch.float64), side, -side])
        self.copies = _COPIES * copies
        self.attempts = attempts
        self.samples = samples
        self.alpha = alpha / attempts

    def together(self, way: str) -> int:
        """How many inputs are searched together."""
        return _TOGETHER

    def attack(self, certificates: Sequence[Certificate]) -> list[Attack]:
        """Attack the inputs of some certificates."""
        pictures = [self._pictures(c) for c in certificates]
        rights = [c.prediction if c.label is None else c.label for c in certificates]
        suspects = self._suspects(pictures, rights)
        attacks = {c.id: Attack(c.id, inf) for c in certificates}
        for attempt in range(self.attempts):
            asked = [
                i
                for i, c in enumerate(certificates)
                if attacks[c.id].distance == inf and attempt < len(suspects[i])
            ]
            places = [suspects[i][attempt] for i in asked]
            shown = [pictures[i][place] for i, place in zip(asked, places, strict=True)]
            answers = self._answers(shown, self.samples)
            for i, place, x, (answer, _) in zip(asked, places, shown, answers, strict=True):
                if answer is not None and answer != rights[i]:
                    id = certificates[i].id
                    distance = abs(float(self.amounts[place]))
                    attacks[id] = Attack(id, distance, answer, x.numpy().tobytes())
        return list(attacks.values())

    def _pictures(self, certificate: Certificate) -> Tensor:
        """The input, transformed by every amount of the grid."""
        x = self.subject.read(self.dataset, certificate.id)[1]
        every = x.expand(len(self.amounts), *x.shape)
        return transform(every, self.noise, self.amounts).float()

    def _suspects(
        self, pictures: Sequence[Tensor], rights: Sequence[int | None]
    ) -> list[list[int]]:
        """Places of the grid where another class may lead, the smallest amounts first."""
        answers = self._answers([x for grid in pictures for x in grid], self.copies)
        order = self.amounts.abs().argsort(stable=True).tolist()
        size = len(self.amounts)
        suspects = []
        for i, right in enumerate(rights):
            leaders = [leader for _, leader in answers[i * size : (i + 1) * size]]
            suspects.append([place for place in order if leaders[place] != right])
        return suspects

    def _answers(
        self, pictures: Sequence[Tensor], samples: int
    ) -> list[tuple[int | None, int | None]]:
        """The answer of the smoothed classifier to each picture, and the class with most votes."""
        if not pictures:
            return []
        with warnings.catch_warnings(action="ignore"):  # the run has warned about such inputs
            found = predict(
                self.smoothed, torch.stack(list(pictures)), samples=samples, alpha=self.alpha
            )
        return [(one.prediction, one.leader) for one in found]
