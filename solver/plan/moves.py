"""Splits by moving single layers, where devices hold several stages: quick, without a proof."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.plan.split import Boundaries, SplitProblem

MOST_MOVES = 200
"""Layers that are moved at most; none of 240 splits of 82 layers on 16 to 64 devices took 100."""

Standing = tuple[int, int, float]
"""Bytes above the capacities, ticks of the slowest device, sum of squared ticks; less is better."""


def moved_layers(problem: SplitProblem, start: Boundaries) -> Boundaries:
    """Improve a split as long as one layer of the worst device has a better place.

    The layer goes to any other stage; those between keep their number of layers. The worst device
    is the one that lacks most memory, else the slowest.

    Parameters
    ----------
    problem : SplitProblem
        Layers and stages.
    start : tuple of int
        Boundaries of any split.

    Returns
    -------
    tuple of int
        Boundaries no worse by the bytes above all capacities, then by the slowest device.
    """
    weighed = _Weighed(problem)
    best, (standing,) = np.array(start), weighed.standings(np.array([start]))
    for _ in range(MOST_MOVES):
        tried = _neighbours(best, weighed.worst_stages(best))
        standings = weighed.standings(tried)
        if not standings or min(standings) >= standing:
            break
        standing = min(standings)
        best = tried[standings.index(standing)]
    return tuple(best.tolist())


class _Weighed:
    """Times and bytes of many splits at once; a split is a row of boundaries."""

    def __init__(self, problem: SplitProblem) -> None:
        self._time, self._static, self._activation = (
            np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
            for values in (problem.times, problem.static, problem.activation)
        )
        self._in_flight = np.array(problem.in_flight, dtype=np.int64)
        self._room = None if problem.capacity is None else np.array(problem.capacity)
        self._device = np.array(problem.stage_to_device)
        self._on = (self._device[:, None] == np.arange(problem.num_devices)).astype(np.int64)

    def standings(self, splits: IntArray) -> list[Standing]:
        """Return the standing of every split."""
        times, lack = self._loads(splits)
        squares = (times.astype(np.float64) ** 2).sum(axis=1)
        columns = (lack.sum(axis=1), times.max(axis=1), squares)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def worst_stages(self, split: IntArray) -> list[int]:
        """Return the stages of the worst device that can give a layer away."""
        times, lack = self._loads(split[None])
        worst = int(np.argmax(lack[0] if lack.any() else times[0]))
        return np.flatnonzero((self._device == worst) & (np.diff(split) > 1)).tolist()

    def _loads(self, splits: IntArray) -> tuple[IntArray, IntArray]:
        """Return ticks, and bytes above the capacity: int64[splits, D] each."""
        times = np.diff(self._time[splits], axis=1) @ self._on
        if self._room is None:
            return times, np.zeros_like(times)
        held = np.diff(self._static[splits], axis=1)
        held += self._in_flight * np.diff(self._activation[splits], axis=1)
        return times, np.maximum(held @ self._on - self._room, 0)


def _neighbours(split: IntArray, givers: list[int]) -> IntArray:
    """Return the splits in which one of these stages has given a layer to another stage."""
    stages = len(split) - 1
    pairs = [(giver, taker) for giver in givers for taker in range(stages) if taker != giver]
    tried = np.repeat(split[None], len(pairs), axis=0)
    for row, (giver, taker) in enumerate(pairs):
        if taker > giver:
            tried[row, giver + 1 : taker + 1] -= 1
        else:
            tried[row, taker + 1 : giver + 1] += 1
    return tried
