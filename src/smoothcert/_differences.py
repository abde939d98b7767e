"""Naming what differs between two sets of settings: a run or a training is only continued with its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smoothcert.errors import InvalidInput, setting

_LONGEST = 120


def check_settings(folder: object, there: Mapping[str, Any], now: Mapping[str, Any], *, what: str) -> None:
    """Refuse to mix two configurations in one folder; the error names every setting that differs."""
    if found := differences(there, now):
        raise InvalidInput(
            f"{folder} holds another {what}: it differs in {'; '.join(found)}; choose another {setting('out', 'DIR')}"
        )


def differences(there: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs, down to the setting: `plan.decline` rather than the whole plan.

    >>> differences({"noise": {"name": "Gaussian", "sigma": 0.25}}, {"noise": {"name": "Gaussian", "sigma": 0.5}})
    ['noise.sigma (there 0.25, now 0.5)']
    """
    found: list[str] = []
    for key in {**now, **there}:
        a, b = there.get(key), now.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.get("name") != b.get("name"):  # of another kind, which has other settings
                a, b = ({k: v for k, v in one.items() if k in other} for one, other in ((a, b), (b, a)))
            found += differences(a, b, f"{prefix}{key}.")
            continue
        found.append(f"{prefix}{key} (there {_shown(a)}, now {_shown(b)})")
    return found


def _shown(value: Any) -> str:
    text = "the default" if value is None else str(value)
    if len(text) == 64 and " " not in text:  # a hash
        return f"{text[:8]}..."
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
