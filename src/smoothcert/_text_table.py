"""A small table of texts, which Python and the command line print in the same form."""

from __future__ import annotations

from typing import NamedTuple


class TextTable(NamedTuple):
    """A table. The first column is aligned to the left, all others to the right."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str | None = None

    def __str__(self) -> str:
        from rich import box, console, table

        content = table.Table(title=self.title, caption=self.caption, box=box.SIMPLE_HEAD)
        content.title_justify = "left"
        content.caption_justify = "left"
        for number, column in enumerate(self.columns):
            content.add_column(column, justify="right" if number else "left")
        for row in self.rows:
            content.add_row(*row)
        terminal = console.Console(force_jupyter=False)
        with terminal.capture() as captured:
            terminal.print(content)
        return captured.get().removesuffix("\n")
