"""The manifest of a run: its settings, and the circumstances under which it was made."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.metadata import version
from itertools import pairwise
from math import inf
from types import UnionType
from typing import (
    Any,
    Self,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from smoothcert._registry import describe, differences, restore
from smoothcert._version import __version__
from smoothcert.data import parse_shard
from smoothcert.data.base import same_data
from smoothcert.data.groups import read_level
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import VERSION
from smoothcert.plans import Plan
from smoothcert.plans.groups import Groups
from smoothcert.plans.votes import Answer, same_answers

MOST_INPUTS = 10**8
"""More inputs than any data set has. Without this limit, a damaged range could fill the memory."""
_ABOVE_INTEGERS = 2**64
"""No number that a run records is as large: seeds have 64 bits."""
_SHOWN = 80
"""How many characters of a damaged entry a message shows."""
DAMAGED = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""What reading a damaged entry raises."""
_MAY_CHANGE = (
    "answers",
    "weights",
    "batch",
    "compile",
    "forwarded",
    "started",
    "finished",
    "circumstances",
    "shard",
    "questions",
    "values",
    "spending",
    "until_clear",
    "unreadable",
    "copies",
    "in_memory",
)
"""Entries that may differ when a run is continued, beside those of `_may_differ`.

Batch and compilation are compared when the classifier is prepared.
"""


Simple: TypeAlias = bool | int | float | str | None


class BudgetEntry(TypedDict):
    """The budget of a run, and the settings of the plan that it may change."""

    samples: int | None
    minutes: float | None
    ceiling: int
    pilot: int


class SpendingEntry(TypedDict):
    """How far a budget is spent.

    `votes` has the id, the votes and the samples of every input of the survey. `block` and `plan`
    are about the inputs that are being certified.
    """

    total: float
    rate: float
    survey: int
    votes: list[tuple[int, int, int]]
    block: list[int]
    plan: Mapping[str, Any]


class QuestionEntry(TypedDict):
    """A question that the votes of a run were asked: a `Question`, with the time."""

    asked: str
    top: int
    levels: list[str]
    radii: list[float] | None
    alpha: float


@dataclass(frozen=True)
class Manifest:
    """What was certified and how, as the journal records it.

    Args:
        model: The name of the classifier, as the user gave it.
        classes: Its number of classes.
        data: The name of the data set.
        data_hash: The fingerprint of the data set.
        ids: The inputs to certify.
        noise: The smoothing noise.
        plan: The plan.
        seed: The key of the noise.
        device: The kind of device.
        dtype: The number format of the classifier.
        compile: How the classifier is made fast, such as "stages" or "none"; empty until it is
            prepared.
        weights_hash: The hash of its weights, None if it has none.
        answers: The fingerprint of the classifier: its answers to a few fixed noisy inputs.
        weights: The file with the weights, None if the user named none.
        batch: Rows per forward pass; 0 until it is chosen.
        forwarded: Rows that went through the classifier, padding included.
        started: When the run began.
        finished: When it was complete; None until then.
        circumstances: Versions and machine.
        shard: The part of the inputs, as in "3/16", if they are divided among several jobs.
        denoiser: Name, hash and description of the denoiser in front of the classifier, if there is
            one.
        drawing: The version of how noise is drawn (`noises.base.VERSION`).
        settings: Further settings of the subject, by name.
        values: The smallest and the largest value of the inputs that were certified; None if they
            are not known.
        budget: The budget of the run, and the settings of the plan that it may change; None without
            a budget.
        spending: How far the budget is spent, and the inputs and the plan of the block that is
            being certified.
        until_clear: Whether inputs were added until the difference from another run was clear.
        unreadable: Inputs that could not be read. They are left out unless they are asked for
            again.
        copies: Inputs that are copies of earlier ones. They are no evidence about other inputs.
        in_memory: What the user had in memory, so that the name of the data does not lead to it:
            "data" or "labels".
        questions: The questions that its votes were asked, in order.
        class_names: The names of the classes; None if they are unknown, and for runs of version 1.
    """

    model: str
    classes: int
    data: str
    data_hash: str
    ids: tuple[int, ...]
    noise: Noise
    plan: Plan
    seed: int
    device: str
    dtype: str
    compile: str = ""
    weights_hash: str | None = None
    answers: list[Answer] | None = None
    weights: str | None = None
    batch: int = 0
    forwarded: int = 0
    started: str | None = None
    finished: str | None = None
    circumstances: Mapping[str, Simple | list[str]] = field(default_factory=dict)
    shard: str | None = None
    denoiser: Mapping[str, str] | None = None
    drawing: int = VERSION
    settings: Mapping[str, Simple] = field(default_factory=dict)
    values: tuple[float, float] | None = None
    budget: BudgetEntry | None = None
    spending: SpendingEntry | None = None
    until_clear: bool = False
    unreadable: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    in_memory: str = ""
    questions: list[QuestionEntry] = field(default_factory=list)
    class_names: list[str] | None = None

    @property
    def classifier(self) -> str:
        """The name of the model, and of the denoiser in front of it."""
        if self.denoiser is None:
            return self.model
        return f"{self.model} behind {self.denoiser['name']}"

    @property
    def groups(self) -> Groups | None:
        """The groups that the answers are about; None for classes."""
        text = self.settings.get("groups")
        if text is None:
            return None
        try:
            return recorded_level(str(text), self.classes)
        except (TypeError, ValueError) as error:
            raise unreadable_entry("the run", "groups", error) from None

    @property
    def timed(self) -> bool:
        """Whether the clock decided what inputs got: in runs of version 1.0 with minutes."""
        return self.budget is not None and self.budget.get("samples") is None

    @property
    def plans_known(self) -> bool:
        """Whether the plans of all inputs follow from this record.

        In version 1.0, the clock decided about the plans of a budget of minutes, and the order of
        the inputs changed where one of them was left out.
        """
        changed_order = self.budget is not None and self.is_of_version_1 and bool(self.unreadable)
        return self.survey_known and not (self.timed or changed_order)

    @property
    def is_of_version_1(self) -> bool:
        """Whether the run was begun by version 1."""
        return str(self.circumstances.get("smoothcert")).startswith("1.")

    @property
    def survey_known(self) -> bool:
        """Whether the votes of a survey are recorded by input.

        The first runs of version 1.0 recorded how many inputs had which votes.
        """
        votes = [] if self.spending is None else self.spending["votes"]
        return all(samples > 0 and count <= samples for _, count, samples in votes)

    @property
    def requested_plan(self) -> Plan:
        """The plan that was asked for. With a budget, `plan` is that of the first block instead."""
        if self.budget is None:
            return self.plan
        requested = {"samples": self.budget["ceiling"], "pilot": self.budget["pilot"], "price": 0.0}
        names = requested.keys() & {f.name for f in fields(self.plan)}  # type: ignore[arg-type]
        changes = {name: requested[name] for name in names}
        return replace(self.plan, **changes)  # type: ignore[type-var]

    @property
    def compile_request(self) -> str:
        """The `compile` with which the classifier runs in the same way again.

        "fast" uses stage kernels by itself.
        """
        return "fast" if self.compile == "stages" else self.compile or "auto"

    def plain(self) -> dict[str, Any]:
        """The manifest as a dictionary for JSON; `parse` is the inverse."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "ids": compact_ids(self.ids),
            "noise": describe(self.noise),
            "plan": describe(self.plan),
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: object) -> Self:
        """Make a manifest from the values in a journal or an export.

        Every entry is checked here against the annotation of its field, so that those who read a
        run can rely on its types.
        """
        needed = [
            f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
        ]
        missing = [key for key in needed if values.get(key) is None]
        if missing:
            raise InvalidInput(
                "incomplete-manifest",
                "{where} is damaged: its manifest has no {entry}",
                where=where,
                entry=", ".join(missing),
            )
        hints = get_type_hints(cls)
        entries = {}
        for entry in (f.name for f in fields(cls) if f.name in values):
            try:
                entries[entry] = _read_entry(entry, values[entry], hints[entry])
            except (*DAMAGED, InvalidInput) as error:
                raise unreadable_entry(where, entry, error) from None
        return cls(**entries)

    def differences(self, recorded: Manifest, *, also: Sequence[str] = ()) -> list[str]:
        """Every setting that keeps this manifest from continuing a recorded run, in words.

        The inputs may be more than before, or fewer. `also` names what is compared as well.
        """
        ignored = self._may_differ(recorded).difference(also)
        differing = differences(recorded._settings_except(ignored), self._settings_except(ignored))
        if not differing and not same_answers(recorded.answers, self.answers):
            return ["what the model answers to the same inputs (has its code changed?)"]
        return differing

    def _settings_except(self, ignored: Collection[str]) -> dict[str, Any]:
        """All entries but those that are ignored, where further settings are entries, too."""
        entries = {**self.settings, **self.plain()}
        del entries["settings"]
        return {name: value for name, value in entries.items() if name not in ignored}

    def _may_differ(self, recorded: Manifest) -> set[str]:
        """Entries that may differ from those of a recorded run.

        A model or data set with the same content may have another name, because users move files.
        """
        before = set(recorded.ids)
        wanted = set(self.ids)
        stochastic = [manifest.settings.get("stochastic") for manifest in (self, recorded)]
        same_weights = self.weights_hash == recorded.weights_hash
        reasons = {
            "ids": before <= wanted or wanted <= before,
            "model": same_weights and bool(self.weights_hash),
            "data": same_data(self.data_hash, recorded.data_hash),
            "data_hash": same_data(self.data_hash, recorded.data_hash),
            "denoiser": same_denoiser(self.denoiser, recorded.denoiser),
            "weights_hash": stochastic[0] != stochastic[1],  # it differs for this reason
            "class_names": None in (self.class_names, recorded.class_names),
        }
        return {*_MAY_CHANGE, *(name for name, is_alike in reasons.items() if is_alike)}

    def same_draws(self, other: Manifest) -> bool:
        """Whether both runs have the same votes for the same samples."""
        alike = replace(
            self,
            ids=other.ids,
            plan=other.plan,
            budget=other.budget,
            class_names=other.class_names,
        )
        return not alike.differences(other)


def recorded_level(text: str, classes: int) -> Groups:
    """A level of groups from its record. A run never makes us read another file."""
    content = json.loads(text)
    check_type(content, Mapping[str, Any])
    return read_level(content, classes, None)


def same_denoiser(a: Mapping[str, str] | None, b: Mapping[str, str] | None) -> bool:
    """Whether two records are of the same denoiser. Version 1 recorded no configuration."""
    if a is None or b is None:
        return a is b
    configs = {record["config"] for record in (a, b) if "config" in record}
    return a["hash"] == b["hash"] and len(configs) < 2


def unreadable_entry(where: object, entry: str, error: Exception) -> InvalidInput:
    """The error about an entry of a manifest that cannot be read."""
    return InvalidInput(
        "unreadable-manifest",
        "{where}: the entry {entry!r} of its manifest cannot be read: {reason}",
        where=where,
        entry=entry,
        reason=str(getattr(error, "message", error)),
    )


def check_type(value: Any, hint: Any) -> None:
    """Raise a `TypeError` if a value from JSON does not have the type of an annotation."""
    if not _has_type(value, hint):
        text = repr(value)
        raise TypeError(f"got {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'}")


def _has_type(value: Any, hint: Any) -> bool:
    kind = get_origin(hint)
    parts = get_args(hint)
    if kind in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if kind in (list, tuple):
        return isinstance(value, (list, tuple)) and _has_types(value, kind, parts)
    if kind is Mapping:
        return isinstance(value, Mapping) and _has_types(list(value.values()), list, parts[1:])
    if is_typeddict(hint):
        return isinstance(value, Mapping) and _has_entries(value, get_type_hints(hint))
    return _is_plain(value, hint)


def _has_entries(values: Mapping[str, Any], types: Mapping[str, Any]) -> bool:
    """Whether a dictionary has these entries and no others."""
    return values.keys() == types.keys() and all(
        _has_type(values[key], types[key]) for key in types
    )


def _has_types(values: Sequence[Any], kind: Any, parts: Sequence[Any]) -> bool:
    """Whether all values have their types: `parts` of a tuple, or that of all items of a list."""
    is_open = kind is list or Ellipsis in parts
    types = [parts[0]] * len(values) if is_open else parts
    return len(values) == len(types) and all(map(_has_type, values, types))


def _is_plain(value: Any, hint: Any) -> bool:
    """Whether a value is of a simple type. A truth value is not a number, and no number is NaN."""
    if hint is Any:
        return True
    if hint is int:
        return type(value) is int and 0 <= value < _ABOVE_INTEGERS
    if hint is float:
        return type(value) in (int, float) and value == value
    return isinstance(value, hint)


def _read_entry(entry: str, value: Any, hint: Any) -> Any:
    """An entry of a manifest, from its value in JSON."""
    if entry in ("ids", "unreadable", "copies"):
        return tuple(expand_ids(value))
    if entry in ("noise", "plan"):
        check_type(value, Mapping[str, Any])
        value = restore(value)
    check_type(value, hint)
    if value is not None and entry in _CONTENT_CHECKS:
        _CONTENT_CHECKS[entry](value)
    if entry == "values" and value is not None:
        return tuple(value)
    return value


def _check_denoiser(denoiser: Mapping[str, str]) -> None:
    missing = {"name", "hash", "description"} - denoiser.keys()
    if missing:
        raise ValueError(f"it has no {min(missing)}")


def _check_budget(budget: BudgetEntry) -> None:
    if not budget["samples"] and not budget["minutes"]:
        raise ValueError("it needs samples or minutes")


def _check_spending(spending: SpendingEntry) -> None:
    check_type(restore(spending["plan"]), Plan)
    if not (0 < spending["rate"] < inf and 0 <= spending["total"] < inf):
        raise ValueError("rate and total must be finite numbers")


def _check_questions(questions: Sequence[QuestionEntry]) -> None:
    for question in questions:
        levels = [json.loads(text) for text in question["levels"]]
        check_type(levels, list[Mapping[str, Any]])
        if not levels or not all(levels):
            raise ValueError("a question has no groups")


_CONTENT_CHECKS: dict[str, Callable[[Any], object]] = {
    "shard": parse_shard,
    "denoiser": _check_denoiser,
    "budget": _check_budget,
    "spending": _check_spending,
    "questions": _check_questions,
}
"""What the type of an entry does not tell."""


def circumstances() -> dict[str, Any]:
    """Versions and machine, to be recorded."""
    return {
        "smoothcert": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: version(name) for name in ("torch", "numpy", "scipy")},
    }


def compact_ids(ids: Sequence[int]) -> list[int] | dict[str, int]:
    """Evenly spaced ids as first, last and step: a manifest of 50,000 inputs stays readable."""
    if len(ids) > 2 and len({b - a for a, b in pairwise(ids)}) == 1:
        return {"first": ids[0], "last": ids[-1], "step": ids[1] - ids[0]}
    return list(ids)


def expand_ids(ids: Sequence[int] | Mapping[str, int]) -> list[int]:
    """The inverse of `compact_ids`.

    Raises:
        ValueError: The file is damaged, and these are not ids of inputs.

    >>> expand_ids(compact_ids([0, 20, 40, 60]))
    [0, 20, 40, 60]
    """
    if isinstance(ids, Mapping):
        first, last, step = (ids[key] for key in ("first", "last", "step"))
        check_type([first, last, abs(step)], list[int])
        spaced = range(first, last + (1 if step > 0 else -1), step)
        if len(spaced) > MOST_INPUTS:
            raise ValueError(f"its ids are damaged: {len(spaced):,} inputs")
        return list(spaced)
    check_type(ids, list[int])
    if len(set(ids)) < len(ids):
        raise ValueError("its ids are damaged: one of them is repeated")
    return list(ids)
