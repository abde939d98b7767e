"""Open results, and write them: published logs (TSV), CSV, Parquet, JSON, leaderboard rows.

The published form has six columns, and its radii are rounded down. CSV, Parquet and JSON keep every
column exactly, and also noise, plan and manifest. CSV has them in a second file (`q.csv.json`
beside `q.csv`), so that pandas and spreadsheets can open the table. Parquet has them in the
metadata of its schema, and JSON beside the certificates.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import ROUND_FLOOR, Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from smoothcert import _check
from smoothcert._files import check_output, write_output
from smoothcert._registry import describe, restore
from smoothcert.errors import InvalidInput, setting, warn
from smoothcert.noises import Noise
from smoothcert.plans import Plan
from smoothcert.plans.coverage import caveat
from smoothcert.runs.logs import read_log
from smoothcert.runs.manifest import DAMAGED, Manifest, check_type
from smoothcert.runs.results import COLUMNS, Results, check_finished, shown_columns
from smoothcert.runs.run import open_run
from smoothcert.runs.summary import question_in_words, usual_radii
from smoothcert.runs.words import all_together, what_to_deploy
from smoothcert.statistics.metrics import round_down

Source: TypeAlias = Results | str | Path
"""A run or other results, or their folder or file."""

_META = "smoothcert"
_ENDINGS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".yml": "sok",
    ".yaml": "sok",
    ".md": "card",
    **dict.fromkeys((".tsv", ".txt", ".log", ""), "cohen"),
}
_OF_CLASSES = ("cohen", "sok")
"""Formats that cannot say that something else than the class was asked."""
_NORMS = {
    "l0": r"\\(\\ell_0\\) of values",
    "l0 of pixels": r"\\(\\ell_0\\) of pixels",
    "l1": r"\\(\\ell_1\\)",
    "l2": r"\\(\\ell_2\\)",
    "linf": r"\\(\\ell_\\infty\\)",
}
_DATA_SETS = {
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
}


def read_results(path: Source) -> Results:
    """Read a run's folder, a file that `write_results` wrote, or a published log.

    Args:
        path: The folder or file. Results stay as they are.
    """
    if isinstance(path, Results):
        return path
    if not isinstance(path, (str, Path)):
        raise InvalidInput(
            "not-results",
            "expected runs, or their folders and files, got {type}",
            type=type(path).__name__,
        )
    path = Path(path)
    if path.is_dir():
        return open_run(path)
    if not path.exists():
        raise InvalidInput(
            "no-such-results",
            "{path} does not exist: expected a run's folder, an export or a certification log",
            path=path,
        )
    if _ENDINGS.get(path.suffix) not in _READERS:
        return read_log(path)
    try:
        return _read_export(path)
    except (OSError, InvalidInput) as error:
        raise InvalidInput(
            "unreadable-file",
            "cannot read {path}: {why}",
            path=path,
            why=getattr(error, "strerror", None) or error,
        ) from None
    except (*DAMAGED, csv.Error) as error:
        raise InvalidInput(
            "damaged-export",
            "{path} is not an export of smoothcert, or is damaged: {why}",
            path=path,
            why=repr(error),
        ) from None


def _read_export(path: Path) -> Results:
    columns, meta = _READERS[_ENDINGS[path.suffix]](path)
    noise = restore(meta["noise"])
    plan = restore(meta["plan"])
    check_type([meta["name"], noise, plan], tuple[str, Noise | None, Plan | None])
    if noise is None and plan is not None:
        raise ValueError("it has a plan and no noise")
    claimed = meta.get("claimed")
    check_type(claimed, list[float] | None)
    return Results(
        name=meta["name"],
        noise=noise,
        plan=plan,
        manifest=Manifest.parse(meta["manifest"], path) if meta["manifest"] else None,
        claimed=claimed and tuple(claimed),
        path=path,
        **columns,
    )


def collect(results: Source | Sequence[Source] | Mapping[str, Source]) -> list[Results]:
    """Open runs, exports and logs. Those without certificates are left out, with a warning.

    Raises if none has any.

    Args:
        results: Runs and other results, or their folders and files; a dictionary gives them names.
            Equal names get the names of their folders.
    """
    opened = distinct_names(_opened(results))
    if not opened:
        raise InvalidInput("no-runs", "give at least one run")
    filled = [r for r in opened if len(r)]
    empty = ", ".join(r.name for r in opened if not len(r))
    if not filled:
        raise InvalidInput(
            "no-certificates",
            "without certificates yet: {names}; run certify again to go on",
            names=empty,
        )
    if empty:
        warn("no-certificates", "left out, without certificates yet: {names}", names=empty)
    return filled


def _opened(results: Source | Sequence[Source] | Mapping[str, Source]) -> list[Results]:
    if isinstance(results, Mapping):
        return [replace(read_results(r), name=name) for name, r in results.items()]
    if isinstance(results, Iterable) and not isinstance(results, (str, Results)):
        return [read_results(r) for r in results]
    return [read_results(results)]


def distinct_names(results: Sequence[Results]) -> list[Results]:
    """The same results with different names: equal ones get their folders, or numbers."""
    names = _numbered([result.name for result in results])
    if names != [result.name for result in results]:
        in_folders = [r.name if r.path is None else str(Path(*r.path.parts[-2:])) for r in results]
        names = _numbered(in_folders)
    return [replace(result, name=name) for result, name in zip(results, names, strict=True)]


def _numbered(names: list[str]) -> list[str]:
    """The names, where equal ones but the first have numbers."""
    before = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{n} ({b + 1})" if b else n for n, b in zip(names, before, strict=True)]


def write_results(
    results: Results,
    path: str | Path | None = None,
    format: str | None = None,
    *,
    radii: Sequence[float] | None = None,
) -> bytes:
    """Write results to a file; returns its content.

    Beside a CSV file `q.csv`, a second file `q.csv.json` keeps noise, plan and manifest.

    Args:
        results: A run, or results read from a file.
        path: The file; None writes no file.
        format: cohen (the published form), csv, parquet, json, sok (rows for the leaderboard of Li
            et al.) or card (a model card for Hugging Face). Default: by the ending of the file
            name; cohen if there is no file.
        radii: The radii of the rows for sok and card. Default: those that a table shows.
    """
    format = format_of(path, format)
    _check_format(results, format, radii)
    content = _content(results, format, radii)
    if path is None:
        return content
    reads = [] if results.path is None else [results.path, beside(results.path)]
    written = {Path(path): content}
    if format == "csv":
        check_output(beside(path), reads=reads)  # before any file is written
        written[beside(path)] = json.dumps(_settings(results), indent=1).encode()
    for file, content_of_file in written.items():
        write_output(file, content_of_file, reads=reads)
    return content


def _check_format(results: Results, format: str, radii: Sequence[float] | None) -> None:
    """Refuse a format that cannot hold what the user wants to write, or warn about it."""
    if radii is not None and format not in _AT_RADII:
        raise InvalidInput(
            "radii-for-other-format",
            "`radii={radii}` is for {formats}: others contain every radius",
            radii=list(radii),
            formats=" or ".join(setting("format", name) for name in _AT_RADII),
        )
    if format == "cohen":
        _warn_of_losses(results)
    if format in _OF_CLASSES and question_in_words(results) is not None:
        raise InvalidInput(
            "format-of-classes",
            "{format} does not say what was asked ({question}), so others would read these answers "
            "as those about classes: csv, json, parquet and card do",
            format=format,
            question=question_in_words(results),
        )


def _warn_of_losses(results: Results) -> None:
    """Say what the cohen format does not keep of these results."""
    if results.decided_radii is not None and results.plan is not None:
        warn(
            "lossy-format",
            "the cohen format does not say that {name} decides radii, so certified accuracy is too "
            "low at these radii when it is read again: csv, json and parquet keep the plan",
            name=results.name,
        )
    if results.noise is not None and results.noise.norm != "l2":
        warn(
            "lossy-format",
            "the cohen format does not say that radii of {name} are in {norm}, so they are read as "
            "l2: csv, json and parquet keep the noise",
            name=results.name,
            norm=results.noise.norm,
        )


def _content(results: Results, format: str, radii: Sequence[float] | None) -> bytes:
    try:
        if format in _AT_RADII:
            return _AT_RADII[format](results, radii)
        return _WRITERS[format](results)
    except InvalidInput:
        raise
    except (ValueError, OverflowError) as error:  # such as an infinite number in JSON
        raise InvalidInput(
            "cannot-export",
            "{results} cannot be written as {format}, because a number in it is damaged: {reason}",
            results=results.name,
            format=format,
            reason=str(error),
        ) from None


def format_of(path: str | Path | None, format: str | None = None) -> str:
    """The format of an export: what the user asked for, or by the ending of the file name."""
    ending = "" if path is None else Path(path).suffix.lower()
    usual = _ENDINGS.get(ending)
    if format is None:
        if usual is None:
            raise InvalidInput(
                "unknown-ending",
                "there is no export for {ending}: end in .tsv, .csv, .parquet, .json, .yml or "
                ".md, or give `format=NAME`",
                ending=ending,
            )
        return usual
    _check.one_of("format", format, (*_WRITERS, *_AT_RADII))
    if usual in _READERS and format != usual:
        raise InvalidInput(
            "ending-of-other-format",
            "{path} is named like a {usual} file, so it could not be read again with "
            "`format={format}`",
            path=path,
            usual=usual,
            format=format,
        )
    return format


def beside(path: str | Path) -> Path:
    """The file with the settings of a CSV file."""
    return Path(path).with_name(f"{Path(path).name}.json")


def _settings(results: Results) -> dict[str, Any]:
    """The settings of results, for JSON."""
    settings: dict[str, Any] = {
        "name": results.name,
        "noise": results.noise and describe(results.noise),
        "plan": results.plan and describe(results.plan),
        "manifest": results.manifest and results.manifest.plain(),
    }
    if results.claimed is not None:
        settings["claimed"] = list(results.claimed)
    return settings


def _to_cohen(results: Results) -> bytes:
    columns = {
        "idx": results.id.tolist(),
        "label": results.label.tolist(),
        "predict": results.prediction.tolist(),
        "radius": [round_down(radius, 6) for radius in results.radius.tolist()],
        "correct": results.correct.astype(int).tolist(),
        "time": [timedelta(seconds=seconds) for seconds in results.seconds.tolist()],
    }
    return _separated(columns, "\t")


def _to_csv(results: Results) -> bytes:
    columns = shown_columns(results)
    columns["correct"] = [None if value is None else int(value) for value in columns["correct"]]
    return _separated(columns, ",")


def _separated(columns: Mapping[str, Sequence[Any]], delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    # Python prints the shortest text that reads back as the same number, and nothing for None.
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _read_csv(path: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines(), strict=True))
    if any(None in row.values() for row in rows):
        raise ValueError("a row is too short")
    columns = {name: [row[name] or None for row in rows] for name in COLUMNS}
    unknown = {"name": path.stem, "noise": None, "plan": None, "manifest": None}
    return columns, json.loads(beside(path).read_bytes()) if beside(path).is_file() else unknown


def _to_parquet(results: Results) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    correct = pa.array(shown_columns(results)["correct"], pa.bool_())
    columns = {
        name: correct if name == "correct" else results.columns[name]
        for name in shown_columns(results)
    }
    table = pa.table(columns).replace_schema_metadata({_META: json.dumps(_settings(results))})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    return bytes(buffer.getvalue().to_pybytes())


def _read_parquet(path: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(path.read_bytes()))
    meta = (table.schema.metadata or {})[_META.encode()]
    return {name: table.column(name).to_numpy() for name in COLUMNS}, json.loads(meta)


def _to_json(results: Results) -> bytes:
    columns = shown_columns(results)
    certificates = [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    return json.dumps(
        _settings(results) | {"certificates": certificates}, indent=1, allow_nan=False
    ).encode()


def _read_json(path: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    meta = json.loads(path.read_bytes())
    rows = meta["certificates"]
    return {name: [row[name] for row in rows] for name in COLUMNS}, meta


def to_sok(results: Results, radii: Sequence[float] | None = None) -> bytes:
    """Write one setting with one record per radius, in the format of the leaderboard's file.

    A run must be finished: inputs that finish first may be easier than the others.
    """
    norm = _check_reportable(results)
    if radii is None:
        radii = [radius for radius in usual_radii([results]) if radius > 0]
    if not radii or min(radii) <= 0:
        raise InvalidInput(
            "no-positive-radius",
            "a row of the leaderboard needs a radius above 0: give radii, as in {radii}",
            radii=setting("radii", [0.25, 0.5]),
        )
    data = "" if results.manifest is None else results.manifest.data.partition(":")[0]
    if not (results.in_unit_interval or norm.startswith("l0")):
        where = f"lie in {results.other_range}" if results.other_range else "are not recorded"
        raise InvalidInput(
            "other-range",
            "the leaderboard has radii for inputs in [0, 1], but the values of the inputs of "
            "{name} {where}: certify inputs in [0, 1]",
            name=results.name,
            where=where,
        )
    shares = results.certified_accuracy(radii).tolist()
    rows = list(zip(map(_plain, radii), shares, strict=True))
    return _filled(
        "board.yml", results, rows, data=_DATA_SETS.get(data, data), norm=_NORMS.get(norm, norm)
    )


def to_card(results: Results, radii: Sequence[float] | None = None) -> bytes:
    """Fill the template `card.md`. By default, it has the radii of a table."""
    _check_reportable(results)
    radii = radii or usual_radii([results])
    band = results.certified_accuracy_band(radii)
    rows = zip(
        radii,
        results.certified_accuracy(radii).tolist(),
        *(end.tolist() for end in band),
        strict=True,
    )
    return _filled("card.md", results, list(rows))


def _filled(template: str, results: Results, rows: list[Any], **values: str) -> bytes:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "quoted": json.dumps,
        "percent": _percent,
        "caveat": caveat,
        "text": _markdown_text,
        "all_together": all_together,
        "question_in_words": question_in_words,
        "what_to_deploy": what_to_deploy,
    }
    text = files(__package__).joinpath(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(r=results, rows=rows, **values).encode()


def _check_reportable(results: Results) -> str:
    """The norm of a run that others may read about: with noise and plan, finished, with labels."""
    if results.noise is None or results.plan is None:
        raise InvalidInput(
            "no-settings",
            "{name} does not contain its noise and plan: export a run, or an export of a run",
            name=results.name,
        )
    check_finished(results)
    return results.noise.norm


def _plain(radius: float) -> str:
    """A radius with all of its digits: rounding could make it larger."""
    return str(float(radius)).removesuffix(".0")


def _markdown_text(value: object) -> str:
    """A value in Markdown, where foreign names must not become tags, links or cells of a table."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\\[\]`|])", r"\\\1", text)


def _percent(share: float, digits: int = 2) -> str:
    """A share in percent, rounded down."""
    return str((100 * Decimal(repr(share))).quantize(Decimal(10) ** -digits, ROUND_FLOOR))


_AT_RADII = {"sok": to_sok, "card": to_card}
_READERS: dict[str, Callable[[Path], tuple[Mapping[str, Any], dict[str, Any]]]]
_READERS = {"csv": _read_csv, "parquet": _read_parquet, "json": _read_json}
"""The formats that can be read again exactly."""
_WRITERS: dict[str, Callable[[Results], bytes]]
_WRITERS = {"cohen": _to_cohen, "csv": _to_csv, "parquet": _to_parquet, "json": _to_json}
