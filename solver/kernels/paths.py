"""Longest paths: edges in an order that needs each of them once."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, cells


class Steps(NamedTuple):
    """Edges of a graph of n nodes, each a step of a path.

    Attributes
    ----------
    source, target : int64[k]
        First and second node.
    delay : int64[k]
        Length of the step.
    """

    source: Any
    target: Any
    delay: Any


@Kernel
def sort_steps(edges: Steps, num_nodes: int, order: Any) -> int:
    """Sort edges so that each comes after all edges into its source.

    Parameters
    ----------
    edges : Steps
        The edges in any order.
    num_nodes : int
        Number of nodes n.
    order : int64[k]
        Becomes the numbers of the edges in the new order.

    Returns
    -------
    int
        Number of nodes reached, below n where the edges form a cycle; then `order` is incomplete.
    """
    source, target = edges.source, edges.target
    count = len(source)
    pointer, missing = cells(num_nodes + 1), cells(num_nodes)
    for edge in range(count):
        pointer[source[edge] + 1] += 1
        missing[target[edge]] += 1
    for node in range(num_nodes):
        pointer[node + 1] += pointer[node]
    by_source, filled = cells(count), cells(num_nodes)
    for edge in range(count):
        node = source[edge]
        by_source[pointer[node] + filled[node]] = edge
        filled[node] += 1
    queue, reached = cells(num_nodes), 0
    for node in range(num_nodes):
        if missing[node] == 0:
            queue[reached] = node
            reached += 1
    done = placed = 0
    while done < reached:
        node = queue[done]
        done += 1
        for slot in range(pointer[node], pointer[node + 1]):
            edge = by_source[slot]
            order[placed] = edge
            placed += 1
            follower = target[edge]
            missing[follower] -= 1
            if missing[follower] == 0:
                queue[reached] = follower
                reached += 1
    return reached


@Kernel
def relax(steps: Steps, value: Any) -> None:
    """Raise the value of every target to the value of its source + the delay.

    Parameters
    ----------
    steps : Steps
        Edges; those into a node come before those out of it.
    value : int64[n]
        Value of each node alone; becomes the longest path.
    """
    source, target, delay = steps.source, steps.target, steps.delay
    for step in range(len(source)):
        reached = value[source[step]] + delay[step]
        if reached > value[target[step]]:
            value[target[step]] = reached
