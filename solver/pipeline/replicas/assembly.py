"""From orders and micro-batches to the problem and the schedule of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.joint import join
from ppsolve.solver.flow.lineups import ReplicaPattern
from ppsolve.solver.kernels.exchange import Choice, ExchangeSizes, time_pattern
from ppsolve.solver.pipeline.replicas.shape import ReplicaShape


def schedule_of(
    shape: ReplicaShape,
    choices: Sequence[Choice],
    sizes: ExchangeSizes,
    members: Sequence[Sequence[int]],
) -> Schedule:
    """Return the schedule in which every replica runs its order as early as possible.

    Parameters
    ----------
    shape : ReplicaShape
    choices : sequence of Choice
        Of each replica: the order for each number of micro-batches.
    sizes : ExchangeSizes
        Durations and amounts of this step.
    members : sequence of sequences of int
        Micro-batches of each replica by slot.

    Returns
    -------
    Schedule
        Of the problem of all replicas with the durations and amounts of this step.
    """
    table = sizes.duration.reshape(-1, sizes.num_positions)
    problems, starts, numbers = [], [], []
    for choice, those in zip(choices, members, strict=True):
        which = int(choice.pattern[len(those)])
        pattern = shape.patterns[which]
        slots = np.array([*those, sizes.num_microbatches], dtype=np.int64)
        problem = _problem(shape, pattern, slots, table)
        problems.append(problem)
        ends = _ends(shape, sizes, which, slots)
        start = np.empty(problem.num_ops, dtype=np.int64)
        start[pattern.ops] = ends - problem.duration[pattern.ops]
        starts.append(start)
        owners = np.empty(len(those), dtype=np.int64)
        owners[pattern.microbatches] = slots[:-1]
        numbers.append(owners.tolist())
    joint = join(problems, numbers, shape.instance.num_devices)
    return Schedule(joint, np.concatenate(starts))


def _ends(shape: ReplicaShape, sizes: ExchangeSizes, which: int, slots: IntArray) -> IntArray:
    end = np.zeros(len(shape.patterns[which].ops), dtype=np.int64)
    level = np.zeros(len(sizes.room), dtype=np.int64)
    time_pattern(shape.sample, sizes, which, slots, 0, end, level)
    return end


def _problem(
    shape: ReplicaShape, pattern: ReplicaPattern, slots: IntArray, table: IntArray
) -> Problem:
    sample = pattern.schedule.problem
    owner, position = np.empty_like(pattern.ops), np.empty_like(pattern.ops)
    # The last of the slots is that of FREE, -1.
    owner[pattern.ops], position[pattern.ops] = slots[pattern.slot], pattern.position
    pools = zip(sample.pools, shape.amounts, strict=True)
    return replace(
        sample,
        duration=table[owner, position],
        pools=tuple(amounts.given_to(pool, owner, position) for pool, amounts in pools),
        families=(),
    )


def action_orders(
    shape: ReplicaShape, choices: Sequence[Choice], members: Sequence[Sequence[int]]
) -> list[list[list[str]]]:
    """Return the action strings of each device of each replica.

    Parameters
    ----------
    shape : ReplicaShape
    choices : sequence of Choice
        Of each replica: the order for each number of micro-batches.
    members : sequence of sequences of int
        Micro-batches of each replica by slot.

    Returns
    -------
    list of list of list of str
        By replica and device, e.g. ``0F3``: stage, kind, micro-batch.
    """
    found = []
    for choice, those in zip(choices, members, strict=True):
        templates = shape.templates[int(choice.pattern[len(those)])]
        found.append([[text + str(those[slot]) for text, slot in row] for row in templates])
    return found
