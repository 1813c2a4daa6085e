"""The best schedule that a runtime runs, and what the rules of the runtime cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.result import Result, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.pipeline.modes import KEEP, has_open_modes
from ppsolve.models.kinds.pipeline.replicas import RuntimeFigures
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.runtimes.claims import RULE, claimed_runtime
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.task import RuntimeTask, task_for
from ppsolve.solver.run.task import Task

FIRST_SHARE = 0.5
"""Share of the time after which no further order of a runtime is timed; most take moments."""


def optimize_for(
    runtime: str,
    instance: Any,
    run: Callable[..., Result],
    ready: Callable[..., Task],
    clock: Clock,
    *,
    exact: bool,
) -> Result:
    """Find the best schedule that a runtime runs, then the best of all within the same time.

    Parameters
    ----------
    runtime : str
        Name of the runtime.
    instance : Instance
        The instance.
    run : callable
        Solves the task that a function makes, by default within the clock of the call.
    ready : callable
        Prepares a task as the call asks, or to begin with a schedule that is given.
    clock : Clock
        Clock of the call.
    exact : bool
        As for `ppsolve.optimize`.

    Returns
    -------
    Result
        Of the runtime, with `RuntimeFigures`.

    Raises
    ------
    InputError
        There is no such runtime, or it runs no schedule of the instance; says why.
    """
    kind, family = kind_of(instance), family_of(runtime)
    _refuse(family, kind.name, instance)
    if not family.is_finite:
        found = run(lambda: ready(task_for(kind, instance, family, exact=exact)))
        return found.model_copy(update=_of_instance(found, instance, family.name))
    made: list[RuntimeTask] = []

    def make() -> Task:
        made.append(RuntimeTask(kind, instance, family, exact=exact))
        return ready(made[0])

    found, others = run(make, clock.share(FIRST_SHARE)), None
    if not made:
        return found
    update: dict[str, Any] = {}
    if found.stop_reason is not StopReason.INTERRUPTED:
        others = run(lambda: ready(kind.task(instance, exact=exact), made[0].schedule))
        if others.stop_reason is StopReason.INTERRUPTED:
            update["stop_reason"] = StopReason.INTERRUPTED
    update |= {RULE: made[0].runtime_figures(others), "wall_seconds": round(clock.elapsed, 3)}
    return found.model_copy(update=update)


def task_of_claim(kind: Kind[Any], instance: Any, data: Any, *, exact: bool) -> Task:
    """Return the task that a result document is of: for the runtime that it claims, if any.

    Parameters
    ----------
    kind : Kind
        The kind of the instance.
    instance : Instance
        The instance.
    data : object
        The result as plain data.
    exact : bool
        As for `ppsolve.optimize`.

    Returns
    -------
    Task

    Raises
    ------
    InputError
        The runtime is none, or it runs no schedule of the instance.
    """
    claimed = claimed_runtime(instance, data) if kind is PIPELINE else None
    if claimed is None:
        return kind.task(instance, exact=exact)
    return task_for(kind, instance, claimed, exact=exact)


def _refuse(family: RuntimeFamily, kind: str, instance: Any) -> None:
    obstacle: str | None = f'expected a pipeline, got "{kind}"'
    if kind == PIPELINE.name:
        obstacle = family.obstacle(instance)
        if obstacle is None and instance.layers is not None:
            obstacle = "layers: expected a split that is given; optimize without a runtime finds it"
    if obstacle is not None:
        raise InputError(obstacle, source=instance.name, field=RULE)


def _of_instance(found: Any, instance: Any, runtime: str) -> dict[str, Any]:
    """Return the fields by which the result of a narrowed pipeline is one of the pipeline."""
    update: dict[str, Any] = {RULE: RuntimeFigures(name=runtime)}
    update["instance_document"] = Deferred(lambda: instance_data(instance))
    if has_open_modes(instance) and found.schedule is not None and found.modes is None:
        update["modes"] = (KEEP,) * instance.num_stages
    return update
