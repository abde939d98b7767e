"""The subject and the data of a recorded run, loaded again after a check that they are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from torch import nn

from smoothcert._settings import NAMES
from smoothcert.data import Dataset, find_dataset
from smoothcert.data.base import same_data
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.models import Classifier
from smoothcert.models.load import names_code
from smoothcert.plans.votes import same_answers
from smoothcert.runs.manifest import Manifest, hash_of
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
        about = {"purpose": purpose, "why": error.message, "instead": instead}
        raise InvalidInput(
            error.code, "cannot {purpose}: {why}{instead}", **(error.fields | about)
        ) from None
    return recorded


def _check_places(manifest: Manifest, places: Places) -> None:
    """Refuse what cannot be found again by its name."""
    named = {"model": manifest.model, "denoiser": _denoiser(manifest, places)}
    code = {
        part: name
        for part, name in named.items()
        if places.get(part) is None and isinstance(name, str) and names_code(name)
    }
    if code:
        raise InvalidInput(
            "code-of-the-user",
            "the run was made with {code}, and code that a run names is not executed: give {parts}",
            code=" and ".join(f"the {part} {name}" for part, name in code.items()),
            parts=" and ".join(map(setting, code)),
        )
    if manifest.in_memory:
        _check_data_in_memory(manifest, places.get("data"))


def _check_data_in_memory(manifest: Manifest, data: Any) -> None:
    """Refuse to look for data that was in memory; with its own labels, a name is not enough."""
    advice = f": give {setting('data')}"
    is_given = data is not None
    if manifest.in_memory == "labels":
        is_given = is_given and not isinstance(data, (str, Path))
        advice = either(
            ": give data=(DATA, LABELS)",
            ", which only Python takes: give data=(DATA, LABELS) there",
        )
    if not is_given:
        raise InvalidInput(
            "data-in-memory",
            "the run was made with {what} in memory{advice}",
            what=manifest.in_memory,
            advice=advice,
        )


def _denoiser(manifest: Manifest, places: Places) -> str | Path | nn.Module | None:
    """The denoiser that is given, or the recorded one, unless the given model has one already."""
    model = places.get("model")
    has_denoiser = isinstance(model, Classifier) and model.denoiser is not None
    given = places.get("denoiser")
    if given is not None or manifest.denoiser is None or has_denoiser:
        return given
    return manifest.denoiser["name"]


def _load(manifest: Manifest, places: Places) -> RecordedSubject:
    model = places.get("model")
    data = places.get("data")
    weights = places.get("weights")
    if weights is None and (model is None or isinstance(model, str)):
        weights = manifest.weights
    settings: dict[str, Any] = {
        "noise": manifest.noise,
        "weights": weights,
        "classes": manifest.classes,
        "denoiser": _denoiser(manifest, places),
        "seed": manifest.seed,
        "device": manifest.device,
        "dtype": manifest.dtype,
        "batch": manifest.batch or "auto",
        "compile": manifest.compile_request,
    }
    try:
        dataset = find_dataset(manifest.data if data is None else data)
        _check_settings(manifest)
        recorded_model = manifest.model if model is None else model
        smoothed = Subject(recorded_model, **{**manifest.settings, **settings})
        return RecordedSubject(smoothed, smoothed.bind(dataset, ()), dataset)
    except InvalidInput as error:
        parts = ["model", "weights", "denoiser"]
        if manifest.denoiser is None:
            parts.remove("denoiser")
        about = {
            "missing": error.message,
            "wanted": f"{', '.join(map(setting, parts))} and {setting('data')}",
        }
        raise InvalidInput(
            error.code,
            "{missing}; give the model and the data with {wanted}",
            **(error.fields | about),
        ) from None


def _check_settings(manifest: Manifest) -> None:
    unknown = sorted(manifest.settings.keys() - set(NAMES))
    if unknown:
        raise InvalidInput(
            "unknown-setting",
            "this version of smoothcert does not know the setting {name!r} of the run",
            name=unknown[0],
        )


def _check_unchanged(manifest: Manifest, recorded: RecordedSubject) -> None:
    """Refuse other weights, other data, and a model that gives other answers."""
    classifier = recorded.subject.classifier
    unchanged = {
        "denoiser's weights": hash_of(manifest.denoiser) == hash_of(classifier.denoiser),
        "weights": manifest.weights_hash == classifier.weights_hash,
        "data": same_data(manifest.data_hash, recorded.dataset.fingerprint),
    }
    for part, is_same in unchanged.items():
        if not is_same:
            raise InvalidInput(
                "changed-since",
                "the {part} are not those that the run was made with: give those",
                part=part,
            )
    if not same_answers(manifest.answers, recorded.subject.fingerprint()):
        raise InvalidInput(
            "other-answers",
            "the model gives other answers than the one that the run was made with: give that one",
        )
