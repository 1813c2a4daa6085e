"""Ops that run as one, for the frontier: fused blocks of a forward and an earlier backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.solver.bounds.params import DEFAULT_PARAMS, BoundsParams
from ppsolve.solver.bounds.relaxations import Block, Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.frontier import DeviceMoves
from ppsolve.solver.structure.implied import Column, ImpliedOrder


class BlockRelaxations(Relaxations):
    """A problem with blocks, whose bounds hold for every choice of them.

    What a block takes itself while it runs is left out. There are no blocks, and nothing is said,
    where some op takes less time in a block than alone.
    """

    def __init__(
        self,
        problem: OpenProblem,
        clock: Clock | None = None,
        params: BoundsParams = DEFAULT_PARAMS,
    ) -> None:
        super().__init__(ImpliedOrder(_together(problem)), clock, params)
        self._open = problem

    @cached_property
    def strong_heads(self) -> IntArray:
        """Earliest starts under all implied precedences; work of blocks would be less."""
        return self.full.heads

    @cached_property
    def blocks(self) -> Sequence[Block]:
        """Each pair of columns whose ops may run as one, in the least time of all rows."""
        column = np.full(self.problem.num_ops, FREE, dtype=np.int64)
        family = column.copy()
        for number, rows in enumerate(self.problem.families):
            family[rows], column[rows] = number, np.arange(rows.shape[1])
        ticks: dict[tuple[Column, ...], int] = {}
        for option in self._open.options:
            key = tuple(Column(int(family[op]), int(column[op])) for op in option.ops)
            ticks[key] = min(option.duration, ticks.get(key, option.duration))
        return tuple(
            Block(first, second, frozenset(inside), least)
            for (first, second, *inside), least in ticks.items()
        )


def _together(problem: OpenProblem) -> Problem:
    """Return the base in which ops of a block need not wait for each other's ends.

    It has no families where that is no relaxation: an op takes less time in a block than alone.
    """
    base = problem.base
    if (problem.fastest < base.duration).any():
        return replace(base, families=())
    inside = {pair for option in problem.options for pair in pairwise(option.ops)}
    edges = zip(base.before.tolist(), base.after.tolist(), strict=True)
    is_inside = np.array([edge in inside for edge in edges], dtype=np.bool_)
    lag = np.where(is_inside, -base.duration[base.before], base.lag)
    return replace(base, lag=lag)


class ChainMoves(NamedTuple):
    """Moves of a chain, and what its ops add to the work of their devices at least."""

    moves: DeviceMoves
    work: IntArray  # int64[L]: without loose work
    load: IntArray  # int64[L]: with it


def chain_moves(
    blocks: Sequence[Block],
    position: Mapping[Column, int],
    device: IntArray,
    duration: IntArray,
    acquire: IntArray,
    loose: Mapping[int, Mapping[Column, int]],
) -> ChainMoves:
    """Return the moves of a chain: single ops, then blocks.

    `position`, of the columns of the chain; `device`, `duration`, `acquire`, int64[L]; `loose`, the
    time of each loose op by the position behind which it follows. A block takes less than its ops
    one after the other: the most that any saves is taken off the work of first ops.
    """
    length = len(duration)
    work, load = duration.copy(), duration.copy()
    behind = np.zeros_like(duration)
    for j, ops in loose.items():
        behind[j] = sum(ops.values())
    load += behind
    moves = [
        (j, FREE, int(duration[j]), int(acquire[j]), int(behind[j]))
        for j in range(length)
    ]
    saved, saved_load = np.zeros((2, int(device.max()) + 1), dtype=np.int64)
    for block in blocks:
        if block.first not in position:
            continue
        j, partner = position[block.first], position[block.second]
        done = sum(loose.get(partner, {})[column] for column in block.inside)
        saving = int(duration[j] + duration[partner]) - block.ticks
        here = device[j]
        saved[here] = max(saved[here], saving)
        saved_load[here] = max(saved_load[here], saving + done)
        amount, left = int(acquire[j] + acquire[partner]), int(behind[partner]) - done
        moves.append((j, partner, block.ticks, amount, int(behind[j]) + left))
    firsts = sorted({move[0] for move in moves[length:]})
    work[firsts] -= saved[device[firsts]]
    load[firsts] -= saved_load[device[firsts]]
    arrays = np.array(moves, dtype=np.int64).T
    return ChainMoves(DeviceMoves(*np.ascontiguousarray(arrays)), work, load)
