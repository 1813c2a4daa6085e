"""All permutations of few micro-batches under a pattern, by branch and bound."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.flow.evaluator import Evaluator, Timed
from ppsolve.solver.flow.patterns import Pattern
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.topological_order import (
    Lengths,
    LineOrder,
    SlotSearch,
    best_permutation,
)

VISITS = 10_000
"""Slots that are filled at most; compiled code fills 4 to 5 million a second, Python 80,000. Of the
109,600 partial permutations of 8 micro-batches, patterns of 4 devices left 1,000 to 100,000."""


def best_under(
    evaluator: Evaluator,
    pattern: Pattern,
    *,
    limit: int = NEVER - 2,
    visits: int = VISITS,
    lengths: Lengths | None = None,
) -> tuple[Timed | None, bool]:
    """Return the best permutation of the micro-batches under a pattern.

    Parameters
    ----------
    evaluator : Evaluator
        Tables of the flow.
    pattern : Pattern
        The pattern.
    limit : int
        Makespan in ticks that nothing has to be sought beyond.
    visits : int
        Slots that are filled at most.
    lengths : Lengths, optional
        Other durations, from `Evaluator.lengths_of`.

    Returns
    -------
    Timed or None, bool
        The best one that was found, None where none keeps pools and limit; and whether all
        permutations were tried or shown to be no better.
    """
    flow = evaluator.flow
    count = flow.num_microbatches
    lengths = evaluator.lengths if lengths is None else lengths
    line, until = _by_slots(evaluator, pattern)
    free, (chosen, row) = np.ones(count, np.int64), np.zeros((2, count), np.int64)
    best = np.zeros(count + 1, dtype=np.int64)
    filled = best_permutation(
        lengths,
        LineOrder(line, pattern.before, row),
        evaluator.scratch(),
        SlotSearch(until, _twins(lengths, count), limit, visits, free, chosen),
        best,
    )
    value = int(best[count])
    found = Timed(value, pattern, best[:count]) if value <= limit else None
    return found, bool(filled <= visits)


def _by_slots(evaluator: Evaluator, pattern: Pattern) -> tuple[IntArray, IntArray]:
    """Return the line by the last slot that each node waits for, and nodes up to each slot."""
    chain, before = evaluator.chain, pattern.before
    sources = np.split(chain.source, chain.pointer[1:-1])
    needs = np.zeros(len(pattern.line) + 1, dtype=np.int64)
    for node in pattern.line.tolist():
        slot, position = chain.slot[node], chain.position[node]
        waited_for = needs[node - position + sources[position]].max(initial=slot)
        needs[node] = max(waited_for, needs[before[node]])
    needs = needs[pattern.line]
    until = np.searchsorted(np.sort(needs), np.arange(evaluator.flow.num_microbatches), "right")
    return pattern.line[np.argsort(needs, kind="stable")], until.astype(np.int64)


def _twins(lengths: Lengths, count: int) -> IntArray:
    """Return the micro-batch before each one that is like it in everything, or -1."""
    columns = (lengths.duration, lengths.need, lengths.net)
    table = np.hstack([column.reshape(count, -1) for column in columns])
    last: dict[bytes, int] = {}
    twins = []
    for number, row in enumerate(table):
        twins.append(last.get(row.tobytes(), -1))
        last[row.tobytes()] = number
    return np.array(twins, dtype=np.int64)
