"""What a run is: the settings that make two runs the same, and the circumstances worth knowing."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Any, TypeAlias

from smoothcert._version import __version__
from smoothcert.errors import InvalidInput

Answer: TypeAlias = tuple[int, float]  # a label, and by how much it leads
_HASHES = {"model": "weights_hash", "data": "data_hash"}
_ROUNDING = 0.02  # of the largest margin: another GPU, other threads
_TIES = 0.05  # of the answers of a model that gives no margin: rounding may have turned them


def circumstances() -> dict[str, Any]:
    """Versions and machine, for the record."""
    versions = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"smoothcert": __version__, "python": platform.python_version(), "platform": platform.platform()} | versions


def check_same(recorded: Mapping[str, Any], wanted: Mapping[str, Any], folder: object) -> None:
    """Refuse to mix two configurations in one folder, naming every field that differs.

    A model or data set of the same content may go by another name: files are moved. And more inputs may be wanted than
    before, or fewer.
    """
    same = {name for name, hash in _HASHES.items() if wanted.get(hash) and wanted[hash] == recorded.get(hash)}
    if "ids" in wanted:
        before, now = set(expand_ids(recorded["ids"])), set(expand_ids(wanted["ids"]))
        same |= {"ids"} if before <= now or now <= before else set()
    fields = [field for field in wanted if field not in {*same, "answers"}]
    differing = [text for field in fields for text in _differences(field, recorded.get(field), wanted[field])]
    if not differing and not same_answers(recorded.get("answers"), wanted.get("answers")):
        differing = ["what the model answers to the same inputs (has its code changed?)"]
    if differing:
        raise InvalidInput(f"{folder} holds another run: it differs in {'; '.join(differing)}; choose another --out")


def same_answers(there: Sequence[Answer] | None, now: Sequence[Answer] | None) -> bool:
    """Whether a model's labels and margins are the same up to rounding; without any, nothing speaks against it.

    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 1.001), (4, 0.001)])
    True
    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 0.9), (5, 0.001)])
    False
    """
    if there is None or now is None:
        return True
    rounding = _ROUNDING * max((margin for _, margin in [*there, *now]), default=0)
    others = [
        label
        for (label, margin), (label_now, margin_now) in zip(there, now, strict=False)
        if abs(margin - margin_now) > rounding or (label != label_now and max(margin, margin_now) > rounding)
    ]
    return len(there) == len(now) and len(others) <= _TIES * len(there)


def compact_ids(ids: Sequence[int]) -> list[int] | dict[str, int]:
    """Evenly spaced ids as first, last and step; a manifest of 50,000 inputs stays readable."""
    if len(ids) > 2 and len({b - a for a, b in pairwise(ids)}) == 1:
        return {"first": ids[0], "last": ids[-1], "step": ids[1] - ids[0]}
    return list(ids)


def expand_ids(ids: Sequence[int] | Mapping[str, int]) -> list[int]:
    """The inverse of `compact_ids`.

    >>> expand_ids(compact_ids([0, 20, 40, 60]))
    [0, 20, 40, 60]
    """
    if isinstance(ids, Mapping):
        step = ids["step"]
        return list(range(ids["first"], ids["last"] + (1 if step > 0 else -1), step))
    return list(ids)


def _differences(name: str, there: Any, now: Any) -> list[str]:
    """What differs, down to the setting: of two plans `plan.decline` rather than the whole plan.

    >>> _differences("noise", {"name": "Gaussian", "sigma": 0.25}, {"name": "Gaussian", "sigma": 0.5})
    ['noise.sigma (there 0.25, now 0.5)']
    """
    if there == now:
        return []
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        shared = [text for key in there if key in now for text in _differences(f"{name}.{key}", there[key], now[key])]
        if shared:
            return shared
    return [f"{name} (there {_shown(there)}, now {_shown(now)})"]


def _shown(value: Any) -> str:
    text = str(value)
    if len(text) == 64 and " " not in text:  # a hash
        return f"{text[:8]}..."
    return text if len(text) <= 120 else f"{text[:117]}..."
