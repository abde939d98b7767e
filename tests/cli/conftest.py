import sys
import warnings
from typing import NamedTuple

import pytest
import typer

from smoothcert.cli import app, main


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def smoothcert(monkeypatch, capsys):
    """Run a command: `smoothcert("map --sigma 0.5")` returns exit code, stdout and stderr."""
    monkeypatch.setattr(
        warnings, "showwarning", warnings.showwarning
    )  # `main` replaces it; this restores it
    monkeypatch.setenv("COLUMNS", "80")

    def run(line: str, application: typer.Typer = app) -> Answer:
        monkeypatch.setattr(sys, "argv", ["smoothcert", *line.split()])
        with pytest.raises(SystemExit) as exit:
            main(application)
        return Answer(exit.value.code, *capsys.readouterr())

    return run
