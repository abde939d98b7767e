"""Progress of a run: what it calls while it goes on, the display of the command line, trackers."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from smoothcert.errors import InvalidInput, first_line, number_of, warn
from smoothcert.plans import Certificate
from smoothcert.runs.run import Run
from smoothcert.runs.summary import usual_radii
from smoothcert.runs.words import summary
from smoothcert.statistics.metrics import round_down

if TYPE_CHECKING:
    from smoothcert.executors.base import Status

_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BETWEEN_BARS = 0.1
_SECONDS_BETWEEN_REPORTS = 10.0

# Writing to stderr raises OSError if its disk is full, and ValueError if it is closed. Neither
# should stop a run.
_IGNORE_BROKEN_STDERR = suppress(OSError, ValueError)


class Progress:
    """Shows nothing. It is the base of all displays and trackers; `certify` calls its methods."""

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
    """The figures of a run that goes on.

    Args:
        run: The run as it is on disk.
        total: How many inputs to certify.
    """

    status: Status | None = None
    """How far the executor is; None before the first certificate."""

    def __init__(self, run: Run, total: int) -> None:
        self.total = total
        self.done = len(run)
        self.spent = int(run.samples.sum())
        self._done_before = len(run)
        self._ceiling = run.plan.most_samples
        self._radii = float((run.radius * run.correct).sum())
        self._labelled = run.labelled
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def add(self, certificate: Certificate, status: Status) -> None:
        """Count one more certificate."""
        self.done += 1
        self.spent += certificate.samples
        self.status = status
        if certificate.correct:
            self._radii += certificate.radius
        if certificate.label is not None:
            self._labelled = True

    @property
    def rate(self) -> float:
        """Samples per second since `start`, with those of open inputs."""
        if self.status is None:
            return 0.0
        return self.status.counted / (time.perf_counter() - self._start)

    @property
    def eta(self) -> float | None:
        """Seconds left, None if they are not known yet.

        Open inputs need the rest of the samples that were requested for them. Every other input is
        assumed to need as many samples as an open or finished input on average.
        """
        status = self.status
        if status is None or not self.rate or not status.opened:
            return None
        average = status.committed / status.opened
        unopened = self.total - self._done_before - status.opened
        return (status.committed - status.counted + unopened * average) / self.rate

    @property
    def acr(self) -> float | None:
        """Average certified radius; None as long as no input had a label."""
        return self._radii / self.done if self._labelled else None

    @property
    def saved(self) -> float:
        """The share of samples saved, compared with fixed sampling at the ceiling."""
        return 1 - self.spent / (self.done * self._ceiling) if self.done else 0.0

    def line(self) -> str:
        """The figures as one line of text."""
        parts = [f"{self.spent:,} samples", f"{self.rate:,.0f}/s"]
        if self.acr is not None:
            parts.append(f"ACR {round_down(self.acr)}")
        if self.eta is not None:
            parts.append(f"{timedelta(seconds=round(self.eta))} left")
        return ", ".join(parts) + self._workers()

    def _workers(self) -> str:
        workers = () if self.status is None else self.status.workers
        count = sum(not worker.lost for worker in workers)
        return f"; {number_of(count, 'worker')}" if count else ""


class _Periodic(Progress):
    """Follows a run, and shows its figures from time to time.

    Args:
        every: Seconds between two times.
    """

    def __init__(self, *, every: float = _SECONDS_BETWEEN_REPORTS) -> None:
        self._every = every

    def begin(self, run: Run, *, total: int) -> None:
        self._pace = Pace(run, total)
        self._last = time.perf_counter()

    def start(self) -> None:
        self._pace.start()
        self._last = time.perf_counter()

    def update(self, certificate: Certificate, status: Status) -> None:
        self._pace.add(certificate, status)
        now = time.perf_counter()
        if now - self._last >= self._every:
            self._last = now
            self.show()

    @abstractmethod
    def show(self) -> None:
        """Show the figures."""


class Display(_Periodic):
    """Shows a bar on a terminal. Elsewhere, it prints a line from time to time.

    Args:
        summary: Whether to say at the end what the run found.
        bar: Whether to show a bar. Default: if stderr is a terminal.
        radii: The radii that the summary shows. Default: those that the plan decides, or a few.
    """

    def __init__(
        self,
        *,
        summary: bool = True,
        bar: bool | None = None,
        radii: Sequence[float] | None = None,
    ) -> None:
        self._summary = summary
        self._radii = radii
        self._shows_bar = _is_terminal() if bar is None else bar
        super().__init__(every=_SECONDS_BETWEEN_BARS if self._shows_bar else _SECONDS_BETWEEN_LINES)

    def begin(self, run: Run, *, total: int) -> None:
        super().begin(run, total=total)
        self._folder = run.path
        self._bar = _bar(total) if self._shows_bar else None
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, completed=len(run), line="")
            if len(run) < total:
                with _IGNORE_BROKEN_STDERR:
                    self._bar.start()
        if 0 < len(run) < total:
            self.say(f"resuming: {len(run)} of {total} inputs are done")
        if len(run) == total:
            self.say(f"{run.path} is complete already")

    def say(self, message: str) -> None:
        with _IGNORE_BROKEN_STDERR:
            if self._bar is not None:
                self._bar.console.print(message)
            elif sys.stderr is not None:
                # rich would end the program if a pipe is broken.
                print(message, file=sys.stderr, flush=True)

    def show(self) -> None:
        pace = self._pace
        if self._bar is None:
            self.say(f"{pace.done}/{pace.total} inputs, {pace.line()}")
            return
        with _IGNORE_BROKEN_STDERR:
            self._bar.update(self._task, completed=pace.done, line=pace.line())

    def close(self) -> None:
        if self._bar is not None:
            with _IGNORE_BROKEN_STDERR:
                self._bar.stop()
        done, total = self._pace.done, self._pace.total
        if 0 < done < total:
            self.say(f"{done} of {total} inputs are certified and saved in {self._folder}")

    def end(self, run: Run) -> None:
        if self._summary:
            self.say(summary(run, radii=self._radii, command=self.command))


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(total: int) -> Bar:
    width = 2 * len(str(total)) + 1
    return Bar(
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=width)),
        # A narrow terminal shortens the bar first.
        BarColumn(table_column=Column(max_width=20, ratio=1)),
        TextColumn("{task.fields[line]}", markup=False),
        console=Console(stderr=True, highlight=False, markup=False, emoji=False),
        transient=True,
    )


class Tracker(_Periodic):
    """Base of all trackers, which report figures to another program, as experiment trackers are.

    A tracker works beside the usual display. If it cannot be opened, the run is refused before its
    first sample. If it raises an error later, the run continues without it: there is a warning,
    `failed` is true, and the exit code of the command line is 4. A subclass overrides `open`, `log`
    and `finish`.

    Args:
        every: Seconds between reports.
    """

    failed: bool = False
    """Whether the tracker raised an error, so that it did not get all figures."""

    def open(self, settings: dict[str, Any]) -> None:
        """Called at the beginning.

        Args:
            settings: Model and hash of its weights, data, noise, plan, seed and further settings,
                as text or numbers.
        """

    def log(self, figures: dict[str, float], *, step: int) -> None:
        """Report figures.

        Args:
            figures: Values by name: inputs, samples, samples_per_second, samples_saved, acr (if
                labels are known), and at the end average_samples, abstained and certified accuracy
                by radius, as in "certified_accuracy/0.25".
            step: The number of certified inputs.
        """

    def finish(self) -> None:
        """Called when the run is complete."""

    def report(self, run: Run) -> None:
        """Called before `finish` with the complete run, to report more than figures.

        Args:
            run: The run.
        """

    def begin(self, run: Run, *, total: int) -> None:
        super().begin(run, total=total)
        manifest = run.manifest
        settings = {
            "model": manifest.classifier,
            "weights_hash": manifest.weights_hash or "none",
            "data": manifest.data,
            "data_hash": manifest.data_hash,
            "noise": str(manifest.noise),
            "plan": str(manifest.plan),
            "alpha": manifest.plan.alpha,
            "seed": manifest.seed,
            "dtype": manifest.dtype,
            "device": manifest.device,
            "inputs": total,
            "run": str(run.path),
            **manifest.settings,
        }
        try:
            self.open(settings)
        except Exception as error:
            raise InvalidInput(
                "tracker-not-opened",
                "{tracker} cannot be opened: {error}: {why}; nothing was certified",
                tracker=type(self).__name__,
                error=type(error).__name__,
                why=first_line(error),
            ) from error

    def show(self) -> None:
        pace = self._pace
        figures = {
            "inputs": pace.done,
            "samples": pace.spent,
            "samples_per_second": pace.rate,
            "samples_saved": pace.saved,
        }
        if pace.acr is not None:
            figures["acr"] = pace.acr
        self.log(figures, step=pace.done)

    def end(self, run: Run) -> None:
        figures = {
            "inputs": len(run),
            "samples": int(run.samples.sum()),
            "average_samples": run.average_samples or 0.0,
            "samples_saved": run.samples_saved or 0.0,
            "abstained": float(run.abstained.mean()),
        }
        if run.labelled:
            figures["acr"] = run.acr
            radii = usual_radii([run])
            for radius, share in zip(radii, run.certified_accuracy(radii).tolist(), strict=True):
                figures[f"certified_accuracy/{radius:g}"] = share
        self.log(figures, step=len(run))
        self.report(run)
        self.finish()


class Several(Progress):
    """Passes every call to several displays and trackers.

    If a tracker raises an error after its begin, it is removed with a warning, and the run
    continues.

    Args:
        members: The displays and trackers.
    """

    def __init__(self, members: Sequence[Progress]) -> None:
        self._members = list(members)
        self.command = any(member.command for member in members)

    def begin(self, run: Run, *, total: int) -> None:
        for member in self._members:
            member.begin(run, total=total)

    def say(self, message: str) -> None:
        self._call_each("say", message)

    def start(self) -> None:
        self._call_each("start")

    def update(self, certificate: Certificate, status: Status) -> None:
        self._call_each("update", certificate, status)

    def close(self) -> None:
        self._call_each("close")

    def end(self, run: Run) -> None:
        self._call_each("end", run)

    def _call_each(self, method: str, *arguments: Any) -> None:
        for member in list(self._members):
            try:
                getattr(member, method)(*arguments)
            except Exception as error:
                if not isinstance(member, Tracker):
                    raise
                self._members.remove(member)
                member.failed = True
                warn(
                    "tracker-failed",
                    "{tracker} gets no more figures, because it raised {error}: {why}; "
                    "the run continues",
                    tracker=type(member).__name__,
                    error=type(error).__name__,
                    why=first_line(error),
                )


def choose_progress(
    progress: Progress | Sequence[Progress] | None, *, radii: Sequence[float] | None = None
) -> Progress:
    """The progress of a run, from what the user gave. Trackers work beside a display.

    Args:
        progress: What the user gave.
        radii: The radii that the summary shows, for a display of our own.
    """
    members = [progress] if isinstance(progress, Progress) else list(progress or ())
    for member in members:
        if not isinstance(member, Progress):
            raise InvalidInput(
                "not-a-progress",
                "progress must be a Progress or a list of them, got {type}",
                type=type(member).__name__,
            )
    if all(isinstance(member, Tracker) for member in members):
        members = [Display(radii=radii), *members]
    return members[0] if len(members) == 1 else Several(members)
