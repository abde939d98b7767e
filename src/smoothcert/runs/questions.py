"""The ledger of a run: which questions its votes were asked, when, and what the answers were.

alpha is per input and question. Whoever asks ten questions and shows one answer should say so, and
the run says it for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

from smoothcert._check import NO_CLASS
from smoothcert.errors import SmoothcertError
from smoothcert.plans.asked import Question
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import DAMAGED, Manifest, QuestionEntry, check_type, recorded_level
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run, locked_journal


class Answers(TypedDict):
    """Answers as a run records them: a list for each level, with a value for each input."""

    id: list[int]
    prediction: list[list[int | None]]
    radius: list[list[float]]


class Entry(NamedTuple):
    """One question in the ledger.

    Args:
        number: Which question to the run it is, from 1.
        questions: All questions to the run.
        written: Whether the run could be written.
    """

    number: int
    questions: list[QuestionEntry]
    written: bool


def note_question(run: Run, question: Question, levels: Sequence[Results]) -> Entry:
    """Write a question and its answers into the run. The same question stays the same entry.

    Args:
        run: The run.
        question: The question.
        levels: The answers of each level.
    """
    entry = _entry(question)
    try:
        with locked_journal(run.path) as journal:
            number, questions = _in_ledger(entry, journal.manifest().questions)
            journal.write_manifest({"questions": questions, f"answers {number}": _plain(levels)})
    except (SmoothcertError, OSError):
        number, questions = _in_ledger(entry, run.manifest.questions)
        return Entry(number, questions, written=False)
    return Entry(number, questions, written=True)


def level_of(results: Results) -> str:
    """What the predictions of results are: "class", or the name of the level of their groups.

    Args:
        results: Any results.
    """
    return "class" if results.groups is None else results.groups.title


def recorded_answers(run: Run, number: int) -> Answers | None:
    """The answers to a question, as the run records them; None if they are missing or damaged.

    Args:
        run: The run.
        number: Which question it is, from 1.
    """
    with Journal(run.path) as journal, suppress(*DAMAGED):
        recorded: Answers = journal.entry(f"answers {number}")
        check_type(recorded, Answers)
        levels = len(run.manifest.questions[number - 1]["levels"])
        columns: list[list[Any]] = [*recorded["prediction"], *recorded["radius"]]
        has_all_levels = len(recorded["prediction"]) == len(recorded["radius"]) == levels
        if has_all_levels and all(len(column) == len(recorded["id"]) for column in columns):
            return recorded
    return None


def recorded_question(entry: QuestionEntry, manifest: Manifest) -> Question:
    """The question of an entry.

    Args:
        entry: The entry.
        manifest: The manifest of the run.
    """
    levels = [recorded_level(text, manifest.classes) for text in entry["levels"]]
    radii = None if entry["radii"] is None else tuple(entry["radii"])
    return Question(entry["top"], tuple(levels), radii, entry["alpha"])


def in_words(entry: QuestionEntry) -> str:
    """A question in a few words.

    Args:
        entry: The entry.
    """
    titles = [next(iter(json.loads(text))) for text in entry["levels"]]
    if entry["top"] > 1:
        return f"top {entry['top']}"
    words = f"groups {titles[0]}" if len(titles) == 1 else f"finest of {', '.join(titles)}"
    if entry["radii"] is not None:
        words += f" at {', '.join(map('{:g}'.format, entry['radii']))}"
    return words


def sentence(entry: Entry) -> str:
    """Which question to the run this is, and what holds together.

    Args:
        entry: The question.
    """
    own = entry.questions[entry.number - 1]
    parts = [
        f"{in_words(own)}: question {entry.number} to this run, asked {own['asked'][:10]}; its "
        f"answer to an input is wrong with a probability of at most {own['alpha']:g}"
    ]
    others = [in_words(other) for other in entry.questions if other is not own]
    if others:
        together = sum(other["alpha"] for other in entry.questions)
        parts.append(
            f"the run was also asked {'; '.join(others)}: all answers to an input hold together "
            f"only with a probability of 1 - {together:g}"
        )
    parts.append("the certificates of the run are a claim of their own beside it")
    if not entry.written:
        parts.append("the run cannot be written, so its ledger was not kept")
    return "; ".join(parts)


def question_of(answers: Results) -> str | None:
    """Which question to a run these results answer, and what else it was asked; None for none.

    Args:
        answers: Any results.
    """
    about = {} if answers.manifest is None else answers.manifest.circumstances
    return None if "question" not in about else str(about["question"])


def are_levels(results: Sequence[Results]) -> bool:
    """Whether these results are the levels of one finest answer.

    Args:
        results: Any results.
    """
    asked = {question_of(one) for one in results}
    titles = {level_of(one) for one in results}
    return len(asked) == 1 and None not in asked and len(titles) == len(results) > 1


def _entry(question: Question) -> QuestionEntry:
    return {
        "asked": datetime.now(UTC).isoformat(timespec="seconds"),
        "top": question.top,
        "levels": [level.text for level in question.levels],
        "radii": None if question.radii is None else list(question.radii),
        "alpha": question.alpha or 0.0,
    }


def _in_ledger(
    entry: QuestionEntry, questions: list[QuestionEntry]
) -> tuple[int, list[QuestionEntry]]:
    """The number of a question in a ledger, and the ledger with this question."""
    for number, other in enumerate(questions, 1):
        if {**entry, "asked": other["asked"]} == other:
            return number, questions
    return len(questions) + 1, [*questions, entry]


def _plain(levels: Sequence[Results]) -> Answers:
    """Answers for JSON."""
    return {
        "id": levels[0].id.tolist(),
        "prediction": [
            [None if group == NO_CLASS else group for group in level.prediction.tolist()]
            for level in levels
        ],
        "radius": [level.radius.tolist() for level in levels],
    }
