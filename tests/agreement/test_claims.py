"""Claims contradict each other exactly where no optimum makes both true."""

from __future__ import annotations

import math
from fractions import Fraction

from ppsolve.models.core.result import Status
from tests.agreement.claims import (
    Claim,
    best_of,
    claim,
    contradictions,
    differences,
    worst_of,
)


def test_two_optima_contradict_each_other_where_they_differ() -> None:
    seven, eight = claim(Status.OPTIMAL, 7, 7), claim(Status.OPTIMAL, 8, 8)
    assert contradictions({"a": seven, "b": seven}) == []
    assert contradictions({"a": seven, "b": eight}) == [
        "b: optimal 8, but a: optimal 7"
    ]


def test_a_bound_contradicts_smaller_values_only() -> None:
    optimal = claim(Status.OPTIMAL, 7, 7)
    assert contradictions({"a": optimal, "b": claim(Status.FEASIBLE, 9, 7)}) == []
    assert contradictions({"a": optimal, "b": claim(Status.FEASIBLE, 9, 7.5)}) != []
    assert contradictions({"a": optimal, "b": claim(Status.FEASIBLE, 6.5, 6)}) != []


def test_no_schedule_contradicts_any_schedule_but_no_bound() -> None:
    none = claim(Status.INFEASIBLE, None, None)
    assert contradictions({"a": none, "b": claim(Status.UNKNOWN, None, 3)}) == []
    assert contradictions({"a": none, "b": claim(Status.FEASIBLE, 9, 3)}) != []


def test_a_claim_contradicts_itself_where_its_value_is_below_its_bound() -> None:
    assert len(contradictions({"a": Claim(Fraction(3), Fraction(2))})) == 1


def test_the_best_of_several_is_bounded_by_the_least_bound() -> None:
    claims = [Claim(Fraction(3), Fraction(5)), Claim(Fraction(4), Fraction(4))]
    assert best_of(claims) == Claim(Fraction(3), Fraction(4))
    assert best_of([claims[1], Claim(math.inf, math.inf)]) == claims[1]


def test_what_ends_last_is_at_least_each_bound() -> None:
    claims = [Claim(Fraction(3), Fraction(5)), Claim(Fraction(4), Fraction(4))]
    assert worst_of(claims) == Claim(Fraction(4), Fraction(5))
    assert worst_of([claims[1], Claim(math.inf, math.inf)]) == Claim(math.inf, math.inf)


def test_ways_of_the_same_figures_differ_by_open_gaps_too() -> None:
    open_gap, closed = claim(Status.FEASIBLE, 9, 7), claim(Status.OPTIMAL, 9, 9)
    assert contradictions({"a": open_gap, "b": closed}) == []
    assert differences({"a": open_gap, "b": closed}) == [
        "a: between 7 and 9, but b: optimal 9"
    ]


def test_smaller_values_are_divided_as_fractions() -> None:
    assert Claim(Fraction(1), math.inf).divided(3) == Claim(Fraction(1, 3), math.inf)
