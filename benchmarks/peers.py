"""Programs side by side in one process, on the same model and inputs: the usual loops, ART, and smoothcert."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cifar10 import weights
from benchmarks.experiments import Inputs
from benchmarks.logs import ALPHA, betting
from smoothcert import AtRadii, Certificate, Fixed, Gaussian, InputSpecific, Look, Plan, Smoothed
from smoothcert.compat.cohen import Smooth
from smoothcert.data import Dataset, load_dataset
from smoothcert.models import load_classifier
from smoothcert.plans.follow import Case
from smoothcert.statistics.group_sequential import default_looks, futility_counts

Found = tuple[float, bool, float]
"""The radius of a correct certificate or 0, whether it reaches the chosen radius, and the samples."""


def side_by_side(
    inputs: Inputs,
    *,
    model: str,
    data: str,
    sigma: float,
    samples: int,
    images: int,
    radius: float,
    batch: int,
) -> dict[str, Any]:
    """Seconds and samples per input, and what is certified. Every program certifies one input first, to warm up."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network, dataset = _loaded(inputs, model, data, sigma)
    network = network.to(device).eval()
    chosen = np.linspace(0, len(dataset) - 1, images).astype(int)
    pairs = [dataset[int(i)] for i in chosen]
    noise, pilot = Gaussian(sigma), samples // 100
    plans: dict[str, Plan] = {
        f"fixed, {samples:,}": Fixed(samples, pilot=pilot),
        "input-specific, decline 0.05": InputSpecific(samples, pilot=pilot, decline=0.05),
    }
    deciding = AtRadii([radius], samples, known_labels=True)
    loop = Loop(network, sigma, batch, device)

    theirs = partial(_answers, radius=radius, samples=pilot + samples)

    def packed(plan: Plan, dtype: str = "auto") -> Callable[[Any], list[Found]]:
        smoothed = Smoothed(network, noise=noise, dtype=dtype)

        def run(some: Any) -> list[Found]:
            x, y = zip(*some, strict=True)
            return [_found(c, radius) for c in smoothed.certify(torch.stack(x), list(y), plan=plan)]

        return run

    def art(cls: Callable[..., Any]) -> Callable[[Any], list[Found]]:
        estimator = cls(
            network,
            nn.CrossEntropyLoss(),
            input_shape=tuple(pairs[0][0].shape),
            nb_classes=10,
            device_type="gpu" if device == "cuda" else "cpu",
            sample_size=pilot,
            scale=sigma,
            alpha=ALPHA,
        )
        return theirs(
            lambda x: tuple(
                part[0].item() for part in estimator.certify(x.numpy()[None], samples, batch)
            )
        )

    def cohen(**settings: Any) -> Callable[[Any], list[Found]]:
        smooth = Smooth(network, 10, sigma, **settings)
        return theirs(lambda x: smooth.certify(x.to(device), pilot, samples, ALPHA, batch))

    fixed = plans[f"fixed, {samples:,}"]
    programs: dict[str, Callable[[Any], list[Found]]] = {
        **{f"loop: {name}": loop.follows(plan, noise, radius) for name, plan in plans.items()},
        f"loop: betting confidence sequence at {radius:g}": loop.bets(radius, noise, samples),
        "`compat.cohen`": cohen(),
        '`compat.cohen`, `dtype="auto"`': cohen(dtype="auto"),
        f"smoothcert: fixed, {samples:,}, float32": packed(fixed, "float32"),
        **{f"smoothcert: {name}": packed(plan) for name, plan in plans.items()},
        f"smoothcert: radius {radius:g}, known labels": packed(deciding),
    }
    if find_spec("art"):
        from art.estimators.certification.randomized_smoothing import (
            PyTorchRandomizedSmoothing as Theirs,
        )

        from smoothcert.compat.art import PyTorchRandomizedSmoothing

        programs |= {"`compat.art`": art(PyTorchRandomizedSmoothing), "ART": art(Theirs)}
    rows = []
    for name, certify in programs.items():
        certify(pairs[:1])
        start = time.perf_counter()
        found = certify(pairs)
        seconds = (time.perf_counter() - start) / images
        radii, reached, spent = np.transpose(found)
        decides = "radius" in name or "betting" in name
        row = {"program": name, "seconds": seconds, "samples": spent.mean()}
        rows.append(row | {"acr": None if decides else radii.mean(), "ca": 100 * reached.mean()})
    return {"rows": rows}


def _loaded(inputs: Inputs, model: str, data: str, sigma: float) -> tuple[nn.Module, Dataset]:
    """A network and its data. The bundled model needs no files."""
    if data == "fashion-mnist":
        return load_classifier(model, sigma=sigma).module, load_dataset(data)
    own = load_classifier(None, weights=weights(inputs, model), sigma=sigma)
    return own.module, load_dataset(f"{data}:{inputs.data}")


def _answers(
    certify: Callable[[Tensor], tuple[int, float]], *, radius: float, samples: int
) -> Callable[[Any], list[Found]]:
    """What a program finds that answers with a class and a radius."""

    def run(some: Any) -> list[Found]:
        answers = [(*certify(x), label) for x, label in some]
        return [
            (bound * (answer == label), bool(answer == label and bound > radius), samples)
            for answer, bound, label in answers
        ]

    return run


def _found(certificate: Certificate, radius: float) -> Found:
    proved = certificate.radius if certificate.correct else 0.0
    closed = certificate.plan.radii is not None  # a decided radius counts at that radius
    reached = certificate.correct and (proved >= radius if closed else proved > radius)
    return proved, bool(reached), certificate.samples


class Loop:
    """One input at a time, as in published programs: repeat it, add noise, classify, count votes one by one."""

    def __init__(self, model: nn.Module, sigma: float, batch: int, device: str) -> None:
        self.model, self.sigma, self.batch, self.device = model, sigma, batch, device

    @torch.no_grad()
    def votes(self, x: Tensor, n: int) -> np.ndarray:
        votes, x = np.zeros(10, int), x.to(self.device)
        while n:
            rows = x.repeat((min(self.batch, n), 1, 1, 1))
            for label in (
                self.model(rows + torch.randn_like(rows) * self.sigma).argmax(1).cpu().numpy()
            ):
                votes[label] += 1
            n -= len(rows)
        return votes

    def follows(self, plan: Plan, noise: Gaussian, radius: float) -> Callable[[Any], list[Found]]:
        def one(x: Tensor, label: int) -> Found:
            case, looks = Case(plan, noise), []
            while more := case.more:
                looks.append(
                    Look(more, {c: int(n) for c, n in enumerate(self.votes(x, more)) if n})
                )
                case.add(looks[-1])
            return _found(
                Certificate.from_votes(looks, plan=plan, noise=noise, label=label), radius
            )

        return lambda some: [one(x, label) for x, label in some]

    def bets(self, radius: float, noise: Gaussian, samples: int) -> Callable[[Any], list[Found]]:
        looks = default_looks(samples)
        needed = betting(float(noise.probability(radius)), looks)
        given_up = futility_counts(int(needed[-1]), looks)

        def one(x: Tensor, label: int) -> Found:
            count = drawn = 0
            for look, need, hopeless in zip(looks, needed, given_up, strict=True):
                count += int(self.votes(x, look - drawn)[label])
                drawn = look
                if count >= need or count <= hopeless:
                    break
            return 0.0, bool(count >= need), drawn

        return lambda some: [one(x, label) for x, label in some]
