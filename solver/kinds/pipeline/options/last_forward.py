"""A bound of open problems from the ops before the first and behind the last possible option."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.kinds.pipeline.options.relaxed import at_their_fastest, relaxed
from ppsolve.solver.structure.implied import ImpliedOrder

LAST_FORWARD = "last-forward"


def last_forward(problem: OpenProblem) -> tuple[int, int]:
    """Return a bound of the makespan of all choices in ticks, and its device.

    Behind the last forward of a device no backward of it is fused. Those that end before it does
    take at least what the shortest block leaves to them, one after the other from the least head
    on. The others take their own time, and so does the way from the last forward to the end. Of
    every number of them the least sum counts, of all devices the one with the largest bound.
    """
    base, fast = problem.base, ImpliedOrder(at_their_fastest(problem))
    heads = fast.full.heads(base.release)
    rest = fast.full.tails(problem.fastest) - problem.fastest
    work = relaxed(problem).duration
    kinds = [{int(base.kind[option.ops[at]]) for option in problem.options} for at in (0, 1)]
    best = (0, FREE)
    for resource in base.span_resources.tolist() if problem.options else ():
        ops = base.ops_by_resource[resource]
        forwards, backwards = (ops[np.isin(base.kind[ops], list(each))] for each in kinds)
        if len(forwards) and len(backwards):
            count, last = len(backwards), int(rest[forwards].min())
            before, behind = (_least_sums(each[backwards]) for each in (work, base.duration))
            after = [ticks + int(rest[backwards].min()) for ticks in behind]
            least = min(before[count - k] + max(last, after[k]) for k in range(count))
            value = int(heads[backwards].min()) + min(least, after[count])
            best = max(best, (value, resource))
    return best


def _least_sums(values: IntArray) -> list[int]:
    """Return the least sum of 0, 1, ... of some values."""
    return [0, *accumulate(sorted(values.tolist()))]
