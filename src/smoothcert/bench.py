"""How fast this machine samples, measured against its own limit and against the usual loop, in one run.

limit      the classifier alone: same number format, compilation and batch, no noise, no counting
sampler    end to end, on requests as uneven as input-specific sampling makes them
published  the loop that people copy: one input at a time, repeat, randn_like, float32, votes counted in Python
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil

import numpy as np
import torch
from torch import Tensor

from smoothcert import _check
from smoothcert.classifiers.base import Classifier
from smoothcert.classifiers.check import check_classifier
from smoothcert.classifiers.outputs import find_logits
from smoothcert.datasets.base import Dataset
from smoothcert.device.prepare import LabelClassifier, place, prepare
from smoothcert.device.runtime import Runtime, blank, synchronize
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans import Case, InputSpecific, Look, Plan
from smoothcert.sampler.engine import assemble
from smoothcert.sampler.packing import Segment
from smoothcert.sampler.sampler import Sampler
from smoothcert.sampler.voting import VoteCounter

PUBLISHED_BATCHES = (200, 1000)

_CEILINGS = (100_000, 10_000, 1_000)
_PATIENCE = 6  # times the time for each thing that one batch may take


@dataclass(frozen=True)
class Bench:
    """Rates are samples per second."""

    device: str
    dtype: str
    compile: str
    batch: int
    forward: float
    """The limit."""
    sampler: float
    published: dict[int, float]
    """By batch size; without those of which a single batch would take too long."""
    ceiling: int
    """Of the plans that the sampler followed: the usual 100,000, less on slow machines."""
    counted_rows: float
    """Share of forwarded rows that were somebody's sample, the rest being padding."""
    disagreement: float
    """Share of votes that differ from float32's on the same noise."""
    memory: int
    """Peak bytes: of the device on CUDA, else of the process."""
    prepare_seconds: float
    """Choosing the batch and compiling."""
    first_certificate_seconds: float
    """From there to the first certificate."""

    @property
    def of_limit(self) -> float:
        return self.sampler / self.forward

    def speedup(self, batch: int) -> float:
        """Over the published loop at this batch size."""
        return self.sampler / self.published[batch]


def bench(
    classifier: Classifier,
    *,
    noise: Noise,
    runtime: Runtime,
    dataset: Dataset | None = None,
    seconds: float = 10.0,
    say: Callable[[str], None] = lambda message: None,
) -> Bench:
    """Measure for about `seconds` each. Inputs are those of `dataset`, or random ones of the classifier's shape."""
    _check.between("seconds", seconds, 0)
    inputs = _inputs(classifier, dataset)
    plain = tuple(inputs.shape[1:])
    noise = noise.for_shape(plain)
    shape = noise.draw.output_shape(plain)
    if (shape != plain and dataset is None) or noise.outcomes is not None:
        raise InvalidInput(f"{noise} cannot be timed like this: use data, and a noise that is random")
    # Before anything is prepared, since that makes plain loops on a CPU faster, too.
    reference = LabelClassifier(
        place(classifier.module, replace(runtime, dtype="float32"), shape=()), classifier.classes
    )
    example = inputs[:8] if shape == plain else torch.rand(8, *shape)
    check_classifier(reference.module, classifier.classes, example.to(runtime.torch_device))
    published: dict[int, float] = {}
    for batch in PUBLISHED_BATCHES if shape == plain else ():  # the loop that people copy only adds noise
        if published and batch / min(published.values()) > _PATIENCE * seconds:
            say(f"leaving out the published loop at batch {batch}, too slow here for the time given")
            continue
        say(f"timing the published loop at batch {batch}")
        published[batch] = _published_rate(reference, inputs, noise.deviation, batch, runtime, seconds)
    if runtime.torch_device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(runtime.torch_device)
    start = time.perf_counter()
    classify, runtime = prepare(classifier.module, classifier.classes, shape, runtime, say)
    prepare_seconds = time.perf_counter() - start
    ceiling = _ceiling(classify, blank(shape, runtime), seconds)
    plan = InputSpecific(ceiling, decline=min(0.05, noise.deviation / 5 or 0.05))
    start = time.perf_counter()
    engine = assemble(
        classify, classes=classifier.classes, shape=plain, noise=noise, plan=plan, runtime=runtime, seed=0
    )
    next(engine.certify([(0, inputs[0], None)]))
    first_certificate_seconds = time.perf_counter() - start
    counter = engine.sampler.counter
    say("timing the classifier alone")
    forward = _rate(lambda: counter.classify(counter.noisy), runtime, seconds)
    say("timing the sampler")
    sampler = Sampler(counter)
    rate = _sampler_rate(sampler, inputs, noise, plan, round(forward * seconds))
    memory = _peak_memory(runtime.torch_device)
    say("comparing with float32")
    compared = inputs[: max(round(forward * seconds / runtime.batch), 1)]
    disagreement = _disagreement(counter, reference, compared, blank(shape, replace(runtime, dtype="float32")))
    return Bench(
        device=torch.cuda.get_device_name(runtime.torch_device)
        if runtime.torch_device.type == "cuda"
        else runtime.device,
        dtype=runtime.dtype,
        compile=runtime.compile,
        batch=runtime.batch,
        forward=forward,
        sampler=rate,
        published=published,
        ceiling=plan.samples,
        counted_rows=sampler.counted / sampler.forwarded,
        disagreement=disagreement,
        memory=memory,
        prepare_seconds=prepare_seconds,
        first_certificate_seconds=first_certificate_seconds,
    )


def _inputs(classifier: Classifier, dataset: Dataset | None, count: int = 64) -> Tensor:
    if dataset is not None:
        spread = np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)
        return torch.stack([dataset[int(i)][0] for i in spread])
    if classifier.input_shape is None:
        raise InvalidInput(f"{classifier.name} does not tell the shape of its inputs: give dataset=")
    bits = torch.randint(256, (count, *classifier.input_shape), generator=torch.Generator().manual_seed(0))
    return bits / 255


@torch.inference_mode()
def _ceiling(classify: Callable[[Tensor], Tensor], batch: Tensor, seconds: float) -> int:
    """The largest that an input can be certified with in this time."""
    samples = seconds * len(batch) / _timed(lambda: classify(batch), 1, batch.device)
    return next((ceiling for ceiling in _CEILINGS if ceiling <= samples), _CEILINGS[-1])


def _rate(work: Callable[[], object], runtime: Runtime, seconds: float) -> float:
    """Rows per second of `work`, which takes one batch."""
    with torch.inference_mode():
        work()  # loads kernels
        batches = ceil(seconds / min(_timed(work, 1, runtime.torch_device) for _ in range(3)))
        return batches * runtime.batch / _timed(work, batches, runtime.torch_device)


def _timed(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Seconds for all of them, without waiting for the device in between."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    synchronize(device)
    return time.perf_counter() - start


def _sampler_rate(sampler: Sampler, inputs: Tensor, noise: Noise, plan: Plan, budget: int) -> float:
    """Samples per second over inputs that want very different amounts, until `budget` samples are spent.

    The plan is told simulated votes, so that its requests do not depend on the classifier.
    """
    rng = np.random.default_rng(0)
    source = cycle(range(len(inputs)))
    cases: dict[int, tuple[Case, float]] = {}
    opened = spent = 0
    synchronize(sampler.counter.device)
    start = time.perf_counter()
    while cases or spent < budget:
        while sampler.free and spent < budget:
            slot = sampler.open(opened, inputs[next(source)])
            opened += 1
            case = plan.follow((), noise, label=0)
            cases[slot] = case, _spread_p(rng)
            sampler.request(slot, case.more)
            spent += case.more
        for slot, look in sampler.advance():
            case, p = cases[slot]
            votes = int(rng.binomial(look.samples, p))
            if more := case.add(Look(look.samples, {0: votes, 1: look.samples - votes})):
                sampler.request(slot, more)
                spent += more
            else:
                sampler.close(slot)
                del cases[slot]
    synchronize(sampler.counter.device)
    return spent / (time.perf_counter() - start)


def _spread_p(rng: np.random.Generator) -> float:
    """A probability as on well-trained models: often 1, sometimes anywhere above 1/2."""
    return 1.0 if rng.random() < 0.35 else 1 - float(rng.random()) ** 3 / 2


def _published_rate(
    voting: LabelClassifier, inputs: Tensor, sigma: float, batch: int, runtime: Runtime, seconds: float
) -> float:
    device, model, classes = runtime.torch_device, voting.module, voting.classes
    with torch.no_grad():
        start, samples, warm = time.perf_counter(), 0, False
        following = cycle(inputs)
        while True:
            on_device = (x := next(following)).to(device)
            counts = np.zeros(classes, dtype=int)
            for _ in range(10):
                rows = on_device.repeat((batch, *(1 for _ in x.shape)))
                output = find_logits(model(rows + torch.randn_like(rows) * sigma), classes=classes, device=device)
                predictions = output.clamp(0, classes - 1) if output.ndim == 1 else output.argmax(1)
                for label in predictions.cpu().numpy():
                    counts[label] += 1
                spent = time.perf_counter() - start
                if not warm and spent < seconds:  # the first batch loads kernels, which does not matter in a long one
                    start, warm = time.perf_counter(), True
                    continue
                samples += batch
                if spent > seconds:
                    return samples / spent


@torch.inference_mode()
def _disagreement(counter: VoteCounter, reference: LabelClassifier, inputs: Tensor, exact: Tensor) -> float:
    """Over a batch of each input; `exact` takes the same noisy rows in float32."""
    batch = len(exact)
    differing = 0
    for id, x in enumerate(inputs):
        counter.load(0, x)
        rows = torch.zeros((3, batch), dtype=torch.int32, device=counter.device)
        rows[1], rows[2] = id, torch.arange(batch)
        for out in (counter.noisy, exact):
            counter.stream.write(out, counter.inputs, [Segment(0, id, 0, batch)], rows)
        differing += int((counter.classify(counter.noisy) != reference(exact)).sum())
    return differing / (batch * len(inputs))


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
