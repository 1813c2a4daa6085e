"""Why a search ended, what listeners hear, and what is left of a limit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from ortools.sat.python import cp_model

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.board import Board
from ppsolve.solver.exact import constraints, memory
from ppsolve.solver.exact.model import index_ordered
from ppsolve.solver.exact.parameters import ModelTraits, configured
from ppsolve.solver.exact.params import AmountParams
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.exact.search import SharedIncumbent, SolverRun, stop_reason
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.exact.models import model_of
from tests.small import at, holding, op, small


def reason(
    status: int, limits: SearchLimits, *, interrupted: bool = False, **solver: Any
) -> Any:
    given: Any = SimpleNamespace(**solver)
    return stop_reason(given, status, limits, interrupted)


@pytest.mark.parametrize(
    ("value", "bound", "expected"),
    [
        (10, 10, StopReason.PROVED),
        (10, 9.6, StopReason.PROVED),
        (10, 9.0, StopReason.GAP),
    ],
)
def test_optimal_within_a_gap_is_not_called_proved(
    value: float, bound: float, expected: StopReason
) -> None:
    limits = SearchLimits(gap=0.2)
    found = reason(
        cp_model.OPTIMAL, limits, objective_value=value, best_objective_bound=bound
    )
    assert found is expected


@pytest.mark.parametrize("status", [cp_model.FEASIBLE, cp_model.UNKNOWN])
@pytest.mark.parametrize(
    ("seconds", "units", "used", "expected"),
    [
        (5.0, None, 1.0, StopReason.TIME),
        (5.0, 2.0, 1.9, StopReason.DETERMINISTIC),
        (5.0, 2.0, 1.8, StopReason.TIME),
        (None, 2.0, 0.1, StopReason.DETERMINISTIC),
    ],
)
def test_the_limit_that_was_reached_is_named(
    status: int,
    seconds: float | None,
    units: float | None,
    used: float,
    expected: StopReason,
) -> None:
    limits = SearchLimits(seconds=seconds, deterministic=units)
    assert reason(status, limits, deterministic_time=used) is expected


def test_an_interrupt_is_named_unless_the_answer_was_proved() -> None:
    proved = {
        "objective_value": 3.0,
        "best_objective_bound": 3.0,
        "deterministic_time": 0.0,
    }
    limits = SearchLimits()
    for status, expected in (
        (cp_model.FEASIBLE, StopReason.INTERRUPTED),
        (cp_model.UNKNOWN, StopReason.INTERRUPTED),
        (cp_model.OPTIMAL, StopReason.PROVED),
        (cp_model.INFEASIBLE, StopReason.INFEASIBLE),
    ):
        assert reason(status, limits, interrupted=True, **proved) is expected


def test_limits_are_shared_and_used_up() -> None:
    limits = SearchLimits(seconds=10.0, deterministic=4.0, gap=0.1, workers=3, seed=7)
    assert limits.scaled(0.25) == SearchLimits(2.5, 1.0, 0.1, 3, 7)
    assert limits.less(3.0, 1.0) == SearchLimits(7.0, 3.0, 0.1, 3, 7)
    assert limits.less(30.0, 5.0) == SearchLimits(0.0, 0.0, 0.1, 3, 7)
    unlimited = SearchLimits(seconds=None)
    assert unlimited.scaled(0.25) == unlimited.less(3.0, 1.0) == unlimited


def test_building_the_model_counts_as_used_time() -> None:
    parameters = configured(SearchLimits(seconds=5.0, seed=2**31 + 3), 2.0).parameters
    assert (parameters.max_time_in_seconds, parameters.random_seed) == (3.0, 3)
    assert (
        configured(SearchLimits(seconds=5.0), 9.0).parameters.max_time_in_seconds == 0.0
    )


def test_presolve_is_light_on_request() -> None:
    plain = configured(SearchLimits(), 0.0).parameters
    light = configured(
        SearchLimits(), 0.0, ModelTraits(has_many_literals=True)
    ).parameters
    assert plain.cp_model_probing_level == 2
    assert (light.cp_model_probing_level, light.symmetry_level) == (0, 0)
    assert light.max_presolve_iterations == 1
    assert light.cp_model_presolve


@pytest.mark.parametrize(
    ("alike", "is_mostly"), [(0, False), (1, False), (2, True), (3, True)]
)
def test_questions_about_ops_that_differ_are_propagated_strongly(
    alike: int, is_mostly: bool
) -> None:
    ops = [op(f"{name}{row}", 1, "r") for row in range(4) for name in "ab"]
    families = [[["a0"], ["a1"]], [["b0"], ["b1"]], [["a2"], ["a3"]]][:alike]
    model = model_of(small(ops, families=families))
    assert model.traits.is_mostly_alike == is_mostly
    for is_question in (True, False):
        run = SolverRun(
            model, SharedIncumbent(model), SearchLimits(dynamic_orders=is_question), 0.0
        )
        is_strong = run.solver.parameters.use_strong_propagation_in_disjunctive
        assert is_strong == (is_question and not is_mostly)
        assert run.wait(60.0)


@pytest.mark.parametrize("most", [0, 3])
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
def test_small_models_of_device_spans_are_minimised_linearly(
    objective: str, most: int
) -> None:
    problem = small([op(name, 1, "r") for name in "abc"], objective=objective)
    with patch.object(
        constraints, "MODEL", replace(constraints.MODEL, floating_pairs=most)
    ):
        model = model_of(problem)
    assert len(model.variables.orders) == (most if objective == "device_span" else 0)
    for is_question in (True, False):
        limits = SearchLimits(dynamic_orders=is_question, workers=2)
        run = SolverRun(model, SharedIncumbent(model), limits, 0.0)
        parameters = run.solver.parameters
        is_linear = (parameters.num_workers, parameters.linearization_level) == (1, 2)
        assert is_linear == (not is_question and len(model.variables.orders) > 0)
        assert run.wait(60.0)


def test_larger_models_of_device_spans_are_not() -> None:
    problem = small([op(f"{n}", 1, "r") for n in range(9)], objective="device_span")
    model = model_of(problem)
    assert len(model.variables.orders) == 36
    assert not model.traits.is_small_span


@pytest.mark.parametrize("workers", [1, 2])
def test_times_of_sixteen_digits_are_proved(workers: int) -> None:
    # Starts rose by a few of 4.5e9 ticks at a time, and a gap of 1e-7 was open after a minute.
    found = ppsolve.optimize(
        PipelineInstance.parse(
            {
                "num_devices": 3,
                "num_microbatches": 2,
                "times": {
                    "forward": [
                        3.8256543205677653,
                        1.0123456789012346,
                        1.0123456789012346,
                    ],
                    "backward_input": [
                        1.8181728393066172,
                        8.727432097807544,
                        9.067580245918357,
                    ],
                    "backward_weight": [
                        1.5164938269940493,
                        4.0493827156049385,
                        1.0123456789012346,
                    ],
                },
                "objective": "device_span",
            }
        ),
        workers=workers,
    )
    assert found.status is Status.OPTIMAL


@pytest.mark.parametrize(("rounding", "hears"), [("down", False), ("up", True)])
def test_incumbents_that_may_break_memory_are_not_announced(
    rounding: Any, hears: bool
) -> None:
    board = Board()
    problem = small(
        [holding("a", 1, 0.3), holding("b", 1, 0.6), holding("c", 1, 0.7)], capacity=1
    )
    with patch.multiple(
        memory, AMOUNTS=AmountParams(2**6, 2**6), _same_sets=lambda *_: False
    ):
        found = solve(
            ImpliedOrder(problem),
            lower=0,
            incumbent=None,
            limits=SearchLimits(seconds=20),
            rounding=rounding,
            board=board,
        )
    assert not found.memory_is_exact
    assert found.schedule is not None
    assert (board.value is not None) is hears


def test_exact_incumbents_and_bounds_are_announced() -> None:
    values: list[int | None] = []
    bounds: list[int] = []
    problem, board = small([op("a", 2, "r"), op("b", 3, "r")]), Board()

    def note(event: str, by: str) -> None:
        if event == "bound":
            bounds.append(board.bound.value)
        else:
            values.append(board.value)

    board.subscribe(note)
    found = solve(
        ImpliedOrder(problem),
        lower=0,
        incumbent=None,
        limits=SearchLimits(seconds=20),
        board=board,
    )
    assert found.bound == 5
    assert values[-1] == 5
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == 5


def test_incumbent_is_relabelled_into_index_order() -> None:
    problem = small([op("a", 2, "r"), op("b", 2, "r")], families=[[["a"], ["b"]]])
    ordered = index_ordered(ImpliedOrder(problem), at(problem, 2, 0))
    assert ordered.start.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("workers", "is_question", "level"), [(1, True, 0), (1, False, 1), (3, True, 1)]
)
def test_linear_relaxations_are_off_for_questions_on_one_worker(
    workers: int, is_question: bool, level: int
) -> None:
    limits = SearchLimits(workers=workers, dynamic_orders=is_question)
    assert configured(limits, 0.0).parameters.linearization_level == level
