"""Every rule by itself on random pipelines: no bound is above the optimum of the plain model."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.board import Board
from ppsolve.solver.bounds.flow.flow import Paths, flow_of
from ppsolve.solver.bounds.params import BoundsParams
from ppsolve.solver.bounds.registry import BOUNDS, RULES, BoundRule, OpenGap
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.few_devices import FewDevices
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.heuristics.order_search import obstacle
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.marks import later
from tests.outside.generators import FAMILIES, drawn
from tests.outside.plain_model import Instance, plain_optimum

LIGHT = BoundsParams(more_nodes=(2_000,))

FEW = 4
"""Instances of each family and objective that the default run tries."""

MOST = 5_000
"""Instances that the long run tries, a hundred at a time."""

MANY = range(1, 100)
"""Threes of instances of which the long run asks more than one search."""

UNITS = SearchLimits(seconds=None, deterministic=1.0)

OBJECTIVES = ("makespan", "device_span")


def gaps(optimum: int) -> Iterator[OpenGap]:
    """Yield what a costly rule may be told: good and bad schedules, weak and perfect bounds."""
    for upper in (optimum, optimum + 1, NEVER):
        for bound in (0, optimum):
            if bound < upper:
                yield OpenGap(bound, upper, Clock(), LIGHT)


def claims(rule: BoundRule, problem: Problem, makespan: int) -> Iterator[int]:
    """Yield the bounds of a rule in ticks, in each of its forms; `makespan` is the least one."""
    known = Relaxations(ImpliedOrder(problem))
    if (find := rule.find(known)) is not None:
        yield find().value
    flow = None if known.is_on_spans else flow_of(problem)
    if flow is None:
        return
    if rule.flow is not None:
        yield rule.flow(Paths(flow), LIGHT)
    if rule.assignments is not None:
        yield from (rule.assignments(flow, 1, is_equal) for is_equal in (True, False))
    for gap in gaps(makespan) if rule.costly is not None else ():
        yield from rule.costly(Paths(flow), gap)


def too_high(instance: Instance) -> dict[str, int]:
    """Return the rules that claim more than some schedule takes, with what they claim."""
    problem = lower(PipelineInstance(**instance))
    makespan = plain_optimum(instance | {"objective": "makespan"})
    if makespan is None:
        return {}
    ticks = int(makespan / problem.scale.tick)
    values = {
        rule.name: max(claims(rule, problem, ticks), default=0) for rule in BOUNDS
    }
    best = plain_optimum(instance, below=max(values.values()) * problem.scale.tick)
    if best is None:
        return {}
    return {
        name: value
        for name, value in values.items()
        if value * problem.scale.tick > best
    }


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_rule_is_above_the_optimum(family: str, objective: str) -> None:
    for seed in range(FEW):
        assert too_high(drawn(family, seed) | {"objective": objective}) == {}, seed


def least_of_two_replicas(instance: Instance, *, equal: bool) -> Fraction | None:
    """Return the least time of the slower replica, over all ways to share out micro-batches."""
    count = instance["num_microbatches"]
    whole, times = tuple(range(count)), dict[tuple[int, ...], Fraction | None]()
    for size in range(1, count + 1):
        for rows in combinations(whole, size):
            times[rows] = plain_optimum(part_of(instance, rows))
    shares = []
    for rows, time in times.items():
        rest = tuple(row for row in whole if row not in rows)
        other = times[rest] if rest else Fraction(0)
        is_open = not equal or 2 * len(rows) == count
        if time is not None and other is not None and is_open:
            shares.append(max(time, other))
    return min(shares, default=None)


def part_of(instance: Instance, rows: tuple[int, ...]) -> Instance:
    """Return a pipeline with some of its micro-batches alone."""

    def chosen(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: chosen(entry) for name, entry in value.items()}
        if isinstance(value, list) and isinstance(value[0], list):
            return [[row[number] for number in rows] for row in value]
        return value

    part = {
        name: chosen(instance[name]) for name in ("times", "memory") if name in instance
    }
    if "mode" in instance.get("p2p", {}):
        part["p2p"] = chosen(instance["p2p"])  # latencies have rows of devices
    return instance | part | {"num_microbatches": len(rows)}


@pytest.mark.parametrize("number", [0, *later("fuzz", MANY)])
@pytest.mark.parametrize("family", FAMILIES)
def test_exchange_is_not_above_the_best_assignment(family: str, number: int) -> None:
    for seed in range(3 * number, 3 * number + 3):
        instance = drawn(family, seed)
        problem = lower(PipelineInstance(**instance))
        flow = flow_of(problem)
        for equal in (
            (False, True) if instance["num_microbatches"] % 2 == 0 else (False,)
        ):
            best = least_of_two_replicas(instance, equal=equal)
            if flow is not None and best is not None:
                bound = RULES["exchange"].assignments(flow, 2, equal)
                assert bound * problem.scale.tick <= best, seed


@pytest.mark.parametrize("number", [0, *later("fuzz", MANY)])
@pytest.mark.parametrize("family", FAMILIES)
def test_few_devices_prove_no_more_than_the_optimum(family: str, number: int) -> None:
    for seed in range(3 * number, 3 * number + 3):
        instance = drawn(family, seed)
        problem, best = lower(PipelineInstance(**instance)), plain_optimum(instance)
        if best is not None and obstacle(problem) is None:
            board = Board.beginning(list_tail(problem))
            bound = FewDevices(ImpliedOrder(problem), board, UNITS).run()
            assert bound * problem.scale.tick <= best, seed


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(0, MOST, 100))
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("family", FAMILIES)
def test_nor_on_thousands(family: str, objective: str, first: int) -> None:
    for seed in range(first, first + 100):
        assert too_high(drawn(family, seed) | {"objective": objective}) == {}, seed
