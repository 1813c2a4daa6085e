"""One job, run in watched processes of this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ppsolve.models.studies.bench.file import Failure
from ppsolve.solver.run.options import default_workers
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.service.store import JobState, StoredJob
from ppsolve.solver.service.tasks import JobTask, TaskDefaults, read_task
from ppsolve.solver.studies.bench.cluster import DaskEngine
from ppsolve.solver.studies.bench.fork_server import shared_fork_server
from ppsolve.solver.studies.bench.machine import GIB, memory_share
from ppsolve.solver.studies.bench.pool import (
    CallLink,
    Engine,
    Finished,
    Limits,
    LocalEngine,
    wall_cap,
)

if TYPE_CHECKING:
    from ppsolve.solver.service.jobs import LiveJob

CRASHES = 3
"""How often a job is begun whose process is killed."""


class JobEnd(NamedTuple):
    """What has become of a job."""

    state: JobState  # QUEUED: it has to run again
    result: str | None = None  # as JSON
    error: str | None = None  # why it failed


class JobRun:
    """Runs jobs as the settings of a service say, as long as `is_open` does."""

    def __init__(self, settings: ServiceSettings, is_open: Callable[[], bool]) -> None:
        self._settings, self._is_open = settings, is_open

    def run(self, job: StoredJob, live: LiveJob) -> JobEnd:
        """Run a job and tell of it; raises `EngineError` where nothing can run now."""
        task = read_task(job.question)
        defaults = TaskDefaults(self._threads_of_jobs, self._settings.job_seconds)
        function, items = task.calls(defaults)
        answers = list(self._answers(task, live, function, items))
        failures = [answer for answer in answers if answer.failure is not None]
        if not task.is_one_call or not failures:
            state = JobState.CANCELLED if live.stop.is_set() else JobState.DONE
            return JobEnd(state, task.result(items, answers))
        if failures[0].failure is Failure.CRASH and job.attempts < CRASHES:
            return JobEnd(JobState.QUEUED)
        text = f"{failures[0].failure}: {failures[0].error}"
        return JobEnd(JobState.FAILED, error=text)

    def _answers(
        self,
        task: JobTask,
        live: LiveJob,
        function: Callable[[Any], Any],
        items: Sequence[Any],
    ) -> Iterator[Finished]:
        link = CallLink(live.stop, lambda index, news: live.tell(news))
        for finished in self._engine().map(function, items, self._limits(task), link):
            if not task.is_one_call:
                live.tell({"event": "item", "index": finished.index})
            yield finished

    @property
    def _threads_of_jobs(self) -> int:
        if self._settings.dask is not None:
            return 1
        return max(1, default_workers() // self._settings.workers)

    def _engine(self) -> Engine:
        if self._settings.dask is not None:
            return DaskEngine(self._settings.dask)
        return LocalEngine(1, shared_fork_server(), self._is_open)

    def _limits(self, task: JobTask) -> Limits:
        settings = self._settings
        seconds = wall_cap(task.options.time_limit, is_kept=True)
        seconds = seconds or wall_cap(settings.job_seconds, is_kept=True)
        if task.options.deterministic:
            seconds = wall_cap(settings.job_seconds, is_kept=True)
        if settings.job_memory is not None:
            return Limits(seconds, int(settings.job_memory * GIB))
        is_here = settings.dask is None
        return Limits(seconds, memory_share(settings.workers) if is_here else None)
