"""Jobs that run: threads that take them from the store, and what is told of each meanwhile."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

from ppsolve.solver.service.problems import ProblemError, busy
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.service.store import JobState, JobStore, StoredJob, StoreError

PAUSE = 1.0
"""Seconds until a thread looks again for jobs, for its store or for its cluster."""

REMEMBERED = 50
"""Jobs whose news are kept; of older ones that have ended only the result is."""

MOST_NEWS = 2000
"""News of a job that are kept, the latest."""


class LiveJob:
    """What is told of a job, and the event that stops it."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.best: float | None = None
        self.bound: float | None = None
        self.is_over = False
        self._news: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MOST_NEWS)
        self._count = 0

    def tell(self, news: dict[str, Any]) -> None:
        """Keep an event, with the best value and bound that it may have."""
        finite = {
            name: None
            if isinstance(value, float) and not math.isfinite(value)
            else value
            for name, value in news.items()
        }
        self.best = finite.get("incumbent", finite.get("best")) or self.best
        self.bound = finite.get("bound") or self.bound
        self._count += 1
        self._news.append((self._count, finite))

    def since(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the news behind a number, each with its own."""
        yield from (news for news in list(self._news) if news[0] > number)


class JobRunner:
    """Threads that run the jobs of a store in watched processes, or on a cluster."""

    def __init__(self, settings: ServiceSettings, store: JobStore) -> None:
        self._settings, self._store = settings, store
        self._closing = threading.Event()
        self._waiting = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._live: OrderedDict[str, LiveJob] = OrderedDict()
        self.fault: str | None = None  # why no job can run or be kept now
        self._threads = [
            threading.Thread(
                target=self._serve, name=f"ppsolve-job-{number}", daemon=True
            )
            for number in range(settings.workers)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End what runs; it is run again when a service opens the store."""
        self._closing.set()
        for thread in self._threads:
            thread.join(2 * PAUSE)

    def submit(self, task: str, digest: str, question: str) -> StoredJob:
        """Return the job of a question; raises `ProblemError` where too many wait."""
        most = self._settings.jobs
        job = self._store.add(task, digest, question, most)
        if job is None:
            raise ProblemError(busy(f"{most} jobs are waiting", 10))
        self._waiting.release()
        return job

    def live(self, job: StoredJob) -> LiveJob:
        """Return the news of a job, and the event that stops it."""
        with self._lock:
            live = self._live.setdefault(job.id, LiveJob())
            live.is_over = live.is_over or job.state.is_final
            over = [key for key, other in self._live.items() if other.is_over]
            for key in over[: max(0, len(self._live) - REMEMBERED)]:
                del self._live[key]
            return live

    def cancel(self, job: StoredJob) -> None:
        """Stop a job; what runs ends with the best so far."""
        live = self.live(job)
        if self._store.end(job.id, JobState.CANCELLED, was=JobState.QUEUED):
            live.is_over = True
        live.stop.set()

    def _serve(self) -> None:
        while self._is_open():
            try:
                job = self._store.begin()
                self.fault = None
            except StoreError as error:
                self.fault = str(error)
                self._closing.wait(PAUSE)
                continue
            if job is None:
                self._waiting.acquire(timeout=PAUSE)
                continue
            try:
                self._run(job)
            except Exception as error:
                # Such as a question of an earlier version, which this one does not take.
                text = f"{type(error).__name__}: {error}"
                self._end(job, JobState.FAILED, error=text)

    def _run(self, job: StoredJob) -> None:
        # The library takes longer to import than a page to show.
        from ppsolve.solver.service.job_run import JobRun
        from ppsolve.solver.studies.bench.fork_server import EngineError

        live = self.live(job)
        live.tell({"event": "running"})
        try:
            end = JobRun(self._settings, self._is_open).run(job, live)
        except EngineError as error:
            # Nothing was begun, so that it does not count.
            self._keep(lambda: self._store.put_back(job.id, job.attempts - 1))
            self.fault = str(error)
            self._closing.wait(PAUSE)
            return
        if not self._is_open():
            return
        if end.state is JobState.QUEUED:
            self._keep(lambda: self._store.put_back(job.id, job.attempts))
        else:
            self._end(job, *end)

    def _is_open(self) -> bool:
        return not self._closing.is_set()

    def _end(
        self,
        job: StoredJob,
        state: JobState,
        result: str | None = None,
        error: str | None = None,
    ) -> None:
        self._keep(lambda: self._store.end(job.id, state, result, error))
        self.live(job).is_over = True

    def _keep(self, change: Callable[[], object]) -> None:
        """Change the store, as soon as that is possible: no result is given up before."""
        while True:
            try:
                change()
                self.fault = None
                return
            except StoreError as error:
                self.fault = str(error)
            if self._closing.wait(PAUSE):
                return
