"""The text of a table: for a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from textwrap import fill

_TEXTS = ("run", "method")
"""Titles of columns that are aligned to the left."""
_LEGEND_WIDTH = 120
_TEX = str.maketrans(
    {c: "\\" + c for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
)
STYLES: dict[str, tuple[Callable[[str], str], str]] = {
    "terminal": (lambda text: text.replace("[", r"\["), "[bold]{}*[/]"),
    "markdown": (lambda text: html.escape(text, quote=False).replace("|", r"\|"), "**{}**"),
    "latex": (lambda text: text.translate(_TEX), r"\textbf{{{}}}"),
    "html": (html.escape, "<b>{}</b>"),
}
"""How each format escapes a text, and how it marks the best ones."""


def terminal(
    titles: list[str], cells: list[list[str]], legend: list[str], caption: str | None
) -> str:
    """A table for a terminal: one column per run if it is too narrow.

    Args:
        titles: The titles of the columns.
        cells: The texts of each row.
        legend: The lines below the table.
        caption: The line above it.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    def drawn(
        titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]
    ) -> RichTable:
        table = RichTable(box=box.SIMPLE_HEAD)
        for title in titles:
            table.add_column(title, justify="left" if title in left else "right")
        for row in rows:
            table.add_row(*row)
        return table

    table = drawn(titles, cells, _TEXTS)
    here = Console(force_jupyter=False)  # a notebook shows `_repr_html_`; here we want text
    # So wide that rich cuts no number to "0…".
    wide = Console(force_jupyter=False, width=1_000)
    if here.is_terminal and wide.measure(table).maximum > here.width:
        # One column per run.
        heads, *rows = zip(titles, *cells, strict=True)
        table = drawn(heads, rows, titles[:1])
        wide = here
    with wide.capture() as captured:
        wide.print(table)
    width = here.width if here.is_terminal else _LEGEND_WIDTH
    lines = [fill(line, width, initial_indent="  ", subsequent_indent="    ") for line in legend]
    above = [] if caption is None else [f"  {caption}"]
    return "\n".join([*above, captured.get().strip("\n"), *lines])


def markdown(
    titles: list[str], cells: list[list[str]], legend: list[str], caption: str | None
) -> str:
    """A table in Markdown. The arguments are those of `terminal`."""
    rule = ["---" if title in _TEXTS else "---:" for title in titles]
    table = ["| " + " | ".join(row) + " |" for row in [titles, rule, *cells]]
    above = [] if caption is None else [f"**{caption}**", ""]
    return "\n".join([*above, *table, "", "; ".join(legend)])


def latex(titles: list[str], cells: list[list[str]], legend: list[str], caption: str | None) -> str:
    """A table for the package booktabs; the legend is a comment. Arguments as for `terminal`."""
    head = [title.translate(_TEX) for title in titles]
    first, *others = (" & ".join(row) + r" \\" for row in [head, *cells])
    alignment = "".join("l" if title in _TEXTS else "r" for title in titles)
    lines = [
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        first,
        r"\midrule",
        *others,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if caption is not None:
        is_latex = "\\" in caption or "$" in caption
        inside = caption if is_latex else caption.translate(_TEX)
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{inside}}}", *lines, r"\end{table}"]
    return "\n".join([*(f"% {line}" for line in legend), *lines])
