"""Annealing of one line: micro-batches change slots, nodes change places, in counted steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsolve.solver.flow.evaluator import Evaluator, Timed
from ppsolve.solver.flow.patterns import Pattern
from ppsolve.solver.kernels.annealing import (
    AnnealingBuffers,
    AnnealingParams,
    anneal,
    exponential_quantiles,
)
from ppsolve.solver.kernels.topological_order import Lengths

_ODDS = exponential_quantiles(1024)


class Annealer:
    """Anneals lines of one flow; keeps room and random numbers between calls.

    Parameters
    ----------
    evaluator : Evaluator
        Tables of the flow.
    seed : int
        Seed of the random numbers.
    """

    def __init__(self, evaluator: Evaluator, seed: int = 0) -> None:
        flow = evaluator.flow
        size, count = flow.ops.size, flow.num_microbatches
        self.evaluator = evaluator
        self.rng = np.array([1 + (seed * 7919 + 12345) % (2**31 - 2)], dtype=np.int64)
        lengths = (size + 1,) * 4 + (size, size, flow.num_resources, size, count)
        self.room = AnnealingBuffers(
            evaluator.scratch(),
            evaluator.scratch(),
            *(np.zeros(length, dtype=np.int64) for length in lengths),
        )

    def improve(
        self,
        timed: Timed,
        steps: int,
        *,
        heat: int,
        shifts: int,
        target: int = 0,
        lengths: Lengths | None = None,
    ) -> Timed:
        """Return the best of a number of changes, one after the other.

        Parameters
        ----------
        timed : Timed
            A feasible pattern and its permutation.
        steps : int
            Number of changes that are tried.
        heat : int
            Ticks by which a change may worsen the makespan in the beginning, in the mean.
        shifts : int
            Changes in 1,000 that move an op on its device; the others move micro-batches.
        target : int
            Makespan in ticks that nothing has to be sought below.
        lengths : Lengths, optional
            Other durations, from `Evaluator.lengths_of`.

        Returns
        -------
        Timed
            No worse than what was given.
        """
        evaluator = self.evaluator
        lengths = evaluator.lengths if lengths is None else lengths
        # Ops that stand near each other in time stand near in the line: shifts rearrange less.
        start = evaluator.starts(timed, lengths)
        durations = lengths.duration.reshape(start.shape)
        flow = replace(evaluator.flow, duration=durations)
        pattern, permutation = Pattern.of_starts(flow, start, timed.permutation)
        row = permutation * flow.num_positions
        line = pattern.line.copy()
        plan = AnnealingParams(steps, heat, shifts, target, _ODDS)
        value = anneal(lengths, self.room, plan, self.rng, line, row)
        return Timed(value, Pattern(line, flow.resource), row // flow.num_positions)
