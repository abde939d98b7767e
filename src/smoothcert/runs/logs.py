"""Read published certification logs: tab-separated idx, label, predict, radius, correct and time.

Logs of some programs have other columns:

- Logs of diffusion denoised smoothing have the running total in `correct`. That column is never
  read.
- Published votes for l1 certificates have `count` and `samples` instead of a radius
  (`read_counts`).
- Certify_Topk writes the votes for all classes and the label instead of a log (`read_votes`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.runs.results import Results, columns_of
from smoothcert.statistics.bounds import critical_count, lower_bound

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
_NEEDED = ("idx", "label", "predict", "radius")
_NEGLIGIBLE = 1e-9
"""A radius that is too large by no more than this comes from rounding."""


def read_log(path: str | Path) -> Results:
    """Read a published log, or an export in the same form. It has no samples and votes.

    Its column `correct` is not read, because its meaning differs between programs.
    """
    path = Path(path)
    text = _text(path)
    header = text.split("\n", 1)[0].strip().split("\t")
    missing = [column for column in _NEEDED if column not in header]
    if missing:
        raise InvalidInput(
            "not-a-log",
            "{path} is not a certification log: no column {missing}; expected {columns}",
            path=path,
            missing=", ".join(missing),
            columns=", ".join(COLUMNS),
        )
    rows = [
        dict(zip(header, line.split("\t"), strict=False))
        for line in text.splitlines()[1:]
        if line.strip()
    ]
    if not rows:
        raise InvalidInput("empty-log", "{path} is empty: it has a header but no rows", path=path)
    parsed = []
    for number, row in enumerate(rows, start=1):
        try:
            parsed.append(_parse_row(row))
        except (KeyError, ValueError, OverflowError):
            raise InvalidInput(
                "damaged-log",
                "{path}, row {number}: not a row of a certification log: {row}",
                path=path,
                number=number,
                row=row,
            ) from None
    columns: dict[str, Any] = columns_of(parsed)
    return Results(name_of_log(path), **columns, path=path)


def name_of_log(path: Path) -> str:
    """The name of a file without its ending; digits are not an ending, as in sigma_0.50.

    >>> name_of_log(Path("sigma_0.50")), name_of_log(Path("macer-0.50.tsv"))
    ('sigma_0.50', 'macer-0.50')
    """
    return path.name if path.suffix[1:].isdigit() else path.stem


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InvalidInput(
            "unreadable-file",
            "cannot read the log {path}: {why}",
            path=path,
            why=error.strerror or error,
        ) from None


def _parse_row(row: dict[str, str]) -> list[Any]:
    """The value of every column of `Results`. A log has no samples, votes and bounds."""
    radius = float(row["radius"])
    if not 0 <= radius < np.inf:
        raise ValueError
    numbers = map(np.int64, (row["idx"], row["label"], row["predict"]))
    return [*numbers, radius, 0, 0, 0, 0, _seconds(row.get("time")), None, None]


def read_votes(path: str | Path) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Read the votes for all classes and the labels, as published for top-k certification.

    Each line has one count per class, then the label, separated by spaces. Returns None for other
    files.
    """
    path = Path(path)
    first = _first_line(path).split()
    if len(first) < 3 or not all(part.isdigit() for part in first):
        return None
    table = _whole_numbers(path, "table of votes")
    counts, label = table[:, :-1], table[:, -1]
    if np.any(label >= counts.shape[1]):
        raise InvalidInput(
            "label-out-of-range",
            "{path}: label {label} is out of range for {classes} classes",
            path=path,
            label=int(label.max()),
            classes=counts.shape[1],
        )
    return counts, label


def read_counts(path: str | Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """Read a log with the columns label, predict, count and samples; None for other files.

    Returns the share of votes for the predicted class, and whether it is the label.
    """
    path = Path(path)
    header = _first_line(path).decode("utf-8", "replace").strip().split("\t")
    needed = ("label", "predict", "count", "samples")
    if "radius" in header or not set(needed) <= set(header):
        return None
    columns = [header.index(name) for name in needed]
    table = _whole_numbers(path, "log of counts", delimiter="\t", skiprows=1, usecols=columns)
    label, prediction, count, samples = table.T
    if not len(table):
        raise InvalidInput("empty-log", "{path}, no rows", path=path)
    wrong = (count < 0) | (count > samples) | (samples < 1)
    if np.any(wrong):
        raise InvalidInput(
            "impossible-count",
            "{path}, row {row}: counts must lie between 0 and samples",
            path=path,
            row=int(np.argmax(wrong)) + 1,
        )
    return count / samples, label == prediction


def votes(log: Results, *, noise: Noise, samples: int, alpha: float) -> NDArray[np.int64]:
    """Compute the votes behind each radius; 0 for abstentions.

    If a radius is slightly above what all votes prove, only because its digits were rounded, all
    votes are returned. A larger radius cannot come from these settings and is an error.
    """
    most = float(noise.radius(lower_bound(samples, samples, alpha=alpha)))
    excess = log.radius - slack(log) - most
    if np.any(excess > _NEGLIGIBLE):
        worst = int(np.argmax(excess))
        raise InvalidInput(
            "impossible-radius",
            "{name}: radius {radius:g} of input {id} cannot come from {noise} with {samples} "
            "samples at alpha {alpha:g}, which prove at most {most:.4f}; give the noise, samples "
            "and alpha of the log",
            name=log.name,
            radius=float(log.radius[worst]),
            id=int(log.id[worst]),
            noise=noise,
            samples=samples,
            alpha=alpha,
            most=most,
        )
    reaching = np.minimum(
        critical_count(noise.probability(log.radius), samples, alpha=alpha), samples
    )
    below = np.maximum(reaching - 1, 0)
    off = [
        np.abs(noise.radius(lower_bound(np.maximum(c, 1), samples, alpha=alpha)) - log.radius)
        for c in (below, reaching)
    ]
    return np.where(log.abstained, 0, np.where(off[0] < off[1], below, reaching))


def _whole_numbers(path: Path, what: str, **options: Any) -> NDArray[np.int64]:
    try:
        return np.loadtxt(path, dtype=np.int64, ndmin=2, **options)
    except ValueError as error:
        raise InvalidInput(
            "not-a-table", "{path} is not a {what}: {why}", path=path, what=what, why=error
        ) from None


def _first_line(path: Path) -> bytes:
    """The first line of a file; empty if there is no such file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.readline(100_000)


def slack(log: Results) -> NDArray[np.float64]:
    """How far each true radius may lie from the printed one: half a unit of the last printed digit.

    Logs print at least three significant digits and drop trailing zeros.
    """
    return np.array([_slack(repr(radius)) for radius in log.radius.tolist()])


def _slack(text: str) -> float:
    value = float(text)
    if value == 0:
        return 0.0
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)
    return 0.5 * 10.0 ** -max(decimals, 2 - int(np.floor(np.log10(value))))


def _seconds(text: str | None) -> float:
    """Seconds from either `12.5` or `h:mm:ss.s`."""
    return sum(
        float(part) * 60.0**place for place, part in enumerate(reversed((text or "0").split(":")))
    )
