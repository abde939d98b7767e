"""Measure how many samples per second this machine draws, and compare that with two other rates.

Run it with `python -m benchmarks.bench`, with the options of a noise and a classifier as for
`smoothcert certify`.

limit      the classifier alone, with the same number format, compilation and batch, but without
           noise and counting
sampler    end to end, with requests of very different sizes, as input-specific sampling makes them
published  the loop of published programs: one input at a time, repeat, randn_like, float32, votes
           counted in Python
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, takewhile
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
import typer
from torch import Tensor

from benchmarks import STARTED
from smoothcert import _check
from smoothcert._text_table import TextTable
from smoothcert.cli import main
from smoothcert.cli.command import Output, add_command
from smoothcert.cli.options import NoiseOptions, SubjectOptions
from smoothcert.data import ArrayDataset, Dataset, find_dataset
from smoothcert.device.runtime import (
    Runtime,
    Say,
    blank,
    noisy_images,
    place,
    say_nothing,
    synchronize,
)
from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import Classifier, find_logits
from smoothcert.models.outputs import LabelClassifier, check_classifier
from smoothcert.plans import InputSpecific, Look
from smoothcert.sampling.engine import Engine
from smoothcert.sampling.sampler import Sampler, VoteCounter
from smoothcert.sampling.streams import Segment
from smoothcert.smoothed import Subject
from smoothcert.smoothed.prepare import ReadySubject
from smoothcert.statistics.metrics import evenly

PUBLISHED_BATCHES = (200, 1000)
"""Batch sizes of the published loop."""

_CEILINGS = (100_000, 10_000, 1_000)
_INPUTS = 64
_LONGEST_BATCH = 6
"""A batch size is left out if one batch takes this many times as long as a measurement may."""


@dataclass(frozen=True)
class Bench:
    """What `bench` measured. Rates are samples per second.

    Args:
        device: The device.
        dtype: The number format of the classifier.
        compile: How the classifier was compiled.
        batch: Rows per forward pass.
        forward: The rate of the classifier alone, which is the limit.
        sampler: The rate of the sampler.
        published: The rate of the published loop by batch size. Batch sizes that take too long are
            left out.
        ceiling: The ceiling of the plan in the measurement of the sampler: 100,000 as usual, or
            less on slow machines.
        counted_rows: The share of rows that were a sample of an input. The other rows were padding.
        disagreement: The share of votes that differ from those of float32 on the same noise.
        prepare_seconds: Seconds of the checks, the kernels, and the choice of the number format and
            the batch size. On CUDA, that includes the start of the device.
        first_certificate_seconds: Seconds from then to the first certificate.
    """

    device: str
    dtype: str
    compile: str
    batch: int
    forward: float
    sampler: float
    published: dict[int, float]
    ceiling: int
    counted_rows: float
    disagreement: float
    prepare_seconds: float
    first_certificate_seconds: float

    @property
    def of_limit(self) -> float:
        """The rate of the sampler as a share of the limit."""
        return self.sampler / self.forward

    def speedup(self, batch: int) -> float:
        """How many times faster the sampler is than the published loop."""
        return self.sampler / self.published[batch]


def bench(
    smoothed: Subject, data: Any = None, *, seconds: float = 10.0, say: Say = say_nothing
) -> Bench:
    """Measure the rates of the classifier alone, of the sampler, and of the published loop.

    Args:
        smoothed: The classifier.
        data: The inputs, as for `certify`. Default: random ones of the shape that the classifier
            needs.
        seconds: How long each measurement takes, about.
        say: Shows messages to the user.
    """
    _check.between("seconds", seconds, 0)
    dataset = _random_inputs(smoothed) if data is None else find_dataset(data)
    start = time.perf_counter()
    subject = smoothed.bind(dataset, range(len(dataset)))
    settled_seconds = time.perf_counter() - start
    noise = subject.noise
    runtime = subject.runtime
    changes_shape = subject.noisy_shape != subject.shape
    if noise.outcomes is not None or (changes_shape and data is None):
        raise InvalidInput(
            "noise-without-timing",
            "cannot time {noise}: use a random noise, and give {data} if the noise changes the "
            "shape of inputs",
            noise=noise,
            data=setting("data"),
        )
    inputs = _some_of(dataset)
    on_cuda = runtime.torch_device.type == "cuda"
    published: dict[int, float] = {}
    if not on_cuda:  # before `prepare`, which makes every loop on a CPU faster
        published = _published_rates(subject, inputs, seconds, say)
    start = time.perf_counter()
    ready = subject.prepare(say)
    prepare_seconds = settled_seconds + time.perf_counter() - start
    runtime = ready.runtime
    shape = subject.noisy_shape
    plan = _timed_plan(ready, shape, seconds)
    start = time.perf_counter()
    engine = ready.engine(plan)
    next(engine.certify([(0, inputs[0], None)]))
    first_certificate_seconds = time.perf_counter() - start
    counter = engine.sampler.counter
    say("timing the classifier alone, and the sampler")
    rates = _measured_rates(engine, runtime, inputs, seconds)
    say("comparing with float32")
    compared = inputs[: max(round(rates.forward * seconds / runtime.batch), 1)]
    reference = reference_of(subject.classifier, runtime)
    disagreement = _disagreement(
        counter, reference, compared, blank(shape, replace(runtime, dtype="float32"))
    )
    if on_cuda:  # at the end, so that the set-up contains the start of the device
        torch.cuda.empty_cache()
        published = _published_rates(subject, inputs, seconds, say)
    return Bench(
        device=torch.cuda.get_device_name(runtime.torch_device) if on_cuda else runtime.device,
        dtype=runtime.dtype,
        compile=runtime.compile,
        batch=runtime.batch,
        forward=rates.forward,
        sampler=rates.sampler,
        published=published,
        ceiling=plan.samples,
        counted_rows=rates.counted_rows,
        disagreement=disagreement,
        prepare_seconds=prepare_seconds,
        first_certificate_seconds=first_certificate_seconds,
    )


def sampling_rate(smoothed: Subject, *, seconds: float) -> float:
    """The rate of the sampler for random inputs, as `bench` measures it."""
    dataset = _random_inputs(smoothed)
    subject = smoothed.bind(dataset, range(len(dataset)))
    inputs = _some_of(dataset)
    ready = subject.prepare()
    engine = ready.engine(_timed_plan(ready, subject.noisy_shape, seconds))
    next(engine.certify([(0, inputs[0], None)]))  # the first one loads kernels
    return _measured_rates(engine, ready.runtime, inputs, seconds).sampler


class _Rates(NamedTuple):
    """Samples per second."""

    forward: float
    """Of the classifier alone."""
    sampler: float
    """End to end."""
    counted_rows: float
    """The share of rows that were a sample of an input."""


def _measured_rates(engine: Engine, runtime: Runtime, inputs: Tensor, seconds: float) -> _Rates:
    """Time the classifier of an engine alone, and then the engine."""
    counter = engine.sampler.counter
    batch = counter.noisy
    batch.copy_(noisy_images(batch.shape[1:], runtime))  # zeros take less power, so less time
    with torch.inference_mode():
        forward = rate_of(lambda: counter.classify(batch), len(batch), counter.device, seconds)
    sampler = _Simulated(counter)
    simulated = Engine(sampler, plan=engine.plan, noise=engine.noise)
    rate = _sampler_rate(simulated, inputs, round(forward * seconds))
    return _Rates(forward, rate, sampler.counted / sampler.forwarded)


def reference_of(classifier: Classifier, runtime: Runtime) -> LabelClassifier:
    """The classifier in float32, as published programs run it."""
    module = place(classifier.module, replace(runtime, dtype="float32"), shape=())
    return LabelClassifier(module, classifier.classes)


def _published_rates(
    subject: Subject, inputs: Tensor, seconds: float, say: Say
) -> dict[int, float]:
    """The rate of the published loop by batch size."""
    if subject.noisy_shape != subject.shape:  # the published loop can only add noise
        return {}
    device = subject.runtime.torch_device
    work = published_loop(subject, inputs.to(device))
    rates: dict[int, float] = {}
    for batch in PUBLISHED_BATCHES:
        if rates and batch / min(rates.values()) > _LONGEST_BATCH * seconds:
            say(f"leaving out the published loop at batch {batch}, which is too slow here")
            continue
        say(f"timing the published loop at batch {batch}")
        rates[batch] = rate_of(partial(work, batch), batch, device, seconds)
    return rates


def published_loop(subject: Subject, inputs: Tensor) -> Callable[[int], None]:
    """One step of published programs, for a batch size: they repeat an input, add noise, classify in
    float32 and count in Python.
    """
    reference = reference_of(subject.classifier, subject.runtime)
    classes = reference.classes
    check_classifier(reference.module, classes, torch.cat([inputs, inputs])[:8])
    counts = np.zeros(classes, dtype=int)
    following = cycle(inputs)

    @torch.no_grad()
    def work(batch: int) -> None:
        x = next(following)
        rows = x.repeat((batch, *(1 for _ in x.shape)))
        noisy = rows + torch.randn_like(rows) * subject.noise.deviation
        output = find_logits(reference.module(noisy), classes=classes, device=x.device)
        predictions = output.clamp(0, classes - 1) if output.ndim == 1 else output.argmax(1)
        for label in predictions.cpu().numpy():
            counts[label] += 1

    return work


def _some_of(dataset: Dataset) -> Tensor:
    """Inputs from all over a data set."""
    return torch.stack([dataset[i][0] for i in evenly(len(dataset), _INPUTS).tolist()])


def _random_inputs(smoothed: Subject) -> Dataset:
    model = smoothed.model
    if not isinstance(model, Classifier) or model.input_shape is None:
        raise InvalidInput(
            "no-input-shape",
            "the model has no known input shape: give {data}",
            data=setting("data"),
        )
    generator = np.random.default_rng(0)
    return ArrayDataset(
        generator.integers(256, size=(_INPUTS, *model.input_shape), dtype=np.uint8),
        name="random bytes",
    )


def _timed_plan(ready: ReadySubject, shape: tuple[int, ...], seconds: float) -> InputSpecific:
    """The plan of a measurement that takes so many seconds."""
    ceiling = _ceiling(ready.classify, blank(shape, ready.runtime), seconds)
    return InputSpecific(ceiling, decline=min(0.05, ready.noise.deviation / 5 or 0.05))


@torch.inference_mode()
def _ceiling(classify: Callable[[Tensor], Tensor], batch: Tensor, seconds: float) -> int:
    """The largest ceiling at which an input can be certified in this time."""
    samples = seconds * len(batch) / _timed(lambda: classify(batch), 1, batch.device)
    return next((ceiling for ceiling in _CEILINGS if ceiling <= samples), _CEILINGS[-1])


def rate_of(work: Callable[[], object], rows: int, device: torch.device, seconds: float) -> float:
    """Rows per second of `work`.

    Its first call, which loads kernels, counts only if it takes all of the time.
    """
    first = _timed(work, 1, device)
    if first > seconds:
        return rows / first
    times = 3 if first < seconds / 10 else 1
    batches = ceil(seconds / min(_timed(work, 1, device) for _ in range(times)))
    return batches * rows / _timed(work, batches, device)


def _timed(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Seconds for `times` calls, without waiting for the device in between."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    synchronize(device)
    return time.perf_counter() - start


class _Simulated(Sampler):
    """Samples as usual, and returns simulated votes: requests do not depend on the classifier."""

    def __init__(self, counter: VoteCounter) -> None:
        super().__init__(counter)
        self._rng = np.random.default_rng(0)
        self._p: dict[int, float] = {}

    def advance(self) -> list[tuple[int, Look]]:
        return [
            (slot, self._simulated(self._last[slot].id, look.samples))
            for slot, look in super().advance()
        ]

    def _simulated(self, id: int, samples: int) -> Look:
        # Typical of a well-trained model: often 1, otherwise anywhere above 1/2.
        typical = 1.0 if self._rng.random() < 0.35 else 1 - float(self._rng.random()) ** 3 / 2
        votes = int(self._rng.binomial(samples, self._p.setdefault(id, typical)))
        return Look(samples, {0: votes, 1: samples - votes})


def _sampler_rate(engine: Engine, inputs: Tensor, budget: int) -> float:
    """Samples per second over inputs that need very different numbers of samples.

    Inputs are added until `budget` samples are asked for. The time until the last one is finished
    counts.
    """
    following = takewhile(lambda _: engine.committed < budget, enumerate(cycle(inputs)))
    work = engine.certify((number, x, None) for number, x in following)
    seconds = _timed(lambda: list(work), 1, engine.sampler.counter.device)
    return engine.committed / seconds


@torch.inference_mode()
def _disagreement(
    counter: VoteCounter, reference: LabelClassifier, inputs: Tensor, exact: Tensor
) -> float:
    """The share of labels that differ from float32, over one batch per input.

    `exact` is a buffer in float32.
    """
    batch = len(exact)
    differing = 0
    for id, x in enumerate(inputs):
        for out in (counter.noisy, exact):
            counter.draw(x, [Segment(0, id, 0, batch)], out)
        differing += int((counter.classify(counter.noisy) != reference(exact)).sum())
    return differing / (batch * len(inputs))


def command(
    *, noise: NoiseOptions, subject: SubjectOptions, data: str | None = None, seconds: float = 10.0
) -> Output:
    """Measure samples per second: the classifier alone, the sampler, and published programs.

    Args:
        data: Inputs to use. Default: random ones.
        seconds: Seconds for each measurement.
    """
    imported = time.perf_counter() - STARTED
    smoothed = Subject(**vars(subject), noise=noise.build())
    loaded = time.perf_counter() - STARTED
    result = bench(
        smoothed,
        data,
        seconds=seconds,
        say=lambda message: print(message, file=sys.stderr, flush=True),
    )
    plain = asdict(result)
    plain["setup"] = {
        "import": imported,
        "load": loaded - imported,
        "prepare": result.prepare_seconds,
    }
    plain["of_limit"] = result.of_limit
    plain["speedup"] = {size: result.speedup(size) for size in result.published}
    return Output(plain, [_table(result)])


def _table(bench: Bench) -> TextTable:
    rows = [["classifier alone (the limit)", f"{bench.forward:,.0f}", f"{bench.of_limit:.2f}"]]
    for size, rate in bench.published.items():
        name = f"published loop, float32, batch {size}"
        rows.append([name, f"{rate:,.0f}", f"{bench.speedup(size):.2f}"])
    rows.append(["sampler, end to end", f"{bench.sampler:,.0f}", ""])
    votes = f"{bench.disagreement:.3%} of votes differ from float32's"
    first = f"first certificate {bench.first_certificate_seconds:.1f} s later"
    return TextTable(
        f"{bench.device}, {bench.dtype}, compile {bench.compile}, batch {bench.batch}",
        ["", "samples/s", "sampler is x times"],
        rows,
        caption=f"{bench.counted_rows:.1%} of rows counted; {votes}; "
        f"prepared in {bench.prepare_seconds:.1f} s, {first}",
    )


application = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
add_command(application, command, panel="")

if __name__ == "__main__":
    main(application)
