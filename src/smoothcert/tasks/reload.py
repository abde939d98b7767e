"""Load the model and the data of a run again, after a check that they have not changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from torch import nn

from smoothcert._agreement import same_answers
from smoothcert._settings import NAMES
from smoothcert.data import Dataset, find_dataset
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.models import Classifier
from smoothcert.models.load import names_code
from smoothcert.runs.manifest import Manifest
from smoothcert.smoothed import Subject


class Places(TypedDict, total=False):
    """Where the parts of a run are now, if they are not where its manifest says.

    Code that a run names is never executed, so a model or denoiser of the user's own code has to be given again.
    """

    model: str | Classifier | Callable[..., Any] | None
    weights: str | Path | None
    denoiser: str | Path | nn.Module | None
    data: Any


def reload(
    manifest: Manifest, places: Places, *, purpose: str, instead: str = "", here: bool = True
) -> tuple[Subject, Subject, Dataset]:
    """The classifier, the subject and the data of a run; on the CPU if not `here`, where its device is missing."""
    m, model, denoiser = manifest, places.get("model"), places.get("denoiser")
    has_denoiser = isinstance(model, Classifier) and model.denoiser is not None
    code = {"model": m.model} if model is None and names_code(m.model) else {}
    if denoiser is None and m.denoiser is not None and not has_denoiser:
        denoiser = m.denoiser["name"]
        code |= {"denoiser": denoiser} if names_code(denoiser) else {}
    if code:
        named = " and ".join(f"the {what} {name}" for what, name in code.items())
        wanted = " and ".join(map(setting, code))
        raise InvalidInput(
            f"cannot {purpose}: the run was made with {named}, and code that a run names is not executed: give "
            f"{wanted}{instead}"
        )
    given = places.get("data")
    if m.in_memory and (
        given is None or (m.in_memory == "labels" and isinstance(given, (str, Path)))
    ):
        wanted = f": give {setting('data')}"
        if m.in_memory == "labels":
            wanted = either(
                ": give data=(DATA, LABELS)",
                ", which only Python takes: give data=(DATA, LABELS) there",
            )
        raise InvalidInput(
            f"cannot {purpose}: the run was made with {m.in_memory} in memory{wanted}{instead}"
        )
    try:
        dataset = find_dataset(m.data if given is None else given)
        if unknown := sorted(m.settings.keys() - set(NAMES)):
            raise InvalidInput(
                f"this version of smoothcert does not know the setting {unknown[0]!r} of the run"
            )
        settings: dict[str, Any] = {
            "noise": m.noise,
            "weights": places.get("weights")
            or (m.weights if model is None or isinstance(model, str) else None),
            "classes": m.classes,
            "denoiser": denoiser,
            "seed": m.seed,
            "device": m.device if here else "cpu",
            "dtype": m.dtype,
            "batch": m.batch or "auto",
            "compile": m.compile_request,
        }
        smoothed = Subject(m.model if model is None else model, **{**m.settings, **settings})
        subject = smoothed.bind(dataset, ())
    except InvalidInput as error:
        parts = (
            ["model", "weights", "data"]
            if m.denoiser is None
            else ["model", "weights", "denoiser", "data"]
        )
        wanted = f"{', '.join(map(setting, parts[:-1]))} and {setting(parts[-1])}"
        raise InvalidInput(
            f"cannot {purpose}: {error.message}; give the model and the data with {wanted}{instead}"
        ) from None
    classifier = subject.classifier
    for what, recorded, found in (
        (
            "denoiser's weights",
            m.denoiser and m.denoiser["hash"],
            classifier.denoiser and classifier.denoiser["hash"],
        ),
        ("weights", m.weights_hash, classifier.weights_hash),
        ("data", m.data_hash, dataset.fingerprint),
    ):
        if recorded != found:
            raise InvalidInput(
                f"cannot {purpose}: the {what} are not those that the run was made with"
            )
    if not same_answers(m.answers, subject.answers()):
        raise InvalidInput(
            f"cannot {purpose}: the model gives other answers than the one that the run was made with"
        )
    return smoothed, subject, dataset
