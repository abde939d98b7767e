"""What the page shows about one certificate, for readers who are no specialists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.plans import Certificate
from smoothcert.report.distances import COUNTED, NORMS, Picture, concentrated_change, distance, spread_change
from smoothcert.report.thumbnails import SMALLEST_SIDE, picture_of, to_unit
from smoothcert.runs.results import is_unit
from smoothcert.statistics.metrics import confidence, round_down

_MOST_CLASSES = 5
_LARGEST_SIDE = 256
_NORMS_IN_WORDS = {
    "l2": "The size of a change is the square root of the sum of the squared changes of all values",
    "l1": "The size of a change is the sum of the changes of all values",
    "l0": "The size of a change is the number of values that change; a pixel has one value, in colour three",
    "l0 of pixels": "The size of a change is the number of pixels that change",
}


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


@dataclass(frozen=True)
class Explained:
    """One certificate in pictures.

    Args:
        run: The name of the run.
        certificate: The certificate.
        answer: The name of the certified class; None if there is no certificate.
        label: The name of the label; None where it is unknown.
        picture: The input.
        noisy: Noisy copies of the input, with the answer of the classifier to each.
        denoised: The same copies after the denoiser; empty if the run has none.
        votes: The votes by class.
        distances: The radius beside other distances; empty without a certificate.
        changed: The input after changes that are as large as the radius; empty without a certificate.
        everywhere: By how much all values may change at once (l-infinity), in words; None if nothing follows for that.
        values: The range of the values of the run's inputs; None if it is not recorded.
        attacked: The input after the smallest change that an attack found; None if there is none.
        same_noise: Whether the noisy copies are those of the run. They are not if the run drew its noise on another
            kind of device.
    """

    run: str
    certificate: Certificate
    answer: str | None
    label: str | None
    picture: str
    noisy: tuple[Shown, ...]
    denoised: tuple[str, ...]
    votes: tuple[Bar, ...]
    distances: tuple[Bar, ...]
    changed: tuple[Shown, ...]
    everywhere: str | None = None
    values: tuple[float, float] | None = None
    attacked: Shown | None = None
    same_noise: bool = True

    @property
    def pixelated(self) -> bool:
        """Whether the pictures are so small that their pixels should be seen."""
        return self.picture.startswith("data:image/png")

    @property
    def id(self) -> int:
        """The number of the input."""
        return self.certificate.id

    @property
    def radius(self) -> str:
        """The radius as text, rounded down."""
        return _number(self.certificate.radius, self.certificate.noise.norm)

    @property
    def in_words(self) -> str:
        """How the size of a change is measured."""
        norm = self.certificate.noise.norm
        unit = ", in the units of the inputs"
        if norm in COUNTED:
            unit = ""
        elif is_unit(self.values):
            unit = ", where black is 0 and white is 1"
        elif self.values is not None:
            unit += ", whose values lie in [{:g}, {:g}]".format(*self.values)
        return f"{_NORMS_IN_WORDS[norm]} ({norm}){unit}."

    @property
    def change(self) -> str:
        """Which changes cannot alter the answer, in words that follow "no"."""
        return self.certificate.noise.certified_change(self.radius)

    @property
    def lower(self) -> str:
        """The proved share of noisy copies with this answer, rounded down."""
        return f"{float(round_down(100 * self.certificate.proof.lower, 2)):g}%"

    @property
    def confidence(self) -> str:
        """The confidence level in percent."""
        return f"{confidence(self.certificate.plan.alpha):%}"


def explained(
    certificate: Certificate,
    x: Picture,
    *,
    run: str,
    noisy: Sequence[Picture],
    answers: Sequence[int],
    rounded: Picture | None = None,
    denoised: Sequence[Picture] = (),
    class_names: Sequence[str] | None = None,
    nearest: tuple[float, int] | None = None,
    values: tuple[float, float] | None = None,
    attacked: tuple[Picture, int, float] | None = None,
    same_noise: bool = True,
) -> Explained:
    """Put a certificate into pictures."""
    shown_range = None if is_unit(values) else values

    def shown(x: Picture) -> str:
        return _picture(to_unit(x, shown_range), c.id)

    def attack_found(changed: Picture, answer: int, length: float) -> Shown:
        size = _number(length, c.noise.norm)
        text = f"{class_name(answer, class_names)}, after a change of {size} that an attack found"
        return Shown(shown(_with_channels(changed)), text)

    c, rounded, x = certificate, _with_channels(x if rounded is None else rounded), _with_channels(x)
    noisy, denoised = [_with_channels(copy) for copy in noisy], [_with_channels(copy) for copy in denoised]
    top = c.prediction if c.prediction is not None else c.proof.prediction
    return Explained(
        run=run,
        certificate=c,
        answer=None if c.prediction is None else class_name(c.prediction, class_names),
        label=None if c.label is None else class_name(c.label, class_names),
        picture=shown(x),
        noisy=tuple(
            Shown(shown(copy), class_name(answer, class_names), answer == top)
            for copy, answer in zip(noisy, answers, strict=True)
        ),
        denoised=tuple(shown(copy) for copy in denoised),
        votes=_votes(c, class_names, top),
        distances=_distances(c, x, [(copy, rounded) for copy in noisy], nearest, unit=is_unit(values)),
        changed=_changed(c, x, shown_range),
        everywhere=_everywhere(c, x),
        values=values,
        attacked=None if attacked is None else attack_found(*attacked),
        same_noise=same_noise,
    )


def class_name(number: int, names: Sequence[str] | None) -> str:
    """The name of a class, or its number if it has no name."""
    return names[number] if names and 0 <= number < len(names) else f"class {number}"


def check_picture(x: Picture, id: int) -> None:
    """Refuse an input that is no picture."""
    if picture_of(x) is None:
        raise InvalidInput(
            f"input {id} has shape {tuple(x.shape)}: only pictures with 1 or 3 channels and at least {SMALLEST_SIDE} "
            "pixels on each side can be explained"
        )


def _with_channels(x: Picture) -> Picture:
    return x if x.ndim == 3 else x[None]


def _picture(x: Picture, id: int) -> str:
    check_picture(x, id)
    return str(picture_of(x, side=_LARGEST_SIDE))


def _votes(c: Certificate, names: Sequence[str] | None, top: int | None) -> tuple[Bar, ...]:
    """The votes of all samples by class, the most frequent classes first."""
    counts: dict[int, int] = {}
    for look in c.looks:
        for number, votes in look.votes.items():
            counts[number] = counts.get(number, 0) + votes
    total = max(c.samples, 1)
    order = sorted((n for n in counts if counts[n]), key=lambda n: (n != top, -counts[n], n))
    shown = len(order) if len(order) <= _MOST_CLASSES + 1 else _MOST_CLASSES
    bars = [Bar(class_name(n, names), counts[n] / total, f"{counts[n]:,}", main=n == top) for n in order[:shown]]
    if rest := order[shown:]:
        votes = sum(counts[n] for n in rest)
        bars.append(Bar(f"{len(rest)} other classes", votes / total, f"{votes:,}"))
    if c.missing:
        bars.append(Bar("no finite answer", c.missing / total, f"{c.missing:,}"))
    return tuple(bars)


def _distances(
    c: Certificate,
    x: Picture,
    noisy: Sequence[tuple[Picture, Picture]],
    nearest: tuple[float, int] | None,
    *,
    unit: bool,
) -> tuple[Bar, ...]:
    """The radius beside distances that one can imagine, from near to far."""
    norm = c.noise.norm
    if c.abstained or norm not in NORMS:
        return ()
    black = np.zeros((len(x), 1, 1))
    known = [("the certified radius", c.radius)]
    if unit or norm in COUNTED:
        known.append(("one pixel turns from black to white", distance(black, black + 1, norm)))
    if unit and norm not in COUNTED:
        known.append(("every pixel changes by one of 255 steps", distance(x, x + 1 / 255, norm)))
    if nearest is not None:
        known.append((f"the nearest of {nearest[1]:,} pictures with another label", nearest[0]))
    if noisy:
        away = [distance(copy, rounded, norm) for copy, rounded in noisy]
        known.append(("a noisy copy, as above", float(np.median(away))))
    longest = max(length for _, length in known) or 1.0
    radius, *others = known
    return tuple(
        Bar(text, length / longest, _number(length, norm), main=text == radius[0])
        for text, length in [radius, *sorted(others, key=lambda pair: pair[1])]
    )


def _changed(c: Certificate, x: Picture, values: tuple[float, float] | None) -> tuple[Shown, ...]:
    norm = c.noise.norm
    if not c.radius or norm not in NORMS:
        return ()
    x, radius = to_unit(x, values), c.radius
    if values is not None and norm not in COUNTED:
        radius /= values[1] - values[0]
    everywhere = "at random places" if norm in COUNTED else "spread over all pixels, at random"
    return (
        Shown(_picture(spread_change(x, radius, norm, seed=c.id), c.id), everywhere),
        Shown(_picture(concentrated_change(x, radius, norm), c.id), "in as few pixels as possible"),
    )


def _everywhere(c: Certificate, x: Picture) -> str | None:
    """The l-infinity radius in words, rounded down; on a grid, in whole steps."""
    if not c.radius > 0 or (radius := c.noise.other_radii(c.radius, x.shape).get("linf")) is None:
        return None
    if c.noise.grid is None:
        return f"less than {round_down(float(radius), 5).rstrip('0').rstrip('.')}"
    steps = ceil(float(radius) / c.noise.grid[0] * (1 - 1e-12)) - 1  # the radius itself is not certified
    return f"at most {steps} of these steps" if steps else None


def _number(length: float, norm: str) -> str:
    return f"{length:,.0f}" if norm in COUNTED else str(round_down(length, 3 if length < 10 else 1))
