"""One self-contained HTML page about one run or several."""

from smoothcert.report.page import render, write_report

__all__ = ["render", "write_report"]
