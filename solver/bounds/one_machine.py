"""The preemptive one-machine relaxation: the least end of a single resource by itself."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.one_machine import Jobs, empty_tree, least_end


def preemptive_bound(heads: IntArray, durations: IntArray, tails: IntArray) -> int:
    """Return the least end of one resource when ops may be interrupted.

    Jackson's preemptive rule: always run the available op with the longest tail. Exact for the
    relaxation (Carlier and Pinson 1989); found in O(n log n) as the largest bound of a set of ops.

    Parameters
    ----------
    heads : int64[n]
        Earliest start of each op, in ticks.
    durations : int64[n]
        Durations in ticks.
    tails : int64[n]
        Least time from the end of each op to the end of the schedule, in ticks.

    Returns
    -------
    int
        Lower bound on the end of the schedule in ticks, 0 for no ops.
    """
    order = np.argsort(-tails, kind="stable")
    leaf = np.argsort(np.argsort(heads[order], kind="stable"), kind="stable")
    jobs = Jobs(heads[order], durations[order], tails[order])
    return int(least_end(jobs, leaf, empty_tree(len(leaf))))
