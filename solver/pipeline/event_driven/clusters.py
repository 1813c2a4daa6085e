"""Orders of micro-batches that DynaPipe's planner tries: clusters of like ones, in every order."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from ppsolve.models.core.problem import IntArray

FEW, MANY, MANY_FROM = 4, 3, 21
"""Clusters of few and of many micro-batches, and from how many on there are many: those of DynaPipe
(Jiang et al., EuroSys 2024), which keep the orders at 24 and 6."""

MAX_ORDERS = 25
"""Most orders: every one of four clusters, and the given one."""

SEED = 0
"""Seed of the order inside a cluster; DynaPipe's is random."""


def cluster_orders(work: IntArray) -> list[IntArray]:
    """Return the orders of micro-batches that DynaPipe's planner tries."""
    count = MANY if len(work) >= MANY_FROM else FEW
    shuffled = np.random.default_rng(SEED).permutation(len(work))
    cluster = clusters_of(work, count)[shuffled]
    members = [shuffled[cluster == number] for number in range(count)]
    present = [each for each in members if len(each)]
    return [np.arange(len(work)), *map(np.concatenate, permutations(present))]


def clusters_of(values: IntArray, count: int) -> IntArray:
    """Return the cluster of each value by k-means (Lloyd 1982), from quantiles.

    Parameters
    ----------
    values : int64[m]
        Numbers.
    count : int
        Number of clusters; some stay empty where fewer values differ.

    Returns
    -------
    int64[m]
    """
    centres = np.quantile(values, (np.arange(count) + 0.5) / count)
    nearest = np.zeros(len(values), dtype=np.int64)
    while True:
        before = nearest
        nearest = np.asarray(np.abs(values[:, None] - centres).argmin(axis=1), dtype=np.int64)
        for number in np.unique(nearest):
            centres[number] = values[nearest == number].mean()
        if (nearest == before).all():
            return nearest
