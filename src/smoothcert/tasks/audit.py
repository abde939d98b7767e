"""Check a run independently: test every radius by a second method, and draw some inputs again."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.data import Dataset, find_dataset
from smoothcert.device.acceleration import KernelClassifier
from smoothcert.device.setup import say_nothing
from smoothcert.errors import InvalidInput, first_line, setting
from smoothcert.executors import Job, LocalExecutor
from smoothcert.noises.base import VERSION
from smoothcert.plans import BettingRadii, Case, Certificate, Plan, Proof
from smoothcert.plans.coverage import Coverage, exact_coverage
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.run import Run, folder_of
from smoothcert.smoothed import ReadySubject, Subject
from smoothcert.smoothed.checks import too_far_rounded
from smoothcert.tasks.budget import as_recorded
from smoothcert.tasks.reload import Places, reload

_ROUNDING = 1e-15
"""The relative error of the logarithm of a factorial, with which the sum of a binomial tail starts."""

_TESTED_BETS = 50
"""Certificates whose bets are tested by the second method. It takes up to a tenth of a second for each."""


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
    """What an audit found.

    Args:
        checked: Certificates that were checked.
        asked: Inputs that the run should certify. They are more than `checked` if it is not complete.
        redrawn: Inputs that were drawn again.
        findings: Certificates that are not valid.
        labels_checked: Whether all labels were compared with the data. Without the data, wrong labels are not found.
        coverage: How often certificates of the plan are wrong; None if nothing is known about that.
    """

    checked: int
    asked: int
    redrawn: int
    findings: tuple[Finding, ...]
    labels_checked: bool = True
    coverage: Coverage | None = None

    @property
    def holds(self) -> bool:
        """Whether no certificate is known to be wrong, and the plan is not known to break its alpha."""
        return not self.findings and not (self.coverage and self.coverage.exceeds)

    @property
    def keeps_alpha(self) -> bool:
        """Whether it is proved that the plan keeps its alpha."""
        return self.coverage is not None and self.coverage.proved

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        coverage = self.coverage and self.coverage.plain()
        return asdict(self) | {
            "coverage": coverage,
            "keeps_alpha": self.keeps_alpha,
            "holds": self.holds,
        }


def audit(
    run: Run | str | Path, *, redraw: int = 5, seed: int | None = None, **places: Unpack[Places]
) -> Audit:
    """Check all certificates of a run against their votes, and some randomly chosen ones against new draws.

    All labels are compared with the data, also those of inputs that are not drawn again. Version 1.0.0 certified inputs
    in float64 that float32 moves by more than a little of the noise; the audit names them.

    Args:
        run: The run, or its folder.
        redraw: How many inputs to draw again.
        seed: Chooses the inputs to draw again. Default: other inputs each time.
        **places: `model=`, `weights=`, `denoiser=` and `data=`: where these are now, if they are not where the manifest
            says. A model or denoiser of the user's own code has to be given, because code that a run names is never
            executed. If `redraw` is 0, the audit also works without the data, but then it does not compare labels.
    """
    redraw = _check.whole("redraw", redraw)
    folder = folder_of(run)
    with Journal(folder) as journal:
        manifest = journal.manifest()
        ids, asked = journal.ids(), set(manifest.ids)
        if not ids:
            raise InvalidInput(f"{folder} has no certificates yet: there is nothing to check")
        if not redraw:
            given = places.get("data")
            subject, dataset = (
                None,
                dataset_of([manifest], None if given is None else find_dataset(given)),
            )
        else:
            instead = f", or check only the votes with {setting('redraw', 0)}"
            _, subject, dataset = reload(manifest, places, purpose="draw again", instead=instead)
        findings = [Finding(id, "it is not one of the inputs of the run") for id in ids - asked]
        if manifest.finished:
            missing = "its certificate is missing, although the run is finished"
            findings += [Finding(id, missing) for id in asked - ids]
        readable, known = [], sorted(ids & asked)
        bets = isinstance(manifest.plan.primary, BettingRadii)
        tested = set(
            random.Random(seed).sample(known, min(_TESTED_BETS, len(known))) if bets else known
        )
        for id in known:  # one at a time, because a run may have a million
            try:
                c = journal.certificate(id, plan=manifest.plan, noise=manifest.noise)
            except InvalidInput as error:
                findings.append(Finding(id, str(error)))
                continue
            rounded = _rounded(c, dataset, manifest)
            if rounded is None:
                readable.append(id)
            elif c.abstained:
                rounded = None  # it claims nothing
            reasons = (
                fault(c, second=id in tested) or _foreign_plan(c, manifest),
                _wrong_label(c, dataset),
                rounded,
            )
            findings += [Finding(id, reason) for reason in reasons if reason]
        again = random.Random(seed).sample(readable, min(redraw, len(readable)))
        chosen = [journal.certificate(id, plan=manifest.plan, noise=manifest.noise) for id in again]
    if subject is not None and dataset is not None and chosen:
        findings += _draw_again(chosen, manifest, subject, dataset)
    coverage = None
    with suppress(InvalidInput):  # it bounds other classes in its own way
        coverage = exact_coverage(manifest.plan, manifest.noise)
    return Audit(
        checked=len(ids),
        asked=len(asked),
        redrawn=len(chosen),
        findings=tuple(sorted(findings, key=lambda f: f.id)),
        labels_checked=dataset is not None,
        coverage=coverage,
    )


def fault(certificate: Certificate, *, second: bool = True) -> str | None:
    """What is wrong with a certificate, according to its votes; None if it is valid.

    This asks the plan again for its requests and for what the votes prove. Then it tests the proved bound by another
    method: if the class had a smaller probability, votes at least as convincing as these would have a probability of at
    most alpha. Without `second`, it leaves this out.
    """
    c = certificate
    case = Case(c.plan, c.noise, c.label)
    for number, look in enumerate((*c.looks, None), start=1):
        drawn = 0 if look is None else look.samples
        if case.more != drawn:
            return f"the plan asks for {case.more} samples at look {number}, {drawn} were drawn"
        if look is not None:
            case.add(look)
    derived = Certificate.from_case(case, c.looks)
    proof = derived.proof
    if (proof.count, proof.counted) != (c.count, c.counted):
        return f"its looks hold {proof.count} of {proof.counted} counted votes, it states {c.count} of {c.counted}"
    if c.abstained and not derived.abstained:
        return "it abstains though its votes prove a certificate"
    if not c.abstained and c.prediction != proof.prediction:
        return f"its votes are for class {proof.prediction}, it states {c.prediction}"
    if c.abstained != derived.abstained or not c.radius <= derived.radius * (
        1 + 1e-8
    ):  # NaN is wrong, too
        return f"its votes do not prove the radius {c.radius}"
    if c.radius < derived.radius - 1e-6 * max(1, c.radius):
        return f"its votes prove more than the radius {c.radius}"
    if not _close(c.proof, proof):
        return f"its votes prove {_bounds(proof)}, it states {_bounds(c.proof)}"
    # The second method of the plan, if it has one.
    if not second or c.abstained or not isinstance(c.plan, Plan):
        return None
    p_value = c.plan.p_value(c.looks, c.radius, c.noise, c.label)
    limit = c.plan.alpha * (1 + _ROUNDING * math.lgamma(c.counted + 1))
    if p_value is not None and p_value > limit:
        return f"its votes do not prove the radius {c.radius}"
    return None


def _foreign_plan(c: Certificate, manifest: Manifest) -> str | None:
    """What is wrong with the plan of a certificate: with a budget, price and size may differ from those of the run."""
    if c.plan == manifest.plan or (manifest.budget is not None and c.abstained):
        return None
    allowed = manifest.budget is not None and as_recorded(c.plan, manifest.plan) == manifest.plan
    allowed |= manifest.finished is None and c.plan in manifest.plan.earlier_plans
    return None if allowed else f'its plan is "{c.plan}", that of the run is "{manifest.plan}"'


def _close(stated: Proof, found: Proof) -> bool:
    """Whether two proofs are equal up to rounding, which may differ between versions of SciPy."""
    pairs = ((stated.lower, found.lower), (stated.upper or 0.0, found.upper or 0.0))
    return (stated.upper is None) == (found.upper is None) and all(
        abs(a - b) <= 1e-9 for a, b in pairs
    )


def _bounds(proof: Proof) -> str:
    """The bounds of a proof in words."""
    upper = "" if proof.upper is None else f" and an upper bound of {proof.upper} on others"
    return f"a lower bound of {proof.lower}{upper}"


def _wrong_label(c: Certificate, dataset: Dataset | None) -> str | None:
    """How the label of a certificate differs from the one in the data; None if it does not."""
    if dataset is None:
        return None
    if c.id >= len(dataset):
        return "the data does not have this input"
    known = getattr(
        dataset, "labels", None
    )  # if the data set has its labels in memory, we need not read the inputs
    try:
        label = int(dataset[c.id][1] if known is None else known[c.id])
    except Exception as error:  # code of the user may raise any error
        return f"its input cannot be read: {first_line(error)}"
    same = label == (NO_CLASS if c.label is None else c.label)
    return None if same else f"its label in the data is {label}, it states {c.label}"


def _rounded(c: Certificate, dataset: Dataset | None, manifest: Manifest) -> str | None:
    """How far the certified input is from the one in the data, if rounding to float32 moved it by too much.

    An input that cannot be read is reported with its label.
    """
    is_8_bit = getattr(dataset, "levels", None) is not None
    if dataset is None or is_8_bit or manifest.dtype == "float64":
        return None
    try:
        x = dataset[c.id][0]
    except Exception:  # code of the user may raise any error
        return None
    moved = too_far_rounded(x, c.noise, manifest.dtype)
    if moved is None:
        return None
    return (
        f"its input was rounded to float32, which moved it by {moved:.2g}, too far for {c.noise}: "
        "certify it again in float64"
    )


def _draw_again(
    chosen: Sequence[Certificate], manifest: Manifest, subject: Subject, dataset: Dataset
) -> list[Finding]:
    if manifest.drawing != VERSION:
        raise InvalidInput(
            "cannot draw again: this version of smoothcert draws other noise for the same seed"
        )
    recorded_as = {c.id: c for c in chosen}
    with LocalExecutor(_with_other_neighbours(subject.prepare())) as executor:
        runtime = executor.start(Job(subject, dataset, manifest.plan), say_nothing)
        if runtime.compile != manifest.compile:
            raise InvalidInput(
                f"cannot draw again: the classifier of the run was compiled: {manifest.compile}, and here it would be "
                f"compiled: {runtime.compile}"
            )
        by_plan: dict[Plan, list[int]] = {}
        for c in sorted(chosen, key=lambda c: c.id, reverse=True):
            by_plan.setdefault(c.plan, []).append(c.id)
        drawn = [
            c
            for plan, ids in by_plan.items()
            for finished in executor.certify(ids, plan)
            for c in finished
        ]
        low, high = executor.status().lowest, executor.status().highest
    other = [
        Finding(c.id, "drawing it again gave other votes")
        for c in drawn
        if c.looks != recorded_as[c.id].looks
    ]
    stated = manifest.values or (low, high)
    if low < stated[0] or high > stated[1]:
        words = (
            "inputs that were drawn again have values in [{:g}, {:g}], the run states [{:g}, {:g}]"
        )
        other.append(Finding(chosen[0].id, words.format(low, high, *stated)))
    return other


def _with_other_neighbours(ready: ReadySubject) -> ReadySubject:
    """The same classifier on batches whose rows are in reverse order, so that rows also have other neighbours.

    Our own kernels compute each row alone, and they draw the noise of their rows themselves.
    """
    classify = ready.classify
    if isinstance(classify, KernelClassifier):
        return ready

    def reverse(x: Tensor) -> Tensor:
        with torch.inference_mode(
            False
        ):  # torch would compile a classifier again for inference tensors
            backwards = x.flip(0)
        return classify(backwards).flip(0)

    return replace(ready, classify=reverse)
