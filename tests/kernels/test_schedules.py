"""Kernels of schedules: small cases by hand, and the same starts compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.list_scheduling import generate_serial, longest_tail
from ppsolve.solver.heuristics.spans import compact_spans, right_shift
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.longest_paths import (
    Groups,
    earliest_starts,
    longest_tails,
    sort_ops,
    start_within,
)
from ppsolve.solver.kernels.records import NEVER, ResourceUse
from ppsolve.solver.kernels.serial_sgs import Gaps, block, free_from, occupy
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import (
    graph_of,
    memory_of,
    renumbered,
    reversed_memory,
    sources_of,
)
from ppsolve.solver.structure.timing import time_orders
from tests.paths import ROOT
from tests.small import holding, op, small


def test_all_resources_of_an_op_are_free_at_once() -> None:
    # Resource 0 is free from 3, resource 1 on 0..4 and from 9.
    gaps = Gaps([3, 0, 0, 9, 0], [NEVER, 0, 4, NEVER, 0], [0, 2], [0, 3])
    both = ResourceUse([0, 2], [0, 1], 2)
    assert free_from(gaps, both, 0, 0, 1) == 3
    assert free_from(gaps, both, 0, 0, 2) == 9
    occupy(gaps, both, 0, 9, 11)
    assert free_from(gaps, both, 0, 4, 2) == 11
    assert free_from(gaps, ResourceUse([0, 1], [0], 2), 0, 0, 6) == 3


def test_blocking_what_is_occupied_in_part_leaves_the_rest() -> None:
    gaps = Gaps([0] * 4, [NEVER, 0, 0, 0], [0], [0])
    for begin, end in ((2, 4), (6, 8), (3, 7)):
        block(gaps, 0, begin, end)
    assert gaps.high == [1]
    assert (gaps.begin[:2], gaps.end[:2]) == ([0, 8], [2, NEVER])


def chain() -> Problem:
    """A chain a, b, c with a lag of 2 behind a, and d beside it."""
    ops = [op("c", 4, "r"), op("a", 1, "r"), op("b", 3, "s"), op("d", 9)]
    return small(ops, (("a", "b", 2), ("b", "c")))


def sorted_ops(problem: Problem) -> IntArray:
    order = np.zeros(problem.num_ops, dtype=np.int64)
    table = graph_of(problem)
    assert sort_ops(table, table.num_predecessors.copy(), order) == problem.num_ops
    return order


def test_paths_through_a_chain() -> None:
    problem, order = chain(), sorted_ops(chain())
    assert order.tolist() == [1, 3, 2, 0]
    start = np.zeros(4, dtype=np.int64)
    earliest_starts(graph_of(problem), order, start)
    assert start.tolist() == [6, 0, 3, 0]
    tail = problem.duration.copy()
    longest_tails(graph_of(problem), order, tail)
    assert tail.tolist() == [4, 10, 7, 9]


def test_ops_that_wait_for_a_cycle_are_not_sorted() -> None:
    problem = small([op("a", 1), op("b", 1), op("c", 1)], (("b", "c"),))
    back = tuple(np.array([number]) for number in (2, 1, 0))  # b after c
    table = graph_of(problem, back)
    order = np.zeros(3, dtype=np.int64)
    assert sort_ops(table, table.num_predecessors.copy(), order) == 1
    assert order[0] == 0


def test_renumbered_ops_have_the_same_precedences() -> None:
    problem, order = chain(), sorted_ops(chain())
    table = renumbered(graph_of(problem), order)
    start = np.zeros(4, dtype=np.int64)
    earliest_starts(table, np.arange(4), start)
    assert start.tolist() == [0, 0, 3, 6]
    assert table.duration.tolist() == [1, 9, 3, 4]


@pytest.mark.parametrize(("target", "starts"), [(10, [0, 0, 3, 6]), (9, None)])
def test_span_of_a_group_that_the_chain_allows(
    target: int, starts: list[int] | None
) -> None:
    # a and c are on one device; from the start of a to the end of c the chain takes 10 ticks.
    table = renumbered(graph_of(chain()), sorted_ops(chain()))
    start = np.zeros(4, dtype=np.int64)
    groups = Groups(np.array([0, 2, 2]), np.array([0, 3]))
    assert start_within(table, groups, target, start) == (starts is not None)
    assert starts is None or start.tolist() == starts


def test_time_and_memory_run_back() -> None:
    problem = small([holding("a", 1, 2), holding("b", 1, 1)], capacity=3)
    memory = memory_of(problem)
    back = reversed_memory(memory)
    assert (
        back.size.tolist() == memory.size.tolist()
    )  # All that is taken is given back.
    assert back.acquire_amount.tolist() == memory.release_amount.tolist()
    there, here = sources_of(chain()), sources_of(chain(), backwards=True)
    assert (there.pointer.tolist(), there.source.tolist()) == ([0, 1, 1, 2, 2], [2, 1])
    assert (here.pointer.tolist(), here.source.tolist()) == ([0, 0, 1, 2, 2], [2, 0])


def test_a_clock_that_is_over_ends_the_bisection() -> None:
    problem = lower(
        load_instance(ROOT / "instances" / "virtual_stages/v-4x8-cap6.json")
    )
    schedule = generate_serial(problem, longest_tail(problem), index_order(problem))
    over = compact_spans(schedule, Clock(0.0))
    assert over.device_span <= min(
        schedule.device_span, right_shift(schedule).device_span
    )


NAMES = (
    "published/zb-1.5b-8x24-1p.json",
    "virtual_stages/v-4x8-cap6.json",
    "p2p_heavy/link-uneven-4x12.json",
)


def serial(problem: Problem) -> Schedule:
    return generate_serial(problem, longest_tail(problem), index_order(problem))


def in_windows(problem: Problem) -> Problem:
    shared = np.array([[0, 40], [300, 10**9]], dtype=np.int64)
    return replace(problem, windows=dict.fromkeys(range(0, problem.num_ops, 3), shared))


WAYS: tuple[Callable[[Problem], Schedule], ...] = (
    serial,
    lambda problem: serial(in_windows(problem)),
    lambda problem: time_orders(problem, []),
    lambda problem: time_orders(problem, serial(problem).resource_orders()),
    lambda problem: compact_spans(serial(problem)),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", range(len(WAYS)))
def test_compiled_and_not(name: str, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = lower(load_instance(ROOT / "instances" / name))
    found = []
    for compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", compiled)
        found.append(WAYS[way](problem).start)
    np.testing.assert_array_equal(*found)
    assert FREE not in found[0]
