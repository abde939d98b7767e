"""Check a run as a stranger would: every radius by another route than the one it came by, some inputs drawn anew."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert import _check
from smoothcert.certificate import Certificate
from smoothcert.errors import InvalidInput
from smoothcert.noise import Gaussian, Noise
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import expand_ids, same_answers
from smoothcert.runs.run import read_settings

if TYPE_CHECKING:
    from smoothcert.classifiers import Classifier
    from smoothcert.datasets import Dataset

# The binomial tail starts from the logarithm of a factorial, which is good to some units in its last place.
_ROUNDING = 1e-15


@dataclass(frozen=True)
class Finding:
    """A certificate that does not hold, and why."""

    id: int
    reason: str


@dataclass(frozen=True)
class Audit:
    checked: int
    asked: int
    """Inputs that the run was to certify: more than `checked` while it is not complete."""
    redrawn: int
    findings: tuple[Finding, ...]


def audit(
    folder: str | Path,
    *,
    redraw: int = 5,
    model: str | Classifier | Callable[..., Any] | None = None,
    weights: str | Path | None = None,
    data: str | Dataset | Sequence[Any] | None = None,
    seed: int | None = None,
) -> Audit:
    """Check all certificates of a run against their votes, and `redraw` randomly chosen ones against new draws.

    Model, weights and data are those of the manifest unless given; `seed` chooses the inputs to draw again.
    """
    readable: list[Certificate] = []
    findings: list[Finding] = []
    with Journal(Path(folder)) as journal:
        manifest, plan, noise = read_settings(journal)
        ids = sorted(journal.ids())
        for id in ids:
            try:
                readable.append(journal.certificate(id, plan=plan, noise=noise))
            except InvalidInput as error:
                findings.append(Finding(id, str(error)))
    if not ids:
        raise InvalidInput(f"{folder} holds no certificates yet: there is nothing to check")
    asked = set(expand_ids(manifest["ids"]))
    findings += [Finding(id, "the run was not asked to certify it") for id in ids if id not in asked]
    if manifest.get("finished"):
        findings += [Finding(id, "its certificate is gone from a finished run") for id in asked.difference(ids)]
    readable = [c for c in readable if c.id in asked]
    findings += [Finding(c.id, reason) for c in readable if (reason := fault(c))]
    chosen = random.Random(seed).sample(readable, min(_check.whole("redraw", redraw), len(readable)))
    if chosen:
        findings += _draw_again(chosen, manifest, model=model, weights=weights, data=data)
    return Audit(len(ids), len(asked), len(chosen), tuple(sorted(findings, key=lambda f: f.id)))


def fault(certificate: Certificate) -> str | None:
    """What is wrong with a certificate, judged from its votes alone; None if it holds.

    The bound is not computed again but tested: a radius is proved if so many votes would have been a surprise (a tail
    of at most alpha) for any smaller probability. The tail is summed term by term.
    """
    c = certificate
    for i in range(len(c.looks) + 1):
        drawn = c.looks[i].samples if i < len(c.looks) else 0
        if (wanted := c.plan.more(c.looks[:i], c.noise)) != drawn:
            return f"the plan asks for {wanted} samples at look {i + 1}, {drawn} were drawn"
    tally = c.plan.tally(c.looks, c.noise)
    if (tally.count, tally.samples) != (c.count, c.counted):
        return f"its looks hold {tally.count} of {tally.samples} counted votes, it states {c.count} of {c.counted}"
    if c.abstained:
        if c.radius != 0:
            return f"it abstains with radius {c.radius}"
        return "it abstains though its votes prove a majority" if _proves(c, 1e-6) else None
    if c.prediction != tally.prediction:
        return f"its votes are for class {tally.prediction}, it states {c.prediction}"
    if not 0 < c.radius < math.inf or not _proves(c, c.radius):
        return f"its votes do not prove the radius {c.radius}"
    if _proves(c, c.radius + 1e-6 * max(1, c.radius)):
        return f"its votes prove more than the radius {c.radius}"
    return None


def _proves(c: Certificate, radius: float) -> bool:
    p = _probability(c.noise, radius)
    rounding = _ROUNDING * math.lgamma(c.counted + 1)
    return c.counted > 0 and _tail(c.count, c.counted, p) <= c.plan.alpha * (1 + rounding)


def _probability(noise: Noise, radius: float) -> float:
    if not isinstance(noise, Gaussian):
        return float(noise.probability(radius))
    return 0.5 * math.erfc(-radius / noise.sigma / math.sqrt(2))


def _tail(count: int, samples: int, p: float) -> float:
    """P(at least `count` of `samples`), as the sum of its terms.

    They are summed away from the most likely count, where they only shrink: elsewhere the first one may underflow.
    """
    if count == 0 or p == 1:
        return 1.0
    if count <= samples * p:
        return 1 - _tail(samples - count + 1, samples, 1 - p)
    log_ways = math.lgamma(samples + 1) - math.lgamma(count + 1) - math.lgamma(samples - count + 1)
    term = math.exp(log_ways + count * math.log(p) + (samples - count) * math.log1p(-p))
    terms = [term]
    for k in range(count, samples):
        term *= (samples - k) / (k + 1) * (p / (1 - p))
        terms.append(term)
        if term < 1e-17 * terms[0]:
            break
    return math.fsum(terms)


def _draw_again(
    chosen: Sequence[Certificate],
    manifest: dict[str, Any],
    *,
    model: str | Classifier | Callable[..., Any] | None,
    weights: str | Path | None,
    data: str | Dataset | Sequence[Any] | None,
) -> list[Finding]:
    from smoothcert.certifying import load
    from smoothcert.classifiers.identity import answers
    from smoothcert.executors import Job, LocalExecutor
    from smoothcert.sampler.runtime import Runtime

    m = manifest
    noise, plan = chosen[0].noise, chosen[0].plan
    assert isinstance(noise, Gaussian)
    try:
        classifier, dataset = load(
            model or m["model"],
            m["data"] if data is None else data,
            weights=weights or m["weights"],
            classes=m["classes"],
            noise=noise,
        )
    except InvalidInput as error:
        raise InvalidInput(
            f"cannot draw again: {error}; say where model and data are with --model, --weights and --data, or check "
            "the votes alone with --redraw 0"
        ) from None
    for what, recorded, found in (
        ("weights", m["weights_hash"], classifier.weights_hash),
        ("data", m["data_hash"], dataset.fingerprint),
    ):
        if recorded != found:
            raise InvalidInput(f"cannot draw again: these are not the {what} that the run was made with")
    runtime = Runtime.resolve(m["device"], m["dtype"], m["compiled"], m["batch"])
    answered = answers(classifier.module, dataset[0][0], runtime.torch_device, runtime.torch_dtype)
    if not same_answers(m.get("answers"), answered):
        raise InvalidInput("cannot draw again: the model answers otherwise than the one that the run was made with")
    recorded_as = {c.id: c for c in chosen}
    with LocalExecutor() as executor:
        executor.start(Job(classifier, dataset, noise, plan, runtime, m["seed"]), lambda message: None)
        drawn = [certificate for finished in executor.certify(sorted(recorded_as)) for certificate in finished]
    return [
        Finding(c.id, f"drawing it again gave {what}")
        for c in drawn
        for what, same in (
            ("other votes", c.looks == recorded_as[c.id].looks),
            (f"the label {c.label}", c.label == recorded_as[c.id].label),
        )
        if not same
    ]
