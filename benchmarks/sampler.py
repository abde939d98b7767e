"""Compare the sampler with its limit and with the published loop, on the model and the images of the demo.

    python benchmarks/sampler.py

bare       noise and forward pass in full batches, in the number format of the sampler, without keys, packing and votes
sampler    `smoothcert` from inputs to certificates, without the journal
published  the loop of published programs with the same plan: one input at a time, repeat, randn_like, float32, and
           votes counted one by one in Python

They take turns, so that a busy machine slows all of them down equally. The script prints medians and ratios over the
rounds. The published loop runs in a separate process, because smoothcert changes how the C library reuses memory, and
that would make the loop faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

from smoothcert.data import load_dataset
from smoothcert.device.placement import place
from smoothcert.models import load_classifier
from smoothcert.noises import Gaussian
from smoothcert.plans import Certificate, InputSpecific, Look
from smoothcert.smoothed import Smoothed

NOISE, PLAN = Gaussian(0.25), InputSpecific(10_000, decline=0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", default="auto")
    arguments = parser.parse_args()
    dataset = load_dataset("fashion-mnist")
    classifier = load_classifier("fashion-cnn", sigma=NOISE.sigma)
    inputs = [(id, *dataset[id]) for id in range(arguments.inputs)]
    shape = tuple(inputs[0][1].shape)
    smoothed = Smoothed(classifier, noise=NOISE, device="cpu", batch=arguments.batch)
    prepared = smoothed.bind(dataset, ()).prepare()
    engine, runtime = prepared.engine(PLAN), prepared.subject.runtime

    as_run = place(classifier.module, runtime, shape)

    def sampler() -> float:
        start = time.perf_counter()
        return sum(certificate.samples for certificate in engine.certify(inputs)) / (time.perf_counter() - start)

    @torch.inference_mode()
    def bare() -> float:
        rows = inputs[0][1].expand(runtime.batch, *shape)
        start = time.perf_counter()
        for _ in range(batches):
            as_run((rows + NOISE.sigma * torch.randn(rows.shape)).to(runtime.torch_dtype))
        return batches * runtime.batch / (time.perf_counter() - start)

    sampler()
    batches = engine.sampler.forwarded // runtime.batch
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        contenders: dict[str, Callable[[], float]] = {
            "bare": bare,
            "sampler": sampler,
            "published 200": lambda: other.submit(published, range(arguments.inputs), 200).result(),
            "published 1000": lambda: other.submit(published, range(arguments.inputs), 1000).result(),
        }
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(arguments.rounds):
            for name, work in contenders.items():
                rates[name].append(work())
    print(f"{torch.get_num_threads()} threads, batch {runtime.batch}, {len(inputs)} inputs, {PLAN}")
    print(f"{'':16}{'samples/s':>12}{'sampler is':>14}")
    for name, measured in rates.items():
        ratio = np.median([ours / theirs for ours, theirs in zip(rates["sampler"], measured, strict=True)])
        print(f"{name:16}{np.median(measured):12,.0f}{ratio:13.2f}x")


def published(ids: Sequence[int], batch: int) -> float:
    dataset, model = load_dataset("fashion-mnist"), load_classifier("fashion-cnn", sigma=NOISE.sigma).module
    inputs = [(id, *dataset[id]) for id in ids]
    start = time.perf_counter()
    return sum(certify_one(model, *each, batch=batch).samples for each in inputs) / (time.perf_counter() - start)


@torch.no_grad()
def certify_one(
    model: Callable[[torch.Tensor], torch.Tensor], id: int, x: torch.Tensor, label: int, *, batch: int
) -> Certificate:
    looks: list[Look] = []
    while more := PLAN.more(looks, NOISE):
        counts = np.zeros(10, dtype=int)
        left = more
        while left:
            rows = x.repeat((min(batch, left), 1, 1, 1))
            predictions = model(rows + torch.randn_like(rows) * NOISE.sigma).argmax(1)
            for prediction in predictions.numpy():
                counts[prediction] += 1
            left -= len(rows)
        looks.append(Look(more, {c: int(n) for c, n in enumerate(counts) if n}))
    return Certificate.from_votes(looks, plan=PLAN, noise=NOISE, id=id, label=label)


if __name__ == "__main__":
    main()
