"""The journal of a run: certificates and manifest in one SQLite database.

Every certificate is a transaction. (With many workers, certificates that arrive together share a
transaction.) However the process ends, all committed certificates stay. A transaction is flushed to
disk, unless another one was flushed a moment before: a power cut can lose the certificates of that
moment, and the run draws them again. Other processes can read the journal during the run.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from math import inf, isinf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smoothcert._check import NO_CLASS
from smoothcert._files import JOURNAL
from smoothcert._registry import describe, restore
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.plans import Certificate, Look, Plan, Proof, Rule
from smoothcert.runs.manifest import DAMAGED, Manifest, Simple, check_type, unreadable_entry
from smoothcert.runs.results import COLUMNS, numbers_of

_LAYOUT = 2
"""The version of the tables below."""
_FLUSH_SECONDS = 0.1
"""Transactions within this time after a flush are not flushed."""
# Results read the numbers of `COLUMNS` as arrays. Only a whole certificate needs the rest.
_NUMBERS = ", ".join(
    f"IFNULL({c}, {NO_CLASS})" if c in ("label", "prediction") else c for c in COLUMNS
)
_WITH_NUMBERS = (*COLUMNS, "chosen", "proved")
_STORED = (*_WITH_NUMBERS, "looks", "plan")
_ALL = ", ".join(_STORED)
# Attacks and answers to questions stand beside the entries of the manifest.
_ENTRIES = ", ".join(f"'{f.name}'" for f in fields(Manifest))
_MANIFEST = f"SELECT key, value FROM manifest WHERE key IN ({_ENTRIES})"
_PROBE = "SELECT 1 FROM manifest, certificates LIMIT 1"

# WAL allows readers during a run. The tables are made together, so that nobody finds only some of
# them.
_SETUP = f"""
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
PRAGMA user_version = {_LAYOUT};
CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS certificates (
    id INTEGER PRIMARY KEY,
    label INTEGER,
    prediction INTEGER,
    radius REAL NOT NULL,
    samples INTEGER NOT NULL,
    count INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    missing INTEGER NOT NULL,
    seconds REAL NOT NULL,
    lower REAL NOT NULL,
    upper REAL,
    chosen INTEGER,
    proved REAL,
    looks TEXT NOT NULL,
    plan TEXT
);
CREATE TABLE IF NOT EXISTS attacks (
    norm TEXT NOT NULL,
    id INTEGER NOT NULL,
    distance REAL,
    prediction INTEGER,
    changed BLOB,
    PRIMARY KEY (norm, id)
);
COMMIT;
"""


class Attack(NamedTuple):
    """The attack on one input.

    Args:
        distance: The length of the smallest change that alters the answer; infinite if none was
            found.
        prediction: The answer to the changed input.
        changed: The changed input, in float32.
    """

    id: int
    distance: float
    prediction: int | None = None
    changed: bytes | None = None


class Journal:
    """The journal in a run's folder; use it as a context manager.

    A new journal goes away again if a mistake of the user ends the run before its first
    certificate.

    Args:
        folder: The run's folder.
        write: Whether to write; the file is created if there is none.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.path = folder / JOURNAL
        self._flushed = -inf
        self._is_new = write and not self.path.exists()
        if not write and not self.path.is_file():
            reason = f"it has no {JOURNAL}" if folder.exists() else "it does not exist"
            raise InvalidInput(
                "not-a-run", "{folder} is not a run: {reason}", folder=folder, reason=reason
            )
        with self._errors("open"):
            if write:
                self._connect("mode=rwc", _SETUP)
                return
            try:
                self._connect("mode=ro", _PROBE)
            except sqlite3.OperationalError:
                # Readers of a WAL file also write a little. Without permission, an idle file can
                # still be read.
                if Path(f"{self.path}-wal").exists():
                    raise
                self._connect("mode=ro&immutable=1", _PROBE)

    def _connect(self, mode: str, script: str) -> None:
        """Open a connection and run a script on it.

        If the script fails, the connection is closed at once. While a connection is open, SQLite
        uses the index of the WAL file that a dead writer left behind, and readers could miss the
        last certificate.
        """
        db = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None
        )
        try:
            [layout] = db.execute("PRAGMA user_version").fetchone()
            is_new = db.execute("SELECT 1 FROM sqlite_master").fetchone() is None
            if layout != _LAYOUT and not is_new:
                raise InvalidInput(
                    "other-version",
                    "{path} was written by another version of smoothcert: read it with that "
                    "version, or certify into another folder",
                    path=self.path,
                    layout=layout,
                )
            if is_new and script is _PROBE:
                raise self._empty()
            db.executescript(script)
        except BaseException:
            db.close()
            raise
        self._db = db

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *exception: object) -> None:
        is_mistake = kind is not None and issubclass(kind, SmoothcertError)
        unused = self._is_new and is_mistake and not self.ids()
        self._db.close()
        if unused:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def add(
        self, certificate: Certificate, entries: dict[str, Any], *, own_plan: bool = False
    ) -> None:
        """Add a certificate together with entries of the manifest, in one transaction.

        Args:
            certificate: The certificate.
            entries: The entries.
            own_plan: Whether its plan may differ from that of the manifest, as with a budget, and
                has to be recorded. It replaces a certificate of an earlier plan.
        """
        c = certificate
        looks = json.dumps([_plain_look(look) for look in c.looks])
        plan = json.dumps(describe(c.plan)) if own_plan else None
        row = (*numbers_of(c), c.proof.prediction, c.proof.radius, looks, plan)
        with self.transaction():
            self._insert([row], replace=own_plan)
            self.write_manifest(entries)

    def add_all_of(self, other: Journal) -> None:
        """Add the certificates of another journal whose manifest has the same plan."""
        with other._errors("read"), self.transaction():
            self._insert(other._db.execute(f"SELECT {_ALL} FROM certificates"))

    def _insert(self, rows: Iterable[tuple[Any, ...]], *, replace: bool = False) -> None:
        insert = "INSERT OR REPLACE" if replace else "INSERT"
        self._db.executemany(
            f"{insert} INTO certificates ({_ALL}) VALUES ({', '.join('?' * len(_STORED))})", rows
        )

    def keep_plans(self, plan: Plan) -> None:
        """Record the plan of the manifest, which will change, with all certificates of it."""
        with self.transaction():
            self._db.execute(
                "UPDATE certificates SET plan = ? WHERE plan IS NULL", (json.dumps(describe(plan)),)
            )

    def ids(self) -> set[int]:
        """The inputs that have a certificate."""
        return {id for (id,) in self._rows("SELECT id FROM certificates")}

    def columns(self) -> dict[str, Any]:
        """The numbers of all certificates, as `Results` holds them."""
        with self._errors("read"):
            rows = self._db.execute(f"SELECT {_NUMBERS} FROM certificates ORDER BY id")
            try:
                read = np.fromiter(rows, np.dtype(list(COLUMNS.items())))
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidInput(
                    "unreadable-certificate",
                    "{path}: a certificate cannot be read, and audit says which: {why}",
                    path=self.path,
                    why=error,
                ) from None
        return {name: read[name].copy() for name in COLUMNS}

    def certificates(self, manifest: Manifest) -> Iterator[Certificate]:
        """All certificates in the order of their ids. Plan and noise are those of the manifest."""
        with self._errors("read"):
            for row in self._db.execute(f"SELECT {_ALL} FROM certificates ORDER BY id"):
                yield self._certificate(row, manifest)

    def certificate(self, id: int, manifest: Manifest) -> Certificate:
        """One certificate."""
        [row] = self._rows(f"SELECT {_ALL} FROM certificates WHERE id = ?", id)
        return self._certificate(row, manifest)

    def manifest(self) -> Manifest:
        """The manifest of the run."""
        rows = self._rows(_MANIFEST)
        if not rows:
            raise self._empty()
        values = {}
        for key, value in rows:
            try:
                values[key] = json.loads(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise unreadable_entry(self.path, key, error) from None
        return Manifest.parse(values, self.path)

    def entry(self, key: str) -> Any:
        """An entry beside those of the manifest; None if there is none."""
        rows = self._rows("SELECT value FROM manifest WHERE key = ?", key)
        return json.loads(rows[0][0]) if rows else None

    def write_manifest(self, entries: dict[str, Any]) -> None:
        """Add or replace entries of the manifest, in one transaction."""
        rows = [(key, json.dumps(value)) for key, value in entries.items()]
        with self.transaction():
            self._db.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)

    def add_attacks(self, norm: str, attacks: Iterable[Attack]) -> None:
        """Add the attacks on some inputs, in one transaction."""
        rows = [
            (norm, a.id, None if isinf(a.distance) else a.distance, a.prediction, a.changed)
            for a in attacks
        ]
        with self.transaction():
            self._db.executemany("INSERT OR REPLACE INTO attacks VALUES (?, ?, ?, ?, ?)", rows)

    def attacks(self, norm: str) -> tuple[dict[str, Any], dict[int, float]] | None:
        """The settings of the attacks in one norm, and the distances by id; None without any."""
        rows = self._rows("SELECT id, distance FROM attacks WHERE norm = ?", norm)
        try:
            settings = self.entry(f"attack in {norm}")
            if settings is None:
                return None
            check_type(settings, Mapping[str, Simple | list[int]])
            check_type(settings["shape"], list[int])
            check_type(rows, list[tuple[int, float | None]])
        except DAMAGED as error:
            raise unreadable_entry(self.path, f"attack in {norm}", error) from None
        return settings, {id: inf if distance is None else distance for id, distance in rows}

    def attack(self, norm: str, id: int) -> Attack | None:
        """The attack on one input, with the changed input."""
        columns = "id, distance, prediction, changed"
        rows = self._rows(f"SELECT {columns} FROM attacks WHERE norm = ? AND id = ?", norm, id)
        if not rows:
            return None
        [(id, distance, prediction, changed)] = rows
        return Attack(id, inf if distance is None else distance, prediction, changed)

    def forget_attacks(self, norm: str, settings: dict[str, Any]) -> None:
        """Begin attacks in one norm: those of an earlier call go."""
        with self.transaction():
            self._db.execute("DELETE FROM attacks WHERE norm = ?", (norm,))
            self.write_manifest({f"attack in {norm}": settings})

    def _rows(self, query: str, *values: object) -> list[Any]:
        """The rows that a query finds."""
        with self._errors("read"):
            return self._db.execute(query, values).fetchall()

    def _empty(self) -> InvalidInput:
        return InvalidInput(
            "empty-run",
            "{path} is empty, because its run stopped before the first entry: "
            "run certify into this folder",
            path=self.path,
        )

    def _certificate(self, row: Any, manifest: Manifest) -> Certificate:
        stored = dict(zip(_STORED, row, strict=True))
        try:
            return _parse(stored, manifest)
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(
                "unreadable-certificate",
                "{path}: the certificate of input {id} cannot be read: {why}",
                path=self.path,
                id=stored["id"],
                why=error,
            ) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes are written to disk together at the end, or not at all."""
        if self._db.in_transaction:
            yield
            return
        flush = time.perf_counter() - self._flushed >= _FLUSH_SECONDS
        with self._errors("write to"):
            try:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
                self._flushed = time.perf_counter() if flush else self._flushed
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Raise errors of SQLite as errors for the user."""
        try:
            yield
        except sqlite3.Error as error:
            advice = "restore it from a copy, or choose another folder"
            # An operational error, such as a full disk, leaves the file intact. Other errors mean
            # that it is damaged.
            if action == "write to" and isinstance(error, sqlite3.OperationalError):
                advice = "all committed certificates are safe, and the same command resumes the run"
            raise SmoothcertError(
                "database-failed",
                "cannot {action} {path}: {why}; {advice}",
                action=action,
                path=self.path,
                why=error,
                advice=advice,
            ) from error


def _plain_look(look: Look) -> list[Any]:
    """A look for JSON: samples, votes by class and, if there is one, the margin of its cell."""
    entry: list[Any] = [look.samples, {str(c): count for c, count in look.votes.items()}]
    if look.margin is not None:
        entry.append(look.margin)
    return entry


def _parse(stored: Mapping[str, Any], manifest: Manifest) -> Certificate:
    """A certificate from the values of its row."""
    check_type([stored[name] for name in _WITH_NUMBERS], list[float | None])
    proved = stored["proved"]
    if proved is None and stored["prediction"] is not None:
        proved = stored["radius"]  # version 1 recorded only radii without bounds here
    plan = manifest.plan
    if stored["plan"] is not None:
        plan = restore(json.loads(stored["plan"]))
        check_type(plan, Rule)
    certificate = Certificate(
        stored["id"],
        stored["label"],
        stored["prediction"],
        stored["radius"],
        Proof(
            stored["chosen"],
            proved,
            stored["lower"],
            stored["upper"],
            stored["count"],
            stored["counted"],
        ),
        tuple(
            Look(samples, {int(c): count for c, count in votes.items()}, *map(float, margin))
            for samples, votes, *margin in json.loads(stored["looks"])
        ),
        plan,
        manifest.noise,
        stored["seconds"],
    )
    stated = (stored["samples"], stored["missing"])
    if stated != (certificate.samples, certificate.missing):
        drawn = f"{certificate.samples} samples, {certificate.missing} without a vote"
        raise ValueError(f"its looks have {drawn}, it states {stated[0]} and {stated[1]}")
    return certificate
