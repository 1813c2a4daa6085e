"""Tasks of jobs: what they ask, the calls that answer them in other processes, their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from ppsolve import __version__
from ppsolve.models.documents.base import StrictModel, describe
from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean
from ppsolve.models.documents.files import parse_json
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import parse_instance
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.params import SearchParams
from ppsolve.solver.service.questions import Document, HeuristicName, instance_of
from ppsolve.solver.service.settings import ServiceSettings
from ppsolve.solver.studies.bench.fork_server import STOPPED, send_news
from ppsolve.solver.studies.bench.pool import Finished
from ppsolve.solver.studies.bench.suite import BenchItem, solve_item

BODY = "body"
"""Name of a request in errors about its text."""


class TaskDefaults(NamedTuple):
    """What a service decides where a question does not."""

    workers: int
    seconds: float


class TaskOptions(StrictModel):
    """Options that every task takes, as `ppsolve.optimize` does."""

    # None: as long as the service lets jobs run
    time_limit: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = 60.0
    gap: Annotated[float, Field(ge=0, lt=1)] = 0.0
    workers: Annotated[int, Field(ge=1, le=64)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    deterministic: bool = False
    runtime: str | None = None

    def refuse_wrong(self, settings: ServiceSettings) -> None:
        """Raise `InputError` for values that the library refuses, and for too long jobs."""
        if (self.time_limit or 0.0) > settings.job_seconds:
            text = f"expected at most {settings.job_seconds:g} s, got {self.time_limit}"
            raise InputError(text, field="options.time_limit", code=ErrorCode.RANGE)
        Options(workers=self.workers, deterministic=self.deterministic)

    def keywords(self, defaults: TaskDefaults) -> dict[str, Any]:
        """Return the options as keywords of the library."""
        workers = self.workers or (1 if self.deterministic else defaults.workers)
        limit = defaults.seconds if self.time_limit is None else self.time_limit
        return {**dict(self), "workers": workers, "time_limit": limit}


class OptimizeOptions(TaskOptions):
    """Options of `ppsolve.optimize`, but for those that are objects of Python."""

    deterministic_limit: Annotated[float, Field(ge=0)] | None = None
    heuristics: tuple[HeuristicName, ...] | None = None
    more_heuristics: tuple[HeuristicName, ...] = ()
    exact: bool = False
    robust: float | None = None
    verify: bool | None = None
    params: dict[str, float] | None = None

    def refuse_wrong(self, settings: ServiceSettings) -> None:
        """Raise `InputError` for wrong budgets and jitter too."""
        super().refuse_wrong(settings)
        SearchParams().varied(self.params or {})
        Options(robust=self.robust)


class PlanTaskOptions(TaskOptions):
    """Options of `ppsolve.plan`."""

    time_limit: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = 45.0
    finalists: Annotated[int, Field(ge=0)] = 12
    exhaustive: bool = False


class JobTask(StrictModel):
    """What a job asks."""

    is_one_call: ClassVar[bool] = True
    """Whether the answer of one call is the result."""

    task: str
    options: TaskOptions

    def refuse_wrong(self, settings: ServiceSettings) -> None:
        """Raise `InputError` where the question cannot be answered."""
        raise NotImplementedError

    def calls(
        self, defaults: TaskDefaults
    ) -> tuple[Callable[[Any], Any], Sequence[Any]]:
        """Return a function and the items on which it is called in other processes."""
        raise NotImplementedError

    def result(self, items: Sequence[Any], answers: Sequence[Finished]) -> str | None:
        """Return the result of the job as JSON; None where the answer is missing.

        `items`: those of the calls.
        """
        return answers[0].value if answers else None

    @property
    def digest(self) -> str:
        """Hash of the question and the version that answers it."""
        asked = json.dumps([__version__, self.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()


class OptimizeTask(JobTask):
    """`ppsolve.optimize`."""

    task: Literal["optimize"]
    instance: Document
    start: Document | None = None
    options: OptimizeOptions = OptimizeOptions()

    def refuse_wrong(self, settings: ServiceSettings) -> None:
        """Raise `InputError` where the instance or an option is wrong."""
        instance_of(self.instance, settings.ops)
        self.options.refuse_wrong(settings)

    def calls(
        self, defaults: TaskDefaults
    ) -> tuple[Callable[[Any], Any], Sequence[Any]]:
        """Return the one call."""
        return _optimized, [(self, self.options.keywords(defaults))]


def _optimized(call: tuple[OptimizeTask, dict[str, Any]]) -> str:
    question, options = call
    result = api.optimize(
        parse_instance(question.instance),
        start=question.start,
        on_progress=lambda progress: send_news(asdict(progress)),
        stop=STOPPED,
        **options,
    )
    return result.model_dump_json()


class PlanTask(JobTask):
    """`ppsolve.plan`."""

    task: Literal["plan"]
    request: Document
    options: PlanTaskOptions = PlanTaskOptions()

    def refuse_wrong(self, settings: ServiceSettings) -> None:
        """Raise `InputError` where the request or an option is wrong."""
        parse_request(self.request)
        self.options.refuse_wrong(settings)

    def calls(
        self, defaults: TaskDefaults
    ) -> tuple[Callable[[Any], Any], Sequence[Any]]:
        """Return the one call."""
        return _planned, [(self, self.options.keywords(defaults))]


def _planned(call: tuple[PlanTask, dict[str, Any]]) -> str:
    from ppsolve.solver.studies.plan.api import plan

    question, options = call
    planned = plan(
        parse_request(question.request),
        on_progress=lambda progress: send_news({"event": "plan"} | asdict(progress)),
        stop=STOPPED,
        **options,
    )
    return planned.model_dump_json()


class BenchTask(JobTask):
    """The records that `ppsolve bench` writes, of many instances."""

    is_one_call: ClassVar[bool] = False

    task: Literal["bench"]
    instances: tuple[Document, ...] = Field(min_length=1, max_length=1000)
    options: OptimizeOptions = OptimizeOptions()

    def refuse_wrong(self, settings: ServiceSettings) -> None:
        """Raise `InputError` where an instance or an option is wrong."""
        for document in self.instances:
            instance_of(document, settings.ops)
        self.options.refuse_wrong(settings)

    def calls(
        self, defaults: TaskDefaults
    ) -> tuple[Callable[[Any], Any], Sequence[Any]]:
        """Return a call for each instance."""
        options = self.options.keywords(defaults)
        instances = map(parse_instance, self.instances)
        items = [BenchItem(instance, "jobs", None, options) for instance in instances]
        return solve_item, items

    def result(self, items: Sequence[Any], answers: Sequence[Finished]) -> str | None:
        """Return the records of the instances that were ended, in their order."""
        ended = sorted(answers, key=lambda answer: answer.index)
        lines = [items[answer.index].record(answer).line().decode() for answer in ended]
        return f"[{','.join(lines)}]"


TASKS: dict[str, type[JobTask]] = {
    "optimize": OptimizeTask,
    "plan": PlanTask,
    "bench": BenchTask,
}
"""Questions of jobs by the name of their task."""


def read_task(text: str) -> JobTask:
    """Return the question of a job; an `InputError` says what is wrong with its text."""
    data = parse_json(text, BODY)
    if not isinstance(data, dict):
        text = f"expected an object, got {describe(data)}"
        raise InputError(text, code=ErrorCode.TYPE)
    name = data.get("task")
    if not isinstance(name, str) or name not in TASKS:
        word = f'unknown task "{name[:40]}"' if isinstance(name, str) else "no task"
        raise InputError(
            word + did_you_mean(str(name)[:40], TASKS),
            field="task",
            code=ErrorCode.UNKNOWN_NAME,
            expected=tuple(TASKS),
        )
    return TASKS[name].parse(data)
