"""Megatron-LM's recomputation by windows, by itself: every group and window, timed one by one.

Written from `forward_backward_pipelining_with_interleaving`: a rank counts its forwards; number k
is recomputed iff k % (warm-up + 1) >= num_microbatches_with_partial_activation_checkpoints. Shares
nothing with the program but the steps of `megatron.py`. Times and memory are whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.kinds.pipeline.runtimes import megatron


class Run(NamedTuple):
    """One setting of Megatron-LM."""

    group: int  # 0 with one stage per rank
    mode: int  # number of a mode that recomputes, -1 for none
    kept: int  # of each window
    makespan: int
    fits: bool


def every_run(instance: dict[str, Any]) -> Iterator[Run]:
    """Yield each legal group with each mode and each number of kept micro-batches."""
    ranks, count = instance["num_devices"], instance["num_microbatches"]
    chunks = instance.get("stages_per_device", 1)
    modes = instance["memory"]["recompute"]["modes"]
    decide = instance["memory"]["recompute"]["decide"]
    has_windows = decide in {"window", "microbatch"}
    for group in megatron.group_sizes(ranks, count) if chunks > 1 else [0]:
        rows = _rows(ranks, chunks, count, group)
        yield Run(group, -1, 0, *_run(instance, rows, None, set()))
        for number, mode in enumerate(modes):
            for kept in range(chunks * count + 1 if has_windows else 1):
                # A window that an instance asks for is that of groups of p.
                size = ranks if decide == "window" else group
                counted = _rows(ranks, chunks, count, size)
                again = _recomputed(counted, ranks, chunks, size, kept)
                yield Run(group, number, kept, *_run(instance, rows, mode, again))


def _rows(ranks: int, chunks: int, count: int, group: int) -> list[list[megatron.Step]]:
    if chunks == 1:
        return [
            list(megatron._without_interleaving(r, ranks, count)) for r in range(ranks)
        ]
    return [
        list(megatron._interleaved(r, ranks, chunks, count, group))
        for r in range(ranks)
    ]


def _recomputed(
    rows: list[list[megatron.Step]], ranks: int, chunks: int, group: int, kept: int
) -> set[tuple[int, int]]:
    """Return stages and micro-batches that are recomputed."""
    again = set()
    for rank, row in enumerate(rows):
        warmup = (
            ranks - rank - 1
            if chunks == 1
            else (ranks - rank - 1) * 2 + (chunks - 1) * group
        )
        forwards = [(chunk * ranks + rank, k) for kind, chunk, k in row if kind == "F"]
        window = min(warmup, len(forwards)) + 1
        again |= {cell for k, cell in enumerate(forwards) if k % window >= kept}
    return again


def _run(
    instance: dict[str, Any],
    rows: list[list[megatron.Step]],
    mode: dict[str, Any] | None,
    again: set[tuple[int, int]],
) -> tuple[int, bool]:
    """Return the makespan, and whether each rank has room for what it holds."""
    ranks, times = len(rows), instance["times"]
    last = len(times["forward"]) - 1
    latency = instance.get("p2p", {}).get("latency", 0)
    ends: dict[tuple[str, int, int], int] = {}
    clocks, places = [0] * ranks, [0] * ranks
    has_moved = True
    while has_moved:
        has_moved = False
        for rank, row in enumerate(rows):
            while places[rank] < len(row):
                kind, chunk, k = row[places[rank]]
                stage = chunk * ranks + rank
                waits = [("F", stage - 1, k)] if kind == "F" else [("F", stage, k)]
                waits += [("B", stage + 1, k)] if kind == "B" else []
                waits = [each for each in waits if 0 <= each[1] <= last]
                if any(each not in ends for each in waits):
                    break
                lags = [
                    0 if (each[1] - rank) % ranks == 0 else latency for each in waits
                ]
                moments = [
                    ends[each] + lag for each, lag in zip(waits, lags, strict=True)
                ]
                time = times["forward" if kind == "F" else "backward"][stage]
                if kind == "B" and mode is not None and (stage, k) in again:
                    time += mode["time"]
                clocks[rank] = ends[kind, stage, k] = (
                    max(clocks[rank], *moments, 0) + time
                )
                places[rank] += 1
                has_moved = True
    assert places == [len(row) for row in rows], "it stops for ever"
    return max(clocks), all(
        _fits(instance, r, row, mode, again) for r, row in enumerate(rows)
    )


def _fits(
    instance: dict[str, Any],
    rank: int,
    row: list[megatron.Step],
    mode: dict[str, Any] | None,
    again: set[tuple[int, int]],
) -> bool:
    """Whether a rank has room: all of an activation while ops of it take time, else less."""
    memory, ranks, held = instance["memory"], instance["num_devices"], 0
    for kind, chunk, k in row:
        time = instance["times"]["forward" if kind == "F" else "backward"][
            chunk * ranks + rank
        ]
        is_again = mode is not None and (chunk * ranks + rank, k) in again
        between = (
            mode["held"] if mode is not None and is_again else memory["activation"]
        )
        if kind == "B":
            held -= between
            time += mode["time"] if mode is not None and is_again else 0
        if held + (memory["activation"] if time else between) > memory["capacity"]:
            return False
        if kind == "F":
            held += between
    return True
