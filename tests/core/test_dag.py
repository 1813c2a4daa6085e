"""Cycles of precedences, and chains."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.core.dag import chain_edges, find_cycle

Edge = tuple[int, int]


def cycle(*edges: Edge) -> list[int]:
    before, after = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return find_cycle(before, after)


@pytest.mark.parametrize(
    "edges", [[], [(0, 1)], [(0, 1), (0, 2), (1, 2)], [(2, 1), (1, 0)]]
)
def test_no_cycle(edges: list[Edge]) -> None:
    assert cycle(*edges) == []


def test_nodes_before_and_behind_a_cycle_are_not_in_it() -> None:
    found = cycle((0, 1), (1, 2), (2, 3), (3, 1), (3, 4))
    assert sorted(found) == [1, 2, 3]
    assert [(a, b) for a, b in zip(found, [*found[1:], found[0]], strict=True)] == [
        (node, {1: 2, 2: 3, 3: 1}[node]) for node in found
    ]


def test_chains_of_one_op_or_none_have_no_edges() -> None:
    before, after, lag = chain_edges(
        [np.array([3, 1, 2]), np.array([0]), np.array([], np.int64)]
    )
    assert (before.tolist(), after.tolist(), lag.tolist()) == ([3, 1], [1, 2], [0, 0])
