"""Pools as whole numbers, as kernels read them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.solver.structure.tables import memory_of
from tests.small import holding, op, small


def test_amounts_are_whole_units_of_their_pool() -> None:
    memory = memory_of(
        small([holding("a", 1, 0.5), holding("b", 1, 0.2)], capacity=1.09)
    )
    assert memory.acquire_amount.tolist() == memory.release_amount.tolist() == [5, 2]
    assert memory.size.tolist() == [10]


def test_a_micro_batch_claims_what_its_ops_take() -> None:
    ops = [
        holding("a", 1, 2),
        holding("b", 1, 3),
        holding("c", 1, 4),
        holding("d", 1, 5),
    ]
    labels = np.array([1, 0, 1, FREE])
    memory = memory_of(
        replace(small(ops, capacity=9), microbatch=labels, stage=np.zeros(4, np.int64))
    )
    assert (memory.num_owners, memory.claim.tolist()) == (2, [3, 2 + 4])
    assert memory.owner.tolist() == [1, 0, 1, FREE]


def test_too_many_units_are_rounded_within_half_of_the_excess_that_is_allowed() -> None:
    problem = small([holding("a", 1, 1), holding("b", 1, 2)], capacity=2)
    amounts = Fraction(1, 3**40), Fraction(1)
    memory = memory_of(
        replace(problem, pools=(replace(problem.pools[0], amounts=amounts),))
    )
    excess = Fraction(2, 10**9)
    unit = 2**50 / (2 + excess)
    assert memory.acquire_amount.tolist() == [0, round(unit)]
    assert memory.size.tolist() == [math.floor((2 + excess / 2) * unit)]


def test_an_op_of_no_length_needs_what_it_does_not_give_back_at_once() -> None:
    gives = [("a", 2, 5, 3), ("b", 0, 5, 3), ("c", 0, 1, 3), ("d", 0, 4, 0)]
    ops = [
        op(
            name,
            length,
            acquire={"m": taken},
            release_at_end={"m": given} if given else {},
        )
        for name, length, taken, given in gives
    ]
    assert memory_of(small(ops, capacity=20, initial=9)).net_amount.tolist() == [
        5,
        2,
        0,
        4,
    ]
