"""The brute force itself, against trying every vector of integer starts."""

import numpy as np
import pytest

from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from tests.bruteforce import brute_force
from tests.marks import first
from tests.strategies import broken_rules, serial_schedule, tiny_problem, tiny_problems

MOST_VECTORS = 1_000_000

OBJECTIVES = (Objective.MAKESPAN, Objective.DEVICE_SPAN)


def all_starts(problem: Problem, horizon: int) -> IntArray:
    """Every start vector within the horizon that respects releases, pins and precedences."""
    starts = np.zeros((1, 0), dtype=np.int64)
    for op in range(problem.num_ops):
        first, last = int(problem.release[op]), horizon - int(problem.duration[op])
        pin = int(problem.pinned[op])
        choices = np.arange(first, last + 1) if pin == FREE else np.array([pin])
        starts = np.column_stack(
            (np.repeat(starts, len(choices), axis=0), np.tile(choices, len(starts)))
        )
        starts = starts[in_order(problem, starts)]
    return starts


def in_order(problem: Problem, starts: IntArray) -> IntArray:
    good = np.ones(len(starts), dtype=np.bool_)
    width = starts.shape[1]
    for a, b, lag in zip(problem.before, problem.after, problem.lag, strict=True):
        if max(a, b) < width:
            good &= starts[:, b] >= starts[:, a] + problem.duration[a] + lag
    return good


def least_value(problem: Problem, horizon: int) -> int | None:
    starts = all_starts(problem, horizon)
    values = values_of(problem, starts)
    for index in np.argsort(values, kind="stable").tolist():
        if not broken_rules(problem, starts[index].tolist()):
            return int(values[index])
    return None


def values_of(problem: Problem, starts: IntArray) -> IntArray:
    ends = starts + problem.duration
    if problem.objective is Objective.MAKESPAN:
        return ends.max(axis=1)
    spans = np.zeros((len(starts), 1), dtype=np.int64)
    for resource in problem.span_resources:
        ops = problem.ops_by_resource[int(resource)]
        if len(ops):
            span = ends[:, ops].max(axis=1) - starts[:, ops].min(axis=1)
            spans = np.column_stack((spans, span))
    return spans.max(axis=1)


def horizon_of(problem: Problem) -> int:
    """A makespan within which an optimum lies, in the objective's sense."""
    lags = np.zeros(problem.num_ops, dtype=np.int64)
    np.maximum.at(lags, problem.before, problem.lag)
    fixed = max(int(problem.release.max()), int(problem.pinned.max()), 0)
    return fixed + int((problem.duration + lags).sum())


def small_problems(objective: Objective, wanted: int) -> list[tuple[Problem, int]]:
    found: list[tuple[Problem, int]] = []
    for seed in range(5_000):
        problem = tiny_problem(seed)
        horizon = horizon_of(problem)
        vectors = horizon ** min(problem.num_ops, 20)
        if problem.objective is objective and vectors < MOST_VECTORS:
            found.append((problem, horizon))
        if len(found) == wanted:
            break
    return found


@pytest.mark.parametrize(
    ("wanted", "objective"),
    first(
        len(OBJECTIVES),
        [(count, objective) for count in (6, 15) for objective in OBJECTIVES],
    ),
)
def test_equals_trying_every_start(wanted: int, objective: Objective) -> None:
    compared = small_problems(objective, wanted)
    assert len(compared) == wanted
    for problem, horizon in compared:
        assert brute_force(problem) == least_value(problem, horizon), problem.name


def test_is_never_above_a_valid_schedule() -> None:
    rng = np.random.default_rng(5)
    compared = 0
    for problem in tiny_problems(80, seed=5):
        schedule = serial_schedule(problem, rng)
        if schedule is None:
            continue
        best = brute_force(problem)
        assert best is not None
        assert best <= schedule.value, problem.name
        compared += 1
    assert compared > 50


def test_tiny_problems_cover_every_feature() -> None:
    problems = tiny_problems(300)
    assert {problem.objective for problem in problems} == set(OBJECTIVES)
    assert all(problem.num_ops <= 20 for problem in problems)
    several = [p for p in problems if np.any(np.diff(p.resource_ptr) > 1)]
    features = {
        "several resources": several,
        "lags": [p for p in problems if np.any(p.lag > 0)],
        "release times": [p for p in problems if np.any(p.release > 0)],
        "pins": [p for p in problems if np.any(p.pinned != FREE)],
        "zero-length ops": [p for p in problems if np.any(p.duration == 0)],
        "memory": [p for p in problems if p.pools],
        "transfers": [p for p in problems if "TF" in p.kinds],
        "all-reduce": [p for p in problems if "AR" in p.kinds],
        "families": [p for p in problems if p.families],
        "fractional ticks": [p for p in problems if p.scale.tick != 1],
    }
    assert {name for name, having in features.items() if len(having) < 5} == set()
