"""More than a thousand corrupted schedules, each of which the checker must refuse."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.checker import check_schedule
from tests.marks import examples
from tests.strategies import (
    broken_rules,
    in_use,
    serial_schedule,
    tiny_problem,
    tiny_problems,
)

Generator = np.random.Generator
Corruption = Callable[[Problem, list[int], Generator], list[int] | None]
"""Takes a problem and valid starts; returns starts that break the rule, None if it cannot."""


def negative_start(
    problem: Problem, start: list[int], rng: Generator
) -> list[int] | None:
    start[int(rng.integers(len(start)))] = -int(rng.integers(1, 5))
    return start


def before_release(
    problem: Problem, start: list[int], rng: Generator
) -> list[int] | None:
    released = np.flatnonzero(problem.release > 0)
    if not len(released):
        return None
    op = int(rng.choice(released))
    start[op] = int(problem.release[op]) - int(rng.integers(1, 4))
    return start


def off_its_pin(problem: Problem, start: list[int], rng: Generator) -> list[int] | None:
    pinned = np.flatnonzero(problem.pinned != FREE)
    if not len(pinned):
        return None
    start[int(rng.choice(pinned))] += int(rng.choice([-2, -1, 1, 2, 7]))
    return start


def before_predecessor(
    problem: Problem, start: list[int], rng: Generator
) -> list[int] | None:
    if not len(problem.before):
        return None
    edge = int(rng.integers(len(problem.before)))
    before, after = int(problem.before[edge]), int(problem.after[edge])
    end = start[before] + int(problem.duration[before]) + int(problem.lag[edge])
    start[after] = end - int(rng.integers(1, 4))
    return start


def on_top_of_another(
    problem: Problem, start: list[int], rng: Generator
) -> list[int] | None:
    resource = int(rng.integers(problem.num_resources))
    ops = problem.ops_by_resource[resource]
    ops = ops[problem.duration[ops] > 0]
    if len(ops) < 2:
        return None
    moved, other = (int(op) for op in rng.choice(ops, size=2, replace=False))
    first = start[other] - int(problem.duration[moved]) + 1
    start[moved] = int(rng.integers(first, start[other] + int(problem.duration[other])))
    return start


def more_than_fits(
    problem: Problem, start: list[int], rng: Generator
) -> list[int] | None:
    """Move one acquiring op to an instant at which the others leave too little room."""
    if not problem.pools:
        return None
    pool = problem.pools[int(rng.integers(len(problem.pools)))]
    ends = np.array(start) + problem.duration
    for op in rng.permutation(pool.acquire_op).tolist():
        for moment in rng.permutation(np.unique(np.append(ends, start))).tolist():
            moved = {**dict(enumerate(start)), op: moment}
            if in_use(pool, problem, moved, moment) > pool.limit:
                start[op] = moment
                return start
    return None


STARTS: dict[str, Corruption] = {
    "start": negative_start,
    "release": before_release,
    "pin": off_its_pin,
    "precedence": before_predecessor,
    "overlap": on_top_of_another,
    "memory": more_than_fits,
}


def valid_schedules(count: int, seed: int) -> Iterator[Schedule]:
    rng = np.random.default_rng(seed)
    for problem in tiny_problems(count, seed):
        schedule = serial_schedule(problem, rng, tries=5)
        if schedule is not None:
            yield schedule


def test_checker_refuses_every_corrupted_start() -> None:
    rng = np.random.default_rng(1)
    seen: Counter[str] = Counter()
    for schedule in valid_schedules(120, seed=1):
        problem = schedule.problem
        assert check_schedule(problem, schedule) == []
        for rule, corrupt in list(STARTS.items()) * 3:
            start = corrupt(problem, schedule.start.tolist(), rng)
            if start is None:
                continue
            found = check_schedule(
                problem, Schedule(problem, np.array(start, dtype=np.int64))
            )
            assert rule in {violation.rule for violation in found}, (
                problem.name,
                rule,
                start,
            )
            seen[rule] += 1
    assert seen.total() >= 800, seen
    assert min(seen[rule] for rule in STARTS) >= 20, seen


def drop_an_op(document: dict[str, Any], rng: Generator) -> str:
    del document["ops"][int(rng.integers(len(document["ops"])))]
    return "missing"


def wrong_end(document: dict[str, Any], rng: Generator) -> str:
    document["ops"][int(rng.integers(len(document["ops"])))]["end"] += int(
        rng.choice([-1, 1, 9])
    )
    return "duration"


def between_ticks(document: dict[str, Any], rng: Generator) -> str:
    op = document["ops"][int(rng.integers(len(document["ops"])))]
    op["start"] += 0.21
    op["end"] += 0.21
    return "tick"


def wrong_claim(document: dict[str, Any], rng: Generator) -> str:
    document[str(rng.choice(["value", "makespan", "device_span"]))] += int(
        rng.choice([-1, 1, 5])
    )
    return "objective"


def wrong_label(document: dict[str, Any], rng: Generator) -> str:
    op = document["ops"][int(rng.integers(len(document["ops"])))]
    label = str(rng.choice(["kind", "stage", "device", "microbatch"]))
    if label == "kind":
        op["kind"] = str(rng.choice([kind for kind in "FBIW" if kind != op["kind"]]))
    else:
        op[label] = (0 if op[label] is None else op[label]) + int(rng.integers(1, 4))
    return "label"


def wrong_bound(document: dict[str, Any], rng: Generator) -> str:
    document["bound"] += int(rng.choice([-1, 1, 5]))
    return "objective"


def wrong_gap(document: dict[str, Any], rng: Generator) -> str:
    document["gap"] = float(rng.choice([1e-6, 0.25, -0.1]))
    return "objective"


@cache
def written_schedules() -> list[tuple[Problem, str]]:
    """Return problems and texts of results of them, which are right."""
    found = []
    for schedule in valid_schedules(80, seed=2):
        problem = schedule.problem
        time = problem.scale.time
        document = ScheduleDocument.of(schedule).model_dump(mode="json")
        document["value"] = time(schedule.value)
        document["makespan"] = time(schedule.makespan)
        document["device_span"] = time(schedule.device_span)
        document.update(status="OPTIMAL", bound=document["value"], gap=0.0)
        assert parse_given(document, problem)[1] == []
        found.append((problem, json.dumps(document)))
    return found


@pytest.mark.parametrize(
    "corrupt",
    [
        drop_an_op,
        wrong_end,
        between_ticks,
        wrong_claim,
        wrong_label,
        wrong_bound,
        wrong_gap,
    ],
)
def test_reader_reports_every_corrupted_document(corrupt: Callable[..., str]) -> None:
    rng = np.random.default_rng(2)
    tried = 0
    for problem, text in written_schedules():
        document = json.loads(text)
        rule = corrupt(document, rng)
        found = {violation.rule for violation in parse_given(document, problem)[1]}
        assert rule in found, (problem.name, found)
        tried += 1
    assert tried >= 50


@pytest.mark.parametrize("name", ["F0.0x", "op-1", ""])
def test_reader_refuses_an_unknown_op(name: str) -> None:
    schedule = next(valid_schedules(20, seed=3))
    document = ScheduleDocument.of(schedule).model_dump(mode="json")
    document["ops"][0]["id"] = name
    with pytest.raises(InputError, match="unknown op"):
        parse_given(document, schedule.problem)


@examples(50)
@given(st.integers(0, 10**6), st.lists(st.integers(-2, 25), min_size=24, max_size=24))
def test_checker_agrees_with_plain_loops_on_any_starts(
    seed: int, starts: list[int]
) -> None:
    problem = tiny_problem(seed)
    start = np.array(starts[: problem.num_ops], dtype=np.int64)
    found = {
        violation.rule
        for violation in check_schedule(problem, Schedule(problem, start))
    }
    assert found == broken_rules(problem, start.tolist())


@examples(34)
@given(st.integers(0, 10**6), st.integers(0, 25), st.integers(0, 25))
def test_checker_agrees_with_plain_loops_near_valid_schedules(
    seed: int, op: int, start: int
) -> None:
    problem = tiny_problem(seed)
    schedule = serial_schedule(problem, np.random.default_rng(seed), tries=3)
    if schedule is None:
        return
    starts = schedule.start.copy()
    starts[op % len(starts)] = start
    found = {
        violation.rule
        for violation in check_schedule(problem, Schedule(problem, starts))
    }
    assert found == broken_rules(problem, starts.tolist())


@examples(20)
@given(st.integers(0, 10**6), st.integers(0, 10**9))
def test_starting_everything_later_stays_valid(seed: int, shift: int) -> None:
    problem = tiny_problem(seed)
    schedule = serial_schedule(problem, np.random.default_rng(seed), tries=3)
    if schedule is None or np.any(problem.pinned != FREE):
        return
    assert check_schedule(problem, Schedule(problem, schedule.start + shift)) == []
