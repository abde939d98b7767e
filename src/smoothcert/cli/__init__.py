"""The command line. Each command is a function that calls functions which a notebook can call, too.

Commands import what they need when they run, so that `--help` and the commands without a model
start quickly.
"""

from __future__ import annotations

import signal
import sys
import warnings
from contextlib import suppress

import typer

from smoothcert._user_errors import import_users_module
from smoothcert._version import __version__
from smoothcert.cli import certify, check, measure, plans, results, train
from smoothcert.cli.command import add_command
from smoothcert.errors import SmoothcertError, SmoothcertWarning, phrase

app = typer.Typer(
    name="smoothcert",
    help="Certified robustness by randomized smoothing, at a fraction of the samples.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {  # by the panels of the help
    "Certify": (certify.demo, certify.certify, results.merge),
    "Check a run": (check.audit, check.attack),
    "Before a run": (measure.probe, plans.map_, plans.coverage, plans.replay),
    "Results": (
        results.ask,
        results.table,
        results.compare,
        check.gate,
        results.report,
        results.export,
    ),
    "Train": (train.train,),
}
for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        add_command(app, _function, panel=_panel)

_INTERRUPTED = 130  # typer's exit code for Ctrl-C
_TERMINATED = 128 + signal.SIGTERM


@app.callback(invoke_without_command=True)
def _main_options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True
    ),
    modules: list[str] = typer.Option(
        [],
        "--import",
        help="A file or module of your own that defines plans, noises or training methods.",
        metavar="FILE",
    ),
) -> None:
    for module in modules:
        import_users_module(module)
    if version:
        print(__version__)
        raise typer.Exit()


def main(application: typer.Typer = app) -> None:
    """Run the command line.

    For a mistake of the user, print one line to stderr and exit with code 2.

    Args:
        application: The commands.
    """
    warnings.showwarning = _warn
    # After this, workers and the display end properly.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        code = _run(application)
    except SmoothcertError as error:
        code = _fail(phrase(error.message, command=True))
    except OSError as error:
        code = _fail(str(error))
    except typer.Abort:
        code = _INTERRUPTED
    except SystemExit as ended:
        code = ended.code
        # As in `--help | head`, where typer exits with 1.
        is_closed_pipe = code == 1 and isinstance(ended.__context__, BrokenPipeError)
        if code != _TERMINATED and not is_closed_pipe:
            code = _fail(f"code of your own, such as a model, ended the program (exit code {code})")
    if code in (_INTERRUPTED, _TERMINATED):
        print(
            "smoothcert: interrupted; all saved results are safe, and the same command continues "
            "from there",
            file=sys.stderr,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _run(application: typer.Typer) -> int | str | None:
    """Run the command that the user typed; returns its exit code."""
    command = typer.main.get_command(application)
    try:
        code: int | str | None = command.main(prog_name="smoothcert", standalone_mode=False)
        return code
    except Exception as error:
        if getattr(error, "option_name", None) == "--import":
            return _fail("--import goes before the command, as in smoothcert --import FILE certify")
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _fail(message())  # the parser complains about an option


def _fail(message: str) -> int:
    """Print an error; returns the exit code."""
    if message:  # empty if the help was shown instead
        print(f"smoothcert: {message}", file=sys.stderr)
    return 2


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    """Print a warning as one line."""
    if isinstance(message, SmoothcertWarning):
        message = phrase(message.message, command=True)
    with suppress(OSError, ValueError):  # stderr is full or closed
        print(f"smoothcert: warning: {message}", file=sys.stderr)
