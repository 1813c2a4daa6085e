"""Pipelines with fused blocks as open problems: every block that may be is an option.

Alike micro-batches run in index order, as without blocks: any schedule can be relabelled so that
the k-th forward of a stage is that of micro-batch k, and so is the k-th backward (a weight gradient
keeps the micro-batch of its input gradient). The k-th end of what is waited for is no later than
the k-th start of what waits, so all rules hold, and a block is one of the same stages. Then a
forward of micro-batch i runs with backwards of micro-batches h < i only. Let the block begin at t.
The backward of h waits for the forward of h on the stage of the forward i, or on a stage behind it
or, if its own stage is behind, for the backward there: all of these follow the forward of h on the
stage of forward i, which has so ended by t. As the block takes time, that forward is neither i
itself nor a later one.

This takes that the k-th op of a column to start is the k-th to end: both run one at a time on a
device. An op of no time that blocks may cover breaks it, as alone it may run inside a block with
its twin. Where there is one, micro-batches keep their numbers, and blocks have any two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ppsolve.models.core.options import OpenProblem, Option
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.mode_ops import recomputing_times
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.models.kinds.pipeline.overlap_blocks import stage_pairs, times_alone

CHOSEN_BLOCKS = "fused"
"""Key of the numbers of blocks in the choices of a problem, int64[c]."""

MAX_BLOCKS = 200_000
"""Most blocks that one problem chooses from, at 1 KB each."""


def fused_problem(
    instance: PipelineInstance, base: Problem | None = None, *, exact: bool = False
) -> OpenProblem:
    """Return every op by itself, and an option for each block of two micro-batches.

    The pipeline has `overlap`, and its layers are shared out. Its problem without blocks is given
    where more is chosen than the file says. Options are in the order of the stages and
    micro-batches of their forwards, then of their backwards. An `InputError` is as of
    `lower_pipeline`, or says that there are more than `MAX_BLOCKS` blocks.
    """
    if base is None:
        base = lower_pipeline(instance, exact=exact)
    problem = _open_problem(instance, base)
    if not _may_nest(problem):
        return problem
    return replace(
        _open_problem(instance, replace(problem.base, families=())),
        numbered=tuple(rows[:, 0] for rows in problem.base.families),
    )


def _open_problem(instance: PipelineInstance, base: Problem) -> OpenProblem:
    pairs = [
        _pairs_of_microbatches(instance, base, step) for step in range(instance.steps)
    ]
    if np.count_nonzero(pairs) * len(list(stage_pairs(instance))) > MAX_BLOCKS:
        raise InputError(
            f"expected at most {MAX_BLOCKS} blocks (pairs of stages on one device x pairs of "
            "micro-batches)",
            source=instance.name,
            field="num_microbatches",
            code=ErrorCode.RANGE,
        )
    options = (
        option
        for step, allowed in enumerate(pairs)
        for option in _blocks(instance.in_numbers(), base, allowed, step)
    )
    return OpenProblem(base, tuple(options), field=CHOSEN_BLOCKS)


def _may_nest(problem: OpenProblem) -> bool:
    """Whether an op that has alike ones takes no time alone, and may run in a block.

    A weight gradient keeps the micro-batch of its input gradient, whatever it takes.
    """
    covered = [op for option in problem.options for op in option.ops[:2]]
    alike = [op for rows in problem.base.families for op in rows.ravel().tolist()]
    return not problem.base.duration[
        np.intersect1d(covered, alike).astype(np.int64)
    ].all()


def _pairs_of_microbatches(instance: PipelineInstance, base: Problem, step: int) -> Any:
    # Whether the forward of a row may run with the backward of a column, bool[m, m].
    count = instance.num_microbatches
    family = -1 - np.arange(count)
    for number, rows in enumerate(base.families):
        microbatches = base.microbatch[rows[:, 0]]
        if microbatches[0] != FREE and _step_of(base, rows[0, 0]) == step:
            family[microbatches] = number
    index = np.arange(count)
    alike = family[:, None] == family[None, :]
    return np.where(alike, index[None, :] < index[:, None], True)


def _step_of(base: Problem, op: int) -> int:
    return int(base.step[op]) if len(base.step) else 0


def _grid(base: Problem, kind: str, step: int) -> IntArray:
    """Return the ops of a kind and a step, int64[S, m]."""
    is_here = base.kind_mask(kind)
    if len(base.step):
        is_here = is_here & (base.step == step)
    ops = np.flatnonzero(is_here)
    table = np.zeros((base.stage[ops].max() + 1, base.microbatch[ops].max() + 1), int)
    table[base.stage[ops], base.microbatch[ops]] = ops
    return table


def _blocks(
    instance: PipelineInstance, base: Problem, pairs: Any, step: int
) -> Iterator[Option]:
    blocks = instance.overlap
    assert blocks is not None
    kinds = blocks.kinds(is_split=instance.times.is_split)
    grids = [_grid(base, kind, step) for kind in kinds]
    again = recomputing_times(instance, base.chosen(CHOSEN_MODES))
    devices = instance.device_grid
    op_times = cache(lambda stage, microbatch: times_alone(instance, stage, microbatch))
    ticks = cache(base.scale.ticks)
    for s, t in stage_pairs(instance):
        for i, h in np.argwhere(
            pairs & (devices[s][:, None] == devices[t][None, :])
        ).tolist():
            entries = blocks.entries_of(
                s, t, op_times(s, i)[0] + op_times(t, h)[1], again[t][h]
            )
            if entries is None:
                continue
            time, memory = entries
            ops = (int(grids[0][s, i]), *(int(grid[t, h]) for grid in grids[1:]))
            yield Option(
                ops,
                ticks(time),
                tuple(base.resources_of(ops[0]).tolist()),
                "+".join(kinds),
                "+".join(base.op_names(ops)),
                ((int(devices[s, i]), memory),) if memory and base.pools else (),
            )


def choice_of_pairs(problem: OpenProblem, pairs: Any) -> IntArray:
    """Return the choice of some blocks, each given by the names of its ops, in any order.

    An `InputError` names the entry of the field ``fused`` that is no block, or has an op of another
    one.
    """
    if not isinstance(pairs, list | tuple):
        raise InputError(
            "expected a list of blocks, each a list of names of ops",
            field="fused",
            code=ErrorCode.TYPE,
        )
    names_of = problem.base.op_names(range(problem.base.num_ops))
    number_of = {
        frozenset(names_of[op] for op in option.ops): number
        for number, option in enumerate(problem.options)
    }
    numbers: list[int] = []
    seen: set[str] = set()
    for index, pair in enumerate(pairs):
        names = (
            frozenset(map(str, pair)) if isinstance(pair, list | tuple) else frozenset()
        )
        if names not in number_of:
            raise InputError(
                "expected the names of the ops of a block that the pipeline allows, micro-batches "
                'numbered as they run, such as ["F0.4", "B7.0"]',
                field=f"fused[{index}]",
            )
        if names & seen:
            raise InputError(
                "expected every op in one block at most",
                field=f"fused[{index}]",
                code=ErrorCode.CONFLICT,
            )
        seen |= names
        numbers.append(number_of[names])
    return np.array(sorted(numbers), dtype=np.int64)


def pairs_of_schedule(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """Return the names of the ops of each block of a schedule, in order of their starts."""
    problem = schedule.problem
    in_time = sorted(problem.joined, key=lambda op: (schedule.start[op], op))
    return tuple(problem.joined[op].names for op in in_time)
