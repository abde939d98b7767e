"""What the page shows about one certificate, for readers who are no specialists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np

from smoothcert.plans import Certificate
from smoothcert.report.pictures import (
    COUNTED,
    NORMS,
    Picture,
    changed_pictures,
    distance,
    picture_of,
)
from smoothcert.report.wording import class_name
from smoothcert.runs.results import is_unit
from smoothcert.statistics.metrics import confidence, round_down

_MOST_CLASSES = 5
_LARGEST_SIDE = 256


@dataclass(frozen=True)
class Shown:
    """A picture and the text below it.

    Args:
        picture: The picture as a data URI.
        text: The text.
        good: Whether the text is the answer that wins the vote.
    """

    picture: str
    text: str = ""
    good: bool = True


@dataclass(frozen=True)
class Bar:
    """A bar that is drawn to scale.

    Args:
        text: What it is.
        length: Its length as a share of the full width.
        number: Its length in words.
        main: Whether it stands out.
    """

    text: str
    length: float
    number: str
    main: bool = False


@dataclass(frozen=True, eq=False)
class Explained:
    """One certificate in pictures.

    Args:
        run: The name of the run.
        certificate: The certificate.
        x: The input.
        drawn: Noisy copies of the input.
        answers: The answer of the classifier to each copy.
        rounded: The input in the number format in which noise was added to it.
        cleaned: The same copies after the denoiser; empty if the run has none.
        class_names: The names of the classes, if they are known.
        nearest: How far the nearest input with another label is, and how many inputs were compared.
        values: The range of the values of the run's inputs; None if it is not recorded.
        attack: The input after the smallest change that an attack found, the answer to it, and the size of the change.
        same_noise: Whether the noisy copies are those of the run. They are not if the run drew its noise on another
            kind of device.
    """

    run: str
    certificate: Certificate
    x: Picture = field(repr=False)
    drawn: Sequence[Picture] = field(repr=False)
    answers: Sequence[int]
    rounded: Picture = field(repr=False)
    cleaned: Sequence[Picture] = field(default=(), repr=False)
    class_names: Sequence[str] | None = None
    nearest: tuple[float, int] | None = None
    values: tuple[float, float] | None = None
    attack: tuple[Picture, int, float] | None = field(default=None, repr=False)
    same_noise: bool = True

    @property
    def id(self) -> int:
        """The number of the input."""
        return self.certificate.id

    @property
    def answer(self) -> str | None:
        """The name of the certified class; None if there is no certificate."""
        return self._named(self.certificate.prediction)

    @property
    def label(self) -> str | None:
        """The name of the label; None where it is unknown."""
        return self._named(self.certificate.label)

    @cached_property
    def picture(self) -> str:
        """The input as a data URI."""
        return self._picture(self.x)

    @property
    def pixelated(self) -> bool:
        """Whether the pictures are so small that their pixels should be seen."""
        return self.picture.startswith("data:image/png")

    @cached_property
    def noisy(self) -> tuple[Shown, ...]:
        """Noisy copies of the input, with the answer of the classifier to each."""
        return tuple(
            Shown(self._picture(copy), class_name(answer, self.class_names), answer == self._top)
            for copy, answer in zip(self.drawn, self.answers, strict=True)
        )

    @cached_property
    def denoised(self) -> tuple[str, ...]:
        """The same copies after the denoiser; empty if the run has none."""
        return tuple(map(self._picture, self.cleaned))

    @cached_property
    def attacked(self) -> Shown | None:
        """The input after the smallest change that an attack found; None if there is none."""
        if self.attack is None:
            return None
        changed, answer, length = self.attack
        size = _number(length, self.certificate.noise.norm)
        text = (
            f"{class_name(answer, self.class_names)}, after a change of {size} that an attack found"
        )
        return Shown(self._picture(changed), text)

    @cached_property
    def votes(self) -> tuple[Bar, ...]:
        """The votes of all samples by class, the most frequent classes first."""
        c, top = self.certificate, self._top
        counts = sum(
            (Counter(look.votes) for look in c.looks), Counter[int]()
        )  # without classes that got no vote
        total = max(c.samples, 1)
        order = sorted(counts, key=lambda n: (n != top, -counts[n], n))
        shown = len(order) if len(order) <= _MOST_CLASSES + 1 else _MOST_CLASSES
        bars = [
            Bar(class_name(n, self.class_names), counts[n] / total, f"{counts[n]:,}", main=n == top)
            for n in order[:shown]
        ]
        if rest := order[shown:]:
            votes = sum(counts[n] for n in rest)
            bars.append(Bar(f"{len(rest)} other classes", votes / total, f"{votes:,}"))
        if c.missing:
            bars.append(Bar("no finite answer", c.missing / total, f"{c.missing:,}"))
        return tuple(bars)

    @cached_property
    def distances(self) -> tuple[Bar, ...]:
        """The radius beside distances that one can imagine, from near to far; empty without a certificate."""
        c, x, norm = self.certificate, self.x, self.certificate.noise.norm
        if c.abstained or norm not in NORMS:
            return ()
        black, others = np.zeros((len(x) if x.ndim == 3 else 1, 1, 1)), []
        if is_unit(self.values) or norm in COUNTED:
            others.append(("one pixel turns from black to white", distance(black, black + 1, norm)))
        if is_unit(self.values) and norm not in COUNTED:
            others.append(
                ("every pixel changes by one of 255 steps", distance(x, x + 1 / 255, norm))
            )
        if self.nearest is not None:
            others.append(
                (f"the nearest of {self.nearest[1]:,} pictures with another label", self.nearest[0])
            )
        if away := [distance(copy, self.rounded, norm) for copy in self.drawn]:
            others.append(("a noisy copy, as above", float(np.median(away))))
        known = [("the certified radius", c.radius), *sorted(others, key=lambda pair: pair[1])]
        longest = max(length for _, length in known) or 1.0
        return tuple(
            Bar(text, length / longest, _number(length, norm), main=place == 0)
            for place, (text, length) in enumerate(known)
        )

    @cached_property
    def changed(self) -> tuple[Shown, ...]:
        """The input after changes that are as large as the radius; empty without a certificate."""
        c, norm = self.certificate, self.certificate.noise.norm
        if not c.radius or norm not in NORMS:
            return ()
        texts = (
            "at random places" if norm in COUNTED else "spread over all pixels, at random",
            "in as few pixels as possible",
        )
        changed = changed_pictures(self.x, c.radius, norm, self.values, seed=c.id)
        return tuple(
            Shown(self._picture(picture), text)
            for picture, text in zip(changed, texts, strict=True)
        )

    @property
    def everywhere(self) -> str | None:
        """By how much all values may change at once (l-infinity), rounded down; None if nothing follows for that."""
        c = self.certificate
        if (
            not c.radius > 0
            or (radius := c.noise.other_radii(c.radius, self.x.shape).get("linf")) is None
        ):
            return None
        if c.noise.grid is None:
            return f"less than {round_down(float(radius), 5).rstrip('0').rstrip('.')}"
        steps = (
            ceil(float(radius) / c.noise.grid[0] * (1 - 1e-12)) - 1
        )  # the radius itself is not certified
        return f"at most {steps} of these steps" if steps else None

    @property
    def radius(self) -> str:
        """The radius as text, rounded down."""
        return _number(self.certificate.radius, self.certificate.noise.norm)

    @property
    def change(self) -> str:
        """Which changes cannot alter the answer, in words that follow "no"."""
        return self.certificate.noise.certified_change(self.radius)

    @property
    def confidence(self) -> str:
        """The confidence level in percent."""
        return f"{confidence(self.certificate.plan.alpha):%}"

    @property
    def _top(self) -> int | None:
        """The class that wins the vote."""
        c = self.certificate
        return c.prediction if c.prediction is not None else c.proof.prediction

    def _named(self, number: int | None) -> str | None:
        return None if number is None else class_name(number, self.class_names)

    def _picture(self, x: Picture) -> str:
        return str(picture_of(x, self.values, side=_LARGEST_SIDE))


def _number(length: float, norm: str) -> str:
    return f"{length:,.0f}" if norm in COUNTED else str(round_down(length, 3 if length < 10 else 1))
