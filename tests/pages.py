"""Pages as text, for tests that read them."""

from pathlib import Path
from tempfile import TemporaryDirectory

from smoothcert.report import write_report


def render(results, **settings):
    with TemporaryDirectory() as folder:
        return write_report(results, Path(folder) / "page.html", **settings).read_text()
