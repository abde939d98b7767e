"""Checks of arguments. Each function returns the value, or raises `InvalidInput` that names it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidInput, did_you_mean

NO_CLASS = -1
"""Stands for "no class": an abstention among predictions, an unknown label among labels."""

SMALLEST_ALPHA = 1e-50
"""Bounds are computed reliably down to this probability of a mistake."""


def whole(name: str, value: Any, *, least: int = 0, hint: str = "") -> int:
    """An integer of at least `least`. 1000.0 is accepted as 1000; 0.5 and True are not."""
    if not _is_whole(value):
        raise InvalidInput(
            "not-whole",
            "{name} must be a whole number of at least {least}, got {value!r}{hint}",
            name=name,
            value=value,
            least=least,
            hint=hint,
        )
    if value < least:
        raise InvalidInput(
            "too-small",
            "{name} must be at least {least}, got {value}",
            name=name,
            value=value,
            least=least,
        )
    return int(value)


def is_truth_value(value: Any) -> bool:
    """Whether a value is True or False, also of NumPy or torch."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def ids(values: Any, *, count: int | None = None) -> list[int]:
    """Numbers of inputs.

    Args:
        values: The numbers, a single one, or a mask: a truth value for each input.
        count: How many inputs there are; None if a mask has no meaning.
    """
    unmasked("ids", values)
    listed = values.tolist() if hasattr(values, "tolist") else values
    listed = list(listed) if isinstance(listed, Iterable) else [listed]
    if not listed or not all(map(is_truth_value, listed)):
        return [whole("each id", id) for id in listed]
    if len(listed) != count:
        raise InvalidInput(
            "mask-of-another-length",
            "ids is a mask of {length} truth values, and {needed}: give the numbers of the inputs",
            length=len(listed),
            count=count,
            needed="none fits here" if count is None else f"there are {count} inputs",
        )
    return [id for id, is_chosen in enumerate(listed) if is_chosen]


def unmasked(name: str, values: Any) -> Any:
    """An array without masked entries. NumPy takes the values behind a mask for entries."""
    if np.ma.is_masked(values) or type(values).__name__ == "MaskedTensor":
        raise InvalidInput(
            "masked-entries",
            "{name} has masked entries, which have no value: fill them, or leave them out",
            name=name,
        )
    return values


def number_or_auto(name: str, value: Any) -> int:
    """A whole number of at least 1, also as a text; 0 for "auto"."""
    if value == "auto":
        return 0
    if isinstance(value, str) and not value.isdecimal():
        raise InvalidInput(
            "not-number-or-auto",
            "{name} must be a number or auto, got {value!r}",
            name=name,
            value=value,
        )
    return whole(name, int(value) if isinstance(value, str) else value, least=1)


def size(name: str, text: str) -> tuple[int, int]:
    """Height and width, from a text like "224" or "224x160"."""
    match = re.fullmatch(r"([1-9]\d{0,3})(?:x([1-9]\d{0,3}))?", text)
    if match is None:
        raise InvalidInput(
            "not-a-size",
            "{name} must be 224, or 224x160 for height and width, got {value!r}",
            name=name,
            value=text,
        )
    return int(match[1]), int(match[2] or match[1])


def span(text: str) -> range:
    """Numbers in a text like "5" or "10-20"; empty if it has another form."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    return range(0) if match is None else range(int(match[1]), int(match[2] or match[1]) + 1)


def at_least(name: str, value: Any, low: float) -> float:
    """A finite number of at least `low`."""
    number = _number(value)
    if not (low <= number < math.inf):  # also true for NaN
        raise InvalidInput(
            "not-at-least",
            "{name} must be a number of at least {least:g}, got {value!r}",
            name=name,
            value=value,
            least=low,
        )
    return number


def radii(values: Any) -> list[float]:
    """Radii: finite numbers of at least 0."""
    listed = values if isinstance(values, Iterable) else [values]
    return [at_least("each radius", value, 0) for value in listed]


def between(name: str, value: Any, low: float, high: float = math.inf) -> float:
    """A finite number strictly between `low` and `high`."""
    number = _number(value)
    if not (low < number < high):  # also true for NaN
        allowed = "between {low:g} and {high:g} (both excluded)"
        if high == math.inf:
            allowed = "above {low:g}"
        raise InvalidInput(
            "not-between",
            "{name} must be a number " + allowed + ", got {value!r}",
            name=name,
            value=value,
            low=low,
            high=high,
        )
    return number


def alpha(name: str, value: Any) -> float:
    """The largest probability of a mistake, which is below one half."""
    number = _number(value)
    if not SMALLEST_ALPHA < number < 0.5:
        hint = f": for a confidence of {value}, write {1 - number:.6g}" if 0.5 < number < 1 else ""
        raise InvalidInput(
            "not-an-alpha",
            "{name} must be a number between {least:g} and 0.5 (both excluded), the probability "
            "of a mistake, got {value!r}{hint}",
            name=name,
            value=value,
            least=SMALLEST_ALPHA,
            hint=hint,
        )
    return number


def confidence(name: str, value: Any) -> float:
    """The least probability that a statement holds, which is above one half."""
    number = _number(value)
    if not 0.5 < number < 1:
        hint = f": for an alpha of {value}, write {1 - number:.6g}" if 0 < number < 0.5 else ""
        raise InvalidInput(
            "not-a-confidence",
            "{name} must be a number between 0.5 and 1 (both excluded), got {value!r}{hint}",
            name=name,
            value=value,
            hint=hint,
        )
    return number


def probabilities(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Numbers from 0 to 1, both included."""
    p = np.asarray(value, float)
    right = (p >= 0) & (p <= 1)  # false for NaN
    if not right.all():
        raise InvalidInput(
            "not-probability",
            "{name} must lie between 0 and 1, got {value:g}",
            name=name,
            value=float(p[~right].flat[0]),
        )
    return p


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """One of several values."""
    if value not in allowed:
        raise InvalidInput(
            "not-one-of",
            "{name} must be one of {allowed}, got {value!r}",
            name=name,
            value=value,
            allowed=", ".join(map(str, allowed)),
        )
    return value


def names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an argument that a function does not have.

    Args:
        function: The function that the user called.
        given: The names of the arguments.
        known: The names that it takes.
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise InvalidInput(
                "unknown-argument",
                "{function}() has no argument {name}={hint}",
                function=function,
                name=name,
                hint=did_you_mean(name, known),
            )


def fields(config: object, check: Callable[..., Any], *names: str, **limits: float) -> None:
    """Check fields of a frozen dataclass, and store the Python numbers that the check returns."""
    for name in names:
        object.__setattr__(config, name, check(name, getattr(config, name), **limits))


def _is_whole(value: Any) -> bool:
    """Whether the value is a number without a fraction; neither a truth value nor a text."""
    if is_truth_value(value) or isinstance(value, str):
        return False
    if isinstance(value, int):
        return True
    try:
        return float(value) == int(value)
    except (TypeError, ValueError, OverflowError):
        return False


def _number(value: Any) -> float:
    """The value as a number; NaN if it is not a number, or a truth value."""
    if is_truth_value(value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
