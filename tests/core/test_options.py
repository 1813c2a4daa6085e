"""Options of an open problem: what the problem of a choice is made of."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ppsolve.models.core.options import OpenProblem, Option
from ppsolve.models.core.problem import IntArray
from tests.small import holding, named_edges, op, small

NAMES = ["a", "b", "c", "x", "y"]


def chosen(*numbers: int) -> IntArray:
    return np.array(numbers, dtype=np.int64)


def open_problem() -> OpenProblem:
    """Return a, b, c and x of resource r, y of resource s; b and x, or c and x run as one."""
    base = small(
        [
            op("a", 2, "r"),
            holding("b", 3, 4, "r"),
            op("c", 4, "r", release=5),
            holding("x", 5, 1, "r"),
            op("y", 6, "s"),
        ],
        [("a", "b", 1), ("b", "c"), ("x", "c"), ("b", "y", 2)],
        capacity=10,
        families=[[["a"], ["b"], ["c"]]],
    )
    r, s = range(2)
    return OpenProblem(
        base,
        (
            Option((1, 3), 6, (r,), "pair", "b+x", ((0, Fraction(2)),)),
            Option((2, 3), 7, (r,), "pair", "c+x"),
            Option((4,), 1, (r, s), "fast", "y!"),
        ),
    )


def test_nothing_chosen_is_the_base() -> None:
    problem = open_problem().problem(chosen())
    assert problem.op_names(range(5)) == NAMES
    assert problem.duration.tolist() == [2, 3, 4, 5, 6]
    assert problem.kinds[-2:] == ("pair", "fast")
    assert [family.tolist() for family in problem.families] == [[[0], [1], [2]]]


def test_chosen_ops_become_one() -> None:
    """c waits for the pair twice, a for nothing: edges follow, memory is summed."""
    problem = open_problem().problem(chosen(0, 2))
    assert problem.op_names(range(4)) == ["a", "b+x", "c", "y!"]
    assert problem.duration.tolist() == [2, 6, 4, 1]
    assert [problem.kinds[kind] for kind in problem.kind[[1, 3]]] == ["pair", "fast"]
    assert named_edges(problem, problem.before, problem.after) == {
        ("a", "b+x"),
        ("b+x", "c"),
        ("b+x", "y!"),
    }
    assert sorted(problem.lag.tolist()) == [0, 0, 1, 2]
    (pool,) = problem.pools
    assert pool.acquire_op.tolist() == pool.release_op.tolist() == [1]
    assert [pool.amounts[index] for index in pool.acquire_amount] == [4 + 1 + 2]
    assert problem.resources_of(3).tolist() == [0, 1]
    assert [family.tolist() for family in problem.families] == [[[0], [2]]]
    assert problem.choices["options"].tolist() == [0, 2]
    assert open_problem().places(chosen(0, 2)).tolist() == [0, 1, 2, 1, 3]


def test_edges_inside_an_option_are_dropped() -> None:
    problem = open_problem().problem(chosen(1))
    assert problem.op_names(range(4)) == ["a", "b", "c+x", "y"]
    assert named_edges(problem, problem.before, problem.after) == {
        ("a", "b"),
        ("b", "c+x"),
        ("b", "y"),
    }
    assert problem.release.tolist() == [0, 0, 5, 0], "the release of c"


def test_an_op_may_take_its_memory_elsewhere() -> None:
    base = small([holding("a", 3, 4, "r")], capacity=10)
    option = Option((0,), 2, (0,), "other", "a'", ((0, Fraction(-4)),))
    (pool,) = OpenProblem(base, (option,)).problem(chosen(0)).pools
    assert not len(pool.acquire_op) and not len(pool.release_op)


@pytest.mark.parametrize(
    ("choice", "is_one"),
    [
        ((), True),
        ((0, 2), True),
        ((0, 1), False),
        ((2, 0), False),
        ((0, 0), False),
        ((3,), False),
    ],
)
def test_choices_cover_no_op_twice(choice: tuple[int, ...], is_one: bool) -> None:
    assert open_problem().allows(chosen(*choice)) is is_one


def test_each_op_has_a_least_time_and_its_options() -> None:
    assert open_problem().fastest.tolist() == [2, 3, 4, 5, 1]
    assert open_problem().covering == {1: [0], 2: [1], 3: [0, 1], 4: [2]}
