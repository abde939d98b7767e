"""Results in and out of files: the published form of a log (TSV), CSV, Parquet and JSON.

The published form has six columns and radii rounded down; the other three keep every column to the last bit, with
noise, plan and manifest: CSV in a first line that starts with `#`, Parquet in the metadata of its schema, JSON beside
the certificates.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert import _check
from smoothcert._files import write_whole
from smoothcert._registry import describe, restore
from smoothcert.errors import InvalidInput
from smoothcert.runs.logs import COLUMNS as LOG_COLUMNS
from smoothcert.runs.logs import read_log
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.results import COLUMNS, OPTIONAL, Results
from smoothcert.runs.run import open_run
from smoothcert.statistics.metrics import round_down

_META = "smoothcert"


def read_results(path: str | Path) -> Results:
    """Read a run's folder, a file that `write_results` wrote, or a published log.

    Args:
        path: The folder or file.
    """
    path = Path(path)
    if path.is_dir():
        return open_run(path)
    if not path.exists():
        raise InvalidInput(f"{path} does not exist: expected a run's folder, an export or a certification log")
    reader = {".csv": _read_csv, ".parquet": _read_parquet, ".json": _read_json}.get(path.suffix)
    if reader is None:
        return Results.from_log(read_log(path))
    try:
        values, meta = reader(path.read_bytes())
        columns: dict[str, Any] = {
            name: np.array(values[name], dtype)
            for name, dtype in COLUMNS.items()
            if name in values or name not in OPTIONAL
        }
        return Results(
            name=meta["name"],
            noise=restore(meta["noise"]),
            plan=restore(meta["plan"]),
            manifest=Manifest.parse(meta["manifest"], path) if meta["manifest"] else None,
            **columns,
        )
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
    except InvalidInput as error:
        raise InvalidInput(f"cannot read {path}: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, csv.Error) as error:
        raise InvalidInput(f"{path} is not an export of smoothcert, or is damaged: {error!r}") from None


def write_results(results: Results, path: str | Path | None = None, format: str = "cohen") -> bytes:
    """Write results to a file; returns what was written.

    Args:
        results: A run, or results read from a file.
        path: The file; None writes nothing.
        format: cohen (the published form), csv, parquet or json.
    """
    content = _WRITERS[_check.one_of("format", format, tuple(_WRITERS))](results)
    if path is not None:
        write_whole(path, content)
    return content


def _meta(results: Results) -> dict[str, Any]:
    return {
        "name": results.name,
        "noise": None if results.noise is None else describe(results.noise),
        "plan": None if results.plan is None else describe(results.plan),
        "manifest": None if results.manifest is None else results.manifest.plain(),
    }


def _to_cohen(results: Results) -> bytes:
    rows = zip(
        results.id.tolist(),
        results.label.tolist(),
        results.prediction.tolist(),
        (round_down(radius, 6) for radius in results.radius.tolist()),
        results.correct.astype(int).tolist(),
        (timedelta(seconds=seconds) for seconds in results.seconds.tolist()),
        strict=True,
    )
    return "".join("\t".join(map(str, row)) + "\n" for row in [LOG_COLUMNS, *rows]).encode()


def _to_csv(results: Results) -> bytes:
    text = io.StringIO()
    text.write(f"# {json.dumps(_meta(results))}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    # Python prints the shortest text that reads back as the same number.
    writer.writerows(zip(*(column.tolist() for column in results.columns.values()), strict=True))
    return text.getvalue().encode()


def _read_csv(content: bytes) -> tuple[Mapping[str, Any], dict[str, Any]]:
    first, _, table = content.decode("utf-8-sig").partition("\n")
    if not first.startswith("# "):
        raise ValueError("its first line must be # and the settings")
    rows = list(csv.DictReader(table.splitlines(), restval="", strict=True))
    present = [name for name in COLUMNS if name not in OPTIONAL or (rows and name in rows[0])]
    return {name: [COLUMNS[name](row[name]) for row in rows] for name in present}, json.loads(first[2:])


def _to_parquet(results: Results) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(results.columns).replace_schema_metadata({_META: json.dumps(_meta(results))})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    return bytes(buffer.getvalue().to_pybytes())


def _read_parquet(content: bytes) -> tuple[Mapping[str, Any], dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    meta = (table.schema.metadata or {})[_META.encode()]
    present = [name for name in COLUMNS if name not in OPTIONAL or name in table.column_names]
    return {name: table.column(name).to_numpy() for name in present}, json.loads(meta)


def _to_json(results: Results) -> bytes:
    columns = {
        name: [None if value != value else value for value in column.tolist()]  # JSON has no NaN
        for name, column in results.columns.items()
    }
    certificates = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.dumps(_meta(results) | {"certificates": certificates}, indent=1, allow_nan=False).encode()


def _read_json(content: bytes) -> tuple[Mapping[str, Any], dict[str, Any]]:
    meta = json.loads(content)
    rows = meta["certificates"]
    present = [name for name in COLUMNS if name not in OPTIONAL or (rows and name in rows[0])]
    none = dict.fromkeys(OPTIONAL, np.nan)
    return {name: [none.get(name) if row[name] is None else row[name] for row in rows] for name in present}, meta


_WRITERS: dict[str, Callable[[Results], bytes]] = {
    "cohen": _to_cohen,
    "csv": _to_csv,
    "parquet": _to_parquet,
    "json": _to_json,
}
