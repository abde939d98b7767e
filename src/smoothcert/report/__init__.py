"""One self-contained HTML page about one run or several."""

from smoothcert.report.page import write_report

__all__ = ["write_report"]
