"""Several runs at once: opened, with different names, and without those that are still empty."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from smoothcert.errors import InvalidInput
from smoothcert.runs.formats import read_results
from smoothcert.runs.results import Results

Source: TypeAlias = Results | str | Path
"""A run or other results, or their folder or file."""


def collect(results: Source | Sequence[Source], *, radius: float | None = None) -> list[Results]:
    """Open runs, exports and logs. Those without certificates are left out, with a warning; raises if no run has any.

    Args:
        results: Runs and other results, or their folders and files. Equal names are replaced by the ends of the paths.
        radius: The radius that was tested, for logs that only say whether it was proved.
    """
    given = [results] if isinstance(results, (str, Path, Results)) else list(results)
    if not given:
        raise InvalidInput("give at least one run")
    paths = [getattr(r, "path", None) if isinstance(r, Results) else r for r in given]
    return _with_certificates(distinct_names([opened(r, radius=radius) for r in given], paths))


def opened(result: Source, *, radius: float | None = None) -> Results:
    """Results, read from their folder or file if necessary."""
    if isinstance(result, Results):
        return result
    if isinstance(result, (str, Path)):
        return read_results(result, radius=radius)
    raise InvalidInput(f"expected runs, or their folders and files, got {type(result).__name__}")


def distinct_names(results: Sequence[Results], paths: Sequence[str | Path | None] | None = None) -> list[Results]:
    """The same results with different names. Equal names are replaced by the shortest ends of the paths that differ."""
    named: list[Results] = []
    paths = [None] * len(results) if paths is None else paths
    for number, (result, path) in enumerate(zip(results, paths, strict=True)):
        rivals = [paths[i] for i, other in enumerate(results) if i != number and other.name == result.name]
        name = _short_name(path, rivals) if rivals and path is not None else result.name
        before = sum(name == other.name for other in named)
        name = f"{name} ({before + 1})" if before else name
        named.append(result if name == result.name else replace(result, name=name))
    return named


def _short_name(path: str | Path, rivals: Sequence[str | Path | None]) -> str:
    """The shortest end of a path that no other path has."""
    parts = Path(path).parts
    others = [Path(rival).parts for rival in rivals if rival is not None]
    for length in range(2, len(parts) + 1):
        if all(other[-length:] != parts[-length:] for other in others):
            return "/".join(parts[-length:]).replace("//", "/")
    return str(path)


def _with_certificates(results: Sequence[Results]) -> list[Results]:
    found = [r for r in results if len(r)]
    if empty := [r.name for r in results if not len(r)]:
        reason = f"without certificates yet: {', '.join(empty)}"
        if not found:
            raise InvalidInput(f"{reason}; run certify again to go on")
        warnings.warn(f"left out, {reason}", UserWarning, stacklevel=4)
    return found
