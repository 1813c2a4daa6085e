"""Kernel: the best permutation of few micro-batches in a line, slot by slot."""

from __future__ import annotations

from typing import Any

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.line import Chain, Lengths, walk


@part
def _next(free: Any, twin: Any, number: int) -> int:
    """Return the next micro-batch that is free and whose twin before it is not."""
    number += 1
    while number < len(free) and (
        free[number] == 0 or (twin[number] >= 0 and free[twin[number]] == 1)
    ):
        number += 1
    return number


@Kernel
def best_permutation(
    chain: Chain,
    lengths: Lengths,
    line: Any,
    before: Any,
    until: Any,
    twin: Any,
    limit: int,
    visits: int,
    free: Any,
    chosen: Any,
    row: Any,
    end: Any,
    idle: Any,
    used: Any,
    reach: Any,
    best: Any,
) -> int:
    """Fill slots in turn with every micro-batch; give up where the line cannot get any better.

    Parameters
    ----------
    chain, lengths, line, before
        As in `walk`. Nodes that wait for fewer slots come first in the line.
    until : int64[m]
        Number of nodes in the line that need no slot behind each one.
    twin : int64[m]
        Micro-batch before each one that is like it in everything, or -1.
    limit : int
        Makespan in ticks that nothing has to be sought beyond.
    visits : int
        Slots that are filled at most.
    free : int64[m]
        Ones; written.
    chosen : int64[m]
        Written.
    row : int64[m]
        Written.
    end, idle, used, reach : int64[m * V + 1]
        Zeros; written.
    best : int64[m + 1]
        Becomes the micro-batch of each slot; then the makespan, `limit` + 1 where none is shorter.

    Returns
    -------
    int
        Number of slots that were filled; more than `visits` where the search was broken off.
    """
    count, length = len(free), len(chain.resource)
    depth, filled, value = 0, 0, limit + 1
    chosen[0], best[count] = -1, value
    while depth >= 0:
        if chosen[depth] >= 0:
            free[chosen[depth]] = 1
        number = _next(free, twin, chosen[depth])
        if number >= count:
            depth -= 1
            continue
        chosen[depth], free[number], row[depth] = number, 0, number * length
        filled += 1
        if filled > visits:
            return filled
        begin = 0
        if depth > 0:
            begin = until[depth - 1]
        stop = walk(
            chain,
            lengths,
            row,
            line,
            before,
            begin,
            until[depth],
            value - 1,
            end,
            idle,
            used,
            reach,
        )
        if stop < until[depth]:
            continue
        if depth < count - 1:
            depth += 1
            chosen[depth] = -1
            continue
        value = best[count] = reach[until[depth]]
        for slot in range(count):
            best[slot] = chosen[slot]
    return filled
