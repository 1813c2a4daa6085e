"""A schedule of a few micro-batches, stretched to many by a steady state in its middle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Objective, Pool, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError, NotApplicableError
from ppsolve.solver.board import Board
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.spans import compact_spans, orders_decide_memory
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(frozen=True)
class SteadyStateParams:
    """Where a steady state is sought, and how long."""

    least_ops: int = 1_000  # below, CP-SAT proves most pipelines
    least_load: float = 0.95  # mean work of the devices over the largest: unequal ones rarely cycle
    short_times: int = 3  # micro-batches of the short schedule per device: fewer have no cycles
    short_share: float = 0.25  # of the time: more gives a better fill and drain, fewer cuts
    places: int = 20  # cuts before and behind the middle, one percent of the makespan apart
    enough: int = 6  # cycles after which no other cut is tried
    rounds: int = 2  # of justification, which take back what the cycle delays

    @property
    def least_times(self) -> int:
        """Fewest micro-batches per device: the short schedule's, and as many turns of the cycle."""
        return 2 * self.short_times


PARAMS = SteadyStateParams()


@dataclass(frozen=True, eq=False)
class Rows:
    """A problem of m alike micro-batches, each of which passes the same L columns.

    Parameters
    ----------
    problem : Problem
        The problem, m * L ops.
    ops : int64[m, L]
        Its ops, a row for each micro-batch.
    before, after, lag : int64[k]
        Precedences of one row: numbers of columns, and ticks.
    resource : int64[L]
        Resource of each column, `FREE` where it has none.
    """

    problem: Problem
    ops: IntArray
    before: IntArray
    after: IntArray
    lag: IntArray
    resource: IntArray

    @property
    def length(self) -> IntArray:
        """Duration of each column in ticks, int64[L]."""
        found: IntArray = self.problem.duration[self.ops[0]]
        return found

    @property
    def least_period(self) -> int:
        """Ticks of work that a micro-batch is for the busiest resource."""
        used = self.resource != FREE
        work = np.zeros(self.problem.num_resources, dtype=np.int64)
        np.add.at(work, self.resource[used], self.length[used])
        return int(work.max(initial=0))

    def starts(self, schedule: Schedule) -> IntArray:
        """Return the starts of a schedule by row and column, each column in index order.

        Micro-batches are alike, so the k-th execution of every column may be micro-batch k: order
        statistics keep all rules (`ppsolve.solver.structure.implied`).
        """
        found: IntArray = np.sort(schedule.start[self.ops], axis=0)
        return found


def rows_of(problem: Problem) -> Rows:
    """Return a problem as rows.

    Raises
    ------
    NotApplicableError
        It is no single family of alike micro-batches, or orders on resources do not say how full
        pools are.
    """
    if len(problem.families) != 1 or problem.families[0].size != problem.num_ops:
        raise NotApplicableError("needs micro-batches that are all alike, and nothing else")
    if problem.is_anchored or len(problem.points) or len(problem.replica):
        raise NotApplicableError("needs one pipeline, whose ops have no given starts")
    count = np.diff(problem.resource_ptr)
    if count.max(initial=0) > 1:
        raise NotApplicableError("needs ops that occupy one resource each")
    if not orders_decide_memory(problem):
        raise NotApplicableError("needs pools whose ops all run on one resource")
    ops = problem.families[0]
    row, column = np.divmod(np.argsort(ops, axis=None), ops.shape[1])
    if np.any(row[problem.before] != row[problem.after]):
        raise NotApplicableError("needs precedences within micro-batches")
    first = row[problem.before] == 0
    resource = np.full(problem.num_ops, FREE, dtype=np.int64)
    resource[count > 0] = problem.resource_idx
    return Rows(
        problem,
        ops,
        column[problem.before[first]],
        column[problem.after[first]],
        problem.lag[first],
        resource[ops[0]],
    )


def first_rows(rows: Rows, count: int) -> Problem:
    """Return the problem of the first micro-batches.

    Parameters
    ----------
    rows : Rows
        Micro-batches 0..m-1.
    count : int
        Number of micro-batches, at most m.

    Returns
    -------
    Problem
        Their ops in the order in which the problem has them.
    """
    problem = rows.problem
    kept = np.zeros(problem.num_ops, dtype=np.bool_)
    kept[rows.ops[:count]] = True
    number = np.cumsum(kept) - 1
    inside = kept[problem.before]
    uses = np.diff(problem.resource_ptr)
    labels = ("duration", "release", "pinned", "kind", "stage", "device", "microbatch")
    named = {int(number[op]): name for op, name in problem.explicit_names.items() if kept[op]}
    return replace(
        problem,
        **{label: getattr(problem, label)[kept] for label in labels},
        resource_ptr=np.concatenate(([0], np.cumsum(uses[kept]))).astype(np.int64),
        resource_idx=problem.resource_idx[np.repeat(kept, uses)],
        before=number[problem.before[inside]],
        after=number[problem.after[inside]],
        lag=problem.lag[inside],
        pools=tuple(_part_of(pool, kept, number) for pool in problem.pools),
        families=(number[rows.ops[:count]],),
        explicit_names=named,
    )


def _part_of(pool: Pool, kept: BoolArray, number: IntArray) -> Pool:
    takes, gives = kept[pool.acquire_op], kept[pool.release_op]
    return replace(
        pool,
        acquire_op=number[pool.acquire_op[takes]],
        acquire_amount=pool.acquire_amount[takes],
        release_op=number[pool.release_op[gives]],
        release_amount=pool.release_amount[gives],
    )


def steady_schedule(problem: Problem, effort: Effort) -> Schedule:
    """Return a schedule of many micro-batches from that of a few, with a cycle in the middle.

    The fewer micro-batches are scheduled by list rules. Their fill and drain stay as they are, so
    the idle time is that of the short schedule, however many micro-batches are added.

    Parameters
    ----------
    problem : Problem
        m alike micro-batches, at least six for each device.
    effort : Effort
        How long to search.

    Returns
    -------
    Schedule
        A feasible schedule.

    Raises
    ------
    NotApplicableError
        Micro-batches differ, orders on resources do not say how full pools are, devices are
        loaded unequally, or there are few micro-batches or ops.
    HeuristicFailedError
        No cut has a cycle, or none was found in time.
    """
    rows = rows_of(problem)
    if problem.num_ops < PARAMS.least_ops:
        raise NotApplicableError(f"needs at least {PARAMS.least_ops:,} ops")
    if _load(rows) < PARAMS.least_load * rows.least_period:
        raise NotApplicableError("needs devices with about as much work each")
    devices = len(problem.span_resources)
    if len(rows.ops) < PARAMS.least_times * devices:
        raise NotApplicableError(f"needs at least {PARAMS.least_times * devices} micro-batches")
    short = _solved(first_rows(rows, PARAMS.short_times * devices), effort)
    found = stretched(rows, short, effort.clock)
    if found is not None:
        return _improved(found, effort.clock)
    raise HeuristicFailedError("found no cut with a cycle as short as the work of a device")


def stretched(rows: Rows, short: Schedule, clock: Clock | None = None) -> Schedule | None:
    """Return a schedule whose middle is a cycle with a turn for every further micro-batch.

    The short schedule is cut. A cycle that starts every op of a micro-batch once per turn, from the
    state at the cut, is put in between as often as micro-batches are missing.

    Parameters
    ----------
    rows : Rows
        m alike micro-batches.
    short : Schedule
        A feasible schedule of at most half of them (`first_rows`).
    clock : Clock, optional
        Once it is over, no further cut is tried.

    Returns
    -------
    Schedule or None
        A feasible schedule of all; None where no cut has a cycle that takes no longer than the
        work of the busiest resource.
    """
    turns = len(rows.ops) - len(short.problem.families[0])
    cuts = _joined(rows_of(short.problem), short, turns, clock or Clock())
    found = list(islice(cuts, PARAMS.enough))
    if not found:
        return None
    _, start = min(found, key=lambda one: one[0])
    starts = np.empty(rows.problem.num_ops, dtype=np.int64)
    starts[rows.ops] = start
    return Schedule(rows.problem, starts).normalised()


def _load(rows: Rows) -> float:
    """Return the mean work of the devices for one micro-batch, in ticks."""
    devices = rows.problem.span_resources
    mine = np.isin(rows.resource, devices[devices != FREE])
    return float(rows.length[mine].sum()) / max(1, len(devices))


def _solved(short: Problem, effort: Effort) -> Schedule:
    clock = effort.clock.share(PARAMS.short_share)
    bound = best_bound(lower_bounds(ImpliedOrder(short), clock.share(PARAMS.short_share)))
    board = Board.beginning(bound=bound.value)
    return list_sweep(short, replace(effort, clock=clock, board=board))


def _improved(schedule: Schedule, clock: Clock) -> Schedule:
    """Return the schedule with its ops justified, which closes gaps beside the cycle."""
    problem = schedule.problem
    if not clock.is_over:
        schedule = Justifier(problem).improve(schedule, PARAMS.rounds)
    if problem.objective is Objective.DEVICE_SPAN:
        schedule = compact_spans(schedule, clock)
    return schedule.normalised()


def _joined(
    rows: Rows, schedule: Schedule, turns: int, clock: Clock
) -> Iterator[tuple[int, IntArray]]:
    """Yield the delay and the starts that each cut leads to, until one delays nothing."""
    from ppsolve.solver.exact.periodic.cycle import Cut, find_cycle

    start, period = rows.starts(schedule), rows.least_period
    for step in (step for n in range(PARAMS.places + 1) for step in {n, -n}):  # middle first
        if clock.is_over:
            return
        cut = Cut(rows, start, int(schedule.makespan * (0.5 + step / 100)), turns)
        cycle = find_cycle(cut, period, clock)
        if cycle is not None:
            yield cycle.delay, cut.joined(cycle.start, period, cycle.delay)
            if cycle.delay <= 0:
                return
