"""A bound of open problems from the ops before the first and behind the last possible option."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.solver.kinds.pipeline.options.relaxed import at_their_fastest
from ppsolve.solver.structure.implied import ImpliedOrder

LAST_FORWARD = "last-forward"


def last_forward(problem: OpenProblem) -> tuple[int, int]:
    """Return a bound of the makespan of all choices in ticks, and its device.

    Before its first backward can begin a device runs forwards alone, as many as fit into that time
    and its memory. From the end of its last forward on it runs backwards alone. Between the two it
    runs blocks, and alone what is left. Of all numbers of blocks and of backwards at the end the
    least sum counts, of all devices the one with the largest bound.
    """
    base, fast = problem.base, ImpliedOrder(at_their_fastest(problem))
    heads = fast.full.heads(base.release)
    rest = fast.full.tails(problem.fastest) - problem.fastest
    kinds: list[set[int]] = [set(), set(), set()]
    blocks: dict[int, int] = {}
    for option in problem.options:
        for known, op in zip(kinds, option.ops, strict=False):
            known.add(int(base.kind[op]))
        for resource in option.resources:
            blocks[resource] = min(
                option.duration, blocks.get(resource, option.duration)
            )
    best = (0, FREE)
    for resource, block in sorted(blocks.items()):
        own = base.ops_by_resource[resource]
        ops = [own[np.isin(base.kind[own], list(each))] for each in kinds]
        sums = [_least_sums(base.duration[each]) for each in ops]
        begins, ends = ([int(each[o].min()) for o in ops[:2]] for each in (heads, rest))
        value = _least(sums, block, begins, ends, _most_held(base, ops[0]))
        best = max(best, (value, resource))
    return best


def _least(
    sums: list[IntArray], block: int, begins: list[int], ends: list[int], most: int
) -> int:
    alone, back, weight = sums
    forwards, count = len(alone) - 1, len(back) - 1
    behind, fused = np.indices((count + 1, min(forwards, count) + 1))
    between = count - behind - fused
    # Before the first of blocks alone one activation must be left for its forward.
    early = np.minimum(forwards, most - ((fused > 0) & (between == 0)))
    spent = np.minimum(begins[1] - begins[0], alone[-1] - alone[forwards - early])
    work = begins[1] + fused * block + np.maximum(alone[forwards - fused] - spent, 0)
    last = work + back[np.maximum(between, 0)]
    last = np.where(behind == count, begins[0] + alone[-1], last)
    value = np.maximum(
        last + ends[0], np.maximum(last, begins[1]) + back[behind] + ends[1]
    )
    rest = count - fused
    busy = work + back[rest] + (weight[rest] if len(weight) == len(back) else 0)
    value = np.maximum(value, busy)
    return int(value[(between >= 0) & (behind <= most)].min())


def _most_held(base: Problem, forwards: IntArray) -> int:
    """Return the most of some forwards that a device holds at once: all of them without a pool."""
    most = len(forwards)
    for pool in base.pools:
        held = dict.fromkeys(forwards.tolist(), 0)
        for sign, ops, index in (
            (1, pool.acquire_op, pool.acquire_amount),
            (-1, pool.release_op, pool.release_amount),
        ):
            for op, amount in zip(ops.tolist(), index.tolist(), strict=True):
                if op in held:
                    held[op] += sign * pool.amounts[amount]
        least = min(held.values())
        if least > 0:
            most = min(most, int((pool.limit - pool.initial) // least))
    return most


def _least_sums(values: IntArray) -> IntArray:
    """Return the least sum of 0, 1, ... of some values."""
    return np.concatenate(([0], np.cumsum(np.sort(values))))
