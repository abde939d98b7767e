"""Fill pages with the numbers of result files.

Markers are comments in Markdown. What stands between a marker and its end is written by `python -m benchmarks render`:

    <!-- table FILE: title = {path:format} | CA * = {ca/*:.1f} -->   one row for each of the file's `rows`
    <!-- /table -->
    <!-- figure FILE#NAME: what it shows -->                         a drawing of the file's `figures/NAME`
    <!-- /figure -->
    <!-- output FILE#KEY -->                                         what a command printed, `{"command": , "text": }`
    <!-- /output -->

FILE is a name in docs/results, a pattern (`radii-*`) or several with commas; `FILE#key` shows other rows than `rows`,
and `FILE#.` shows the numbers of the file as one row.
A path has keys or numbers of rows. In a column, `*` makes one column for each key. Missing values are empty cells.
There are no markers for numbers in sentences: a measured number stands in a table, a figure or an output.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.catalog import EXPERIMENTS

PAGES = [results.ROOT / "README.md", *sorted(results.ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(
    r"(?P<start><!-- (?P<kind>table|figure|output)\b(?P<what>.*?)-->\n)"
    r"(?P<body>.*?)(?P<end><!-- /(?P=kind) -->)",
    re.S,
)
FIELD = re.compile(r"\{([^:}]+)(?::([^}]*))?\}")
NUMBER = re.compile(
    r"[.\d][\d.,]*\s*($|[^\w\s]|(s|ms|min|x|to|at|points|samples|times|hours|GiB|dB|million)\b)"
)
CODE = re.compile(r"^```.*?^```$", re.M | re.S)


def render() -> list[Path]:
    """Write all pages and figures. Returns the pages that changed."""
    changed = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for kind, what, _ in blocks(text):
            if kind == "figure":
                _draw(*_figure(what)[:2])
        if (filled := fill(page, text)) != text:
            page.write_text(filled, encoding="utf-8")
            changed.append(page)
    return changed


def fill(page: Path, text: str) -> str:
    """The text of a page with the present numbers."""
    write = {"table": _table, "figure": _image, "output": _output}

    def block(match: re.Match[str]) -> str:
        what = " ".join(match["what"].split())
        return match["start"] + write[match["kind"]](page, what) + match["end"]

    return BLOCK.sub(block, text)


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, content of the marker, and what is written below it."""
    for match in BLOCK.finditer(text):
        yield match["kind"], " ".join(match["what"].split()), match["body"]


def used(text: str) -> set[str]:
    """The result files that a page shows."""
    return {
        name
        for _, what, _ in blocks(text)
        for name in results.names(re.split("[#:]", what)[0].strip())
    }


def unmarked_tables(text: str) -> Iterator[str]:
    """Titles of the tables with a cell that is a number with or without its unit, outside of markers and code."""
    outside = CODE.sub("", BLOCK.sub("\n", text))
    for match in re.finditer(r"^(\|.*)\n\|[\s:|-]+\n((?:\|.*\n?)+)", outside, re.M):
        cells = [
            cell.strip(" *~+-")
            for row in match[2].splitlines()
            for cell in row.strip().strip("|").split("|")
        ]
        if any(NUMBER.match(cell) for cell in cells):
            yield match[1]


def pick(value: Any, path: str) -> Any:
    """What stands at a path, or None."""
    for key in path.split("/"):
        items: dict[Any, Any] = {}
        if isinstance(value, dict):
            items = value
        elif isinstance(value, list):
            items = dict(enumerate(value))
        value = next((item for name, item in items.items() if str(name) == key), None)
    return value


def _table(page: Path, what: str) -> str:
    place, _, columns = what.partition(":")
    pattern, _, key = place.partition("#")
    files = results.names(pattern.strip())
    if not files:
        names = [name.strip() for name in pattern.split(",")]
        commands = [f"`{each.command}`" for each in EXPERIMENTS if each.name in names]
        assert commands, f"{page.name}: there is no experiment {pattern.strip()}"
        return f"Not measured yet: {', '.join(commands)}.\n"
    rows: list[dict[str, Any]] = []
    for file in files:
        found = results.read(file) or {}
        numbers = found["numbers"]
        shown = [numbers] if key.strip() == "." else pick(numbers, key.strip() or "rows")
        rows += [found["settings"] | row for row in shown or []]
    titles, cells = [], []
    for column in columns.split("|"):
        title, _, template = (part.strip() for part in column.partition(" = "))
        for shown, cell in _expanded(title, template or f"{{{title}}}", rows):
            titles.append(shown)
            cells.append(cell)
    numeric = [
        all(re.search(r":[^}]*[fd%g]", field[0]) for field in FIELD.finditer(cell))
        for cell in cells
    ]
    lines = [titles, ["---:" if right else "---" for right in numeric]]
    lines += [[_cell(row, cell) for cell in cells] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{_origin(page, files)}\n"


def _expanded(title: str, template: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """One column, or one for each key that any row has in place of `*`."""
    if not (star := re.search(r"\{([^}*]+)/\*", template)):
        yield title, template
        return
    keys = dict.fromkeys(key for row in rows for key in pick(row, star[1]) or {})
    for key in sorted(keys, key=float):
        yield title.replace("*", key), template.replace("*", key)


def _cell(row: dict[str, Any], template: str) -> str:
    """The template with the values of a row, or nothing if one of them is missing."""
    values = {field[0]: (pick(row, field[1]), field[2] or "") for field in FIELD.finditer(template)}
    if any(value is None for value, _ in values.values()):
        return ""
    return FIELD.sub(lambda field: format(*values[field[0]]), template)


def _origin(page: Path, files: list[str]) -> str:
    """The line below a table or figure: version, machine and file, in groups of files that have both in common."""
    groups: dict[tuple[str, str], list[str]] = {}
    for file in files:
        found = results.read(file) or {}
        link = os.path.relpath(results.FOLDER / f"{file}.json", page.parent)
        where = f"{found['machine']}{', ' + found['note'] if 'note' in found else ''}"
        groups.setdefault((found["version"], where), []).append(f"[{file}]({link})")
    parts = [
        f"version {version} on {where}: {', '.join(links)}"
        for (version, where), links in groups.items()
    ]
    return f"<small>Measured with {'; with '.join(parts)}.</small>"


def _figure(what: str) -> tuple[Path, list[dict[str, Any]], str, str]:
    """The file of a drawing, its panels, what it shows, and the result file that it is from."""
    place, _, alt = what.partition(":")
    file, _, name = place.partition("#")
    panels = pick((results.read(file) or {}).get("numbers"), f"figures/{name}")
    assert panels, f"docs/results/{file}.json has no figure {name}"
    return results.FOLDER / f"{file}-{name}.svg", panels, alt.strip(), file


def _image(page: Path, what: str) -> str:
    path, _, alt, file = _figure(what)
    return f"![{alt}]({os.path.relpath(path, page.parent)})\n\n{_origin(page, [file])}\n"


def _output(page: Path, what: str) -> str:
    file, _, key = what.partition("#")
    found = results.read(file) or {}
    shown = pick(found["numbers"], key)
    origin = _origin(page, [file])
    return f"<!-- not run: {shown['needs']} -->\n```console\n$ {shown['command']}\n{shown['text']}\n```\n{origin}\n"


def seal(panels: list[dict[str, Any]]) -> str:
    """The last line of a drawing, by which it is known that it shows these numbers."""
    return f"<!-- {hashlib.sha256(json.dumps(panels).encode()).hexdigest()[:16]} -->"


def figures(text: str) -> Iterator[tuple[Path, str]]:
    """Every drawing of a page with its seal."""
    for kind, what, _ in blocks(text):
        if kind == "figure":
            path, panels, _, _ = _figure(what)
            yield path, seal(panels)


def _draw(path: Path, panels: list[dict[str, Any]]) -> None:
    """Draw panels: `{"title": , "x": axis, "y": axis, "lines": [...], "points": [...], "bars": [...]}`."""
    if path.is_file() and path.read_text(encoding="utf-8").endswith(seal(panels) + "\n"):
        return
    import numpy as np

    from smoothcert.report import chart as charts
    from smoothcert.report.figures import save

    drawn = []
    for panel in panels:
        kinds = {"lines": charts.Line, "points": charts.Points, "bars": charts.histogram}
        layers = []
        for kind in kinds:
            for layer in panel.get(kind, []):
                values = {k: np.array(v) if isinstance(v, list) else v for k, v in layer.items()}
                # A line that belongs to no run has a label instead.
                label = values.pop("label", "")
                values["series"] = values["series"] or label
                layers.append(kinds[kind](**values))
        series = tuple(dict.fromkeys(layer.series for layer in layers))
        axes = charts.Axis(**panel["x"]), charts.Axis(**panel["y"])
        drawn.append(charts.Chart(path.stem, panel["title"], series, *axes, tuple(layers)))
    save(drawn if len(drawn) > 1 else drawn[0], path.with_suffix(""), ["svg"])
    path.write_text(
        path.read_text(encoding="utf-8").rstrip() + f"\n{seal(panels)}\n", encoding="utf-8"
    )
