"""No set of parameters that a search uses may refute what another one finds.

Every set that `configured` can make is run on random models with every kind of interval that the
lowerings make, as a search for the optimum and as questions about targets, and compared with
CP-SAT's defaults; solutions are checked from the rules themselves.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest
from ortools.sat.python import cp_model

from ppsolve.solver.exact.parameters import ModelTraits, configured
from ppsolve.solver.exact.question import SearchLimits
from tests.exact.random_models import Rules, broken_rule, build, random_rules, value_of
from tests.marks import later

BATCH = 20
FEW, MANY = range(1), range(1, 150)
"""Batches of models of the default run, and of the long one."""

CRASHING = Rules(
    duration=[1, 1, 8, 2, 2, 1],
    machine=[0, 1, 0, 0, 2, 2],
    windows=[[0, 40]] * 6,
    edges=[(0, 3, 3), (2, 5, 3), (4, 5, 0), (1, 5, 0), (0, 1, 0), (3, 5, 0)],
    holds=[(2, 5, 2), (1, 5, 1), (0, 1, 2), (3, 5, 2)],
    capacity=3,
)
"""CP-SAT 9.15 ends the process on it under dynamic precedences: no two of three holds of 2 fit
together, and as intervals they have no fixed length."""

UNSOUND = Rules(
    duration=[3, 8, 5, 0, 0, 8],
    machine=[-1, 0, 0, 0, 0, 0],
    windows=[[0, 30]] * 6,
    edges=[(0, 2, 0), (1, 2, 2), (1, 4, 2), (2, 3, 0), (2, 4, 0)],
)
"""CP-SAT 9.15 refutes it with strong propagation; the optimum is 8 + 2 + 5 = 15, then 8 more."""


def solve(
    rules: Rules,
    solver: cp_model.CpSolver,
    most: int | None = None,
    hint: list[int] | None = None,
) -> tuple[int | None, list[int]]:
    """Return the value of the solution, None where there is none, and its starts."""
    built = build(rules, most)
    for variable, value in zip(built.start, hint or [], strict=False):
        built.model.add_hint(variable, value)
    status = solver.solve(built.model)
    if status == cp_model.INFEASIBLE:
        return None, []
    assert status == cp_model.OPTIMAL
    start = [solver.value(variable) for variable in built.start]
    present = {op for op, variable in built.present.items() if solver.value(variable)}
    duration = list(rules.duration)
    for op, ways in built.ways.items():
        (duration[op],) = (length for length, literal in ways if solver.value(literal))
    rules = replace(rules, duration=duration)
    assert broken_rule(rules, start, present) is None
    value = value_of(rules, start, present)
    assert value <= round(solver.objective_value)
    return value, start


@cache
def parameter_sets(workers: int, *, plain: bool) -> list[cp_model.CpSolver]:
    """Return a solver with every set of parameters that a search may use, each once."""
    found: dict[str, cp_model.CpSolver] = {}
    for dynamic, short, *traits in itertools.product([False, True], repeat=5):
        for seed in (0, 7):
            limits = SearchLimits(
                seconds=None,
                workers=workers,
                seed=seed,
                dynamic_orders=dynamic,
                is_short=short,
            )
            solver = configured(limits, traits=ModelTraits(plain, *traits))
            found.setdefault(str(solver.parameters), solver)
    return list(found.values())


def assert_agreement(rules: Rules, workers: int) -> None:
    default = cp_model.CpSolver()
    default.parameters.num_workers = 1
    best, known = solve(rules, default)
    for solver in parameter_sets(workers, plain=rules.has_plain_intervals):
        named = f"{rules}\n{solver.parameters}"
        assert solve(rules, solver, hint=known)[0] == best, named
        if best is not None:
            assert solve(rules, solver, best)[0] == best, named
            assert best == 0 or solve(rules, solver, best - 1)[0] is None, named


def batch(number: int) -> list[Rules]:
    first = BATCH * number
    return [
        random_rules(seed, points=bool(seed % 2), choices=seed % 4 > 1)
        for seed in range(first, first + BATCH)
    ]


@pytest.mark.parametrize("number", [*FEW, *later("fuzz", MANY)])
def test_sets_of_parameters_agree_on_random_models(number: int) -> None:
    for rules in batch(number):
        assert_agreement(rules, 1)


@pytest.mark.fuzz
@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("number", range(200, 210))
def test_sets_of_parameters_agree_with_several_workers(
    number: int, workers: int
) -> None:
    for rules in batch(number):
        assert_agreement(rules, workers)


@pytest.mark.parametrize("rules", [CRASHING, UNSOUND], ids=["crashing", "unsound"])
def test_models_that_parameters_were_wrong_about(rules: Rules) -> None:
    assert not rules.has_plain_intervals
    assert_agreement(rules, 1)


def test_random_models_tell_an_unsound_option() -> None:
    # What is in use where nothing has length zero is wrong for points.
    limits = SearchLimits(seconds=None, dynamic_orders=True)
    unsound = configured(limits, traits=ModelTraits())
    assert unsound.parameters.use_strong_propagation_in_disjunctive
    sound = configured(limits, traits=ModelTraits(has_plain_intervals=False))
    models = [random_rules(seed, points=True) for seed in range(1, 340, 2)]
    assert any(solve(rules, unsound)[0] != solve(rules, sound)[0] for rules in models)


def test_random_models_have_every_kind_of_rule() -> None:
    every = [rules for number in range(3) for rules in batch(number)]
    for has in (
        lambda r: r.has_plain_intervals,
        lambda r: r.optional,
        lambda r: r.holds and r.is_reservoir,
        lambda r: r.holds and not r.is_reservoir,
        lambda r: r.has_orders,
        lambda r: r.lengths,
        lambda r: any(low == high for low, high, *_ in r.windows),
        lambda r: any(len(flat) > 2 for flat in r.windows),
    ):
        assert 5 <= len([rules for rules in every if has(rules)]) <= 55


@pytest.mark.parametrize(
    ("start", "present", "rule"),
    [
        ([0, 4, 6], {2}, None),
        ([0, 3, 6], {2}, "0 and 1 at once"),
        ([1, 5, 7], {2}, "window of 0"),
        ([0, 4, 5], {2}, "1 before 2"),
        ([0, 4, 5], set(), "one of [2]"),
        ([0, 4, 7], {2}, None),
    ],
)
def test_solutions_are_checked_by_the_rules(
    start: list[int], present: set[int], rule: str | None
) -> None:
    rules = Rules(
        duration=[4, 2, 1],
        machine=[0, 0, -1],
        windows=[[0, 0], [0, 9], [0, 9]],
        edges=[(1, 2, 0)],
        optional={2},
        groups=[[2]],
        holds=[(0, 0, 1), (1, 1, 2)],
        capacity=2,
    )
    assert broken_rule(rules, start, present) == rule
    if rule is None:
        assert value_of(rules, start, present) == start[2] + 1


def test_what_is_held_at_once_is_counted() -> None:
    rules = Rules(
        [2, 2, 2], [-1] * 3, [[0, 9]] * 3, [], holds=[(0, 1, 1), (2, 2, 2)], capacity=2
    )
    assert broken_rule(rules, [0, 2, 4], set()) is None
    assert broken_rule(rules, [0, 2, 3], set()) == "3 held at 3"
