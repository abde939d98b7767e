"""`audit`: check a run independently.

Every radius is derived again from its votes and tested by a second method, the plan of every block
of a budget is derived again, and some inputs are drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from torch import Tensor

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert._settings import PLACE_NAMES
from smoothcert.data import Dataset, find_dataset
from smoothcert.data.base import repeated_inputs
from smoothcert.errors import InvalidInput, first_line, number_of, setting
from smoothcert.plans import BettingRadii, Case, Certificate, Plan, Proof, Walk
from smoothcert.plans.certificate import keeps_alpha
from smoothcert.plans.coverage import Coverage, exact_coverage
from smoothcert.plans.groups import Groups
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.run import Run, folder_of, open_run
from smoothcert.runs.words import all_together
from smoothcert.smoothed.checks import too_far_rounded
from smoothcert.tasks.ask import wrong_answers
from smoothcert.tasks.budget import Spending, as_recorded
from smoothcert.tasks.recorded_subject import Places, RecordedSubject, recorded_subject
from smoothcert.tasks.redraw import drawn_otherwise
from smoothcert.transformations.second_route import uncovered

_BOUND_TOLERANCE = 1e-9
"""How far bounds on probabilities may differ from those that this machine computes."""
_TESTED_BETS = 50
"""Certificates whose bets are tested by the second method, in up to a tenth of a second each."""


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
        asked: Inputs that the run should certify: more than `checked` if it is not complete.
        redrawn: Inputs that were drawn again.
        findings: Certificates that are not valid.
        labels_checked: Whether all labels were compared with the data. Without the data, wrong
            labels are not found.
        plans_checked: Whether the plan of every certificate was checked. Where a budget sets it, it
            is derived again. This cannot be done for runs of version 1.0 with minutes, because the
            clock decided about their plans.
        left_out: Inputs that could not be read, so that the run has no certificates of them.
        questions: Questions that the votes were asked, whose recorded answers were checked.
        coverage: How often certificates of the plan are wrong; None if nothing is known about that.
        run: The folder of the run.
        together: How many of all certificates are wrong at most; empty if there are findings.
    """

    checked: int
    asked: int
    redrawn: int
    findings: tuple[Finding, ...]
    labels_checked: bool = True
    plans_checked: bool = True
    left_out: int = 0
    questions: int = 0
    coverage: Coverage | None = None
    run: str = ""
    together: str = ""

    def __str__(self) -> str:
        findings = [f"input {finding.id}: {finding.reason}" for finding in self.findings]
        return "\n".join([*findings, *self.sentences()])

    def sentences(self) -> Iterator[str]:
        """What was checked, and what that says about all certificates."""
        if not self.plans_checked:
            yield (
                "The clock of version 1.0 decided about the plans of this budget, so they cannot "
                "be derived again: nothing is known about their alpha."
            )
        yield f"{self.run}: {self._checked}, {self.redrawn} drawn again: {self._outcome}."
        if self.questions:
            yield f"Its answers to {number_of(self.questions, 'question')} were checked, too."
        if self.left_out:
            yield f"Inputs that are unreadable and left out: {self.left_out:,}."
        if self.plans_checked:
            unknown = "Nothing is known about the alpha of the plan."
            yield unknown if self.coverage is None else self.coverage.sentence

    @property
    def _checked(self) -> str:
        checked = f"{number_of(max(self.checked, self.asked), 'certificate')} checked"
        if self.checked < self.asked:
            checked = f"{self.checked} of {checked}"
        if not self.labels_checked:
            checked += " (labels not compared, because the data was not found)"
        return checked

    @property
    def _outcome(self) -> str:
        if self.findings:
            return f"{len(self.findings)} do NOT hold"
        together = f"; {self.together}" if self.keeps_alpha else ""
        return f"all radii follow from their votes{together}"

    @property
    def holds(self) -> bool:
        """Whether no certificate is known to be wrong, nor the plan to break its alpha."""
        breaks_alpha = self.coverage is not None and self.coverage.exceeds
        return not self.findings and not breaks_alpha

    @property
    def keeps_alpha(self) -> bool:
        """Whether it is proved that all plans of the run keep their alpha."""
        return self.plans_checked and self.coverage is not None and self.coverage.proved

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
    """Check all certificates of a run against their votes, and some against new draws.

    All labels are compared with the data, also those of inputs that are not drawn again. With a
    budget, the plan of every block is derived again from the survey, the order of the inputs and
    the earlier votes. Version 1.0.0 certified inputs in float64 that float32 moves by more than a
    little of the noise; the audit names them.

    Args:
        run: The run, or its folder.
        redraw: How many randomly chosen inputs to draw again.
        seed: Chooses the inputs to draw again. Default: other inputs each time.
        **places: `model=`, `weights=`, `denoiser=` and `data=`: where these are now, if they are
            not where the manifest says. A model or denoiser of the user's own code has to be given,
            because code that a run names is never executed. If `redraw` is 0, the audit also works
            without the data, but then it does not compare labels.
    """
    _check.names("audit", places, PLACE_NAMES)
    redraw = _check.whole("redraw", redraw)
    folder = folder_of(run)
    with Journal(folder) as journal:
        manifest = journal.manifest()
        if not journal.ids():
            raise InvalidInput(
                "no-certificates",
                "{run} has no certificates yet: there is nothing to check",
                run=folder,
            )
        recorded = _subject_to_draw_again(manifest, places) if redraw else None
        dataset = recorded.dataset if recorded else _data_found(manifest, places)
        records = _Records(journal, manifest, dataset)
        findings = [*_other_inputs(records), *_faults(records, seed)]
        invalid = {finding.id for finding in findings}
        chosen = _chosen(records, invalid, redraw, seed)
        findings += [f for f in _other_plans_than_derived(records) if f.id not in invalid]
        findings += _unmarked_copies(records)
    if recorded:
        findings += _readable(manifest, recorded)
        findings += starmap(Finding, drawn_otherwise(chosen, manifest, recorded))
    if manifest.questions:
        findings += starmap(Finding, wrong_answers(open_run(folder)))
    return Audit(
        checked=len(records.ids),
        asked=len(set(manifest.ids)),
        redrawn=len(chosen),
        findings=tuple(sorted(findings, key=lambda finding: finding.id)),
        labels_checked=dataset is not None,
        plans_checked=manifest.plans_known,
        left_out=len(set(manifest.unreadable).difference(manifest.ids)),
        questions=len(manifest.questions),
        coverage=_coverage(manifest),
        run=str(folder),
        together="" if findings else all_together(open_run(folder)),
    )


class _Records:
    """The certificates of a run, read one at a time, because a run may have a million.

    Args:
        journal: The journal, open for reading.
        manifest: The manifest of the run.
        dataset: Its data, if that was found.
    """

    def __init__(self, journal: Journal, manifest: Manifest, dataset: Dataset | None) -> None:
        self.manifest = manifest
        self.dataset = dataset
        self.ids = journal.ids()
        self.asked = sorted(self.ids.intersection(manifest.ids))
        self.certificate = partial(journal.certificate, manifest=manifest)


def _subject_to_draw_again(manifest: Manifest, places: Places) -> RecordedSubject:
    instead = f", or check only the votes: {setting('redraw', 0)} of audit, audit = 0 in a policy"
    return recorded_subject(manifest, places, purpose="draw again", instead=instead)


def _data_found(manifest: Manifest, places: Places) -> Dataset | None:
    """The data of a run, if it can be found."""
    data = places.get("data")
    return dataset_of([manifest], None if data is None else find_dataset(data))


def _coverage(manifest: Manifest) -> Coverage | None:
    """How often certificates of the plan are wrong; None if nothing is known about that."""
    with suppress(InvalidInput):  # a plan may bound other classes in its own way
        return exact_coverage(manifest.plan, manifest.noise)
    return None


def _other_inputs(records: _Records) -> Iterator[Finding]:
    """Certificates that nobody asked for, and those that are missing in a finished run."""
    wanted = set(records.manifest.ids)
    for id in records.ids - wanted:
        yield Finding(id, "it is not one of the inputs of the run")
    if records.manifest.finished:
        for id in wanted - records.ids:
            yield Finding(id, "its certificate is missing, although the run is finished")


def _chosen(
    records: _Records, invalid: set[int], redraw: int, seed: int | None
) -> list[Certificate]:
    """The certificates to draw again, among those that are valid."""
    valid = [id for id in records.asked if id not in invalid]
    ids = random.Random(seed).sample(valid, min(redraw, len(valid)))
    return [records.certificate(id) for id in ids]


def _unmarked_copies(records: _Records) -> Iterator[Finding]:
    """Inputs that are copies of earlier ones, although the run does not say so.

    Version 1.0 did not look for copies.
    """
    manifest = records.manifest
    if records.dataset is None or manifest.is_of_version_1:
        return
    for id in repeated_inputs(records.dataset, manifest.ids):
        if id not in manifest.copies:
            yield Finding(id, "it is a copy of an earlier input, and the run does not say so")


def _readable(manifest: Manifest, recorded: RecordedSubject) -> Iterator[Finding]:
    """Inputs that the run left out as unreadable, although they can be read."""
    for id in sorted(set(manifest.unreadable).difference(manifest.ids)):
        with suppress(InvalidInput):
            known_labels = manifest.plan.known_labels
            recorded.subject.read(recorded.dataset, id, known_labels=known_labels)
            yield Finding(id, "it was left out as unreadable, but it can be read")


def _faults(records: _Records, seed: int | None) -> Iterator[Finding]:
    """What is wrong with each certificate that was asked for."""
    tested = set(records.asked)
    if isinstance(records.manifest.plan.primary, (BettingRadii, Walk)):
        count = min(_TESTED_BETS, len(tested))
        tested = set(random.Random(seed).sample(records.asked, count))
    for id in records.asked:
        try:
            certificate = records.certificate(id)
            invalid = fault(certificate, second=id in tested)
        except InvalidInput as error:
            yield Finding(id, str(error))
            continue
        invalid = invalid or _other_plan(certificate, records.manifest)
        if invalid is not None:
            yield Finding(id, invalid)
        # The cells of a walk follow from its votes, so they are only checked where these are valid.
        second = id in tested and invalid is None
        for reason in filter(None, _other_than_data(certificate, records, second=second)):
            yield Finding(id, reason)


def _other_plans_than_derived(records: _Records) -> Iterator[Finding]:
    """Certificates whose plan is not the one that the budget gives to their block.

    The bound of a `Price` only holds if price and ceiling do not depend on the votes that it
    counts. So everything that decides about them is recorded, and the plan of every block is
    derived again: from the survey, the order of the inputs and the votes of earlier blocks.
    """
    if records.manifest.budget is None or not records.manifest.plans_known:
        return
    left = set(records.asked)
    reason = "the budget reaches it after inputs that have no certificate yet"
    try:
        spending = Spending.recorded(records.manifest)
        for block, plan in spending.blocks(spending.order):
            certificates = [records.certificate(id) for id in block if id in left]
            spending.add(certificates)
            yield from _with_other_plan(certificates, plan)
            unfinished = set(block).difference(left, records.manifest.unreadable)
            left.difference_update(block)
            if unfinished:
                break
    except InvalidInput as error:
        reason = f"its plan cannot be derived again: {error}"
    for id in left:
        yield Finding(id, reason)


def _with_other_plan(certificates: Sequence[Certificate], plan: Plan) -> Iterator[Finding]:
    """Certificates with another plan than the budget gives to their block."""
    for c in certificates:
        # Version 1.0 could leave an input with a rule that proves nothing.
        if c.plan != plan and isinstance(c.plan, Plan):
            yield Finding(c.id, f"its plan is {c.plan!r}, the budget gives {plan!r}")


def fault(certificate: Certificate, *, second: bool = True) -> str | None:
    """What is wrong with a certificate, according to its votes; None if it is valid.

    This asks the plan again for its requests and for what the votes prove. Then it tests the proved
    bound by another method: if the class had a smaller probability, votes at least as convincing as
    these would have a probability of at most alpha. Without `second`, it leaves this out.
    """
    case = Case(certificate.plan, certificate.noise, certificate.label)
    for number, look in enumerate((*certificate.looks, None), start=1):
        drawn = 0 if look is None else look.samples
        if case.more != drawn:
            return f"the plan asks for {case.more} samples at look {number}, {drawn} were drawn"
        if look is not None:
            case.add(look)
    derived = Certificate.from_case(case, certificate.looks)
    reason = _other_claim(certificate, derived) or _other_bounds(certificate.proof, derived.proof)
    if reason is None and second and not keeps_alpha(certificate):
        reason = f"its votes do not prove the radius {certificate.radius}"
    return reason


def _other_claim(stated: Certificate, derived: Certificate) -> str | None:
    """How the claim of a certificate differs from what its votes prove; None if it does not."""
    proof = derived.proof
    if (proof.count, proof.counted) != (stated.count, stated.counted):
        return (
            f"its looks hold {proof.count} of {proof.counted} counted votes, "
            f"it states {stated.count} of {stated.counted}"
        )
    if stated.abstained and not derived.abstained:
        return "it abstains though its votes prove a certificate"
    if not stated.abstained and stated.prediction != proof.prediction:
        return f"its votes are for class {proof.prediction}, it states {stated.prediction}"
    is_proved = stated.radius <= derived.radius * (1 + 1e-8)  # never true for NaN
    if stated.abstained != derived.abstained or not is_proved:
        return f"its votes do not prove the radius {stated.radius}"
    if stated.radius < derived.radius - 1e-6 * max(1, stated.radius):
        return f"its votes prove more than the radius {stated.radius}"
    return None


def _other_bounds(stated: Proof, derived: Proof) -> str | None:
    """How the bounds differ by more than rounding, which may differ between versions of SciPy."""
    bounds = [[proof.lower, proof.upper] for proof in (stated, derived)]
    there, here = np.array(bounds, float)  # no upper bound becomes NaN
    if np.allclose(there, here, rtol=0, atol=_BOUND_TOLERANCE, equal_nan=True):
        return None
    return f"its votes prove {_bounds(derived)}, it states {_bounds(stated)}"


def _bounds(proof: Proof) -> str:
    """The bounds of a proof in words."""
    upper = "" if proof.upper is None else f" and an upper bound of {proof.upper} on others"
    return f"a lower bound of {proof.lower}{upper}"


def _other_plan(c: Certificate, manifest: Manifest) -> str | None:
    """How the plan of a certificate differs from that of the run, if it may not differ.

    With a budget, the plan of a block may differ. Such plans are derived again where that can be
    done; otherwise, they may differ in what a budget sets.
    """
    has_budget = manifest.budget is not None
    if c.plan == manifest.plan or (has_budget and (manifest.plans_known or c.abstained)):
        return None
    if has_budget and as_recorded(c.plan, manifest.plan) == manifest.plan:
        return None
    if manifest.finished is None and c.plan in manifest.plan.earlier_plans:
        return None
    return f'its plan is "{c.plan}", that of the run is "{manifest.plan}"'


def _other_than_data(c: Certificate, records: _Records, *, second: bool) -> Iterator[str]:
    """How a certificate does not fit to its input and its label in the data."""
    manifest = records.manifest
    if records.dataset is None:
        if second and isinstance(c.plan, Walk) and not c.abstained:
            yield "its margins follow from its picture, and the data is not here"
        return
    try:
        x, label = _input_and_label(c, records.dataset, manifest.groups)
    except Exception as error:  # code of the user may raise any error
        yield f"its input cannot be read: {first_line(error)}"
        return
    if label != (NO_CLASS if c.label is None else c.label):
        yield f"its label in the data is {label}, it states {c.label}"
    if x is not None and not c.abstained:  # an abstention claims nothing about its input
        yield from _other_values(c, x, manifest.dtype, second=second)


def _other_values(c: Certificate, x: Tensor, dtype: str, *, second: bool) -> Iterator[str]:
    """What is wrong with a certificate, according to the values of its input."""
    if second and isinstance(c.plan, Walk):
        certified = x if dtype == "float64" else x.float()
        yield uncovered(c, certified.double().numpy()) or ""
    moved = too_far_rounded(x, c.noise, dtype)
    if moved is not None:
        yield (
            f"its input was rounded to float32, which moved it by {moved:.2g}, too far for "
            f"{c.noise}: certify it again in float64"
        )


def _input_and_label(
    c: Certificate, dataset: Dataset, groups: Groups | None
) -> tuple[Tensor | None, int]:
    """The label of an input or its group, and the values where they have to be checked."""
    if c.id >= len(dataset):
        raise IndexError("the data does not have it")
    is_8_bit = getattr(dataset, "levels", None) is not None  # float32 moves none of its values
    labels = getattr(dataset, "labels", None)
    x = None
    if labels is not None and is_8_bit and not isinstance(c.plan, Walk):
        label = labels[c.id]
    else:
        x, label = dataset[c.id]
    return x, int(label if groups is None else groups.label(int(label)))
