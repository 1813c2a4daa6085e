"""Calls of Megatron-LM's `forward_step` and `backward_step`, whose names say no micro-batch.

The k-th call of a rank is the k-th op of its schedule: 1F1B, or interleaved 1F1B, which begins with
more forwards. Read in Megatron-LM main (2026-08-22), ``core/pipeline_parallel/schedules.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ppsolve.models.documents.errors import InputError, errors_in
from ppsolve.models.kinds.pipeline.modes import group_sizes
from ppsolve.solver.formats.kineto.events import OpRange, RankEvents
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.kinds.pipeline.one_stage import one_forward_one_backward

HINT = "name each op, as the hook in docs/how-to/trace.md does"


def number_calls(events: RankEvents) -> None:
    """Make ranges of the calls of a rank, numbered by kind in the order in which they come.

    Calls within calls of the same kind, such as the model's own `forward_step`, are part of them.
    Ranges on the GPU count if there is one for each call. Raises `InputError` where calls of both
    kinds overlap.
    """
    silent = events.waiting - events.busy
    on_gpu = _outermost(c for c in events.calls if c.is_gpu and c.thread not in silent)
    on_cpu = _outermost(c for c in events.calls if not c.is_gpu)
    events.ranges = _numbered(on_cpu)
    if not on_cpu or len(on_cpu) == len(on_gpu):
        events.ranges += _numbered(on_gpu)


def _outermost(calls: Iterator[OpRange]) -> list[OpRange]:
    merged: list[OpRange] = []
    for call in sorted(calls):
        if not merged or call.start >= merged[-1].end:
            merged.append(call)
        elif call.kind == merged[-1].kind:
            merged[-1] = replace(merged[-1], end=max(merged[-1].end, call.end))
        else:
            text = f"starts before {merged[-1].name} ends; expected one call at a time, or {HINT}"
            raise InputError(text, field=call.name[:60])
    return merged


def _numbered(calls: list[OpRange]) -> list[OpRange]:
    numbers = {"F": count(), "B": count()}
    return [
        replace(call, name=f"PP:0{call.kind}{next(numbers[call.kind])}")
        for call in calls
    ]


@dataclass(frozen=True)
class CalledSchedule:
    """The schedule that the calls of one step are of."""

    orders: list[Order]  # of each file: stage, kind and micro-batch of its calls
    name: str  # the schedule and its size, in words
    chunks: int  # stages of each rank


def schedule_of(
    calls: Mapping[str, str], size: int | None = None, chunks: int | None = None
) -> CalledSchedule:
    """Return the schedule of Megatron-LM in which every rank makes its calls.

    The letters F and B of the calls of one step are given by file, in the order of ranks; so are
    the orders of the schedule. Ranks that make them in one order are replicas. Where files say so,
    `size` is the number of ranks of a pipeline, where the user does, `chunks` that of stages of a
    rank. Raises `InputError` where ranks make other numbers of calls, or no schedule or more than
    one fits.
    """
    rows = list(calls.values())
    forwards = rows[0].count("F")
    for source, row in calls.items():
        if row.count("F") != forwards or row.count("B") != forwards:
            raise InputError(
                f"{row.count('F')} calls of forward_step and {row.count('B')} of backward_step, "
                f"expected {forwards} of each; is the recording cut off, or of another run?",
                source=source,
            )
    alike = sorted(dict.fromkeys(rows), key=_lead, reverse=True)
    positions = [alike.index(row) for row in rows]
    if len(set(Counter(positions).values())) > 1:
        # Where micro-batches are few, several stages of a pipeline run all forwards first.
        positions = list(range(len(rows)))
    fitting = _fits(rows, positions) if size in {None, max(positions) + 1} else []
    chosen = [each for each in fitting if chunks in {None, each.chunks}]
    if len(chosen) == 1:
        return chosen[0]
    with errors_in(next(iter(calls))):
        if not fitting:
            leads = ", ".join(str(_lead(row)) for row in rows)
            raise InputError(
                f"its calls fit neither 1F1B nor interleaved 1F1B ({leads} forwards before the "
                f"first backward, by rank): give the files of all "
                f"{'' if size is None else f'{size} '}pipeline ranks and ProfilerStep# around "
                f"steps, or {HINT}"
            )
        names = "; ".join(schedule.name for schedule in fitting)
        numbers = " or ".join(str(schedule.chunks) for schedule in fitting)
        raise InputError(
            f"its calls fit {names}: say the stages of each rank (--chunks): {numbers}, or {HINT}"
        )


def _lead(row: str) -> int:
    return row.index("B") if "B" in row else 0


def _fits(rows: Sequence[str], positions: Sequence[int]) -> list[CalledSchedule]:
    """Return all schedules that fit."""
    ranks, forwards = max(positions) + 1, rows[0].count("F")
    fitting: list[CalledSchedule] = []
    for name, chunks, orders in _schedules(ranks, forwards, min(map(_lead, rows))):
        letters = [letters_of(order) for order in orders]
        if [letters[position] for position in positions] == list(rows):
            placed = [orders[position] for position in positions]
            fitting.append(CalledSchedule(placed, name, chunks))
    return fitting


def letters_of(order: Order) -> str:
    """Return the kinds of the ops of a rank, in order."""
    return "".join(COMPUTE_KINDS[kind] for kind in order.kind)


def _schedules(
    ranks: int, forwards: int, lead: int
) -> Iterator[tuple[str, int, list[Order]]]:
    """Yield schedules that may be: their names, the stages of each rank, their orders.

    `lead` is the number of forwards before the first backward, of the rank with the fewest.
    """
    text = f"1F1B of {ranks} ranks, {forwards} micro-batches"
    yield text, 1, one_forward_one_backward(ranks, forwards)
    for chunks in range(2, forwards + 1 if ranks > 1 else 2):
        microbatches, remainder = divmod(forwards, chunks)
        group, odd = divmod(lead - 1, chunks - 1)
        is_legal = not remainder and group in group_sizes(ranks, microbatches)
        if is_legal and not odd:
            text = f"interleaved 1F1B of {ranks} ranks with {chunks} chunks each, {microbatches} "
            text += f"micro-batches in groups of {group}"
            yield text, chunks, interleaved_1f1b(ranks, chunks, microbatches, group)
