"""A small job that tests run with any executor. Workers import `tampered` from the same folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from tampered import TamperedData, TamperedModel

from smoothcert import Fixed, Gaussian
from smoothcert.errors import SmoothcertError
from smoothcert.executors.base import Executor
from smoothcert.runs.progress import Progress
from smoothcert.runs.run import Run, open_run
from smoothcert.tasks.certify import certify

INPUTS = 40


class Job:
    """A small job. `run` takes an executor and the faults of `TamperedData`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signs = folder / "signs"
        self.signs.mkdir(parents=True)

    def run(self, executor: Executor, *, progress: Progress | None = None, **tampered) -> Run:
        rng = np.random.default_rng(0)
        data = TamperedData(
            rng.random((INPUTS, 8), np.float32),
            rng.integers(3, size=INPUTS),
            self.signs,
            **tampered,
        )
        return certify(
            TamperedModel(self.signs),
            data,
            noise=Gaussian(0.5),
            plan=Fixed(1000, pilot=100),
            out=self.folder / "run",
            batch=100,
            executor=executor,
            progress=progress,
        )

    def workers(self) -> list[int]:
        """Processes, other than this one, that have run the model."""
        pids = [int(path.suffix[1:]) for path in self.signs.glob("worker.*")]
        return [pid for pid in pids if pid != os.getpid()]


def rows(run: Run) -> list[tuple]:
    """Everything in a run except for the time it took."""
    return [(c.id, c.label, c.prediction, c.radius, c.looks) for c in run.certificates()]


@contextmanager
def started(command: str, *, out: Path) -> Iterator[subprocess.Popen]:
    """Start `smoothcert` in its own session, as a terminal does. A test that fails leaves no process behind."""
    arguments = [sys.executable, "-m", "smoothcert", *command.split(), "--out", out]
    with subprocess.Popen(
        arguments, start_new_session=True, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            for pid in session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def committed(folder: Path) -> int:
    """The number of certificates on disk."""
    try:
        return len(open_run(folder))
    except SmoothcertError:
        return 0


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    return _state(pid)[0] not in "ZX"


def session(leader: int) -> list[int]:
    """The living processes of a session."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if alive(pid) and _state(pid)[3] == str(leader)]


def eventually(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(met)


def _state(pid: int) -> list[str]:
    """State, parent, group, session, ... of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ["X"]


class At(Progress):
    """Runs `action` once, when `count` certificates are on disk. Keeps all messages and the last status."""

    def __init__(self, count: int = 0, action=lambda: None) -> None:
        self.left = count
        self.action = action if count else None
        self.said = ""
        self.status = None

    def say(self, message: str) -> None:
        self.said += message + "\n"

    def update(self, certificate, status) -> None:
        self.status = status
        self.left -= 1
        if self.action and self.left <= 0:
            action, self.action = self.action, None
            action()


class Interrupted(Exception):
    """Raised by an action to end a run early."""


def interrupt() -> None:
    raise Interrupted
