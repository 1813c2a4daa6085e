"""Megatron-LM's pipeline schedule by itself, from its flags: forward and backward steps with p2p.

Written from the description of `forward_backward_pipelining_without_interleaving`,
`forward_backward_pipelining_with_interleaving` and `get_schedule_table`; shares nothing with the
program. Instances are JSON, times are fractions; backwards are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

Step = tuple[str, int, int]
"""F or B, model chunk of the rank, micro-batch."""


def makespan(flags: str, instance: dict[str, Any]) -> Fraction:
    """Return the time of a step."""
    steps, chunks = _steps(flags, instance["num_microbatches"])
    return _timed(steps, instance, chunks)


def _steps(flags: str, count: int) -> tuple[list[list[Step]], int]:
    """Return the steps of each rank, and the chunks of a rank."""
    given = dict(line.split(maxsplit=1) for line in flags.splitlines())
    ranks = int(given["--pipeline-model-parallel-size"])
    chunks = int(given.get("--num-virtual-stages-per-pipeline-rank", 1))
    size = int(given.get("--microbatch-group-size-per-virtual-pipeline-stage", ranks))
    if chunks == 1:
        return [
            list(_without_interleaving(rank, ranks, count)) for rank in range(ranks)
        ], 1
    return [
        list(_interleaved(rank, ranks, chunks, count, size)) for rank in range(ranks)
    ], chunks


def group_sizes(ranks: int, count: int) -> list[int]:
    """Return the legal sizes of groups: at least p, and no last group below p."""
    return [n for n in range(ranks, count + 1) if count % n == 0 or count % n >= ranks]


def _without_interleaving(rank: int, ranks: int, count: int) -> Iterator[Step]:
    warmup = min(ranks - rank - 1, count)
    for k in range(warmup):
        yield "F", 0, k
    for k in range(count - warmup):
        yield "F", 0, k + warmup
        yield "B", 0, k
    for k in range(count - warmup, count):
        yield "B", 0, k


def _schedule_table(chunks: int, count: int, size: int) -> list[tuple[int, int]]:
    table = []
    for first in range(0, count, size):
        last = min(first + size, count)
        table += [(chunk, k) for chunk in range(chunks) for k in range(first, last)]
    return table


def _interleaved(
    rank: int, ranks: int, chunks: int, count: int, size: int
) -> Iterator[Step]:
    table = _schedule_table(chunks, count, size)
    forward = [("F", chunk, k) for chunk, k in table]
    backward = [("B", chunks - 1 - chunk, k) for chunk, k in table]
    warmup = min((ranks - rank - 1) * 2 + (chunks - 1) * size, len(table))
    yield from forward[:warmup]
    for k in range(len(table) - warmup):
        yield forward[warmup + k]
        yield backward[k]
    yield from backward[len(table) - warmup :]


def _timed(steps: list[list[Step]], instance: dict[str, Any], chunks: int) -> Fraction:
    ranks = len(steps)
    last = ranks * chunks - 1
    ends: dict[tuple[str, int, int], Fraction] = {}
    arrivals: dict[tuple[str, int, int], Fraction] = {}
    links: dict[tuple[int, int], Fraction] = {}
    clocks, places = [Fraction(0)] * ranks, [0] * ranks
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            while places[rank] < len(steps[rank]):
                kind, chunk, k = steps[rank][places[rank]]
                stage = chunk * ranks + rank
                waits = [("F", stage, k)] if kind == "B" else []
                if kind == "F" and stage > 0:
                    waits.append(("F", stage - 1, k))
                if kind == "B" and stage < last:
                    waits.append(("B", stage + 1, k))
                if any(each not in ends for each in waits):
                    break
                begin = clocks[rank]
                for each in waits:
                    begin = max(begin, (ends if each[1] == stage else arrivals)[each])
                clocks[rank] = ends[kind, stage, k] = begin + _time(
                    instance, kind, stage, k
                )
                other = stage + 1 if kind == "F" else stage - 1
                if 0 <= other <= last:
                    arrivals[kind, stage, k] = _arrival(
                        instance,
                        clocks[rank],
                        links,
                        (rank, other % ranks),
                        min(stage, other),
                        k,
                    )
                places[rank] += 1
                moved = True
    assert places == [len(row) for row in steps], "it stops for ever"
    return max(clocks)


def peaks(flags: str, instance: dict[str, Any]) -> list[Fraction]:
    """Return the most memory of the activations of each rank."""
    steps, _ = _steps(flags, instance["num_microbatches"])
    found = []
    for rank, row in enumerate(steps):
        held = most = Fraction(0)
        for kind, chunk, k in row:
            amount = _entry(
                instance["memory"]["activation"], chunk * len(steps) + rank, k
            )
            held += amount if kind == "F" else -amount
            most = max(most, held)
        found.append(most)
    return found


def _entry(entry: Any, stage: int, k: int) -> Fraction:
    entry = entry[stage] if isinstance(entry, list) else entry
    return Fraction(Decimal(str(entry[k] if isinstance(entry, list) else entry)))


def _time(instance: dict[str, Any], kind: str, stage: int, k: int) -> Fraction:
    times = instance["times"]
    if kind == "F":
        return _entry(times["forward"], stage, k)
    names = (
        ("backward",)
        if times.get("backward")
        else ("backward_input", "backward_weight")
    )
    return sum((_entry(times[name], stage, k) for name in names), Fraction(0))


def _arrival(
    instance: dict[str, Any],
    ready: Fraction,
    links: dict[tuple[int, int], Fraction],
    ends: tuple[int, int],
    boundary: int,
    k: int,
) -> Fraction:
    """Return when a transfer arrives; a link has one at a time, in the order of its sender."""
    p2p, (source, target) = instance.get("p2p") or {}, ends
    if source == target:
        return ready
    if p2p.get("mode", "delay") == "link":
        amount = _entry(p2p["bytes"], boundary, k)
        ready = max(ready, links.get(ends, Fraction(0)))
        ready += amount / _entry(p2p["bandwidth"], source, target)
        links[ends] = ready
    else:
        assert p2p.get("mode", "delay") == "delay"
    return ready + _entry(p2p.get("latency", 0), source, target)
