"""The store of jobs: one answer a question, nothing half-written, one service a file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.service.store import (
    MOST_ATTEMPTS,
    JobState,
    JobStore,
    StoredJob,
    StoreError,
)


def added(store: JobStore, digest: str, most: int = 10) -> StoredJob:
    job = store.add("optimize", digest, "{}", most)
    assert job is not None
    return job


def test_equal_questions_are_one_job_until_it_fails_or_is_cancelled() -> None:
    store = JobStore(None, kept=10)
    first = added(store, "a")
    assert added(store, "a") == first
    begun = store.begin()
    assert begun is not None
    assert (begun.id, begun.state, begun.attempts) == (first.id, "running", 1)
    assert store.begin() is None
    assert store.end(first.id, JobState.DONE, "[1]")
    assert added(store, "a").result == "[1]"
    second = added(store, "b")
    assert store.end(second.id, JobState.CANCELLED, was=JobState.QUEUED)
    third = added(store, "b")
    assert third.id != second.id
    store.begin()
    assert store.end(third.id, JobState.FAILED, error="timeout")
    assert added(store, "b").id != third.id


def test_what_has_ended_does_not_end_again() -> None:
    store = JobStore(None, kept=10)
    job = added(store, "a")
    store.begin()
    assert store.end(job.id, JobState.DONE, "1")
    assert not store.end(job.id, JobState.FAILED, error="late")
    assert not store.end(job.id, JobState.CANCELLED, was=JobState.QUEUED)
    kept = store.get(job.id)
    assert kept is not None
    assert (kept.state, kept.result, kept.error) == ("done", "1", None)


def test_a_job_that_is_put_back_was_begun_as_often_as_is_said() -> None:
    store = JobStore(None, kept=10)
    job = added(store, "a")
    for attempts, begun in ((0, 1), (1, 1), (1, 2)):
        running = store.begin()
        assert running is not None
        assert running.attempts == begun
        store.put_back(job.id, attempts)
    assert store.end(job.id, JobState.CANCELLED, was=JobState.QUEUED)
    store.put_back(job.id, 0)
    assert store.begin() is None


def test_no_more_jobs_wait_than_are_allowed_and_the_oldest_are_forgotten() -> None:
    store = JobStore(None, kept=2)
    jobs = [added(store, name, most=4) for name in "abcd"]
    assert store.add("optimize", "e", "{}", 4) is None
    for job in jobs:
        store.begin()
        store.end(job.id, JobState.DONE, "1")
    assert [store.get(job.id) is None for job in jobs] == [True, True, False, False]
    assert store.counts()["done"] == 2


def test_jobs_that_ran_are_queued_again_but_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    for attempt in range(1, MOST_ATTEMPTS + 1):
        store = JobStore(path, kept=10)
        job = added(store, "a")
        assert job.state is JobState.QUEUED
        begun = store.begin()
        assert begun is not None
        assert begun.attempts == attempt
        store.close()
    store = JobStore(path, kept=10)
    (kept,) = [store.get(job.id)]
    assert kept is not None
    assert (kept.state, kept.error) == (
        "failed",
        "the service ended each time it ran",
    )
    store.close()


def test_a_file_is_one_service_s_own(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs", kept=10)
    with pytest.raises(InputError, match="database is locked"):
        JobStore(tmp_path / "jobs", kept=10)
    store.close()
    JobStore(tmp_path / "jobs", kept=10).close()


@pytest.mark.parametrize(
    ("name", "error"),
    [("garbage", "not a database"), ("folder", "unable to open"), ("no/x", "unable")],
)
def test_files_that_are_no_store_are_refused(
    tmp_path: Path, name: str, error: str
) -> None:
    (tmp_path / "garbage").write_bytes(b"no database at all" * 100)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"--store: cannot be used.*{error}"):
        JobStore(tmp_path / name, kept=10)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs", kept=10)
    job = added(store, "a")
    store.begin()
    # SQLite takes a file that may not grow for a full disk.
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {pages + 1}")
    result = f'"{"x" * 100_000}"'
    with pytest.raises(StoreError, match=r"the store cannot be used.*full"):
        store.end(job.id, JobState.DONE, result)
    with pytest.raises(StoreError, match="full"):
        store.add("optimize", "b", result, 10)
    kept = store.get(job.id)
    assert kept is not None
    assert (kept.state, kept.result) == ("running", None)
    store._database.execute("PRAGMA max_page_count = 100000")
    assert store.end(job.id, JobState.DONE, result)
    store.close()
    with sqlite3.connect(tmp_path / "jobs") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
