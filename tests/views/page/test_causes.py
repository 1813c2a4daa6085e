"""Each op's start has one reason: data, order, memory, a given moment, or none."""

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.solver.views.page.idle import Why, causes_of
from tests.small import at, holding, op, small
from tests.views.page.cases import two_streams


def test_data_and_latency_are_waited_for():
    causes = causes_of(two_streams())
    assert causes.cause.tolist() == [FREE, 0, 1, FREE]
    assert causes.why.tolist() == [Why.FIRST, Why.DATA, Why.DATA, Why.FIRST]
    assert causes.arrival.tolist() == [0, 3, 6, 0]


def test_order_on_a_resource_counts_where_it_lets_an_op_start_last():
    problem = small(
        [op("a", 2, "x"), op("b", 4, "y"), op("c", 3, "x")], [("a", "c", 1)]
    )
    assert causes_of(at(problem, 0, 0, 3)).why[2] == Why.DATA
    behind = small([op("a", 5, "x"), op("b", 2, "y"), op("c", 3, "x")], [("b", "c")])
    causes = causes_of(at(behind, 0, 0, 5))
    assert (causes.cause[2], causes.why[2]) == (0, Why.ORDER)


def test_of_equal_ones_the_op_that_data_comes_from_is_named():
    problem = small([op("a", 2, "x"), op("b", 2, "y"), op("c", 3, "x")], [("b", "c")])
    causes = causes_of(at(problem, 0, 0, 2))
    assert (causes.cause[2], causes.why[2]) == (1, Why.DATA)


def test_memory_is_named_where_nothing_else_explains_a_wait():
    problem = small([holding("a", 3, 2, "x"), holding("b", 1, 2, "y")], capacity=2)
    causes = causes_of(at(problem, 0, 3))
    assert (causes.cause[1], causes.why[1]) == (0, Why.MEMORY)


def test_given_moments_and_waits_by_choice_are_told_apart():
    problem = small([op("a", 1, "x", release=4), op("b", 1, "y")])
    causes = causes_of(at(problem, 4, 2))
    assert causes.why.tolist() == [Why.GIVEN, Why.CHOSEN]
    assert np.all(causes.cause == FREE)
