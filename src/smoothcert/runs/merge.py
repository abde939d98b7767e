"""Merge the runs of several jobs, each of which certified a part of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.data import parse_shard
from smoothcert.errors import InvalidInput
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import Run, locked_journal, open_run


def merge(runs: Sequence[str | Path | Run], *, out: str | Path, partial: bool = False) -> Run:
    """Make one run with the certificates of several runs, which stay unchanged.

    The runs must have the same settings and different inputs. Missing certificates are an error,
    unless `partial` is true. Then `certify` without `shard` can complete the merged run.

    The merged run has been asked no question yet: answers to questions stay with the parts.

    Args:
        runs: The runs or their folders.
        out: The folder of the merged run. It must not contain a run.
        partial: Whether to merge although certificates are missing.

    Raises:
        InvalidInput: The runs do not belong together, an input is in two of them, or certificates
            are missing.
    """
    if isinstance(runs, (str, Path, Run)):
        runs = [runs]
    opened = [open_run(run) for run in runs]
    if not opened:
        raise InvalidInput("no-runs", "there are no runs to merge")
    _check_settings(opened)
    _check_different_inputs(opened)
    if not partial:
        _check_missing(opened)
    with locked_journal(out) as journal:
        folder = journal.path.parent
        if journal.ids():
            raise InvalidInput(
                "folder-has-run",
                "{folder} already contains a run: choose another `out=DIR`",
                folder=folder,
            )
        with journal.transaction():
            journal.write_manifest(_merged(opened).plain())
            for run in opened:
                with Journal(run.path) as part:
                    journal.add_all_of(part)
    return open_run(folder)


def _check_settings(runs: Sequence[Run]) -> None:
    """Raise if the runs have different settings."""
    first = runs[0].manifest
    for run in runs[1:]:
        same_ids = replace(run.manifest, ids=first.ids)
        differing = same_ids.differences(first, also=("batch", "compile"))
        if differing:
            raise InvalidInput(
                "other-configuration",
                "{folder} does not belong to {first}: it differs in {differing}",
                folder=run.path,
                first=runs[0].path,
                differing="; ".join(differing),
                names=[difference.partition(" (")[0] for difference in differing],
            )


def _check_different_inputs(runs: Sequence[Run]) -> None:
    """Raise if two runs have certificates of the same input."""
    for one, other in combinations(runs, 2):
        repeated = np.intersect1d(one.id, other.id).tolist()
        if repeated:
            raise InvalidInput(
                "repeated-input",
                "{one} and {other} have {count} inputs in common, the first of them {id}",
                count=len(repeated),
                id=repeated[0],
                one=one.path,
                other=other.path,
            )


def _check_missing(runs: Sequence[Run]) -> None:
    """Raise if certificates or whole shards are missing."""
    for run in runs:
        missing = sorted(set(run.manifest.ids).difference(run.id.tolist()))
        if missing:
            raise InvalidInput(
                "not-finished",
                "{folder} is not complete, {count} inputs are missing, the first of them {id}: "
                "run its command again, or merge the existing certificates with `partial=True`",
                folder=run.path,
                count=len(missing),
                id=missing[0],
            )
    shards = [run.manifest.shard for run in runs if run.manifest.shard is not None]
    present = list(map(parse_shard, shards))
    divisions = {parts for _, parts in present}
    if len(divisions) > 1:
        raise InvalidInput(
            "other-division",
            "the runs are shards of different divisions of the inputs: {shards}",
            shards=", ".join(shards),
        )
    wanted = [(part, parts) for parts in divisions for part in range(1, parts + 1)]
    absent = [f"{part}/{parts}" for part, parts in wanted if (part, parts) not in present]
    if absent:
        raise InvalidInput(
            "missing-shard",
            "shard {listed} is missing: add its run, or merge the existing certificates with "
            "`partial=True`",
            listed=", ".join(absent),
        )


def _merged(runs: Sequence[Run]) -> Manifest:
    """The manifest of the merged run."""
    first = runs[0].manifest
    merged: dict[str, Any] = {}
    for entry, merge_entries in _MERGED.items():
        entries = [getattr(run.manifest, entry) for run in runs]
        merged[entry] = None if None in entries else merge_entries(entries)
    circumstances = {**first.circumstances, "merged from": [str(run.path) for run in runs]}
    return replace(first, **merged, circumstances=circumstances, shard=None, questions=[])


def _union(parts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted(set(chain(*parts))))


def _range(ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    values = list(chain(*ranges))
    return min(values), max(values)


_MERGED: dict[str, Callable[[list[Any]], Any]] = {
    "ids": _union,
    "forwarded": sum,
    "started": min,
    "finished": max,
    "values": _range,
    "until_clear": any,
    "unreadable": _union,
    "copies": _union,
}
"""How entries of the runs become one entry. It is None if a run lacks it."""
