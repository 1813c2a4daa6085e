"""A hint is a whole solution: every variable has a value, and the values keep every rule."""

from __future__ import annotations

import pytest
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.constraints import Constraints
from ppsolve.solver.exact.model import CpsatModel
from ppsolve.solver.exact.question import Question
from ppsolve.solver.exact.variables import Variables
from ppsolve.solver.exact.windows import start_windows
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.exact.models import change_model
from tests.small import at, holding, op, small


@pytest.fixture(autouse=True, params=["orders", "reservoirs", "cumulatives"])
def form_of_pools(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.param == "cumulatives":
        change_model(monkeypatch, reservoir_events=-1)
    if request.param != "orders":
        change_model(monkeypatch, order_literals=-1)


def value_of_the_hint(problem: Problem, schedule: Schedule) -> int | None:
    """Return the objective of the hinted values alone, None if they break a rule."""
    implied = ImpliedOrder(problem)
    windows = start_windows(implied, schedule.value)
    most = schedule.value
    variables = Variables(cp_model.CpModel(), implied, windows, 0, most)
    model = CpsatModel(variables, Constraints(variables, implied), 0, most)
    model.fill(Question(0, schedule), Clock())
    proto = variables.model.proto
    assert sorted(proto.solution_hint.vars) == list(range(len(proto.variables)))
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.num_workers = 1
    if solver.solve(variables.model) != cp_model.OPTIMAL:
        return None
    return round(solver.objective_value)


def test_starts_and_makespan() -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")])
    assert value_of_the_hint(problem, at(problem, 3, 0)) == 5


def test_holds_between_ops() -> None:
    ops = [
        op("a", 1, acquire={"m": 1}),
        op("z", 2, release_at_end={"m": 1}),
        holding("b", 2, 1),
    ]
    problem = small(ops, [("a", "z")], capacity=1)
    assert value_of_the_hint(problem, at(problem, 0, 4, 6)) == 8


def test_holds_from_the_beginning_and_for_ever() -> None:
    ops = [op("free", 4, release_at_end={"m": 1}), holding("a", 2, 1)]
    ops.append(op("keep", 1, acquire={"m": 1}))
    problem = small(ops, capacity=1, initial=1)
    assert value_of_the_hint(problem, at(problem, 0, 4, 7)) == 8


def test_device_spans() -> None:
    ops = [op("first", 2, "r"), op("slow", 5, "s"), op("last", 3, "r")]
    problem = small(ops, [("first", "slow"), ("slow", "last")], objective="device_span")
    assert value_of_the_hint(problem, at(problem, 0, 2, 7)) == 10


def test_windows() -> None:
    ops = [op("a", 2, "r"), op("b", 2, "r")]
    problem = small(ops, windows={"a": [[0, 1], [4, 5]], "b": [[0, 1], [4, 5]]})
    assert value_of_the_hint(problem, at(problem, 5, 1)) == 7


def test_weighed_ends() -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")], weight={"a": 1, "b": 5})
    assert value_of_the_hint(problem, at(problem, 0, 2)) == 2 + 25


def test_what_breaks_a_rule_is_no_solution() -> None:
    problem = small([holding("a", 2, 1), holding("b", 2, 1), op("c", 9)], capacity=1)
    assert value_of_the_hint(problem, at(problem, 0, 1, 0)) is None
