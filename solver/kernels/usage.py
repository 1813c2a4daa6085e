"""Use of pools over time: changes in slots of two flat tables, per pool in time order.

Of one moment releases come first, so no level inside a moment is above those around it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import part
from ppsolve.solver.kernels.records import MemoryUse


class Usage(NamedTuple):
    """Use of P pools by the ops placed so far.

    Attributes
    ----------
    moment, change : int64[...]
        Moments in ticks, and changes in the pool's unit; those of pool p in slots
        low[p]..high[p] - 1.
    low, high : int64[P]
        First slot of each pool, and the slot behind its last one.
    final : int64[P]
        Use after all changes.
    """

    moment: Any
    change: Any
    low: Any
    high: Any
    final: Any


@part
def room_from(usage: Usage, pool: int, time: int, limit: int) -> int:
    """Find the earliest moment from which the use of a pool never exceeds a limit.

    Parameters
    ----------
    usage : Usage
        Use of all pools.
    pool, time : int
        Pool number, and earliest moment in ticks.
    limit : int
        Largest use allowed; the use after all changes is no larger.

    Returns
    -------
    int
        Moment in ticks, >= `time`.
    """
    moment, change, level = usage.moment, usage.change, usage.final[pool]
    for slot in range(usage.high[pool] - 1, usage.low[pool] - 1, -1):
        level -= change[slot]
        if moment[slot] <= time:
            break
        if level > limit:
            time = moment[slot]
            break
    return time


@part
def add_change(usage: Usage, pool: int, time: int, amount: int) -> None:
    """Change the use of a pool from a moment on.

    Parameters
    ----------
    usage : Usage
        Use of all pools.
    pool, time : int
        Pool number, and moment in ticks.
    amount : int
        Change in the pool's unit; negative for a release.
    """
    moment, change, low, slot = usage.moment, usage.change, usage.low[pool], usage.high[pool]
    usage.high[pool] = slot + 1
    usage.final[pool] += amount
    while slot > low and (
        moment[slot - 1] > time or (moment[slot - 1] == time and change[slot - 1] > amount)
    ):
        moment[slot], change[slot] = moment[slot - 1], change[slot - 1]
        slot -= 1
    moment[slot], change[slot] = time, amount


@part
def roomy_from(usage: Usage, memory: MemoryUse, amounts: Any, op: int, time: int) -> int:
    """Find the earliest moment from which the amounts that an op acquires fit.

    Parameters
    ----------
    usage, memory : Usage, MemoryUse
        Use of all pools, and what ops acquire.
    amounts : int64[...]
        Amounts that must fit, by row of the acquires.
    op, time : int
        The op and its earliest start in ticks.

    Returns
    -------
    int
        Moment in ticks, >= `time`.
    """
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        pool = memory.acquire_pool[row]
        time = room_from(usage, pool, time, memory.size[pool] - amounts[row])
    return time


@part
def change_use(usage: Usage, memory: MemoryUse, op: int, time: int, end: int) -> None:
    """Acquire and release the amounts of an op.

    Parameters
    ----------
    usage, memory : Usage, MemoryUse
        Use of all pools, and what ops acquire and release.
    op, time, end : int
        The op, its start and its end in ticks.
    """
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        add_change(usage, memory.acquire_pool[row], time, memory.acquire_amount[row])
    for row in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        add_change(usage, memory.release_pool[row], end, -memory.release_amount[row])
