"""Probe a base classifier: how often is it right on noisy inputs, for a few strengths of Gaussian noise?

A smoothed classifier is only as good as its base classifier under noise. A probe takes seconds and tells whether a
sigma is too large for a model, before anybody certifies with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.data import load_dataset, select_ids
from smoothcert.data.wrap import as_dataset
from smoothcert.device.runtime import Device, Dtype, Runtime, blank, settle_dtype
from smoothcert.errors import InvalidInput
from smoothcert.executors import Job
from smoothcert.executors.worker import read_input
from smoothcert.models import Classifier
from smoothcert.models.denoisers import Denoiser, load_denoiser
from smoothcert.models.denoisers.check import check_values
from smoothcert.noises import Gaussian
from smoothcert.plans import Fixed
from smoothcert.report.chart import Axis, Chart, Column, Line, Points
from smoothcert.report.charts import evenly
from smoothcert.sampling.engine import Input, assemble
from smoothcert.sampling.number_format import COMPARED_INPUTS, without_doubt
from smoothcert.sampling.streams import LARGEST_SEED, check_seed
from smoothcert.smoothed.prepare import prepare
from smoothcert.statistics.bounds import interval
from smoothcert.tasks.certify import check_shape, load

SIGMAS = (0.12, 0.25, 0.5, 1.0)
"""The standard deviations that papers use most."""

_BATCH = 64
"""Rows per forward pass by default. Measuring the fastest batch would take longer than most probes."""
_KEPT = 0.75
"""Noise is too large for a model that keeps less than this share of its accuracy above chance."""
_ALPHA = 0.05
"""One minus the confidence of the intervals."""
_ABOVE_CHANCE = 0.1
"""A model that closes less than this share of the gap from guessing to perfection has not learnt this data."""


@dataclass(frozen=True)
class Level:
    """How a classifier does under one strength of noise.

    Args:
        sigma: The standard deviation of the noise; 0 is without noise.
        accuracy: The share of noisy copies whose label is right.
        majority: The share of inputs for which most noisy copies have the right label: about the accuracy of the
            smoothed classifier, which certified accuracy cannot exceed.
    """

    sigma: float
    accuracy: float
    majority: float


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
        dtype: The number format of the classifier. Where it was chosen for each sigma, that of the largest one.
        seconds: How long the probe took, without loading.
        denoiser: The name of the denoiser in front of the classifier, if there is one.
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
        """Noise is too large below this accuracy: chance, and three quarters of what the model has above it."""
        return self.chance + _KEPT * (self.levels[0].accuracy - self.chance)

    @property
    def too_large(self) -> tuple[float, ...]:
        """The sigmas at which the model keeps less than three quarters of its accuracy above chance.

        This means nothing for a model that is hardly better than chance without noise. The reading then says so.
        """
        return tuple(level.sigma for level in self.levels[1:] if level.accuracy < self.threshold)

    def interval(self, level: Level) -> tuple[float, float]:
        """A confidence interval of about 95% for the accuracy on noisy copies, for inputs that are drawn at random.

        Copies of one input are not independent, so each input counts as a single observation, which may be right in
        part. Clopper and Pearson's interval then holds only approximately. It is usually too wide, because parts vary
        less than whole numbers.

        Args:
            level: The result for one sigma.
        """
        low, high = interval(level.accuracy * self.inputs, self.inputs, alpha=_ALPHA)
        return float(low), float(high)

    @property
    def reading(self) -> str:
        """What the numbers mean, in one sentence, and in a second one if there are too few inputs to tell."""
        clean, *noisy = self.levels
        without = f"{clean.accuracy:.0%} without noise"
        if clean.accuracy < self.chance + _ABOVE_CHANCE * (1 - self.chance):
            return (
                f"Without noise, the model is right on only {clean.accuracy:.0%} of the inputs, and guessing on "
                f"{100 * self.chance:.2g}%: check its weights, its preprocessing (it gets values in [0, 1]) and the "
                "order of its classes."
            )
        if not self.too_large:
            largest = noisy[-1]
            return (
                f"At sigma {largest.sigma:g} the model is right on {largest.accuracy:.0%} of noisy inputs ({without}): "
                f"this noise is not too large for it.{self._doubt(largest)}"
            )
        first = next(level for level in noisy if level.sigma in self.too_large)
        smaller = [level for level in noisy if level.sigma < first.sigma]
        ways = ["put a denoiser in front of it", "train it with noise"]
        if self.denoiser is not None:
            ways = ["use a better denoiser", "fine-tune the model behind it"]
        if smaller:
            ways.append(f"stay at sigma {smaller[-1].sigma:g} ({smaller[-1].accuracy:.0%})")
        return (
            f"At sigma {first.sigma:g} the model is right on {first.accuracy:.0%} of noisy inputs ({without}): "
            f"{', '.join(ways[:-1])} or {ways[-1]}.{self._doubt(first)}"
        )

    def _doubt(self, level: Level) -> str:
        """A warning if another choice of inputs could well lead to another verdict on a sigma."""
        low, high = self.interval(level)
        if not low < self.threshold < high:
            return ""
        return (
            f" {self.inputs} inputs are too few to be sure: the limit is {self.threshold:.0%}, and on other inputs the "
            f"model may be right on {low:.0%} to {high:.0%}."
        )

    def chart(self) -> Chart:
        """Accuracy against sigma, which `report.figures.plot` draws."""
        sigma = np.array([level.sigma for level in self.levels])
        layers: list[Line | Points] = []
        for name, values in (
            ("noisy copies", np.array([level.accuracy for level in self.levels])),
            ("majority of copies", np.array([level.majority for level in self.levels])),
        ):
            columns = (Column("sigma", sigma, "g"), Column("right", values, ".1%"))
            layers += [Line(name, sigma, values, columns=columns), Points(name, sigma, values, columns=columns)]
        return Chart(
            "probe",
            f"{self.classifier} under noise",
            ("noisy copies", "majority of copies"),
            Axis("sigma of the noise"),
            Axis("right", "percent"),
            tuple(layers),
            self.reading,
            f"Accuracy of {self.classifier} against sigma: "
            + "; ".join(f"{level.accuracy:.0%} at {level.sigma:g}" for level in self.levels)
            + ".",
            series_title="measure",
        )

    def save_figure(self, out: str | Path) -> Path:
        """Draw the chart.

        Args:
            out: The file; its ending is .pdf, .svg or .png.

        Returns:
            The file.
        """
        from smoothcert.report.figures import paper_style, plot, save

        path = check_figure(out)
        with paper_style():
            [written] = save(plot(self.chart())[0], path.with_suffix(""), (path.suffix[1:],))
        return written

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        levels = [asdict(level) | {"interval": list(self.interval(level))} for level in self.levels]
        return asdict(self) | {"levels": levels, "too_large": list(self.too_large), "reading": self.reading}


def probe(
    model: str | Classifier | Callable[[Tensor], Any] | None,
    data: Any,
    *,
    sigmas: Sequence[float] | None = None,
    copies: int = 16,
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int = 100,
    weights: str | Path | None = None,
    classes: int | None = None,
    denoiser: str | Path | nn.Module | None = None,
    stochastic: bool = False,
    seed: int = 0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    batch: int | str = "auto",
    on_level: Callable[[Level], None] = lambda level: None,
) -> Probe:
    """Measure how often a base classifier is right on noisy inputs, for a few sigmas.

    `certify` draws other noise with the same seed, so votes that choose a sigma or model never count in a certificate.

    Args:
        model: The model, as for `certify`.
        data: The data, as for `certify`. Inputs without a label are left out.
        sigmas: The standard deviations of the noise. Default: 0.12, 0.25, 0.5 and 1, or what the denoiser removes.
        copies: Noisy copies of each input.
        ids: The inputs, as for `certify`. Default: `limit` inputs that are spread evenly over the data.
        skip: Take every `skip`-th input.
        limit: Take at most so many inputs.
        weights: A checkpoint for a model that is given by its name.
        classes: The number of classes, where the model does not tell.
        denoiser: Removes the noise before the model sees an input, as for `certify`. Inputs without noise go to the
            model directly.
        stochastic: Whether the model or the denoiser is random by design, as for `certify`.
        seed: The key of the noise.
        device: "cpu", "cuda", "cuda:N", "mps", a `torch.device` or the number of a CUDA device. Default: the fastest.
        dtype: The number format of the classifier, as for `certify`.
        batch: Rows per forward pass. Default: 64.
        on_level: Told the result for each sigma as soon as it is known.

    >>> import smoothcert as sc
    >>> found = sc.probe("fashion-cnn-clean", "fashion-mnist", sigmas=[0.5], limit=50, device="cpu")
    >>> [level.sigma for level in found.levels], found.levels[0].accuracy > 0.8, found.too_large
    ([0.0, 0.5], True, (0.5,))
    """
    front = None if denoiser is None else load_denoiser(denoiser, stochastic=stochastic)
    if sigmas is None:
        sigmas = SIGMAS if front is None else _removed_by(front)
    if not (wanted := sorted({_check.at_least("each sigma", sigma, 0) for sigma in sigmas} - {0.0})):
        raise InvalidInput("there is no sigma above 0: give some, as in 0.12,0.25,0.5")
    copies = _check.whole("copies", copies, least=1)
    seed = check_seed(_check.whole("seed", seed))
    dataset = load_dataset(str(data)) if isinstance(data, (str, Path)) else as_dataset(data)
    chosen = _chosen(len(dataset), ids=ids, skip=skip, limit=limit)
    start = time.perf_counter()

    def job_for(noise: Gaussian, denoiser: Denoiser | None) -> Job:
        """The job of `certify`, whose classifier may depend on the noise, as the bundled weights do."""
        classifier, _ = load(
            model,
            dataset,
            weights=weights,
            classes=classes,
            noise=noise,
            stochastic=stochastic,
            denoiser=denoiser,
        )
        own = settle_dtype(dtype, classifier.module)
        runtime = Runtime.resolve(device, own, "none", _BATCH if batch == "auto" else batch)
        runtime.check_noise(noise.sigma)
        if own == "auto":
            few = [dataset[id][0] for id in chosen[:COMPARED_INPUTS]]
            runtime = without_doubt(runtime, classifier.module, few, classes=classifier.classes, noise=noise)
        return Job(classifier, dataset, noise, Fixed(pilot=copies), runtime, seed)  # the pilot alone is drawn

    noises = [Gaussian(sigma) for sigma in wanted]
    job = job_for(noises[0], None)
    check_shape(job.classifier, dataset, job.noise)
    inputs = [read for id in chosen if (read := read_input(job, id))[2] is not None]
    if not inputs:
        raise InvalidInput(f"no chosen input of {dataset.name} has a label, so nobody knows what is right")
    prepared = _Prepared(job, inputs)
    levels = [prepared.without_noise()]
    on_level(levels[0])
    for noise in noises:
        if front is not None or noise is not noises[0]:
            job = job_for(noise, front)
            for id, x, _ in inputs:
                check_values(job.classifier.values, x, f"input {id} of {dataset.name}")
        if not prepared.runs(job):
            prepared = _Prepared(job, inputs)
        levels.append(prepared.under(noise))
        on_level(levels[-1])
    return Probe(
        model=job.classifier.name,
        data=dataset.name,
        classes=job.classifier.classes,
        inputs=len(inputs),
        copies=copies,
        levels=tuple(levels),
        device=job.runtime.device,
        dtype=job.runtime.dtype,
        seconds=time.perf_counter() - start,
        denoiser=None if front is None else front.name,
    )


class _Prepared:
    """A classifier that is prepared for sampling.

    Args:
        job: The classifier, how it is run, and how many samples an input gets.
        inputs: The inputs. All of them have labels.
    """

    def __init__(self, job: Job, inputs: Sequence[Input]) -> None:
        self.job = job
        self.inputs = inputs
        self.shape = tuple(inputs[0][1].shape)
        self.classify, self.runtime = prepare(job.classifier.module, job.classifier.classes, self.shape, job.runtime)

    def runs(self, job: Job) -> bool:
        """Whether this is the classifier of another job, too, in the same number format."""
        own, other = self.job.classifier, job.classifier
        same_weights = own.weights_hash is not None and own.weights_hash == other.weights_hash
        return (own.module is other.module or same_weights) and self.job.runtime == job.runtime

    @torch.inference_mode()
    def without_noise(self) -> Level:
        """The accuracy without noise."""
        right = 0
        batch = blank(self.shape, self.runtime)
        for first in range(0, len(self.inputs), len(batch)):
            part = self.inputs[first : first + len(batch)]
            batch[: len(part)].copy_(torch.stack([x for _, x, _ in part]))
            answers = self.classify(batch)[: len(part)].tolist()
            right += sum(answer == label for answer, (_, _, label) in zip(answers, part, strict=True))
        return Level(0.0, right / len(self.inputs), right / len(self.inputs))

    def under(self, noise: Gaussian) -> Level:
        """The accuracy on noisy copies."""
        job, copies = self.job, self.job.plan.pilot
        sampler = assemble(
            self.classify,
            classes=job.classifier.classes,
            shape=self.shape,
            noise=noise,
            plan=job.plan,
            runtime=self.runtime,
            seed=LARGEST_SEED - job.seed,  # not that of the run: votes that choose a sigma must not count again
            flexible=self.runtime.torch_device.type != "cuda",
        ).sampler
        labels: dict[int, int] = {}
        right = majority = 0
        waiting = list(reversed(self.inputs))
        while waiting or labels:
            while waiting and sampler.free:
                id, x, label = waiting.pop()
                slot = sampler.open(id, x)
                labels[slot] = NO_CLASS if label is None else label
                sampler.request(slot, copies)
            for slot, look in sampler.advance():
                right += look.votes.get(labels[slot], 0)
                majority += look.top == labels.pop(slot)
                sampler.close(slot)
        return Level(noise.sigma, right / (copies * len(self.inputs)), majority / len(self.inputs))


def _removed_by(denoiser: Denoiser) -> Sequence[float]:
    """Those of the usual sigmas that a denoiser can remove, or else the ends of its range."""
    low, high = denoiser.sigmas
    return [sigma for sigma in SIGMAS if low <= sigma <= high] or [low, high]


def check_figure(out: str | Path) -> Path:
    """The file of a figure, after a check of its ending."""
    path = Path(out)
    if path.suffix not in (".pdf", ".svg", ".png"):
        raise InvalidInput(f"out={out} must end in .svg, .png or .pdf")
    return path


def _chosen(count: int, *, ids: str | Sequence[int] | None, skip: int | None, limit: int) -> list[int]:
    """The ids of the inputs. By default they come from all parts of the data, which may be sorted by class."""
    limit = _check.whole("limit", limit, least=1)
    if ids is not None or skip is not None:
        return select_ids(count, ids=ids, skip=skip, limit=limit)
    return evenly(count, limit).tolist() if count else select_ids(count)
