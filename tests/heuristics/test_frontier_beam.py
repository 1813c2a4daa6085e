"""The beam over frontiers: valid schedules, optima where it is wide, and bounds that hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.frontier_beam import FRONTIER_BEAM, frontier_beam
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.params import FrontierBeamParams, HeuristicParams
from ppsolve.solver.kernels import compilation
from tests.bounds.frontier_cases import problem_of
from tests.bruteforce import brute_force
from tests.marks import later
from tests.outside.plain_model import Instance, plain_optimum
from tests.small import op, small

MANY = later("fuzz", range(1, 75))


def drawn(draw: Random, *, ops: int = 36) -> Instance:
    """Return a pipeline of few ops in tight memory."""
    while True:
        instance = _pipeline(draw, ops)
        with suppress(NotApplicableError):
            frontier_beam(problem_of(instance), Effort(Clock(0.0)))
            return instance


def _pipeline(draw: Random, ops: int) -> Instance:
    while True:
        devices = draw.choice([1, 2, 2, 3, 4])
        chunks = draw.choice([1, 2, 2, 3] if devices < 3 else [1, 2])
        stages, longest = devices * chunks, draw.choice([5, 20, 100])
        is_split = draw.random() < 0.6
        if stages * (kinds := 3 if is_split else 2) * 2 <= ops:
            break
    count = draw.randint(2, max(2, min(5, ops // (stages * kinds))))

    def times(factor: int = 1) -> list[int]:
        return [draw.randint(1, factor * longest) for _ in range(stages)]

    backward = (
        {"backward_input": times(), "backward_weight": times()}
        if is_split
        else {"backward": times(2)}
    )
    amounts = [draw.choice([1, 1.5, 0.5]) for _ in range(stages)]
    data: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": count,
        "placement": "linear"
        if chunks == 1
        else draw.choice(["interleaved", "vshape"] if chunks == 2 else ["interleaved"]),
        "p2p": {"latency": draw.choice([0, 0, 1, 7])},
        "times": {"forward": times()} | backward,
        "memory": {
            "activation": draw.choice([1, amounts]),
            "capacity": 1.5 * chunks + draw.choice([-0.5, 0, 0.5, 1, 2]),
        },
    }
    if chunks > 1:
        data["stages_per_device"] = chunks
    if is_split:
        share = draw.choice([0, 0.25, 0.5, 1])
        data["memory"]["released_by_backward_weight"] = share
    return data


def effort(board: Board | None = None, **fields: int) -> Effort:
    params = HeuristicParams(beam=FrontierBeamParams(**fields))
    return Effort(board=board or Board(), params=params)


WIDE = {"first_width": 100_000, "most_width": 100_000}


def searched(problem: Problem, **fields: int) -> tuple[Schedule | None, int]:
    """Return the schedule of a beam, which is checked, and its bound."""
    spent = effort(**fields)
    schedule = frontier_beam(problem, spent)
    assert schedule is None or not check_schedule(problem, schedule)
    return schedule, spent.board.bound.value


@pytest.mark.parametrize("number", [0, *MANY])
def test_wide_beams_are_exact_and_narrow_ones_valid(number: int) -> None:
    met = 0
    for seed in range(8 * number, 8 * (number + 1)):
        instance = drawn(Random(seed))
        problem, optimum = problem_of(instance), plain_optimum(instance)
        for width in (1, 5, 40):
            schedule, bound = searched(problem, first_width=width, most_width=width)
            if optimum is None:
                assert schedule is None
                continue
            assert bound * problem.scale.tick <= optimum, (seed, width)
            assert schedule is not None, (seed, width)
            assert schedule.value * problem.scale.tick >= optimum, (seed, width)
            met += schedule.value * problem.scale.tick == optimum
        if optimum is not None:
            schedule, bound = searched(problem, **WIDE)
            assert schedule is not None
            assert schedule.value * problem.scale.tick == optimum, seed
            assert bound == schedule.value, seed
    assert met >= 10 or number


@pytest.mark.parametrize("number", [0, *MANY])
def test_no_device_span_is_below_the_optimum(number: int) -> None:
    met = 0
    for seed in range(3 * number, 3 * (number + 1)):
        instance = drawn(Random(seed), ops=24) | {"objective": "device_span"}
        problem = problem_of(instance)
        try:
            optimum = plain_optimum(instance)
        except TimeoutError:
            continue
        schedule, bound = searched(problem, **WIDE)
        assert bound == 0
        if optimum is not None:
            assert schedule is not None
            assert schedule.value * problem.scale.tick >= optimum, seed
            met += schedule.value * problem.scale.tick == optimum
    assert met or number


TIGHT: Instance = {
    "num_devices": 2,
    "num_microbatches": 4,
    "placement": "interleaved",
    "stages_per_device": 2,
    "times": {"forward": 2, "backward_input": 3, "backward_weight": 4},
    "memory": {"activation": 1, "capacity": 3},
}


def test_what_is_no_better_than_the_incumbent_is_not_looked_for() -> None:
    problem = problem_of(TIGHT)
    best, bound = searched(problem, **WIDE)
    assert best is not None
    assert best.value == bound == plain_optimum(TIGHT)
    proved = effort(Board.beginning(best), **WIDE)
    assert frontier_beam(problem, proved) is None
    assert proved.board.is_closed
    assert proved.board.bound.name == FRONTIER_BEAM


RECOMPUTED = {
    "num_devices": 4,
    "num_microbatches": 8,
    "placement": "interleaved",
    "stages_per_device": 2,
    "times": {"forward": 13, "backward_input": 13, "backward_weight": 13},
    "memory": {
        "activation": 14.26,
        "capacity": 40,
        "released_by_backward_weight": 0.5,
        "recompute": {
            "modes": [{"name": "full", "time": 13, "held": 0.84}],
            "decide": ["full"] * 4 + ["keep"] * 4,
        },
    },
}


def test_backwards_that_take_memory_need_not_end_one_row_after_the_other() -> None:
    schedule, _ = searched(problem_of(RECOMPUTED), first_width=16, most_width=16)
    assert schedule is not None
    assert schedule.value <= 870


def test_rounds_grow_until_the_optimum_is_proved_or_labels_run_out() -> None:
    problem = problem_of(TIGHT)
    grown = effort(first_width=1, widening=8, labels_per_op=10**6)
    frontier_beam(problem, grown)
    assert grown.board.is_closed
    cut = effort(first_width=30, labels=1)
    assert frontier_beam(problem_of(TIGHT | {"num_devices": 4}), cut) is None


def test_without_time_nothing_is_found() -> None:
    spent = replace(effort(), clock=Clock(0.0))
    assert frontier_beam(problem_of(TIGHT), spent) is None
    assert spent.board.bound.value == 0


def test_without_room_a_beam_finds_nothing() -> None:
    schedule, bound = searched(
        problem_of(TIGHT | {"num_devices": 4}), first_width=30, most_width=30, words=1
    )
    assert schedule is None
    assert bound == 0


def test_answers_do_not_depend_on_compiled_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [problem_of(drawn(Random(seed))) for seed in range(4)]
    few = {"first_width": 6, "most_width": 6}
    answers = []
    for is_compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        results = [searched(problem, **few) for problem in problems]
        answers.append(
            [
                (None if schedule is None else schedule.start.tolist(), bound)
                for schedule, bound in results
            ]
        )
    assert answers[0] == answers[1]


def rows(count: int, **changes: Any) -> Problem:
    """Return rows of a forward and a backward on one resource, which holds two of them."""
    ops, edges = [], []
    for k in range(count):
        first = op(f"f{k}", changes.get("first", 2), "r", acquire={"m": 1})
        where = changes.get("where", "r")
        ops += [
            first,
            op(f"b{k}", 3, where, release_at_end={"m": 1}),
        ]
        edges.append((f"f{k}", f"b{k}", 7))
    family = [[f"f{k}", f"b{k}"] for k in range(count)]
    more = [op("x", 1, "r")] if changes.get("more") else []
    return small(ops + more, edges, capacity=2, families=[family])


def test_rows_of_any_problem_are_scheduled() -> None:
    schedule, bound = searched(rows(4), **WIDE)
    assert schedule is not None
    assert schedule.value == bound == brute_force(rows(4))


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (rows(3, first=0), "needs pools whose ops all run on one resource"),
        (rows(3, where="s"), "needs pools whose ops all run on one resource"),
        (rows(2), "needs memory that not all micro-batches fit into"),
        (rows(3, more=True), "needs alike micro-batches, and no other ops"),
        (rows(1), "needs several micro-batches, and memory that is limited"),
        (
            problem_of(TIGHT | {"memory": None}),
            "needs several micro-batches, and memory that is limited",
        ),
    ],
)
def test_where_it_does_not_apply(problem: Problem, reason: str) -> None:
    with pytest.raises(NotApplicableError, match=reason):
        frontier_beam(problem, effort())
