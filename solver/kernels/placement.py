"""Placing ops in a given order: each at the first moment that precedences, gaps and pools allow."""

from __future__ import annotations

from typing import Any

from ppsolve.solver.kernels.compilation import part
from ppsolve.solver.kernels.gaps import Gaps, free_from, occupy
from ppsolve.solver.kernels.records import MemoryUse, ResourceUse, Sources
from ppsolve.solver.kernels.usage import Usage, change_use, roomy_from


@part
def place(
    sources: Sources,
    use: ResourceUse,
    memory: MemoryUse,
    gaps: Gaps,
    usage: Usage,
    order: Any,
    lowest: Any,
    end: Any,
) -> None:
    """Place all ops in a given order.

    Parameters
    ----------
    sources, use, memory : Sources, ResourceUse, MemoryUse
        Precedences, which `order` keeps; what ops occupy and acquire.
    gaps, usage : Gaps, Usage
        All free, nothing in use; written.
    order, lowest : int64[n]
        All ops in the order in which they are placed; earliest starts by op, in ticks.
    end : int64[n]
        Durations; becomes the ends, in ticks.
    """
    pointer, source, lag = sources.pointer, sources.source, sources.lag
    for op in order:
        time, length = lowest[op], end[op]
        for row in range(pointer[op], pointer[op + 1]):
            moment = end[source[row]] + lag[row]
            if moment > time:
                time = moment
        time = roomy_from(usage, memory, memory.acquire_amount, op, time)
        time = free_from(gaps, use, op, time, length)
        end[op] = time + length
        occupy(gaps, use, op, time, time + length)
        change_use(usage, memory, op, time, time + length)
