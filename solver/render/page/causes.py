"""What each op of a schedule waited for last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.structure.tables import joined


class Why(IntEnum):
    """Why an op starts when it does; the page's script knows these numbers."""

    FIRST = 0
    """It starts at time 0."""
    DATA = 1
    """An op that it needs ends, or the transfer from there."""
    ORDER = 2
    """The op before it on its resource ends."""
    MEMORY = 3
    """An op gives back memory of a pool that it takes from."""
    GIVEN = 4
    """Its release time or its pinned start."""
    CHOSEN = 5
    """Nothing holds it: the schedule lets it wait."""


@dataclass(frozen=True)
class OpCauses:
    """What each op waited for last; n ops, times in ticks.

    Parameters
    ----------
    latest : int64[n]
        The predecessor, by data or by the order on a resource, that lets it start last; `FREE`
        without any. Of equals the one that it needs the data of.
    arrival : int64[n]
        When that predecessor lets it start; 0 without any.
    why : int64[n]
        `Why` it starts when it does.
    cause : int64[n]
        The op whose end, and lag, is its start; `FREE` where there is none.
    """

    latest: IntArray
    arrival: IntArray
    why: IntArray
    cause: IntArray


def causes_of(schedule: Schedule) -> OpCauses:
    """Return the last thing that each op of a schedule waited for."""
    latest, arrival, by_data = _latest(schedule)
    why = np.where(by_data, Why.DATA, Why.ORDER).astype(np.int64)
    cause = latest.copy()
    for op in np.flatnonzero(schedule.start > arrival).tolist():
        cause[op], why[op] = FREE, Why.CHOSEN
    _name_given(schedule, why, latest == FREE)
    _find_memory(schedule, cause, why)
    return OpCauses(latest, arrival, why, cause)


def _latest(schedule: Schedule) -> tuple[IntArray, IntArray, IntArray]:
    """Return the last predecessor of each op, its moment, and whether it is one by data."""
    problem = schedule.problem
    before, after, lag = joined(problem, chain_edges(schedule.resource_orders()))
    is_data = np.arange(len(before)) < len(problem.before)
    moment = schedule.end[before] + lag
    order = np.lexsort((is_data, moment, after))
    last = order[np.append(after[order][1:] != after[order][:-1], True)] if len(order) else order
    latest = np.full(problem.num_ops, FREE, dtype=np.int64)
    arrival = np.zeros(problem.num_ops, dtype=np.int64)
    by_data = np.zeros(problem.num_ops, dtype=np.int64)
    latest[after[last]], arrival[after[last]] = before[last], moment[last]
    by_data[after[last]] = is_data[last]
    return latest, arrival, by_data


def _name_given(schedule: Schedule, why: IntArray, alone: IntArray) -> None:
    """Tell ops that nothing precedes, or that start at a given moment, from those that wait."""
    problem, start = schedule.problem, schedule.start
    waits = (why == Why.CHOSEN) | alone
    why[waits & (start == 0)] = Why.FIRST
    given = (start == problem.release) | (start == problem.pinned)
    why[waits & given & (start > 0)] = Why.GIVEN


def _find_memory(schedule: Schedule, cause: IntArray, why: IntArray) -> None:
    """Name the release of memory that ends where an op starts that nothing else explains."""
    for pool in schedule.problem.pools:
        order = np.argsort(schedule.end[pool.release_op], kind="stable")
        released = pool.release_op[order]
        ends = schedule.end[released]
        takers = np.unique(pool.acquire_op)
        for op in takers[why[takers] == Why.CHOSEN].tolist():
            place = int(np.searchsorted(ends, schedule.start[op]))
            if place < len(ends) and ends[place] == schedule.start[op]:
                cause[op], why[op] = released[place], Why.MEMORY
