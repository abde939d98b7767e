"""`probe`: how often is a base classifier right on noisy inputs, for a few strengths of noise?

A smoothed classifier is only as good as its base classifier under noise. A probe takes seconds and
tells whether a sigma is too large for a model, before anybody certifies with it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from smoothcert import _check
from smoothcert._settings import NAMES
from smoothcert._text_table import TextTable
from smoothcert.data import Dataset, find_dataset, select_ids
from smoothcert.device.runtime import blank
from smoothcert.errors import InvalidInput, number_of
from smoothcert.models import Classifier
from smoothcert.models.denoisers import Denoiser, load_denoiser
from smoothcert.noises import Gaussian, Noise
from smoothcert.plans import Rule, SingleDraw, Tally
from smoothcert.sampling.engine import Input
from smoothcert.sampling.streams import key_for
from smoothcert.smoothed import ReadySubject, Subject
from smoothcert.smoothed.checks import warn_about_columns
from smoothcert.statistics.bounds import critical_count, interval
from smoothcert.statistics.empirical_bayes import likely_above
from smoothcert.statistics.group_sequential import default_looks
from smoothcert.statistics.metrics import evenly

SIGMAS = (0.12, 0.25, 0.5, 1.0)
"""The standard deviations that papers use most."""

_FAST_START = {"batch": 64, "compile": "none"}
"""Settings with which a probe begins at once."""
_BAR = 24
"""Characters of the bar that shows an accuracy of 100%."""
_KEPT = 0.75
"""Noise is too large for a model that keeps less than this share of its accuracy above chance."""
_ALPHA = 0.05
"""One minus the confidence of the intervals."""
_CERTIFIED_ALPHA = 0.001
"""Alpha of the certificates that an estimate is about."""
_ABOVE_CHANCE = 0.1
"""A model has not learnt the data if it closes less of the gap from guessing to perfection."""
_WITH_OTHER_ORDER = 0.5
"""A model that is right less often may know the classes of folders in another order."""


@dataclass(frozen=True)
class Level:
    """How a classifier does under one strength of noise.

    Args:
        sigma: The standard deviation of the noise; 0 is without noise.
        accuracy: The share of noisy copies whose label is right.
        majority: The share of inputs for which most noisy copies have the right label: about the
            accuracy of the smoothed classifier, which certified accuracy cannot exceed.
        estimated: Certified accuracy by radius, as fixed sampling would certify it; None at radii
            that no votes of so many samples prove. An estimate, not a certificate; None if no radii
            were asked for.
    """

    sigma: float
    accuracy: float
    majority: float
    estimated: dict[float, float | None] | None = None


@dataclass(frozen=True)
class Probe:
    """What a probe found.

    Args:
        model: The name of the classifier.
        data: The name of the data set.
        classes: The number of classes.
        inputs: How many inputs were probed.
        copies: Noisy copies of each input.
        levels: The results by sigma, in increasing order. The first one is without noise.
        device: The device.
        dtype: The number format of the classifier. Where it was chosen for each sigma, that of the
            largest one.
        seconds: How long the probe took, without loading.
        denoiser: The name of the denoiser in front of the classifier, if there is one.
        samples: The samples per input of the certificates that an estimate is about.
        shape: The shape of an input. That of a row of a table has one number.
        unscaled: Whether the columns of a table vary too differently for one sigma.
        labels_are_positions: Whether labels are the positions of the names of folders.
    """

    model: str
    data: str
    classes: int
    inputs: int
    copies: int
    levels: tuple[Level, ...]
    device: str
    dtype: str
    seconds: float
    denoiser: str | None = None
    samples: int = 100_000
    shape: tuple[int, ...] = ()
    unscaled: bool = False
    labels_are_positions: bool = False

    def __str__(self) -> str:
        tables = [self._measured()]
        if self.levels[-1].estimated is not None:
            tables.append(self._estimated())
        return "\n".join([*map(str, tables), self.reading])

    def _measured(self) -> TextTable:
        """How often the model is right on noisy inputs."""
        can_draw = (sys.stdout.encoding or "").lower().startswith("utf")
        full, empty = "█░" if can_draw else "#."
        rows = []
        for level in self.levels:
            bar = (full * round(level.accuracy * _BAR)).ljust(_BAR, empty)
            name = f"{level.sigma:g}" if level.sigma else "no noise"
            rows.append([name, f"{level.accuracy:.1%}", bar, f"{level.majority:.1%}"])
        inputs = f"{number_of(self.inputs, 'input')} of {self.data}"
        return TextTable(
            f"{self.classifier} on {inputs}, {self.copies} noisy copies each",
            ["sigma", "noisy copies right", "", "majority right"],
            rows,
        )

    def _estimated(self) -> TextTable:
        """What certificates would show, by sigma and radius."""
        rows = []
        for level in self.levels[1:]:
            shares = (level.estimated or {}).values()
            shown = ["beyond reach" if share is None else f"{share:.1%}" for share in shares]
            rows.append([f"{level.sigma:g}", *shown])
        return TextTable(
            f"What {self.samples:,} samples per input would certify, estimated. These are not "
            "certificates.",
            ["sigma", *(f"about, at {radius:g}" for radius in self.levels[-1].estimated or {})],
            rows,
            caption=f"Beyond reach: no votes of {self.samples:,} samples prove this radius.",
        )

    @property
    def classifier(self) -> str:
        """The name of the model, and of the denoiser in front of it."""
        return self.model if self.denoiser is None else f"{self.model} behind {self.denoiser}"

    @property
    def chance(self) -> float:
        """The accuracy of guessing, where all classes are equally frequent."""
        return 1 / self.classes

    @property
    def threshold(self) -> float:
        """Noise is too large below this: chance, and 3/4 of the accuracy without noise above it."""
        return self.chance + _KEPT * (self.levels[0].accuracy - self.chance)

    @property
    def too_large(self) -> tuple[float, ...]:
        """The sigmas at which the model keeps less than 3/4 of its accuracy above chance.

        This means nothing for a model that is hardly better than chance without noise. The reading
        then says so.
        """
        return tuple(level.sigma for level in self.levels[1:] if level.accuracy < self.threshold)

    def interval(self, level: Level) -> tuple[float, float]:
        """An interval of about 95% for the accuracy on noisy copies of random inputs.

        Copies of one input are not independent, so each input counts as a single observation, which
        may be right in part. Clopper and Pearson's interval then holds only approximately. It is
        usually too wide, because parts vary less than whole numbers.

        Args:
            level: The result for one sigma.
        """
        low, high = interval(level.accuracy * self.inputs, self.inputs, alpha=_ALPHA)
        return float(low), float(high)

    @property
    def reading(self) -> str:
        """What the numbers mean, and a doubt if there are too few inputs to tell."""
        clean, *noisy = self.levels
        least = self.chance + _ABOVE_CHANCE * (1 - self.chance)
        if self.labels_are_positions:
            least = max(least, _WITH_OTHER_ORDER)
        if clean.accuracy < least:
            return (
                f"Without noise, the model is right on only {clean.accuracy:.0%} of the inputs, "
                f"and guessing on {100 * self.chance:.2g}%: check its weights, its preprocessing, "
                "the units of the inputs, and the order of labels and classes."
            )
        if not self.too_large:
            largest = noisy[-1]
            advice = "this noise is not too large for it"
            return f"{self._figures(largest)}: {advice}.{self._doubt(largest)}"
        first = next(level for level in noisy if level.sigma in self.too_large)
        smaller = [level for level in noisy if level.sigma < first.sigma]
        return f"{self._figures(first)}: {self._advice(smaller)}.{self._doubt(first)}"

    def _advice(self, smaller: Sequence[Level]) -> str:
        """What to do about noise that is too large, where it is not at smaller sigmas."""
        ways = ["train it with noise"]
        if self.unscaled:
            ways.insert(0, "scale the columns, because one sigma is for all of them")
        elif len(self.shape) != 1:
            ways.insert(0, "put a denoiser in front of it")
        if self.denoiser is not None:
            ways = ["use a better denoiser", "fine-tune the model behind it"]
        if smaller:
            ways.append(f"stay at sigma {smaller[-1].sigma:g} ({smaller[-1].accuracy:.0%})")
        *others, last = ways
        return f"{', '.join(others)} or {last}" if others else last

    def _figures(self, level: Level) -> str:
        """The accuracy at a sigma and without noise, in words."""
        return (
            f"At sigma {level.sigma:g} the model is right on {level.accuracy:.0%} of noisy inputs "
            f"({self.levels[0].accuracy:.0%} without noise)"
        )

    def _doubt(self, level: Level) -> str:
        """A warning if another choice of inputs could well lead to another verdict on a sigma."""
        low, high = self.interval(level)
        if not low < self.threshold < high:
            return ""
        return (
            f" {self.inputs} inputs are too few to be sure: noise is too large where the model is "
            f"right on less than {self.threshold:.0%}, and on other inputs it may be right on "
            f"{low:.0%} to {high:.0%}."
        )

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        levels = []
        for level in self.levels:
            shares = {f"{radius:g}": share for radius, share in (level.estimated or {}).items()}
            more = {"estimated": shares or None, "interval": self.interval(level)}
            levels.append(vars(level) | more)
        return vars(self) | {
            "levels": levels,
            "too_large": list(self.too_large),
            "reading": self.reading,
        }


def probe(
    model: str | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    labels: Any = None,
    *,
    sigmas: Sequence[float] | None = None,
    copies: int = 16,
    radii: Sequence[float] | None = None,
    samples: int = 100_000,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int = 100,
    **settings: Any,
) -> Probe:
    """Measure how often a base classifier is right on noisy inputs, for a few sigmas.

    `certify` draws other noise with the same seed, so votes that choose a sigma or model never
    count in a certificate.

    Args:
        model: The model, as for `certify`.
        data: The data, as for `certify`. Inputs without a label are left out.
        labels: The labels, as for `certify`.
        sigmas: The standard deviations of the noise. Default: 0.12, 0.25, 0.5 and 1, or what the
            denoiser removes.
        copies: Noisy copies of each input.
        radii: Also estimate certified accuracy at these radii, from up to 4,000 more copies of each
            input.
        samples: The samples per input of the certificates that the estimate is about.
        ids: The inputs, as for `certify`. Default: `limit` inputs that are spread evenly over the
            data.
        skip: Take every `skip`-th input.
        limit: Take at most this many inputs.
        **settings: The settings of `Smoothed` without a noise. Inputs without noise go to the model
            directly, also if there is a denoiser. Without `radii`, the defaults of `batch` and
            `compile` are 64 and "none".

    >>> import smoothcert as sc
    >>> found = sc.probe("fashion-cnn-clean", "fashion-mnist", sigmas=[0.5], limit=50, device="cpu")
    >>> [level.sigma for level in found.levels], found.levels[0].accuracy > 0.8, found.too_large
    ([0.0, 0.5], True, (0.5,))
    """
    if not settings.keys().isdisjoint(("noise", "sigma", "transform")):
        raise InvalidInput(
            "noise-of-probe",
            "a probe chooses the noise itself: give `sigmas`",
        )
    _check.names("probe", settings, ("sigmas", "radii", *NAMES))
    front = _denoiser(settings)
    deviations = _sigmas(sigmas, front)
    copies = _check.whole("copies", copies, least=1)
    samples = _check.whole("samples", samples, least=1)
    if radii is None:
        # Most probes take less time than choosing the fastest batch and compiling.
        settings |= {n: v for n, v in _FAST_START.items() if settings.get(n, "auto") == "auto"}
    else:
        radii = sorted(set(_check.radii(radii)))
    dataset = find_dataset(data, labels)
    limit = _check.whole("limit", limit, least=1)
    if ids is None and skip is None:
        # From all parts of the data, which may be sorted by class.
        ids = evenly(len(dataset), limit).tolist()
    chosen = select_ids(len(dataset), ids=ids, skip=skip, limit=limit)
    start = time.perf_counter()

    def bound(sigma: float, denoiser: Denoiser | None) -> Subject:
        """The classifier may depend on the noise, as the bundled weights do."""
        subject = Subject(model, noise=Gaussian(sigma), denoiser=denoiser, pad=False, **settings)
        return subject.bind(dataset, chosen, in_memory=True)

    subject = bound(deviations[0], None)
    inputs = _labelled(subject, dataset, chosen)
    levels = [_without_noise(subject.ready, inputs)]
    for sigma in deviations:
        if front is not None or sigma != deviations[0]:
            subject = bound(sigma, front)
        levels.append(_under_noise(subject.ready, inputs, copies, radii, samples))
    return Probe(
        model=subject.classifier.name,
        data=dataset.name,
        classes=subject.classifier.classes,
        inputs=len(inputs),
        copies=copies,
        levels=tuple(levels),
        device=subject.runtime.device,
        dtype=subject.runtime.dtype,
        seconds=time.perf_counter() - start,
        denoiser=None if front is None else front.name,
        samples=samples,
        shape=subject.shape,
        unscaled=warn_about_columns(dataset, chosen, subject.shape),
        labels_are_positions=getattr(dataset, "labels_are_positions", False),
    )


def _denoiser(settings: dict[str, Any]) -> Denoiser | None:
    """The denoiser that the settings name, which is loaded once for all sigmas."""
    denoiser = settings.pop("denoiser", None)
    if denoiser is None:
        return None
    return load_denoiser(denoiser, stochastic=settings.get("stochastic", False))


def _sigmas(sigmas: Sequence[float] | None, denoiser: Denoiser | None) -> list[float]:
    """The standard deviations to try, in increasing order."""
    if sigmas is None:
        low, high = (0.0, inf) if denoiser is None else denoiser.sigmas
        sigmas = [sigma for sigma in SIGMAS if low <= sigma <= high] or [low, high]
    positive = {_check.at_least("each sigma", sigma, 0) for sigma in sigmas} - {0.0}
    if not positive:
        raise InvalidInput("no-sigma", "there is no sigma above 0: give some, as in 0.12,0.25,0.5")
    return sorted(positive)


def _labelled(subject: Subject, dataset: Dataset, ids: Sequence[int]) -> list[Input]:
    """The inputs that have a label."""
    inputs = [subject.read(dataset, id) for id in ids]
    labelled = [one for one in inputs if one[2] is not None]
    if not labelled:
        raise InvalidInput(
            "no-labels",
            "no chosen input of {data} has a label, so no accuracy can be measured",
            data=dataset.name,
        )
    return labelled


@torch.inference_mode()
def _without_noise(ready: ReadySubject, inputs: Sequence[Input]) -> Level:
    """The accuracy without noise."""
    answers: list[int] = []
    batch = blank(ready.shape, ready.runtime)
    for first in range(0, len(inputs), len(batch)):
        part = torch.stack([x for _, x, _ in inputs[first : first + len(batch)]])
        batch[: len(part)].copy_(part)
        answers += ready.classify(batch)[: len(part)].tolist()
    accuracy = float(np.mean(np.array(answers) == [label for _, _, label in inputs]))
    return Level(0.0, accuracy, accuracy)


def _under_noise(
    ready: ReadySubject,
    inputs: Sequence[Input],
    copies: int,
    radii: Sequence[float] | None,
    samples: int,
) -> Level:
    """The accuracy on noisy copies, and the estimate at the radii, if there are any.

    Their noise is not that of a run, because votes that choose a sigma must not count again.
    """
    engine = ready.engine(SingleDraw(copies), seed=key_for(ready.seed, "probe"))
    right = 0
    majority = 0
    for certificate in engine.certify(inputs):
        look = certificate.looks[0]
        right += look.of(certificate.label)
        majority += look.top == certificate.label
    return Level(
        sigma=ready.noise.deviation,
        accuracy=right / (copies * len(inputs)),
        majority=majority / len(inputs),
        estimated=None if radii is None else _estimated(ready, inputs, radii, samples),
    )


@dataclass(frozen=True)
class _UntilClear(Rule):
    """Look until the label's probability is likely on one side of every threshold."""

    thresholds: tuple[float, ...]
    samples: int = 4_000
    doubt: float = 0.05
    known_labels: bool = True

    @classmethod
    def at(cls, radii: Sequence[float], noise: Noise, samples: int) -> Self:
        """The rule whose thresholds are the shares of votes with which fixed sampling certifies the
        radii; above 1 for none.
        """
        p = [noise.needed_probability(radius) for radius in radii]
        needed = critical_count(p, samples, alpha=_CERTIFIED_ALPHA) / samples
        return cls(tuple(needed.tolist()))

    def __str__(self) -> str:
        return "an estimate"

    def request(self, state: Tally) -> Any:
        steps = np.diff(default_looks(self.samples), prepend=0)
        if state.look == 0:
            return steps[0]
        if state.look == len(steps):
            return 0
        above = self.likely(state.count, state.drawn)
        clear = np.all((above > 1 - self.doubt) | (above < self.doubt), axis=-1)
        return np.where(clear, 0, steps[state.look])[()]

    def likely(self, count: Any, samples: Any) -> Any:
        """How likely it is that the probability is above each threshold."""
        limits = np.array(self.thresholds).clip(max=1.0)
        return likely_above(limits, np.asarray(count)[..., None], np.asarray(samples)[..., None])


def _estimated(
    ready: ReadySubject, inputs: Sequence[Input], radii: Sequence[float], samples: int
) -> dict[float, float | None]:
    """The certified accuracy that fixed sampling would find, by radius.

    It is the share of labels whose probability is likely above what fixed sampling needs.
    """
    plan = _UntilClear.at(radii, ready.noise, samples)
    engine = ready.engine(plan, seed=key_for(ready.seed, "estimate"))
    right = np.zeros(len(radii))
    for certificate in engine.certify(inputs):
        votes = sum(look.of(certificate.label) for look in certificate.looks)
        right += plan.likely(votes, certificate.samples) > 0.5
    shares = zip(radii, plan.thresholds, (right / len(inputs)).tolist(), strict=True)
    return {radius: share if threshold <= 1 else None for radius, threshold, share in shares}
