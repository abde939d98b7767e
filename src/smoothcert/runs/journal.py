"""The file that keeps a run: certificates and manifest in one SQLite database.

Every certificate is a transaction, flushed to the disk before the next (of many workers, those that came in together):
whatever ends the process, what was committed stays. Readers may look while a run is going on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothcert.certificate import Certificate
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.noise import Noise
from smoothcert.plans.base import Look, Plan

FILE = "journal.sqlite"

_COLUMNS = "id, label, prediction, radius, count, counted, looks, seconds"  # a later version may add others

_PROBE = "SELECT 1 FROM manifest, certificates LIMIT 1"

# WAL lets readers in; FULL flushes every commit, so that even a power cut loses none.
_SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS certificates (
    id INTEGER PRIMARY KEY,
    label INTEGER,
    prediction INTEGER,
    radius REAL NOT NULL,
    count INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    looks TEXT NOT NULL,
    seconds REAL NOT NULL
);
"""


class Journal:
    """The journal in a run's folder; use as a context manager."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.path = folder / FILE
        if not write and not self.path.is_file():
            raise InvalidInput(f"{folder} is not a run: it has no {FILE}")
        with self._errors("open"):
            if write:
                self._connect("mode=rwc", _SETUP)
                return
            try:
                self._connect("mode=ro", _PROBE)
            except sqlite3.OperationalError:
                # Readers of WAL write a little, too. Where they may not, a file that nobody writes can still be read.
                if Path(f"{self.path}-wal").exists():
                    raise
                self._connect("mode=ro&immutable=1", _PROBE)

    def _connect(self, mode: str, script: str) -> None:
        """A connection on which this script works.

        One on which it does not is closed at once: while any is open, SQLite takes a dead writer's word for how far it
        came, and readers miss a certificate that it had written but not yet said so.
        """
        db = sqlite3.connect(f"{self.path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
        try:
            db.executescript(script)
        except BaseException:
            db.close()
            raise
        self._db = db

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self._db.close()

    def add(self, certificate: Certificate, entries: dict[str, Any]) -> None:
        """Add a certificate and, with it or not at all, these entries of the manifest."""
        looks = [[look.samples, {str(c): n for c, n in look.votes.items()}] for look in certificate.looks]
        c = certificate
        row = (c.id, c.label, c.prediction, c.radius, c.count, c.counted, json.dumps(looks), c.seconds)
        with self.transaction():
            self._db.execute(f"INSERT INTO certificates ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._set(entries)

    def ids(self) -> set[int]:
        with self._errors("read"):
            return {id for (id,) in self._db.execute("SELECT id FROM certificates")}

    def certificates(self, *, plan: Plan, noise: Noise) -> Iterator[Certificate]:
        """All certificates in the order of their ids."""
        with self._errors("read"):
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM certificates ORDER BY id").fetchall()
        for row in rows:
            yield self._certificate(row, plan, noise)

    def certificate(self, id: int, *, plan: Plan, noise: Noise) -> Certificate:
        with self._errors("read"):
            row = self._db.execute(f"SELECT {_COLUMNS} FROM certificates WHERE id = ?", (id,)).fetchone()
        return self._certificate(row, plan, noise)

    def read_manifest(self) -> dict[str, Any]:
        with self._errors("read"):
            rows = self._db.execute("SELECT key, value FROM manifest").fetchall()
        try:
            return {key: json.loads(value) for key, value in rows}
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{self.path}: its manifest cannot be read: {error}") from None

    def write_manifest(self, entries: dict[str, Any]) -> None:
        """Add or replace entries, all or none."""
        with self.transaction():
            self._set(entries)

    def _set(self, entries: dict[str, Any]) -> None:
        rows = [(key, json.dumps(value)) for key, value in entries.items()]
        self._db.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)

    def _certificate(self, row: Any, plan: Plan, noise: Noise) -> Certificate:
        id, label, prediction, radius, count, counted, looks, seconds = row
        try:
            label, prediction = (None if value is None else int(value) for value in (label, prediction))
            radius, count, counted, seconds = float(radius), int(count), int(counted), float(seconds)
            votes = tuple(Look(n, {int(c): v for c, v in votes.items()}) for n, votes in json.loads(looks))
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"{self.path}: the certificate of input {id} cannot be read: {error}") from None
        return Certificate(id, label, prediction, radius, count, counted, votes, plan, noise, seconds)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written within is flushed at once at its end, or not at all."""
        if self._db.in_transaction:
            yield
            return
        with self._errors("write to"):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself takes back what a full disk stopped
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            stopped = action == "write to" and isinstance(error, sqlite3.OperationalError)  # others: a damaged file
            way_out = (
                "what was committed is safe, and the same command resumes"
                if stopped
                else "restore it from a copy, or choose another folder"
            )
            raise SmoothcertError(f"cannot {action} {self.path}: {error}; {way_out}") from error
