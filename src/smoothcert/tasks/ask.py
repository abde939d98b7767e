"""`ask`: questions to the votes of a run, without a new forward pass.

Is the label among the top k? Is it an animal, whichever? What is the finest answer that the votes
prove?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, overload

import numpy as np

from smoothcert import _check
from smoothcert.data.groups import CLASS_LEVEL, GroupsSource, read_level, read_levels
from smoothcert.errors import InvalidInput, setting
from smoothcert.plans import (
    AtRadii,
    BettingRadii,
    Certificate,
    Fixed,
    InputSpecific,
    Plan,
    Proof,
)
from smoothcert.plans.asked import Question, answers
from smoothcert.plans.base import check_top
from smoothcert.plans.certificate import keeps_alpha
from smoothcert.plans.decided import increasing
from smoothcert.plans.groups import Groups
from smoothcert.runs.questions import (
    in_words,
    note_question,
    recorded_answers,
    recorded_question,
    sentence,
)
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run, check_has_certificates, open_run

_AT_ONCE = 2_000
"""Inputs whose votes are held in arrays."""
_TESTED_BETS = 50
"""About how many answers by bets are tested by the second method."""


@overload
def ask(
    run: Run | str | Path,
    *,
    top: int | None = None,
    groups: GroupsSource | None = None,
    alpha: float | None = None,
) -> Results: ...
@overload
def ask(
    run: Run | str | Path,
    *,
    groups: GroupsSource,
    finest: Literal[True],
    radii: Sequence[float] | None = None,
    alpha: float | None = None,
) -> list[Results]: ...


def ask(
    run: Run | str | Path,
    *,
    top: int | None = None,
    groups: GroupsSource | None = None,
    finest: bool = False,
    radii: Sequence[float] | None = None,
    alpha: float | None = None,
) -> Results | list[Results]:
    """Ask the votes of a run a question that it was not made for.

    The run records each question. alpha is per input and question, so several questions hold
    together only with a multiple of it.

    Args:
        run: The run, or its folder.
        top: Whether each class stays among so many most probable ones.
        groups: Groups of classes: a TOML file, as in "groups.toml" or "groups.toml:kind" for one of
            its levels, or a dictionary.
        finest: What the finest answer is that the votes prove: a class, or a group of one of the
            levels, which go from coarse to fine.
        radii: With `finest`, the radii at which answers are claimed; at a single one, alpha is not
            divided. Default: those that the plan decides, or all.
        alpha: The largest probability that the answer to an input is wrong. Default: the alpha of
            the run.

    Returns:
        Results like any other, in which groups stand for classes. For `finest`, those of each level
        from coarse to fine, the last for the classes; the finest answer to an input at r is that of
        the last level whose radius reaches r.

    Raises:
        InvalidInput: The plan of the run decided by the votes when to stop, so they prove nothing
            else. Ask when you certify.
    """
    run = open_run(run)
    question = _question(run, top, groups, finest=finest, radii=radii, alpha=alpha)
    levels = answered(run, question)
    entry = note_question(run, question, levels)
    # Every export says which question it answers, and what else was asked.
    about = {**run.manifest.circumstances, "question": sentence(entry)}
    for place, level in enumerate(levels):
        assert level.manifest is not None
        manifest = replace(level.manifest, questions=entry.questions, circumstances=about)
        levels[place] = replace(level, manifest=manifest)
    return levels if finest else levels[0]


def answered(run: Run, question: Question) -> list[Results]:
    """The answers of each level, which are not written down.

    Args:
        run: The run.
        question: The question.
    """
    asked = question.plan(run.plan)
    check_top(asked, run.manifest.classes)
    kept: list[list[Certificate]] = [[] for _ in question.levels]
    for certificates in _of_one_plan(run):
        plan = certificates[0].plan
        proofs = answers(question, plan, run.noise, certificates, run.manifest.classes)
        for level, proof, answers_of_level in zip(question.levels, proofs, kept, strict=True):
            answers_of_level += _certificates(certificates, proof, question.plan(plan), level)
    results = []
    for level, certificates in zip(question.levels, kept, strict=True):
        title = level.title if question.top == 1 else f"top {question.top}"
        settings = dict(run.manifest.settings)
        if level.title != CLASS_LEVEL:
            settings["groups"] = level.text
        answer = Results.from_certificates(
            f"{run.name}: {title}",
            certificates,
            manifest=replace(run.manifest, plan=asked, settings=settings),
        )
        results.append(replace(answer, plan=asked, claimed=None if asked.radii else question.radii))
    return results


def _question(
    run: Run,
    top: int | None,
    groups: GroupsSource | None,
    *,
    finest: bool,
    radii: Sequence[float] | None,
    alpha: float | None,
) -> Question:
    """The question, checked before any vote is looked at."""
    _check_asked(run, top, groups, finest, radii)
    alpha = run.plan.alpha if alpha is None else _check.alpha("alpha", alpha)
    classes = run.manifest.classes
    if groups is None:
        top = _check.whole("top", top, least=2)
        return Question(top, (Groups.of_members(CLASS_LEVEL, {}, classes),), alpha=alpha)
    names: Sequence[str] | None = run.manifest.class_names
    if names is None:
        dataset = dataset_of([run.manifest])
        names = None if dataset is None else dataset.class_names
    levels = read_levels(groups, classes, names) if finest else [read_level(groups, classes, names)]
    if any(level.title == CLASS_LEVEL for level in levels):
        raise InvalidInput(
            "reserved-level",
            "{groups}: no level can be called {title!r}, which stands for the classes themselves: "
            "give it another name",
            groups=groups,
            title=CLASS_LEVEL,
        )
    if not finest:
        return Question(1, tuple(levels), alpha=alpha)
    checked = None if radii is None else increasing(radii)
    finest_level = Groups.of_members(CLASS_LEVEL, {}, classes, names)
    return Question(1, (*levels, finest_level), checked, alpha)


def _check_asked(
    run: Run,
    top: int | None,
    groups: GroupsSource | None,
    finest: bool,
    radii: Sequence[float] | None,
) -> None:
    """Refuse what is no question, and a run that cannot be asked."""
    if (groups is None and finest) or (radii is not None and not finest):
        raise InvalidInput(
            "only-for-levels",
            "{option} is for the finest answer: give `groups=groups.toml` and `finest=True`",
            option=setting("finest" if finest else "radii"),
        )
    if (top is None) == (groups is None):
        raise InvalidInput(
            "no-question",
            "ask for either `top=3` or `groups=groups.toml`",
        )
    if run.manifest.groups is not None or run.plan.top > 1:
        raise InvalidInput(
            "run-of-a-question",
            "{run} was made for a question of its own: ask a run that certifies classes",
            run=run.path,
        )
    check_has_certificates(run)


def _of_one_plan(run: Run) -> Iterator[list[Certificate]]:
    """The certificates of a run in blocks of one plan. A budget may give each input its own."""
    by_plan: dict[Plan, list[Certificate]] = {}
    for certificate in run.certificates():
        block = by_plan.setdefault(certificate.plan, [])
        block.append(certificate)
        if len(block) == _AT_ONCE:
            yield by_plan.pop(certificate.plan)
    yield from by_plan.values()


def _certificates(
    certificates: Sequence[Certificate], proof: Proof, plan: Plan, level: Groups
) -> Iterator[Certificate]:
    """The answer to each input as a certificate about its group."""
    columns = [proof.prediction, proof.radius, proof.lower, proof.upper, proof.count, proof.counted]
    count = len(certificates)
    rows = zip(*(np.broadcast_to(np.array(c), count).tolist() for c in columns), strict=True)
    are_classes = level.of == tuple(range(len(level.of)))
    for c, (chosen, radius, *bounds) in zip(certificates, rows, strict=True):
        is_proved = radius == radius
        yield replace(
            c,
            label=None if c.label is None else level.label(c.label),
            prediction=chosen if is_proved else None,
            radius=radius if is_proved else 0.0,
            proof=Proof(chosen, radius if is_proved else None, *bounds),
            looks=c.looks if are_classes else tuple(map(level.look, c.looks)),
            plan=plan,
        )


def wrong_answers(run: Run) -> Iterator[tuple[int, str]]:
    """The inputs whose recorded answers do not follow from their votes, and what is wrong.

    Every answer is derived again, and tested by the second method of its plan where it has one.

    Args:
        run: The run.
    """
    for number, entry in enumerate(run.manifest.questions, 1):
        question = f"question {number} ({in_words(entry)})"
        recorded = recorded_answers(run, number)
        if recorded is None:
            yield int(run.id[0]), f"the answers to {question} are missing or damaged"
            continue
        unproved = f"its votes do not prove its answer to {question}"
        for place, level in enumerate(answered(run, recorded_question(entry, run.manifest))):
            stated = zip(recorded["prediction"][place], recorded["radius"][place], strict=True)
            for id, (group, radius) in zip(recorded["id"], stated, strict=True):
                if id not in level.kept or not _follows(level.kept[id], group, radius):
                    yield id, unproved
            for id in _unlikely(level, run.plan):
                yield id, f"{unproved} by the second method"


def _follows(derived: Certificate, group: int | None, radius: float) -> bool:
    """Whether an answer is what the votes prove.

    A run that went on since it was asked proves more.
    """
    if group is not None and group != derived.prediction:
        return False
    goes_on = bool(derived.plan.earlier_plans)
    more = derived.radius > radius * (1 + 1e-8) + 1e-12
    return radius <= derived.radius * (1 + 1e-8) and (goes_on or not more)


def _unlikely(level: Results, recorded: Plan) -> list[int]:
    """Inputs with votes that would be likely if the answer were wrong; some of them for bets."""
    proved = [c for c in level.kept.values() if not c.abstained]
    if level.plan is not None and isinstance(level.plan, BettingRadii):
        proved = proved[:: max(len(proved) // _TESTED_BETS, 1)]
    return [c.id for c in proved if not keeps_alpha(_with_class_known(c, recorded))]


def _with_class_known(c: Certificate, recorded: Plan) -> Certificate:
    """The same answer where the class is given, so that a pilot has nothing left to choose."""
    plan = c.plan
    looks = c.looks
    if not plan.pilot or plan.known_labels:
        return c
    if isinstance(recorded, (AtRadii, Fixed)):
        looks = looks[1:]
    if isinstance(plan, (AtRadii, Fixed, BettingRadii)):
        plan = replace(plan, known_labels=True, pilot=0)
    elif isinstance(plan, InputSpecific):
        plan = replace(plan, known_labels=True)
    return replace(c, plan=plan, looks=looks, label=c.prediction)
