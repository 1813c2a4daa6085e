"""Lower bounds on the slowest of several replicas."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.flow.exchange import Edges


def bound_of_one(edges: Edges, members: IntArray) -> int:
    """Return a bound on the makespan of one replica.

    On each resource: its work, the least head of the micro-batch that comes first and the least
    tail of the one that ends last, which is another one where there are several.

    Parameters
    ----------
    edges : Edges
        Heads, tails and loads of all micro-batches.
    members : int64[k]
        Micro-batches of the replica.

    Returns
    -------
    int
        Ticks.
    """
    load = edges.load[members].sum(axis=0)
    ends = edges.head[members] + edges.tail[members]
    if len(members) == 1:
        return int((load + ends[0]).max())
    heads, tails = edges.head[members], edges.tail[members]
    first, last = np.argsort(heads, axis=0)[:2], np.argsort(tails, axis=0)[:2]
    columns = np.arange(heads.shape[1])
    pairs = [
        np.where(first[i] == last[j], np.iinfo(np.int64).max // 2, heads[first[i], columns])
        + np.where(first[i] == last[j], 0, tails[last[j], columns])
        for i in range(2)
        for j in range(2)
    ]
    chains = (edges.head + edges.load + edges.tail)[members].max(initial=0)
    return int(max((load + np.minimum.reduce(pairs)).max(), chains))


def bound_of_any(edges: Edges, replicas: int) -> int:
    """Return a bound on the slowest replica, whatever the assignment.

    On each resource the replicas have all work between them, and each begins and ends with
    micro-batches of its own: the mean of work, R least heads and R least tails.

    Parameters
    ----------
    edges : Edges
        Heads, tails and loads of all micro-batches.
    replicas : int
        Number of replicas R.

    Returns
    -------
    int
        Ticks.
    """
    total = edges.load.sum(axis=0)
    total = total + np.sort(edges.head, axis=0)[:replicas].sum(axis=0)
    total = total + np.sort(edges.tail, axis=0)[:replicas].sum(axis=0)
    chains = int((edges.head + edges.load + edges.tail).max(initial=0))
    return max(int(-(-total.max() // replicas)), chains)
