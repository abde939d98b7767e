"""Which two runs can be compared, and what a reader of the comparison should know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from smoothcert.data.base import same_data
from smoothcert.errors import InvalidInput, number_of, setting
from smoothcert.runs.results import Results, check_finished
from smoothcert.runs.summary import question_in_words
from smoothcert.runs.words import caveat_of_budget


def check_comparable(a: Results, b: Results) -> None:
    """Refuse results that cannot be compared."""
    check_finished(a)
    check_finished(b)
    _check_same_inputs(a, b)
    _check_same_settings(a, b)


def _check_same_inputs(a: Results, b: Results) -> None:
    """Refuse results on other data, without common inputs, or with other labels."""
    if a.manifest and b.manifest and not same_data(a.manifest.data_hash, b.manifest.data_hash):
        raise refusal(
            "other-data",
            a,
            b,
            "their data ({data_a} and {data_b}) have other inputs or labels; "
            "certify both on the same data",
            data_a=a.manifest.data,
            data_b=b.manifest.data,
        )
    common, in_a, in_b = np.intersect1d(a.id, b.id, return_indices=True)
    if not len(common):
        raise refusal(
            "no-common-input",
            a,
            b,
            "they have no inputs in common; "
            "certify both on the same data with the same ids, skip and limit",
        )
    relabelled = common[a.label[in_a] != b.label[in_b]]
    if len(relabelled):
        raise refusal(
            "other-label",
            a,
            b,
            "input {id} has another label in each; certify both on the same data",
            id=int(relabelled[0]),
        )


def _check_same_settings(a: Results, b: Results) -> None:
    """Refuse results about something else, or plans with another alpha, ceiling or bound."""
    if question_in_words(a) != question_in_words(b):
        raise refusal(
            "other-question",
            a,
            b,
            "they answer other questions ({question_a} and {question_b}); ask both the same one",
            question_a=question_in_words(a) or "classes",
            question_b=question_in_words(b) or "classes",
        )
    norms = [one.noise.norm for one in (a, b) if one.noise is not None]
    if len(set(norms)) > 1:
        raise refusal(
            "other-norm",
            a,
            b,
            "their radii are in {norm_a} and {norm_b}; compare runs with radii in one norm",
            norm_a=norms[0],
            norm_b=norms[1],
        )
    if a.certified_by is None or b.certified_by is None:
        return
    # With another alpha, ceiling or bound, the models would not differ alone.
    for name in ("alpha", "samples", "bound"):
        of_a = getattr(a.requested_plan, name)
        of_b = getattr(b.requested_plan, name)
        if of_a != of_b:
            raise refusal(
                "other-plan",
                a,
                b,
                "they were certified with {name} {of_a} and {of_b}; "
                "certify {b} again with {as_a}, or {a} with {as_b}",
                name=name,
                of_a=of_a,
                of_b=of_b,
                as_a=setting(name, of_a),
                as_b=setting(name, of_b),
            )


def notes_on(a: Results, b: Results, common: int) -> Iterator[str]:
    """What a reader of the comparison should know."""
    if common < max(len(a), len(b)):
        yield (
            f"Of {len(a):,} and {len(b):,} inputs, only the {common:,} that both have are compared."
        )
    yield from _notes_on_run(a)
    yield from _notes_on_run(b)
    formats = [r.manifest.dtype for r in (a, b) if r.manifest is not None]
    if len(set(formats)) > 1:
        yield f"{a.name} ran in {formats[0]} and {b.name} in {formats[1]}: votes may differ by it."
    first = a.certified_by
    second = b.certified_by
    if first is None or second is None:
        yield (
            "A published log does not tell inputs, noise, norm, alpha and samples; "
            "these are taken to be alike."
        )
        return
    if a.manifest is None or b.manifest is None:
        yield (
            "Only runs tell their data; both are taken to have the same inputs, in the same units."
        )
    if first != second:
        yield (
            f"The plans differ ({first}; {second}), so the difference is not that of the models "
            "alone."
        )


def _notes_on_run(run: Results) -> Iterator[str]:
    if run.left_out:
        yield f"{run.name}: {run.left_out_in_words}; nothing is known about these."
    if run.manifest is not None and run.manifest.copies:
        yield (
            f"{run.name}: {number_of(len(run.manifest.copies), 'input')} repeat others, and do not "
            "count."
        )
    rough = caveat_of_budget(run)
    if rough is not None:
        yield f"{rough}."


def refusal(code: str, a: Results, b: Results, why: str, **fields: Any) -> InvalidInput:
    """Why two results cannot be compared, and what to do."""
    return InvalidInput(
        code, "{a} and {b} cannot be compared: " + why, a=a.name, b=b.name, **fields
    )
