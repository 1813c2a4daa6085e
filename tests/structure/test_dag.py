"""Longest paths and cycles, against plain recursion on random graphs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.dag import CycleError
from ppsolve.solver.kernels import compilation
from ppsolve.solver.structure.dag import Dag
from tests.marks import examples
from tests.strategies import tiny_problem

Edge = tuple[int, int, int]


def dag(size: int, edges: list[Edge]) -> Dag:
    columns = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    return Dag(size, columns[0], columns[1], columns[2])


@st.composite
def acyclic(draw: st.DrawFn) -> tuple[int, list[Edge], list[int]]:
    """A number of nodes, edges along a random order, and a value per node."""
    size = draw(st.integers(1, 8))
    order = draw(st.permutations(range(size)))
    pairs = st.tuples(
        st.integers(0, size - 1), st.integers(0, size - 1), st.integers(0, 9)
    )
    edges = [
        (order[min(a, b)], order[max(a, b)], delay)
        for a, b, delay in draw(st.lists(pairs, max_size=16))
        if a != b
    ]
    return size, edges, draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))


@given(acyclic())
def test_heads_and_tails_are_longest_paths(
    case: tuple[int, list[Edge], list[int]],
) -> None:
    size, edges, initial = case

    @cache
    def head(node: int) -> int:
        return max(
            [initial[node], *(head(a) + delay for a, b, delay in edges if b == node)]
        )

    @cache
    def tail(node: int) -> int:
        return max(
            [initial[node], *(tail(b) + delay for a, b, delay in edges if a == node)]
        )

    graph, values = dag(size, edges), np.array(initial, dtype=np.int64)
    assert graph.heads(values).tolist() == [head(node) for node in range(size)]
    assert graph.tails(values).tolist() == [tail(node) for node in range(size)]
    assert all(graph.level[a] < graph.level[b] for a, b, _ in edges)


def test_compiled_paths_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    @examples(14)
    @given(acyclic())
    def check(case: tuple[int, list[Edge], list[int]]) -> None:
        size, edges, initial = case
        values, found = np.array(initial, dtype=np.int64), []
        for compiled in (False, True):
            monkeypatch.setitem(compilation._state, "compiled", compiled)
            graph = dag(size, edges)
            answers = (graph.level, graph.heads(values), graph.tails(values))
            found.append([answer.tolist() for answer in answers])
        assert found[0] == found[1]

    check()


def test_initial_values_are_not_changed() -> None:
    initial = np.zeros(2, dtype=np.int64)
    assert dag(2, [(0, 1, 5)]).heads(initial).tolist() == [0, 5]
    assert initial.tolist() == [0, 0]


def test_graph_without_edges_or_nodes() -> None:
    assert dag(3, []).heads(np.array([4, 5, 6])).tolist() == [4, 5, 6]
    assert dag(0, []).heads(np.zeros(0, dtype=np.int64)).tolist() == []


def test_parallel_edges_take_the_longest() -> None:
    assert dag(2, [(0, 1, 2), (0, 1, 7), (0, 1, 3)]).heads(
        np.array([0, 0])
    ).tolist() == [0, 7]


@examples(20)
@given(acyclic(), st.integers(2, 5))
def test_cycle_is_found_and_is_one(
    case: tuple[int, list[Edge], list[int]], length: int
) -> None:
    size, edges, _ = case
    ring = [(size + k, size + (k + 1) % length, 0) for k in range(length)]
    edges = [
        *edges,
        (0, size, 1),
        (size + 1, size - 1, 1) if size > 1 else (0, size, 2),
        *ring,
    ]
    with pytest.raises(CycleError) as caught:
        dag(size + length, edges)
    nodes = caught.value.nodes
    steps = {(a, b) for a, b, _ in edges}
    assert all(
        (a, b) in steps for a, b in zip(nodes, [*nodes[1:], nodes[0]], strict=True)
    )
    assert len(set(nodes)) == len(nodes)


def test_self_loop_is_a_cycle() -> None:
    with pytest.raises(CycleError) as caught:
        dag(2, [(1, 1, 0)])
    assert caught.value.nodes == [1]


@examples(14)
@given(st.integers(0, 10**6))
def test_graph_of_a_problem_counts_durations_and_lags(seed: int) -> None:
    problem = tiny_problem(seed)
    heads = Dag.of(problem).heads(problem.release)
    end = heads + problem.duration
    assert np.all(heads[problem.after] >= end[problem.before] + problem.lag)


def test_extra_edges_are_added() -> None:
    problem = tiny_problem(0)
    extra = (np.array([0]), np.array([1]), np.array([50]))
    heads = Dag.of(problem, extra).heads(np.zeros(problem.num_ops, dtype=np.int64))
    assert heads[1] >= heads[0] + problem.duration[0] + 50
