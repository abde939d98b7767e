"""Progress of a run: silent, as plain lines, as a live bar, or reported to an experiment tracker."""

from __future__ import annotations

import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from smoothcert.errors import InvalidInput, first_line, number_of
from smoothcert.executors.base import Status
from smoothcert.plans import Certificate
from smoothcert.runs.run import Run, summary
from smoothcert.statistics.metrics import round_down

# Writing to stderr raises OSError if its disk is full, and ValueError if it is closed. Neither should stop a run.
_IGNORE_BROKEN_STDERR = suppress(OSError, ValueError)


class Progress:
    """Shows nothing. It is the base of all progress displays; `certify` calls its methods."""

    command: bool = False
    """Whether messages name the options of the command line, and not the arguments in Python."""

    def begin(self, run: Run, *, total: int) -> None:
        """Called at the beginning.

        Args:
            run: The run as it is on disk, with the certificates of earlier calls.
            total: How many inputs to certify, those of earlier calls included.
        """

    def say(self, message: str) -> None:
        """Called with messages, such as what is measured and compiled before the first sample.

        Args:
            message: The message.
        """

    def start(self) -> None:
        """Called before the first sample is drawn."""

    def update(self, certificate: Certificate, status: Status) -> None:
        """Called when one more certificate is on disk.

        Args:
            certificate: The certificate.
            status: How far the executor is.
        """

    def close(self) -> None:
        """Called at the end, also after an error. A display stops using the terminal."""

    def end(self, run: Run) -> None:
        """Called when all certificates are on disk.

        Args:
            run: The complete run.
        """


class Pace:
    """The figures that a progress display shows.

    Args:
        run: The run as it is on disk.
        total: How many inputs to certify.
    """

    def __init__(self, run: Run, total: int) -> None:
        self.total = total
        self.done = self._done_before = len(run)
        self.spent = int(run.samples.sum())
        self._most = run.plan.most_samples
        self._radii = float((run.radius * run.correct).sum())
        self._labelled = run.labelled
        self.status = Status()
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def add(self, certificate: Certificate, status: Status) -> None:
        """Count one more certificate."""
        self.done += 1
        self.spent += certificate.samples
        self._radii += certificate.radius * bool(certificate.correct)
        self._labelled |= certificate.label is not None
        self.status = status

    @property
    def rate(self) -> float:
        """Samples per second since `start`, with those of open inputs."""
        return self.status.counted / (time.perf_counter() - self._start)

    @property
    def eta(self) -> float | None:
        """Seconds left, None if they are not known yet.

        Open inputs need the rest of the samples that were requested for them. Every other input is assumed to need as
        many samples as an open or finished input on average.
        """
        if not self.rate or not self.status.opened:
            return None
        average = self.status.committed / self.status.opened
        unopened = self.total - self._done_before - self.status.opened
        return (self.status.committed - self.status.counted + unopened * average) / self.rate

    @property
    def acr(self) -> float | None:
        """Average certified radius; None as long as no input had a label."""
        return self._radii / self.done if self._labelled else None

    @property
    def saved(self) -> float:
        """The share of samples saved, compared with fixed sampling at the ceiling."""
        return 1 - self.spent / (self.done * self._most) if self.done else 0.0

    def line(self) -> str:
        """The figures as one line of text."""
        acr = "" if self.acr is None else f", ACR {round_down(self.acr)}"
        eta = "" if self.eta is None else f", {timedelta(seconds=round(self.eta))} left"
        here = [worker for worker in self.status.workers if worker.until is None]
        idle = sum(not worker.open for worker in here)
        workers = (
            f"; {number_of(len(here), 'worker')}" + (f", {idle} idle" if idle else "")
            if here
            else ""
        )
        return f"{self.spent:,} samples, {self.rate:,.0f}/s{acr}{eta}{workers}"


class _Periodic(Progress):
    """Follows a run, and shows its figures from time to time."""

    def __init__(self, *, every: float = 10.0) -> None:
        self._every = every

    def begin(self, run: Run, *, total: int) -> None:
        self._pace = Pace(run, total)
        self._last = time.perf_counter()

    def start(self) -> None:
        self._pace.start()
        self._last = time.perf_counter()

    def update(self, certificate: Certificate, status: Status) -> None:
        self._pace.add(certificate, status)
        if time.perf_counter() - self._last >= self._every:
            self._last = time.perf_counter()
            self.show()

    @abstractmethod
    def show(self) -> None:
        """Show the figures."""


class PlainProgress(_Periodic):
    """Prints a line from time to time, for logs and pipes.

    Args:
        every: Seconds between lines.
        summary: Whether to say at the end what the run found.
    """

    def __init__(self, *, every: float = 30.0, summary: bool = True) -> None:
        super().__init__(every=every)
        self._summary = summary

    def begin(self, run: Run, *, total: int) -> None:
        super().begin(run, total=total)
        self._run = run
        if 0 < len(run) < total:
            self.say(f"resuming: {len(run)} of {total} inputs are done")
        if len(run) == total:
            self.say(f"{run.path} is complete already")

    def say(self, message: str) -> None:
        if sys.stderr is not None:
            with _IGNORE_BROKEN_STDERR:
                print(
                    message, file=sys.stderr, flush=True
                )  # rich would end the program if the pipe is broken

    def show(self) -> None:
        self.say(f"{self._pace.done}/{self._pace.total} inputs, {self._pace.line()}")

    def close(self) -> None:
        if 0 < self._pace.done < self._pace.total:
            self.say(
                f"{self._pace.done} of {self._pace.total} inputs are certified and saved in {self._run.path}"
            )

    def end(self, run: Run) -> None:
        if workers := self._pace.status.workers:
            share = sum(worker.sampling for worker in workers) / (
                sum(worker.seconds for worker in workers) or 1
            )
            self.say(
                f"{number_of(len(workers), 'worker')} took part, and sampled for {share:.0%} of the time"
            )
        if self._summary:
            self.say(summary(run))


class LiveProgress(PlainProgress):
    """Shows a bar on the terminal.

    Args:
        summary: Whether to say at the end what the run found.
    """

    def __init__(self, *, summary: bool = True) -> None:
        super().__init__(every=0.1, summary=summary)

    def begin(self, run: Run, *, total: int) -> None:
        self._bar = Bar(
            MofNCompleteColumn(
                table_column=Column(no_wrap=True, min_width=2 * len(str(total)) + 1)
            ),
            BarColumn(
                table_column=Column(max_width=20, ratio=1)
            ),  # a narrow terminal shortens the bar first
            TextColumn("{task.fields[line]}", markup=False),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, completed=len(run), line="")
        super().begin(run, total=total)
        if len(run) < total:
            with _IGNORE_BROKEN_STDERR:
                self._bar.start()

    def say(self, message: str) -> None:
        with _IGNORE_BROKEN_STDERR:
            self._bar.console.print(message)

    def show(self) -> None:
        with _IGNORE_BROKEN_STDERR:
            self._bar.update(self._task, completed=self._pace.done, line=self._pace.line())

    def close(self) -> None:
        with _IGNORE_BROKEN_STDERR:
            self._bar.stop()
        super().close()


class NotebookProgress(PlainProgress):
    """Shows one line in the output of a notebook cell, which the next line replaces.

    A bar of tqdm would need ipywidgets, and would leave its state in the saved notebook.
    """

    def __init__(self) -> None:
        super().__init__(every=0.25)
        self._output: Any = None

    def say(self, message: str) -> None:
        from IPython.display import display

        line = {"text/plain": message}
        if self._output is None:
            self._output = display(line, raw=True, display_id=True)
        else:
            self._output.update(line, raw=True)


class Tracker(_Periodic):
    """Base of all trackers, which report figures to another program such as an experiment tracker.

    A tracker works beside the usual display. If it raises an error, the run continues without it, with a warning. A
    subclass overrides `open`, `log` and `finish`.

    Args:
        every: Seconds between reports.
    """

    def open(self, settings: dict[str, Any]) -> None:
        """Called at the beginning.

        Args:
            settings: Model, data, noise, plan and seed, as text or numbers.
        """

    def log(self, figures: dict[str, float], *, step: int) -> None:
        """Report figures.

        Args:
            figures: Values by name: inputs, samples, samples_per_second, samples_saved, acr (if labels are known), and
                at the end average_samples and abstained.
            step: The number of certified inputs.
        """

    def finish(self) -> None:
        """Called when the run is complete."""

    def begin(self, run: Run, *, total: int) -> None:
        super().begin(run, total=total)
        m = run.manifest
        self.open(
            {
                "model": m.classifier,
                "data": m.data,
                "noise": str(m.noise),
                "plan": str(m.plan),
                "alpha": m.plan.alpha,
            }
            | {
                "seed": m.seed,
                "dtype": m.dtype,
                "device": m.device,
                "inputs": total,
                "run": str(run.path),
            }
        )

    def show(self) -> None:
        pace = self._pace
        figures = {"inputs": pace.done, "samples": pace.spent, "samples_per_second": pace.rate}
        acr = {} if pace.acr is None else {"acr": pace.acr}
        self.log(figures | {"samples_saved": pace.saved} | acr, step=pace.done)

    def end(self, run: Run) -> None:
        figures = {
            "inputs": len(run),
            "samples": int(run.samples.sum()),
            "average_samples": run.average_samples or 0.0,
        }
        figures |= {
            "samples_saved": run.samples_saved or 0.0,
            "abstained": float(run.abstained.mean()),
        }
        self.log(figures | ({"acr": run.acr} if run.labelled else {}), step=len(run))
        self.finish()


class Several(Progress):
    """Passes every call to several displays and trackers.

    If a tracker raises an error, it is removed with a warning, and the run continues.

    Args:
        members: The displays and trackers.
    """

    def __init__(self, members: Sequence[Progress]) -> None:
        self._members = list(members)
        self.command = any(member.command for member in members)
        for method in ("begin", "say", "start", "update", "close", "end"):
            setattr(self, method, partial(self._call_each, method))

    def _call_each(self, method: str, *news: Any, **more: Any) -> None:
        for member in list(self._members):
            try:
                getattr(member, method)(*news, **more)
            except Exception as error:
                if not isinstance(member, Tracker):
                    raise
                self._members.remove(member)
                warnings.warn(
                    f"{type(member).__name__} gets no more figures, because it raised {type(error).__name__}: "
                    f"{first_line(error)}; the run continues",
                    stacklevel=4,
                )


def choose_progress(progress: Progress | Sequence[Progress] | None) -> Progress:
    """The progress of a run, from what the user gave."""
    members = (
        [] if progress is None else [progress] if isinstance(progress, Progress) else list(progress)
    )
    for member in members:
        if not isinstance(member, Progress):
            raise InvalidInput(
                f"progress must be a Progress or a list of them, got {type(member).__name__}"
            )
    if all(isinstance(member, Tracker) for member in members):
        members = [progress_here(), *members]
    return members[0] if len(members) == 1 else Several(members)


def progress_here(*, summary: bool = True) -> Progress:
    """The usual display: a live bar on a terminal, one line that changes in a notebook, plain lines elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:  # IPython on a terminal has no kernel
        return NotebookProgress()
    return (LiveProgress if sys.stderr and sys.stderr.isatty() else PlainProgress)(summary=summary)
