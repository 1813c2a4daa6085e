"""The optimum of one device with its memory: against all orders, and the plain model."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.solver.bounds.frontier import frontier, least_end
from ppsolve.solver.bounds.params import BoundsEffort, BoundsParams
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.bounds.frontier_cases import (
    Plain,
    PlainOp,
    chains_of,
    drawn_chain,
    drawn_pipeline,
    problem_of,
)
from tests.bruteforce import brute_force
from tests.marks import later
from tests.outside.plain_model import Instance, plain_optimum
from tests.small import op, small

MANY = later("fuzz", range(1, 30))


def effort(**fields: Any) -> BoundsEffort:
    return BoundsEffort(params=BoundsParams(**fields))


@pytest.mark.parametrize("number", [0, *MANY])
def test_chains_end_at_the_optimum_of_all_orders(number: int) -> None:
    for seed in range(100 * number, 100 * (number + 1)):
        plain = drawn_chain(Random(seed), loose=False)
        assert least_end(plain.chain).bound == plain.optimum(), seed


@pytest.mark.parametrize("number", [0, *MANY])
def test_loose_work_is_never_above_that_which_is_not_interrupted(number: int) -> None:
    equal = 0
    for seed in range(70 * number, 70 * (number + 1)):
        plain = drawn_chain(Random(seed), loose=True)
        bound, best = least_end(plain.chain).bound, plain.optimum()
        assert bound <= best, seed
        equal += bound == best
    assert equal >= 40 or number


def too_high(instance: Instance) -> bool:
    """Whether the rule claims more than some schedule of a pipeline takes."""
    problem = problem_of(instance)
    try:
        claim = frontier(Relaxations(ImpliedOrder(problem))).value
    except MemoryInfeasible:
        return plain_optimum(instance) is not None
    below = claim * problem.scale.tick
    return claim > 0 and plain_optimum(instance, below=below) is not None


@pytest.mark.parametrize("number", [0, *MANY])
def test_no_makespan_is_below_it(number: int) -> None:
    for seed in range(80 * number, 80 * (number + 1)):
        assert not too_high(drawn_pipeline(Random(seed), ops=30)), seed


@pytest.mark.parametrize("number", [0, *MANY])
def test_no_device_span_is_below_it(number: int) -> None:
    for seed in range(30 * number, 30 * (number + 1)):
        instance = drawn_pipeline(Random(seed), ops=16)
        assert not too_high(instance | {"objective": "device_span"}), seed


@pytest.mark.parametrize("steps", [0, 1, 10, 100])
def test_a_search_that_is_cut_is_no_higher(steps: int) -> None:
    for seed in range(40):
        chain = drawn_chain(Random(seed), loose=seed % 2 == 0).chain
        cut = least_end(chain, effort=effort(frontier_steps=steps))
        assert cut.bound <= least_end(chain).bound, seed


def test_labels_that_are_merged_make_it_no_higher() -> None:
    lower = 0
    for seed in range(40):
        chain = drawn_chain(Random(seed), loose=seed % 2 == 0).chain
        merged, exact = (
            least_end(chain, effort=effort(frontier_merged=1)),
            least_end(chain),
        )
        assert merged.bound <= exact.bound, seed
        assert not (merged.is_optimum and merged.bound < exact.bound), seed
        lower += merged.bound < exact.bound
    assert lower


@pytest.mark.parametrize("widths", [(), (1,), (2, 3)])
def test_searches_for_an_end_change_nothing_above_the_floor(
    widths: tuple[int, ...],
) -> None:
    for seed in range(40):
        chain = drawn_chain(Random(seed), loose=seed % 2 == 0).chain
        best = least_end(chain).bound
        for floor in (0, best // 2, best - 1):
            answer = least_end(chain, floor, effort(frontier_widths=widths))
            assert answer.bound == best, seed


def test_nothing_is_said_of_a_device_whose_optimum_is_within_the_bound() -> None:
    for seed in range(40):
        chain = drawn_chain(Random(seed), loose=False).chain
        best = least_end(chain).bound
        if best < NEVER:
            assert least_end(chain, floor=best - 1).bound == best
            assert least_end(chain, floor=best).bound in (0, best)
            assert least_end(chain, floor=3 * best).bound == 0


def test_room_for_labels_grows() -> None:
    small = effort(frontier_states=1, frontier_labels=1)
    for seed in range(50):
        chain = drawn_chain(Random(seed), loose=seed % 2 == 0).chain
        assert least_end(chain, effort=small).bound == least_end(chain).bound, seed


def test_without_time_nothing_is_said() -> None:
    chain = drawn_chain(Random(0), loose=False).chain
    assert least_end(chain, effort=BoundsEffort(Clock(0.0))).bound == 0


def test_compiled_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [
        drawn_chain(Random(seed), loose=seed % 2 == 0).chain for seed in range(60)
    ]
    few = effort(frontier_merged=2)
    answers = []
    for is_compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        answers.append([least_end(chain, effort=few) for chain in chains])
    assert answers[0] == answers[1]


# Two rows of 2 in room for 4: the third may begin once the second one has given 1 back, though the
# loose work of the first, which holds 1, is still to do.
HALVES = (PlainOp(1, 250, acquire=2), PlainOp(1, 0, release=1, loose=100, pending=1))


def test_a_row_begins_once_another_gives_back_though_loose_work_waits() -> None:
    # 250 after the first forwards their backwards, at 251 and 252, the third forward at 253, its
    # backward at 504, and its loose work.
    plain = Plain(HALVES, members=3, room=4, tail=10)
    assert least_end(plain.chain).bound == plain.optimum() == 605


def test_work_that_is_left_at_the_end_counts() -> None:
    # Of two labels with no op left, the one that ends its ops first has more loose work to do.
    ops = (
        PlainOp(9, 7, acquire=1),
        PlainOp(8, 8, acquire=2, release=1),
        PlainOp(1, 1, acquire=1, release=2, loose=7),
        PlainOp(14, 5, release=1, loose=1),
    )
    plain = Plain(ops, members=2, room=4)
    assert least_end(plain.chain).bound == plain.optimum() == 87


def in_chunks(**fields: Any) -> Instance:
    """Return a device with two stages that waits for another one between them."""
    return {
        "num_devices": 2,
        "num_microbatches": 3,
        "placement": "interleaved",
        "stages_per_device": 2,
        "times": {"forward": 2, "backward_input": 3, "backward_weight": 4},
        "memory": {"activation": 1, "capacity": 3},
    } | fields


def test_loose_work_alone_may_give_back() -> None:
    # All memory is given back by weight gradients, which are loose.
    problem = problem_of(in_chunks())
    for chain in chains_of(problem):
        assert chain.moves.loose.tolist() == [0, 0, 4, 4]
        assert (chain.change > 0).tolist() == [True, True, False, False]
        assert chain.change.sum() == 0
        assert max(chain.to_release) < NEVER
    assert not too_high(in_chunks())


def test_one_stage_whose_backwards_are_split_is_left_to_memory_work() -> None:
    for is_split in (True, False):
        times = {"forward": 2, "backward": 7}
        if is_split:
            times = {"forward": 2, "backward_input": 3, "backward_weight": 4}
        memory = {"activation": 1, "capacity": 1}
        problem = problem_of(
            {"num_devices": 2, "num_microbatches": 3, "times": times, "memory": memory}
        )
        assert len(chains_of(problem)) == (0 if is_split else 2)


@pytest.mark.parametrize("room", [1, 2])
def test_memory_in_which_no_order_fits_is_refused(room: int) -> None:
    # Each row takes 1, then 1 more, before it gives any back: two rows in room for 2 would wait for
    # each other, one alone ends.
    ops = (PlainOp(1, 0, acquire=1), PlainOp(1, 0, acquire=1), PlainOp(1, 0, release=2))
    plain = Plain(ops, members=2, room=room)
    assert least_end(plain.chain).bound == plain.optimum() == (NEVER, 6)[room - 1]


def row(k: int, **fields: Any) -> list[dict[str, Any]]:
    """Return a forward that takes 1 and a backward that gives it back, on one resource."""
    return [
        op(f"f{k}", fields.get("first", 2), "r", acquire={"m": 1}),
        op(f"b{k}", 3, fields.get("where", "r"), release_at_end={"m": 1}),
    ]


def rows(count: int, *, capacity: float = 2, **fields: Any) -> Problem:
    ops = [entry for k in range(count) for entry in row(k, **fields)]
    edges = [(f"f{k}", f"b{k}", 7) for k in range(count)]
    family = [[f"f{k}", f"b{k}"] for k in range(count)]
    return small(ops, edges, capacity=capacity, families=[family])


def test_rows_wait_for_room() -> None:
    # Two rows at a time: forwards at 0 and 2, backwards at 9 and 12, the same again from 12 and 15.
    problem = rows(4)
    reason = frontier(Relaxations(ImpliedOrder(problem)))
    assert reason.value == brute_force(problem)
    assert problem.resource_names[reason.resource] == "r"


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(
            rows(3, first=0), id="an op of no time may lie inside another one"
        ),
        pytest.param(
            rows(3, where="s"), id="ops on two resources give back at any time"
        ),
        pytest.param(replace(rows(3), families=()), id="rows that are not alike"),
        pytest.param(rows(3, capacity=3), id="room for all"),
    ],
)
def test_where_it_does_not_apply(problem: Problem) -> None:
    assert not chains_of(problem)
    assert frontier(Relaxations(ImpliedOrder(problem))).value == 0


def test_a_bound_so_far_that_is_as_large_leaves_nothing_to_say() -> None:
    relaxations = Relaxations(ImpliedOrder(rows(4)))
    best = frontier(relaxations).value
    relaxations.lower = best
    assert frontier(relaxations).value == 0
    relaxations.lower = best - 1
    assert frontier(relaxations).value == best
