"""Check a run independently: test every radius by a second method, and draw some inputs again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.data import Dataset, load_dataset
from smoothcert.data.wrap import as_dataset
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, SmoothcertError, first_line
from smoothcert.executors import Job, LocalExecutor
from smoothcert.models import Classifier
from smoothcert.models.identity import answers
from smoothcert.plans import Certificate, Proof
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest, same_answers
from smoothcert.tasks.certify import example, load_again

_ROUNDING = 1e-15
"""The relative error of the logarithm of a factorial, with which the sum of a binomial tail starts."""


@dataclass(frozen=True)
class Finding:
    """A certificate that is not valid.

    Args:
        id: The number of the input.
        reason: What is wrong with the certificate.
    """

    id: int
    reason: str


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    checked: int
    """Certificates that were checked."""
    asked: int
    """Inputs that the run should certify. They are more than `checked` if it is not complete."""
    redrawn: int
    """Inputs that were drawn again."""
    findings: tuple[Finding, ...]
    """Certificates that are not valid."""
    labels_checked: bool = True
    """Whether all labels were compared with the data. Without the data, wrong labels are not found."""


def audit(
    folder: str | Path,
    *,
    redraw: int = 5,
    model: str | Classifier | Callable[..., Any] | None = None,
    weights: str | Path | None = None,
    data: Any = None,
    stochastic: bool = False,
    denoiser: str | Path | nn.Module | None = None,
    seed: int | None = None,
) -> Audit:
    """Check all certificates of a run against their votes, and some randomly chosen ones against new draws.

    All labels are compared with the data, also those of inputs that are not drawn again.

    Args:
        folder: The run's folder.
        redraw: How many inputs to draw again.
        model: The model, if it is not where the manifest says, or if it is the user's own code, because code that a
            run names is never executed.
        weights: Its weights, if they are not where the manifest says.
        data: The data, if it is not where the manifest says. If `redraw` is 0, the audit also works without the data,
            but then it does not compare labels.
        stochastic: The value that `certify` had. Only runs of earlier versions do not record it.
        denoiser: The denoiser in front of the model, for the same reasons as `model`.
        seed: Chooses the inputs to draw again. Default: other inputs each time.
    """
    readable: list[Certificate] = []
    findings: list[Finding] = []
    with Journal(Path(folder)) as journal:
        manifest = journal.manifest()
        ids = sorted(journal.ids())
        for id in ids:
            try:
                readable.append(journal.certificate(id, plan=manifest.plan, noise=manifest.noise))
            except InvalidInput as error:
                findings.append(Finding(id, str(error)))
    if not ids:
        raise InvalidInput(f"{folder} has no certificates yet: there is nothing to check")
    asked = set(manifest.ids)
    findings += [Finding(id, "it is not one of the inputs of the run") for id in ids if id not in asked]
    if manifest.finished:
        findings += [
            Finding(id, "its certificate is missing, although the run is finished") for id in asked.difference(ids)
        ]
    readable = [c for c in readable if c.id in asked]
    findings += [Finding(c.id, reason) for c in readable if (reason := fault(c))]
    chosen = random.Random(seed).sample(readable, min(_check.whole("redraw", redraw), len(readable)))
    dataset: Dataset | None
    if chosen:
        classifier, dataset = load_again(
            manifest,
            model=model,
            weights=weights,
            data=data,
            stochastic=stochastic,
            denoiser=denoiser,
            purpose="draw again",
            instead=", or check only the votes with redraw=0",
        )
        findings += _draw_again(chosen, manifest, classifier, dataset)
    else:
        dataset = _find_data(manifest, data)
    wrong = [] if dataset is None else _wrong_labels(readable, dataset)
    return Audit(
        checked=len(ids),
        asked=len(asked),
        redrawn=len(chosen),
        findings=tuple(sorted(findings + wrong, key=lambda f: f.id)),
        labels_checked=dataset is not None,
    )


def fault(certificate: Certificate) -> str | None:
    """What is wrong with a certificate, according to its votes; None if it is valid.

    This asks the plan again for its requests and for what the votes prove. Then it tests the proved bound by another
    method: if the class had a smaller probability, votes at least as convincing as these would have a probability of at
    most alpha.
    """
    c = certificate
    case = c.plan.follow((), c.noise, c.label)
    for number, look in enumerate((*c.looks, None), start=1):
        drawn = 0 if look is None else look.samples
        if case.more != drawn:
            return f"the plan asks for {case.more} samples at look {number}, {drawn} were drawn"
        if look is not None:
            case.add(look)
    proof = case.proof()
    if (proof.count, proof.counted) != (c.count, c.counted):
        return f"its looks hold {proof.count} of {proof.counted} counted votes, it states {c.count} of {c.counted}"
    if c.abstained and c.radius != 0:
        return f"it abstains with radius {c.radius}"
    if not 0 <= c.radius < math.inf:
        return f"its votes do not prove the radius {c.radius}"
    derived = Certificate.from_proof(proof, c.looks, plan=c.plan, noise=c.noise)
    if c.abstained and not derived.abstained:
        return "it abstains though its votes prove a certificate"
    if c.abstained:
        return None if _close(c.proof, proof) else f"its votes prove {_bounds(proof)}, it states {_bounds(c.proof)}"
    if c.prediction != proof.prediction:
        return f"its votes are for class {proof.prediction}, it states {c.prediction}"
    # Versions before 0.2 did not charge the error of drawing, which is smaller than this tolerance.
    if derived.abstained or c.radius > derived.radius * (1 + 1e-8):
        return f"its votes do not prove the radius {c.radius}"
    if c.radius < derived.radius - 1e-6 * max(1, c.radius):
        return f"its votes prove more than the radius {c.radius}"
    if not _close(c.proof, proof):
        return f"its votes prove {_bounds(proof)}, it states {_bounds(c.proof)}"
    return None if _proves(c, c.radius) else f"its votes do not prove the radius {c.radius}"


def _proves(c: Certificate, radius: float) -> bool:
    """Test the radius by the second method of the plan, if it has one."""
    # A plan that decides radii states more than the radius: that the true one is above it.
    needed = c.noise.probability if c.plan.radii is None else c.noise.needed_probability
    p = min(float(needed(radius)), 1.0)
    p_value = c.plan.p_value(c.looks, p, c.noise, c.label)
    rounding = _ROUNDING * math.lgamma(c.counted + 1)
    return p_value is None or p_value <= c.plan.alpha * (1 + rounding)


def _close(stated: Proof, found: Proof) -> bool:
    """Whether two proofs are equal up to rounding, which may differ between versions of SciPy."""
    if (stated.upper is None) != (found.upper is None):
        return False
    pairs = ((stated.lower, found.lower), (stated.upper or 0.0, found.upper or 0.0))
    return all(abs(a - b) <= 1e-9 for a, b in pairs)


def _bounds(proof: Proof) -> str:
    """The bounds of a proof in words."""
    upper = "" if proof.upper is None else f" and an upper bound of {proof.upper} on others"
    return f"a lower bound of {proof.lower}{upper}"


def _find_data(manifest: Manifest, data: Any) -> Dataset | None:
    """The data of the run, for a comparison of labels; None if it is not given and not where the manifest says."""
    if data is None:
        try:
            dataset = load_dataset(manifest.data)
        except SmoothcertError:
            return None
        return dataset if dataset.fingerprint == manifest.data_hash else None
    dataset = load_dataset(data) if isinstance(data, (str, Path)) else as_dataset(data)
    if dataset.fingerprint != manifest.data_hash:
        raise InvalidInput("cannot compare labels: the data is not the one that the run was made with")
    return dataset


def _wrong_labels(certificates: Sequence[Certificate], dataset: Dataset) -> list[Finding]:
    """Certificates whose label differs from the one in the data."""
    known = getattr(dataset, "labels", None)  # if the data set has its labels in memory, we need not read the inputs
    findings = []
    for c in certificates:
        if c.id >= len(dataset):
            findings.append(Finding(c.id, "the data does not have this input"))
            continue
        try:
            label = int(dataset[c.id][1] if known is None else known[c.id])
        except Exception as error:  # code of the user may raise any error
            findings.append(Finding(c.id, f"its input cannot be read: {first_line(error)}"))
            continue
        if label != (NO_CLASS if c.label is None else c.label):
            findings.append(Finding(c.id, f"its label in the data is {label}, it states {c.label}"))
    return findings


def _draw_again(
    chosen: Sequence[Certificate], manifest: Manifest, classifier: Classifier, dataset: Dataset
) -> list[Finding]:
    m = manifest
    runtime = Runtime.resolve(m.device, m.dtype, m.compiled, m.batch)
    answered = answers(
        classifier.module,
        example(dataset, m.noise),
        runtime.torch_device,
        runtime.torch_dtype,
        classes=classifier.classes,
    )
    if not same_answers(m.answers, answered):
        raise InvalidInput("cannot draw again: the model gives other answers than the one that the run was made with")
    recorded_as = {c.id: c for c in chosen}
    with LocalExecutor() as executor:
        executor.start(Job(classifier, dataset, m.noise, m.plan, runtime, m.seed), lambda message: None)
        drawn = [certificate for finished in executor.certify(sorted(recorded_as)) for certificate in finished]
    return [Finding(c.id, "drawing it again gave other votes") for c in drawn if c.looks != recorded_as[c.id].looks]
