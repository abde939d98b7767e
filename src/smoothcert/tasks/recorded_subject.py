"""The subject and the data of a recorded run, loaded again after a check that they are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from torch import nn

from smoothcert._settings import NAMES, PLACE_NAMES
from smoothcert.data import Dataset, find_dataset
from smoothcert.data.base import same_data
from smoothcert.errors import InvalidInput, setting
from smoothcert.models import Classifier
from smoothcert.models.load import names_code
from smoothcert.plans.votes import same_answers
from smoothcert.runs.manifest import Manifest, same_denoiser
from smoothcert.smoothed import Subject


class Places(TypedDict, total=False):
    """Where the parts of a run are now, if they are not where its manifest says.

    Code that a run names is never executed, so a model or denoiser of the user's own code has to be
    given again.
    """

    model: str | Classifier | Callable[..., Any] | None
    weights: str | Path | None
    denoiser: str | Path | nn.Module | None
    data: Any


class RecordedSubject(NamedTuple):
    """What a run was made with: the classifier, the same for its inputs, and the data."""

    smoothed: Subject
    subject: Subject
    dataset: Dataset


def recorded_subject(
    manifest: Manifest, places: Places, *, purpose: str, instead: str = ""
) -> RecordedSubject:
    """The subject and the data of a run, from its manifest and from what the user gives again.

    Args:
        manifest: The manifest of the run.
        places: Where its parts are now.
        purpose: What the caller wants to do, for messages.
        instead: The end of messages: what else the user can do.
    """
    try:
        _check_places(manifest, places)
        recorded = _load(manifest, places)
        _check_unchanged(manifest, recorded)
    except InvalidInput as error:
        parts = [part for part in PLACE_NAMES if part != "denoiser" or manifest.denoiser]
        about = {
            "purpose": purpose,
            "why": error.message,
            "wanted": " and ".join([", ".join(map(setting, parts[:-1])), setting(parts[-1])]),
            "instead": instead,
        }
        raise InvalidInput(
            error.code or "not-loaded",
            "cannot {purpose}: {why}; give the parts of the run with {wanted}{instead}",
            **(error.fields | about),
        ) from None
    return recorded


def _check_places(manifest: Manifest, places: Places) -> None:
    """Refuse what cannot be found again by its name."""
    for part, name in {"model": manifest.model, "denoiser": _denoiser(manifest, places)}.items():
        if places.get(part) is None and isinstance(name, str) and names_code(name):
            raise InvalidInput(
                "code-of-the-user",
                "the run was made with the {part} {name}, and code that a run names is not "
                "executed",
                part=part,
                name=name,
            )
    data = places.get("data")
    has_labels = data is not None and not isinstance(data, (str, Path))
    if manifest.in_memory == "labels" and not has_labels:
        raise InvalidInput(
            "data-in-memory",
            "the run was made with labels in memory, so its data is a pair, in Python "
            "data=(DATA, LABELS)",
        )
    if manifest.in_memory and data is None:
        raise InvalidInput("data-in-memory", "the run was made with data in memory")


def _denoiser(manifest: Manifest, places: Places) -> str | Path | nn.Module | None:
    """The denoiser that is given, or the recorded one, unless the given model has one already."""
    model = places.get("model")
    has_denoiser = isinstance(model, Classifier) and model.denoiser is not None
    given = places.get("denoiser")
    if given is not None or manifest.denoiser is None or has_denoiser:
        return given
    return manifest.denoiser["name"]


def _load(manifest: Manifest, places: Places) -> RecordedSubject:
    given = {part: place for part, place in places.items() if place is not None}
    model: Any = given.get("model", manifest.model)
    weights = manifest.weights if isinstance(model, str) else None
    dataset = find_dataset(given.get("data", manifest.data))
    for name in manifest.settings:
        if name not in NAMES:
            raise InvalidInput(
                "unknown-setting",
                "this version of smoothcert does not know the setting {name!r} of the run",
                name=name,
            )
    settings: dict[str, Any] = {
        **manifest.settings,
        "noise": manifest.noise,
        "weights": given.get("weights", weights),
        "classes": manifest.classes,
        "denoiser": _denoiser(manifest, places),
        "seed": manifest.seed,
        "device": manifest.device,
        "dtype": manifest.dtype,
        "batch": manifest.batch or "auto",
        "compile": manifest.compile_request,
    }
    smoothed = Subject(model, **settings)
    return RecordedSubject(smoothed, smoothed.bind(dataset, ()), dataset)


def _check_unchanged(manifest: Manifest, recorded: RecordedSubject) -> None:
    """Refuse other weights, other data, and a model that gives other answers."""
    classifier = recorded.subject.classifier
    unchanged = {
        "denoiser's weights": same_denoiser(manifest.denoiser, classifier.denoiser),
        "weights": manifest.weights_hash == classifier.weights_hash,
        "data": same_data(manifest.data_hash, recorded.dataset.fingerprint),
    }
    for part, is_same in unchanged.items():
        if not is_same:
            raise InvalidInput(
                "changed-since",
                "the {part} are not those that the run was made with",
                part=part,
            )
    if not same_answers(manifest.answers, recorded.subject.fingerprint()):
        raise InvalidInput(
            "other-answers",
            "the model gives other answers than the one that the run was made with",
        )
