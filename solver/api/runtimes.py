"""Instances solved for one runtime: the best that it runs, and what its rules cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import all_kinds, kind_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.narrowing import Narrowing
from ppsolve.solver.run.progress import Progress, ProgressListener
from ppsolve.solver.run.task import Task

FIELD = "runtime"
"""Option that names the runtime, in errors."""


def narrowed(instance: Instance, runtime: str, *, exact: bool) -> Narrowing:
    """Return an instance for a runtime; an `InputError` says why there is no such, or none of it.

    `exact` is as for `ppsolve.optimize`.
    """
    names = {name: None for kind in all_kinds() for name in kind.runtimes}
    if runtime not in names:
        raise InputError.unknown(
            "unknown runtime",
            runtime,
            names,
            field=FIELD,
        )
    kind = kind_of(instance)
    if runtime not in kind.runtimes:
        kinds = " or ".join(
            candidate.name for candidate in all_kinds() if runtime in candidate.runtimes
        )
        text = f'expected a {kinds}, got "{kind.name}"'
        raise InputError(
            text, source=instance.name, field=FIELD, code=ErrorCode.UNSUPPORTED
        )
    return kind.for_runtime(instance, runtime, exact=exact)


def optimize_for(
    narrowing: Narrowing,
    run: Callable[..., Result],
    prepare: Callable[..., Task],
    clock: Clock,
    any_order_share: float,
    listener: ProgressListener | None,
) -> Result:
    """Find the best schedule that a runtime runs, then the best of all within the same time.

    `run` solves the task that a function makes, by default within the clock of the call; `prepare`
    prepares a task as the call asks, or to begin with a schedule that is given. `any_order_share`
    is the share of the time left for the best of all schedules, which is not sought without any.
    The listener hears nothing of that search but its phases.
    """
    if not narrowing.is_finite:
        result = run(lambda: prepare(narrowing.task()))
        return result.model_copy(update=narrowing.fields(None, result, None))
    tasks: list[Task] = []

    def make() -> Task:
        tasks.append(narrowing.task())
        return prepare(tasks[0])

    first_share = narrowing.first_share if any_order_share else 1.0
    result, best = run(make, clock.share(first_share)), None
    if not tasks:
        return result
    update: dict[str, Any] = {}
    if any_order_share and not result.stop_reason.is_by_caller:
        began = clock.elapsed
        best = run(
            lambda: prepare(narrowing.any_order(), tasks[0].schedule),
            clock.share(any_order_share),
            None if listener is None else _phases_beside(result, listener, clock),
        )
        best = best.model_copy(update={"wall_seconds": round(clock.elapsed - began, 3)})
        if best.stop_reason.is_by_caller:
            update["stop_reason"] = best.stop_reason
    update |= narrowing.fields(tasks[0], result, best)
    update["wall_seconds"] = round(clock.elapsed, 3)
    return result.model_copy(update=update)


def _phases_beside(
    result: Result, listener: ProgressListener, clock: Clock
) -> ProgressListener:
    """Return a listener to another search: its phases are told beside the figures of a result."""
    answer: dict[str, Any] = {
        "incumbent": result.value,
        "bound": result.bound,
        "gap": result.gap,
    }

    def tell(news: Progress) -> None:
        if news.event == "phase":
            source = f"any schedule: {news.source}"
            listener(replace(news, seconds=clock.elapsed, source=source, **answer))

    return tell
