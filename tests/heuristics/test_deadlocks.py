"""Where list scheduling cannot go on, and rules of priorities and justification beside it."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    generate_parallel,
    generate_serial,
    longest_tail,
    tails,
)
from ppsolve.solver.heuristics.rules import RuleBook
from tests.small import at, holding, op, small


def rule_of(problem: Problem) -> PriorityRule:
    return PriorityRule(
        np.arange(problem.num_ops), np.zeros(problem.num_ops, dtype=np.bool_)
    )


def full_pools() -> Problem:
    """Two devices with room for one: the first op of each keeps it for ever."""
    ops = [
        op(name, 1, f"r{device}", acquire={f"m{device}": 1})
        for name, device in (("c", 1), ("a", 0), ("d", 1), ("b", 0))
    ]
    pools = [{"name": f"m{device}", "capacity": 1} for device in (0, 1)]
    return small(ops, [("c", "d"), ("a", "b")], pools=pools)


def test_the_first_pool_that_is_waited_for_is_named() -> None:
    problem = full_pools()
    with pytest.raises(MemoryDeadlockError) as parallel:
        generate_parallel(problem, rule_of(problem))
    with pytest.raises(MemoryDeadlockError) as serial:
        generate_serial(problem, np.arange(problem.num_ops))
    for error in (parallel.value, serial.value):
        assert (error.op, error.pool) == ("b", "m0")


def test_ops_that_wait_for_each_other_are_named_in_turn() -> None:
    problem = small([op(name, 1, "r") for name in "abc"], [("a", "b")])
    back = (np.array([1]), np.array([0]), np.array([0]))
    with pytest.raises(DeadlockError) as caught:
        generate_parallel(problem, rule_of(problem), back)
    assert sorted(caught.value.cycle) == ["a", "b"]
    with pytest.raises(DeadlockError) as caught:
        tails(problem, back)
    assert sorted(caught.value.cycle) == ["a", "b"]


def test_what_leads_to_an_early_pin_is_urgent() -> None:
    """Of 1 + 2 + 3 + 4 + 5 ticks and pins up to 9 the horizon is 24."""
    ops = [
        op("a", 1, "r"),
        op("p", 2, "s", start=9),
        op("b", 3, "r"),
        op("q", 4, "s", start=4),
    ]
    problem = small([*ops, op("c", 5, "r")], [("a", "p"), ("b", "q")])
    assert tails(problem).tolist() == [
        1 + 2 + 24 - 9,
        2 + 24 - 9,
        3 + 4 + 24 - 4,
        4 + 24 - 4,
        5,
    ]
    assert longest_tail(problem).tolist() == [2, 3, 0, 1, 4]


def test_ops_of_no_stage_are_one_group() -> None:
    problem = small([op("a", 1, "r"), op("b", 2, "s")])
    assert RuleBook(problem).num_groups == 1


def test_justification_helps_where_ops_of_no_length_use_a_pool_within_its_room() -> (
    None
):
    problem = small(
        [op("a", 2, "r"), holding("z", 0, 1, "s")], [("z", "a")], capacity=1
    )
    found = Justifier(problem).improve(at(problem, 5, 3), 1)
    assert (found.value, check_schedule(problem, found)) == (2, [])
