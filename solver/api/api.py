"""The library: optimize, compare, simulate and check instances."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    ScheduleDocument,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.own_bounds import (
    NamedBound,
    chosen_bounds,
    compared,
    proposed_bounds,
)
from ppsolve.solver.api.registry import Named, chosen_heuristics, find_heuristic
from ppsolve.solver.api.runtimes import narrowed, optimize_for
from ppsolve.solver.api.two_levels import of_both_levels, solve_inner
from ppsolve.solver.clock import Clock
from ppsolve.solver.interruptible import call_within
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.params import SearchParams
from ppsolve.solver.run.progress import HeededListener, ProgressListener
from ppsolve.solver.run.solve_run import SolveRun
from ppsolve.solver.run.steps import GREEDY
from ppsolve.solver.run.task import Task


def optimize(
    instance: Instance,
    *,
    time_limit: float | None = 60.0,
    gap: float = 0.0,
    deterministic_limit: float | None = None,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    heuristics: Sequence[Named] | None = None,
    more_heuristics: Sequence[Named] = (),
    bounds: Sequence[NamedBound] = (),
    on_progress: ProgressListener | None = None,
    exact: bool = False,
    robust: float | None = None,
    verify: bool | None = None,
    start: Schedule
    | ScheduleDocument
    | Result
    | HeuristicEntry
    | dict[str, Any]
    | None = None,
    began: float | None = None,
    params: SearchParams | Mapping[str, float] | None = None,
    runtime: str | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Find the best schedule of an instance, prove a bound, and compare every heuristic with it.

    Parameters
    ----------
    instance : Instance
        A validated instance.
    time_limit : float or None
        Wall seconds for the whole call; None: no limit, 0: only heuristics and analytic bounds,
        however long they take.
    gap : float
        Stop once (value - bound) / value is at most this.
    deterministic_limit : float or None
        Limit in CP-SAT's deterministic time units (roughly seconds).
    workers : int or None
        Search threads; None for one per processor.
    seed : int
        Random seed of the exact search.
    deterministic : bool
        Give the same answer for the same input and seed on every run: one worker, and
        `time_limit` counted in deterministic time units unless `deterministic_limit` is given.
    heuristics : sequence of str or callable, or None
        The heuristics to run, and no others (searches such as ``list-sweep`` are among them, so
        values may be worse without): names, functions of your own, or where such a function
        is (``package.module:function``, ``path/to/file.py:function``). None: all that apply. What a
        function takes and returns: ``docs/heuristics.md``.
    more_heuristics : sequence of str or callable
        Further heuristics to run, in the same forms.
    bounds : sequence of str or callable
        Lower bounds of your own: functions as for `heuristics` that return a number in the unit of
        values. They run before the search, for a tenth of the time limit, and are listed in
        `Result.own_bounds`. They prove nothing; one above the best schedule is refuted.
    on_progress : callable or None
        Called with each event, at least each second, on several threads but never by two at once.
        If it returns `ppsolve.STOP`, the call ends as with `stop`. If it raises an error, the call
        ends with that error, whose attribute `result` is the best so far.
    exact : bool
        Refuse times without a common tick. By default they are rounded up to a fine one, and the
        result says by how much its optimum can exceed that of the given times (`tick_error`).
    robust : float or None
        Coefficient of variation of durations, e.g. 0.02. A fifth of the time goes to a search for a
        schedule of equal makespan whose latest runs end sooner when every op varies that much.
    verify : bool or None
        Repeat a proof that only CP-SAT has found, with other parameters and another seed: for as
        long as the limit allows, or never. None: below 200 ops, for a tenth of the time so far.
    start : Schedule, ScheduleDocument, Result, HeuristicEntry, dict or None
        A known schedule to begin with; the result is never worse.
    began : float or None
        Moment of `time.monotonic` at which the time limit starts, for example before the instance
        is read; now by default.
    params : SearchParams, mapping of str to float, or None
        Budgets of the steps, or those that differ, by path: ``{"exact.windows.growth": 1.5}``. They
        are listed in ``docs/data/budgets.md``.
    runtime : str or None
        Only schedules that this runtime runs: ``megatron``, ``torch``, ``torchtitan``,
        ``deepspeed``, ``primus`` or ``colossalai``. If it runs few orders, all are timed, and the
        rest of the time goes to the best of all schedules, for comparison (`RuntimeFigures`).
        Value, bound and status are those of the runtime.
    stop : threading.Event or None
        Once set, from any thread, the call returns its best schedule so far; the stop reason is
        ``cancelled``.

    Returns
    -------
    Result
        Status, schedule, bound, gap and every heuristic's figures. An interrupt (Ctrl-C)
        returns the best schedule so far.

    Raises
    ------
    InputError
        An option is out of range, a heuristic or a budget is unknown, times without a common tick
        are refused, `start` is no valid schedule of the instance, or `runtime` runs none of it.
    """
    options = Options(
        time_limit=time_limit,
        gap=gap,
        deterministic_limit=deterministic_limit,
        workers=workers,
        seed=seed,
        deterministic=deterministic,
        heuristics=heuristics,
        robust=robust,
        verify=verify,
    )
    if not isinstance(params, SearchParams):
        params = SearchParams().varied(params) if params else SearchParams()
    if stop is None and on_progress is not None:
        stop = threading.Event()
    clock = options.clock(began, stop)
    listener = None if on_progress is None else HeededListener(on_progress, clock)
    kind = kind_of(instance)
    selection = chosen_heuristics(instance, options.heuristics, more_heuristics)
    share = clock.share(params.steps.own_bounds_share)
    own = list(proposed_bounds(chosen_bounds(bounds), instance, share, exact=exact))

    def solve_alone(inner: Instance, limit: Clock) -> Result:
        task = kind_of(inner).task(inner, exact=exact)
        inner_options = replace(options, heuristics=None, robust=None, gap=0.0)
        return SolveRun(
            task, chosen_heuristics(inner, None, ()), inner_options, None, limit
        ).execute()

    inner = kind.inner(instance)
    inner_results = {}
    if inner is not None:
        inner_results = solve_inner(inner, solve_alone, clock, instance.name)
        values = {name: result.value for name, result in inner_results.items()}
        instance = inner.with_values(values)

    def prepared(task: Task, initial: Any = start) -> Task:
        if robust is not None:
            task.refuse_robust()
        if initial is not None:
            task.begin_from(initial)
        return task

    def run(
        make: Callable[[], Task],
        limit: Clock = clock,
        heard: ProgressListener | None = listener,
    ) -> Result:
        task = task_in_time(make, limit) or unready_task(kind, instance)
        return SolveRun(task, selection, options, heard, limit, params).execute()

    if runtime is None:
        result = run(lambda: prepared(kind.task(instance, exact=exact)))
    else:
        result = optimize_for(
            narrowed(instance, runtime, exact=exact),
            run,
            prepared,
            clock,
            params.steps.any_order_share,
            listener,
        )
    if inner is not None:
        result = of_both_levels(inner, result, inner_results)
    if own:
        judged = tuple(compared(bound, result) for bound in own)
        result = result.model_copy(update={"own_bounds": judged})
    if listener is not None:
        listener.raise_error(result)
    return result


def compare(instances: Iterable[Instance], **options: Any) -> list[Result]:
    """Optimize several instances one after the other.

    Parameters
    ----------
    instances : iterable of Instance
        Validated instances.
    **options
        Options of `optimize`, the same for each.

    Returns
    -------
    list of Result
        In the order of the instances.
    """
    return [optimize(instance, **options) for instance in instances]


def simulate(
    instance: Instance,
    heuristic: Named,
    *,
    group_size: int | None = None,
    exact: bool = False,
) -> HeuristicEntry:
    """Run one heuristic and return its entry with the schedule.

    Parameters
    ----------
    instance : Instance
        A validated instance.
    heuristic : str or callable
        Name of the heuristic, a function of your own, or where it is, as for `optimize`.
    group_size : int or None
        Micro-batches per group of ``interleaved-1f1b``; PyTorch's choice by default.
    exact : bool
        As for `optimize`.

    Returns
    -------
    HeuristicEntry
        Figures and schedule in the instance's unit, without a gap.

    Raises
    ------
    InputError
        Unknown name, or times without a common tick are refused.
    NotApplicableError
        The heuristic is not defined on the instance; says what it needs.
    """
    kind, resolved = kind_of(instance), find_heuristic(heuristic)
    entry = kind.simulate(resolved, instance, group_size=group_size, exact=exact)
    if entry.status is HeuristicStatus.NOT_APPLICABLE:
        raise NotApplicableError(entry.reason or "", resolved.name)
    return entry.model_copy(
        update={"kind": kind.name, "value_unit": kind.value_unit(instance)}
    )


def check(
    instance: Instance,
    schedule: Schedule | ScheduleDocument | Result | HeuristicEntry | dict[str, Any],
    *,
    exact: bool = False,
) -> list[Violation]:
    """Check a schedule against every rule of an instance with the independent checker.

    Parameters
    ----------
    instance : Instance
        A validated instance.
    schedule : Schedule, ScheduleDocument, Result, HeuristicEntry or dict
        The schedule, or a document that holds one.
    exact : bool
        As for `optimize`.

    Returns
    -------
    list of Violation
        Every broken rule; empty for a valid schedule.

    Raises
    ------
    InputError
        The document holds no readable schedule of this instance.
    """
    return kind_of(instance).check(instance, schedule, exact=exact)


def task_in_time(make: Callable[[], Task], clock: Clock) -> Task | None:
    """Return the task that a function makes, or None if its clock is over before.

    A function that is not done `SLACK` after the end of the clock is left behind; without a
    deadline it runs to its end.
    """
    tasks: list[Task] = []
    is_made = call_within(lambda: tasks.append(make()), clock)
    return tasks[0] if is_made else None


def unready_task(kind: Kind[Any], instance: Instance) -> Task:
    """Return an instance that the time did not suffice to lower: nothing is known of it."""
    scale = TimeScale.fit((), instance.time_unit)
    task = Task(kind, instance, scale, kind.objective_of(instance))
    task.steps = (GREEDY,)
    return task
