"""Jobs in a file of SQLite: every change is one transaction, so that none is half-written."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from secrets import token_hex

from ppsolve.models.documents.errors import ErrorCode, InputError, PpsolveError

MOST_ATTEMPTS = 5
"""How often a job is begun: one that ends the service each time is given up."""


class JobState(StrEnum):
    """What has become of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self not in {JobState.QUEUED, JobState.RUNNING}


@dataclass(frozen=True)
class StoredJob:
    """A job as it is stored; the fields are the columns."""

    id: str
    digest: str  # hash of its question and of the version that answers
    task: str
    question: str  # its text
    state: JobState
    attempts: int  # how often it was begun
    created: float  # seconds since 1970
    ended: float | None = None
    result: str | None = None  # as JSON
    error: str | None = None  # why it failed


class StoreError(PpsolveError):
    """The file of jobs cannot be read or written."""


# Of equal questions one is asked: what has failed or was cancelled may be asked again.
SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    task TEXT NOT NULL,
    question TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    created REAL NOT NULL,
    ended REAL,
    result TEXT,
    error TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS one_answer ON jobs (digest)
    WHERE state IN ('queued', 'running', 'done');
CREATE INDEX IF NOT EXISTS by_state ON jobs (state, number);
"""

COLUMNS = ", ".join(field.name for field in fields(StoredJob))


class JobStore:
    """All jobs of a service; threads may share it.

    Jobs that were running when their service ended are queued again.

    `path`: its file; None for one that ends with the store.
    `kept`: jobs that have ended, beyond which the oldest are forgotten.

    Raises `InputError` where the file cannot be used, or another service uses it.
    """

    def __init__(self, path: Path | None, kept: int) -> None:
        self._kept, self._lock = kept, threading.Lock()
        try:
            self._database = sqlite3.connect(
                # Without a name SQLite takes a file that it deletes: jobs may be many and large.
                path or "",
                timeout=1.0,
                isolation_level=None,
                check_same_thread=False,
            )
            # One service a file: two would run each job twice.
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT;")
            self._requeue()
        except sqlite3.Error as error:
            text = f"cannot be used as a store of jobs: {error}"
            raise InputError(
                text, source=str(path), field="--store", code=ErrorCode.FILE
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                    self._database.execute("COMMIT")
                except BaseException:
                    # Where the disk is full SQLite has done so by itself.
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise StoreError(f"the store cannot be used: {error}") from None

    def _requeue(self) -> None:
        with self._transaction() as database:
            database.execute(
                "UPDATE jobs SET state = 'failed', ended = ?, error = ?"
                " WHERE state = 'running' AND attempts >= ?",
                (time.time(), "the service ended each time it ran", MOST_ATTEMPTS),
            )
            database.execute("UPDATE jobs SET state = 'queued' WHERE state = 'running'")

    def add(
        self, task: str, digest: str, question: str, most_waiting: int
    ) -> StoredJob | None:
        """Return the job of a question: a new one, or one that is equal and has not failed.

        None where as many wait already.
        """
        with self._transaction() as database:
            same = self._one(
                database,
                "digest = ? AND state IN ('queued', 'running', 'done')",
                digest,
            )
            if same is not None:
                return same
            if self._count(database, JobState.QUEUED) >= most_waiting:
                return None
            job = StoredJob(
                token_hex(16), digest, task, question, JobState.QUEUED, 0, time.time()
            )
            row = [getattr(job, field.name) for field in fields(job)]
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO jobs ({COLUMNS}) VALUES ({marks})", row)
            return job

    def begin(self) -> StoredJob | None:
        """Return the next job, which runs from now on; None without any."""
        with self._transaction() as database:
            job = self._one(database, "state = 'queued' ORDER BY number LIMIT 1")
            if job is None:
                return None
            database.execute(
                "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE id = ?",
                (job.id,),
            )
            return self._one(database, "id = ?", job.id)

    def put_back(self, id: str, attempts: int) -> None:
        """Queue a job that has lost its process; it was begun so often."""
        with self._transaction() as database:
            database.execute(
                "UPDATE jobs SET state = 'queued', attempts = ?"
                " WHERE id = ? AND state = 'running'",
                (attempts, id),
            )

    def end(
        self,
        id: str,
        state: JobState,
        result: str | None = None,
        error: str | None = None,
        *,
        was: JobState = JobState.RUNNING,
    ) -> bool:
        """Keep what has become of a job; false where it was in another state before."""
        with self._transaction() as database:
            changed = database.execute(
                "UPDATE jobs SET state = ?, ended = ?, result = ?, error = ?"
                " WHERE id = ? AND state = ?",
                (state, time.time(), result, error, id, was),
            )
            database.execute(
                "DELETE FROM jobs WHERE number <= (SELECT number FROM jobs"
                " WHERE state NOT IN ('queued', 'running')"
                " ORDER BY number DESC LIMIT 1 OFFSET ?)"
                " AND state NOT IN ('queued', 'running')",
                (self._kept,),
            )
            return changed.rowcount == 1

    def get(self, id: str) -> StoredJob | None:
        """Return a job, None where there is none."""
        with self._transaction() as database:
            return self._one(database, "id = ?", id)

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        with self._transaction() as database:
            return {state: self._count(database, state) for state in JobState}

    def _count(self, database: sqlite3.Connection, state: JobState) -> int:
        query = "SELECT count(*) FROM jobs WHERE state = ?"
        (count,) = database.execute(query, (state,)).fetchone()
        return int(count)

    def _one(
        self, database: sqlite3.Connection, condition: str, *values: str
    ) -> StoredJob | None:
        query = f"SELECT {COLUMNS} FROM jobs WHERE {condition}"
        row = database.execute(query, values).fetchone()
        if row is None:
            return None
        columns = dict(zip(COLUMNS.split(", "), row, strict=True))
        return StoredJob(**columns | {"state": JobState(columns["state"])})

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()
