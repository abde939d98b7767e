"""Which inputs of a data set are certified: the literature's subsampling."""

from __future__ import annotations

import re
from collections.abc import Sequence

from smoothcert import _check
from smoothcert.errors import InvalidInput


def select_ids(
    count: int, *, skip: int | None = None, limit: int | None = None, ids: str | Sequence[int] | None = None
) -> list[int]:
    """Ids out of `range(count)`: every `skip`-th, or the given `ids`; of these the first `limit`.

    >>> select_ids(10_000, skip=20, limit=3)
    [0, 20, 40]
    >>> select_ids(10_000, ids="7,100-102")
    [7, 100, 101, 102]
    """
    if ids is None:
        chosen = list(range(0, count, _check.whole("skip", 1 if skip is None else skip, least=1)))
    elif skip is not None:
        raise InvalidInput(f"skip {skip} and ids {ids!r} exclude one another: give one of them")
    else:
        numbers = _parse(ids, count) if isinstance(ids, str) else [_check.whole("each id", id) for id in ids]
        chosen = list(dict.fromkeys(numbers))
        if outside := [id for id in chosen if id >= count]:
            raise InvalidInput(f"id {outside[0]} is out of range: the data has the ids 0 to {count - 1}")
    if limit is not None:
        chosen = chosen[: _check.whole("limit", limit, least=1)]
    if not chosen:
        raise InvalidInput("no inputs to certify: the data, or the choice of ids, is empty")
    return chosen


def _parse(text: str, count: int) -> list[int]:
    ids: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InvalidInput(f"ids must be numbers and ranges like 0,5,10-20, got {text!r}")
        # The range stops just outside of the data, which is enough to be reported.
        ids.extend(range(first, max(min(last, count), first) + 1))
    return ids
