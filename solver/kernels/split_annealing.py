"""Annealing of splits of layers into stages, each split timed under one order of all ops.

A split is int64[S + 1]: stage s has the layers from ``split[s]`` to ``split[s + 1] - 1``, at least
one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part

DRAWS = 6
"""Random numbers of a step."""

LACKING = 2**60
"""Value of a split that exactly fills the memory; what it lacks is added where it does not fit."""


class LayerSums(NamedTuple):
    """The n layers of a pipeline of S stages on D devices; sums are over the first 0, 1, ... n."""

    stages: int
    layers: int
    rows: int  # kinds of ops: forward, backward, weight gradient where it is split off
    ticks: Any  # int64[rows * (n + 1)]: sums for one micro-batch
    passing: (
        Any  # int64[S * n]: from each stage to the next, of the output of each layer
    )
    link: Any  # int64[S]: the first stage that is on the same devices as this one and the next
    device: Any  # int64[S]
    room: Any  # int64[D], or empty without limit: grains
    held: Any  # int64[n + 1]: sums of activations in grains
    state: Any  # int64[n + 1]
    reduced: (
        Any  # int64[D * (n + 1) * (n + 1)], or empty: all-reduce by device, first, end
    )
    optimizer: Any  # int64[n + 1], or empty: sums of ticks


class OrderedOps(NamedTuple):
    """One order of the ops of m micro-batches, numbered as they may start one after the other."""

    microbatches: int
    row: Any  # int64[ops]: kind of op times S plus stage
    last: Any  # int64[rows * S]: last op of each row
    pointer: Any  # int64[ops + 1]: rows of successor and lag
    successor: Any  # int64[...]: op that waits
    lag: Any  # int64[...]: 0 for none, 1 + s from stage s to the next, 1 + S + s to the one before
    own_pointer: Any  # int64[D + 1]: rows of own
    own: Any  # int64[S]: stages of each device
    moment: Any  # int64[D + 1]: rows of in_flight
    in_flight: Any  # int64[...]: micro-batches of each own stage, moment by moment


@part
def _fill(sums: LayerSums, split: Any, ticks: Any, lag: Any) -> None:
    """Write the ticks of the ops of each stage, and the lags between stages."""
    stages, width = sums.stages, sums.layers + 1
    for row in range(sums.rows):
        for stage in range(stages):
            first = sums.ticks[row * width + split[stage]]
            ticks[row * stages + stage] = (
                sums.ticks[row * width + split[stage + 1]] - first
            )
    for place in range(len(lag)):
        lag[place] = 0
    for stage in range(stages - 1):
        time = sums.passing[stage * sums.layers + split[stage + 1] - 1]
        shared = 1 + sums.link[stage]
        lag[shared] = max(lag[shared], time)
    for stage in range(stages - 1):
        lag[1 + stage] = lag[1 + sums.link[stage]]
        lag[2 + stages + stage] = lag[1 + stage]


@part
def _lack(sums: LayerSums, order: OrderedOps, split: Any) -> int:
    """Return the grains that all devices lack."""
    lack = 0
    for device in range(len(sums.room)):
        first, last = order.own_pointer[device], order.own_pointer[device + 1]
        room = sums.room[device]
        for place in range(first, last):
            stage = order.own[place]
            room -= sums.state[split[stage + 1]] - sums.state[split[stage]]
        fullest, at = 0, order.moment[device]
        while at < order.moment[device + 1]:
            amount = 0
            for place in range(first, last):
                stage = order.own[place]
                held = sums.held[split[stage + 1]] - sums.held[split[stage]]
                amount += order.in_flight[at] * held
                at += 1
            fullest = max(fullest, amount)
        lack += max(0, fullest - room)
    return lack


@part
def _busiest(sums: LayerSums, order: OrderedOps, ticks: Any) -> int:
    """Return the ticks that the busiest device works."""
    longest = 0
    for device in range(len(order.own_pointer) - 1):
        work = 0
        for place in range(order.own_pointer[device], order.own_pointer[device + 1]):
            for row in range(sums.rows):
                work += ticks[row * sums.stages + order.own[place]]
        longest = max(longest, work)
    return longest * order.microbatches


@part
def _start(order: OrderedOps, ticks: Any, lag: Any, start: Any) -> None:
    """Write the earliest start of each op."""
    for op in range(len(start)):
        start[op] = 0
    for op in range(len(start)):
        end = start[op] + ticks[order.row[op]]
        for edge in range(order.pointer[op], order.pointer[op + 1]):
            waiter, moment = order.successor[edge], end + lag[order.lag[edge]]
            if moment > start[waiter]:
                start[waiter] = moment


@part
def _serve(sums: LayerSums, split: Any, is_reduced: bool, tail: Any) -> int:
    """Run all-reduces or optimizer steps of all stages, first come first served, see `_end`."""
    stages, longest, width = sums.stages, 0, sums.layers + 1
    stream = 2 * stages + (0 if is_reduced else len(sums.device))
    for stage in range(stages):
        tail[stages + stage] = 0
    for _ in range(stages):
        chosen = -1
        for stage in range(stages):
            is_open = tail[stages + stage] == 0
            if is_open and (chosen < 0 or tail[stage] < tail[chosen]):
                chosen = stage
        tail[stages + chosen] = 1
        at = stream + sums.device[chosen]
        first, end = split[chosen], split[chosen + 1]
        if is_reduced:
            time = sums.reduced[(sums.device[chosen] * width + first) * width + end]
        else:
            time = sums.optimizer[end] - sums.optimizer[first]
        tail[chosen] = max(tail[chosen], tail[at]) + time
        tail[at] = tail[chosen]
        longest = max(longest, tail[chosen])
    return longest


@part
def _end(
    sums: LayerSums, order: OrderedOps, split: Any, ticks: Any, start: Any, tail: Any
) -> int:
    """Return the makespan; `tail` has release, mark and two streams for each stage."""
    stages, longest = sums.stages, 0
    for place in range(2 * stages, len(tail)):
        tail[place] = 0
    for place in range(sums.rows * stages):
        end = start[order.last[place]] + ticks[place]
        longest = max(longest, end)
        stage = place % stages
        tail[stage] = end
        busy = 3 * stages + sums.device[stage]
        tail[busy] = max(tail[busy], end)
    if len(sums.reduced):
        longest = max(longest, _serve(sums, split, True, tail))
    if len(sums.optimizer):
        longest = max(longest, _serve(sums, split, False, tail))
    return longest


@part
def _rated(
    sums: LayerSums,
    order: OrderedOps,
    split: Any,
    limit: int,
    ticks: Any,
    lag: Any,
    start: Any,
    tail: Any,
    values: Any,
) -> int:
    """Return the makespan of a split, or more than a limit that it exceeds anyway.

    The third of `values` counts the splits whose ops are timed.
    """
    lack = _lack(sums, order, split)
    if lack > 0:
        return LACKING + lack
    _fill(sums, split, ticks, lag)
    busy = _busiest(sums, order, ticks)
    if busy > limit:
        return busy
    values[2] += 1
    _start(order, ticks, lag, start)
    return _end(sums, order, split, ticks, start, tail)


@part
def _hand_over(split: Any, source: int, target: int, count: int) -> bool:
    """Take layers from a stage and give as many to another one; return false if one has none."""
    if source < target:
        for stage in range(source + 1, target + 1):
            split[stage] -= count
    else:
        for stage in range(target + 1, source + 1):
            split[stage] += count
    return split[source] < split[source + 1] and split[target] < split[target + 1]


@part
def _move(sums: LayerSums, devices: int, draws: Any, at: int, split: Any) -> bool:
    """Change a split at random; return false where a stage would have no layer."""
    stages = sums.stages
    kind, source, target = (
        draws[at] % 16,
        draws[at + 1] % stages,
        draws[at + 2] % stages,
    )
    if kind < 4:
        target = (source + 1) % stages
    elif kind < 6:
        target = (source + devices) % stages
    if source == target:
        return False
    if kind == 15:
        first = split[source + 1] - split[source]
        return _hand_over(
            split, source, target, first - split[target + 1] + split[target]
        )
    count = 1
    if kind % 4 == 3:
        count = 1 + draws[at + 3] % 3
    if draws[at + 3] % 2:
        count = -count
    moved = _hand_over(split, source, target, count)
    if not moved or kind < 11:
        return moved
    source, target = draws[at + 4] % stages, draws[at + 5] % stages
    return source != target and _hand_over(split, source, target, 1)


@Kernel
def anneal_split(
    sums: LayerSums,
    order: OrderedOps,
    draws: Any,
    slack: Any,
    enough: int,
    split: Any,
    best: Any,
    values: Any,
    start: Any,
    ticks: Any,
    lag: Any,
    tail: Any,
    trial: Any,
) -> int:
    """Move layers between stages, one step for each slack; return the steps that were taken.

    A split that takes longer than the current one is taken if it does so by the slack at most. The
    search ends where the best takes no more than `enough`. Written are the current and the best
    split and their `values`, which are negative before the first step, the number of splits whose
    ops are timed, and scratch.
    """
    if values[0] < 0:
        values[0] = _rated(sums, order, split, LACKING, ticks, lag, start, tail, values)
        values[1] = values[0]
        for stage in range(len(split)):
            best[stage] = split[stage]
    devices = len(order.own_pointer) - 1
    for step in range(len(slack)):
        if values[1] <= enough:
            return step
        for stage in range(len(split)):
            trial[stage] = split[stage]
        if not _move(sums, devices, draws, step * DRAWS, trial):
            continue
        limit = values[0] + slack[step]
        value = _rated(sums, order, trial, limit, ticks, lag, start, tail, values)
        if value > limit:
            continue
        values[0] = value
        for stage in range(len(split)):
            split[stage] = trial[stage]
        if value < values[1]:
            values[1] = value
            for stage in range(len(split)):
                best[stage] = trial[stage]
    return len(slack)
