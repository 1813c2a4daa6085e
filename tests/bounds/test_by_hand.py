"""Every bound on cases small enough to count the ticks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds import Bound, best_bound, lower_bounds, work_bound
from ppsolve.solver.bounds.one_machine import Reason, acquiring, return_bound
from ppsolve.solver.bounds.params import BoundsEffort, BoundsParams
from ppsolve.solver.bounds.relaxations import Relaxations, end_tails, start_heads
from ppsolve.solver.bounds.spans import NEVER, Around, Spans
from ppsolve.solver.clock import Clock
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.small import op, small

TAKE, GIVE = {"acquire": {"m": 1}}, {"release_at_end": {"m": 1}}


def bounds(problem: Problem) -> dict[str, int]:
    return {bound.name: bound.value for bound in lower_bounds(ImpliedOrder(problem))}


def pipeline(**fields: Any) -> Problem:
    base = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
    }
    return lower(PipelineInstance(**base | fields))


def test_heads_and_tails_count_lags_releases_and_pins() -> None:
    ops = [op("a", 2, release=3), op("b", 4), op("c", 1, start=30)]
    problem = small(ops, [("a", "b", 5), ("b", "c")])
    graph = ImpliedOrder(problem).plain
    assert start_heads(problem, graph).tolist() == [3, 10, 30]
    assert end_tails(problem, graph).tolist() == [2 + 5 + 4 + 1, 4 + 1, 1]


def test_critical_path_is_the_longest_chain() -> None:
    problem = small([op("a", 2), op("b", 3), op("c", 4)], [("a", "b", 1)])
    assert bounds(problem)["critical-path"] == 6
    assert bounds(small([op("a", 2, release=9)]))["critical-path"] == 11


def test_work_is_head_load_and_tail_of_a_resource() -> None:
    # Both ops of r follow x (3) and precede y (5).
    ops = [
        op("x", 3),
        op("a", 2, "r"),
        op("b", 4, "r"),
        op("y", 5),
        op("point", 0, "r"),
    ]
    edges = [("x", "a"), ("x", "b"), ("a", "y"), ("b", "y"), ("x", "point")]
    problem = small(ops, edges)
    assert bounds(problem)["work"] == work_bound(problem) == 3 + 6 + 5
    assert work_bound(small([op("a", 2)])) == 0


def test_one_machine_sees_heads_and_tails_of_parts() -> None:
    # a alone has the long tail, b and c the late heads: 4 + (2 + 2) + 1.
    ops = [
        op("a", 1, "r"),
        op("b", 2, "r", release=4),
        op("c", 2, "r", release=4),
        op("z", 1),
    ]
    problem = small(ops, [("b", "z"), ("c", "z")])
    found = bounds(problem)
    assert found["work"] == 0 + 5 + 0
    assert found["one-machine"] == 4 + 4 + 1


def test_pipeline_without_memory() -> None:
    # Device 1 starts at 1, works 6 ticks, and device 0's last backward (2) follows.
    assert bounds(pipeline()) == {"critical-path": 6, "work": 9, "one-machine": 9}


def test_index_order_is_counted_from_one_machine_on() -> None:
    # F0.1 runs behind F0.0 (3 each), so device 1 cannot start F1.1 before 6.
    found = bounds(pipeline(times={"forward": [3, 1], "backward": [1, 1]}))
    assert found["critical-path"] == 3 + 1 + 1 + 1
    assert found["work"] == 8
    assert found["one-machine"] == 3 + 3 + 1 + 1 + 1


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        # Room for one: four round trips of F, F, B, B.
        (1, 4 * 6),
        # Room for two: F0.2 waits for B0.0 (6), then F0.2, F1.2, B1.2, B1.3 and B0.3.
        (2, 6 + 1 + 1 + 2 + 2 + 2),
        # Room for all: F0.0, F1.0, four backwards on device 1, B0.3.
        (4, 1 + 1 + 4 * 2 + 2),
    ],
)
def test_memory_makes_chains_through_earlier_micro_batches(
    capacity: int, expected: int
) -> None:
    memory = {"capacity": capacity, "activation": 1}
    found = bounds(pipeline(num_microbatches=4, memory=memory))
    assert found["memory-cycle"] == expected


def test_bounds_come_strongest_first() -> None:
    found = lower_bounds(ImpliedOrder(pipeline(num_microbatches=5)))
    assert [bound.value for bound in found] == sorted(
        (b.value for b in found), reverse=True
    )
    assert best_bound(found) == found[0]
    assert best_bound([Bound("a", 3), Bound("b", 4)]).name == "b"


class TestReturn:
    """Three acquires (2 ticks each, two fit) and a release b (3 ticks) not ready before 10."""

    def bound(self, *, capacity: Any = 2, moments: int = 1, **given: Any) -> int:
        ops = [op(f"a{k}", 2, "r", **TAKE) for k in range(3)]
        ops += [op("b", 3, "r", **GIVE), op("c", 1, "r")]
        problem = small(ops, capacity=capacity, initial=given.get("initial", 0))
        (order,) = ImpliedOrder(problem).pools
        chosen = np.array(given.get("ops", [0, 1, 2, 3]), dtype=np.int64)
        heads = np.array(given.get("heads", [0, 0, 0, 10, 20]), dtype=np.int64)
        tails = np.array(given.get("tails", [0] * 5), dtype=np.int64)
        return return_bound(problem, order, chosen, heads, tails, moments)

    def test_what_did_not_fit_and_the_release_follow_the_first_return(self) -> None:
        assert self.bound() == 10 + 2 + 3

    def test_room_counts_what_is_in_use_at_first(self) -> None:
        assert self.bound(capacity=3, initial=1) == 10 + 2 + 3
        assert self.bound(capacity=3) == 10 + 3
        assert self.bound(capacity=1) == 10 + 4 + 3
        assert self.bound(capacity=1.9) == 10 + 4 + 3

    def test_late_acquires_cannot_come_before_the_return(self) -> None:
        assert self.bound(heads=[0, 12, 12, 10, 20]) == 10 + 4 + 3

    def test_least_tail_of_what_follows_is_added(self) -> None:
        assert self.bound(tails=[1, 1, 1, 4, 0]) == 10 + 3 + 4
        assert self.bound(tails=[4, 4, 4, 1, 0]) == 10 + 5 + 1

    def test_later_moments_count_what_was_given_back_by_then(self) -> None:
        # By 20 b has ended, so all three acquires may have run; only c is left.
        everything = [0, 1, 2, 3, 4]
        assert self.bound(ops=everything) == 10 + 2 + 3 + 1
        assert self.bound(ops=everything, moments=2) == 20 + 1
        assert (
            self.bound(ops=everything, moments=2, heads=[0, 0, 0, 18, 20])
            == 18 + 2 + 3 + 1
        )

    def test_resources_that_only_acquire_or_never_do_say_nothing(self) -> None:
        assert self.bound(ops=[0, 1, 2]) == 0
        assert self.bound(ops=[3, 4]) == 0

    def test_every_resource_of_an_acquire_is_one(self) -> None:
        problem = small([op("a", 1, "r", "s", **TAKE), op("b", 1, "t")], capacity=1)
        (order,) = ImpliedOrder(problem).pools
        assert acquiring(problem, order) == [0, 1]

    def test_tails_count_what_memory_makes_wait(self) -> None:
        ops = [op(f"a{k}", 1, "r", **TAKE) for k in range(2)]
        ops += [op(f"b{k}", 2, "s", **GIVE) for k in range(2)]
        family = [["a0", "b0"], ["a1", "b1"]]
        problem = small(
            ops, [("a0", "b0"), ("a1", "b1")], capacity=1, families=[family]
        )
        known = Relaxations(ImpliedOrder(problem))
        assert known.full.tails.tolist() == [1 + 2 + 1 + 2, 3, 5, 2]
        assert known.ordered.tails.tolist() == [5, 3, 4, 2]


class TestSpans:
    """r runs `first` (2) and `last` (3), s runs `slow` (5) in between, p2p 1 each way."""

    def problem(self, **fields: Any) -> Problem:
        ops = [
            op("first", 2, "r"),
            op("slow", 5, "s"),
            op("last", 3, "r"),
            op("mark", 0, "r"),
        ]
        edges = [("first", "slow", 1), ("slow", "last", 1)]
        return small(ops, edges, objective="device_span", **fields)

    def test_every_bound(self) -> None:
        assert bounds(self.problem()) == {
            "critical-path": 12,
            "work": 5,
            "one-machine": 12,
            "chain": 12,
            "joint-spans": 12,
        }

    def test_what_lies_between_the_ops_of_a_device_counts(self) -> None:
        spans = Spans(self.problem(), ImpliedOrder(self.problem()).full)
        assert spans.resources == [0, 1]
        assert spans.longest_path().value == 12
        assert spans.through_others().value == 12
        assert spans.work() == (5, 0)

    def test_only_what_has_ops_of_the_device_on_both_sides_is_between(self) -> None:
        ticks = np.array([0, 3, NEVER, 4, NEVER])
        around = Around(ticks, ticks[::-1])
        assert around.between(np.arange(5)).tolist() == [1, 3]

    def test_of_equal_devices_the_outer_ones_are_strengthened(self) -> None:
        params = BoundsParams(raised_devices=2)
        problem = small(
            [op(f"{d}", 2, f"r{d}") for d in range(5)], objective="device_span"
        )
        tried: list[int] = []

        def strengthen(heads: IntArray) -> IntArray:
            tried.extend(np.flatnonzero(heads == 0).tolist())
            return heads

        spans = Spans(problem, ImpliedOrder(problem).full, BoundsEffort(params=params))
        spans.strongest((), strengthen)
        assert tried == [0, 4]

    def test_without_devices_there_is_no_span(self) -> None:
        problem = small([op("a", 2, **TAKE)], capacity=1, objective="device_span")
        assert set(bounds(problem).values()) == {0}

    def test_what_memory_makes_wait_lies_between_too(self) -> None:
        # Room for one row: a (1, on r), b (2, on s), a, b.
        ops = [op(f"a{k}", 1, "r", **TAKE) for k in range(2)]
        ops += [op(f"b{k}", 2, "s", **GIVE) for k in range(2)]
        family = [["a0", "b0"], ["a1", "b1"]]
        edges = [("a0", "b0"), ("a1", "b1")]
        problem = small(
            ops, edges, capacity=1, families=[family], objective="device_span"
        )
        found = bounds(problem)
        assert (
            found["critical-path"],
            found["one-machine"],
            found["memory-cycle"],
        ) == (2, 4, 5)

    def test_chain_adds_the_work_between(self) -> None:
        # Two slow ops on s between the ops of r: 2 + (5 + 4) + 3.
        ops = [
            op("first", 2, "r"),
            op("s0", 5, "s"),
            op("s1", 4, "s"),
            op("last", 3, "r"),
        ]
        edges = [("first", "s0"), ("first", "s1"), ("s0", "last"), ("s1", "last")]
        found = bounds(small(ops, edges, objective="device_span"))
        assert (found["chain"], found["critical-path"], found["one-machine"]) == (
            14,
            10,
            10,
        )

    def test_head_before_the_first_op_of_a_device_does_not_count(self) -> None:
        ops = [op("before", 9, "s"), op("a", 2, "r"), op("b", 3, "r")]
        found = bounds(
            small(ops, [("before", "a"), ("a", "b")], objective="device_span")
        )
        assert best_bound(Bound(n, v) for n, v in found.items()).value == 9
        assert found["work"] == 9
        alone = small(ops[1:], [("a", "b", 4)], objective="device_span")
        assert bounds(alone)["critical-path"] == 9

    def test_every_resource_between_is_counted(self) -> None:
        # The chain of t (1 + 5 + 1) has more head, work and tail than that of s has by its least
        # ones (1 + 4 + 1), but the two ops of s start at 1 and 5 at the earliest: 5 + 2 + 3.
        ops = [op("first", 1, "r"), op("t0", 5, "t"), op("last", 1, "r")]
        ops += [op("s0", 2, "s"), op("wait", 4), op("s1", 2, "s"), op("more", 2)]
        edges = [("first", "t0"), ("t0", "last"), ("first", "s0"), ("s0", "last")]
        edges += [("first", "wait"), ("wait", "s1"), ("s1", "more"), ("more", "last")]
        found = bounds(small(ops, edges, objective="device_span"))
        assert found["chain"] == 1 + 4 + 2 + 2 + 1


class TestJointSpans:
    """The spans of all devices together."""

    def test_devices_that_wait_for_each_other(self) -> None:
        times = {
            "forward": [5, 2, 1],
            "backward_input": [4, 4, 2],
            "backward_weight": [1, 6, 6],
        }
        found = bounds(pipeline(num_devices=3, times=times, objective="device_span"))
        assert max(found.values()) == found["joint-spans"] == 26
        assert max(v for name, v in found.items() if name != "joint-spans") == 25

    def test_the_mean_of_several_rounds_counts(self) -> None:
        spans = Alternating([3, 8], [8, 3])
        assert spans.together().value == 6

    def test_devices_without_ops_do_not_lower_it(self) -> None:
        ops = [op("a", 2, "r"), op("b", 3, "r"), op("point", 0, "s")]
        assert bounds(small(ops, objective="device_span"))["joint-spans"] == 5

    def test_a_round_that_the_clock_cuts_is_not_counted(self) -> None:
        clock = Clock(60)
        spans = Alternating([4, 4], clock=clock)
        assert spans.together().value == 0


class Alternating(Spans):
    """Devices whose ends grow by given ticks from round to round."""

    def __init__(self, *growth: list[int], clock: Clock | None = None) -> None:
        problem = small([op(f"{d}", 1, f"r{d}") for d in range(len(growth[0]))])
        super().__init__(
            problem, ImpliedOrder(problem).full, BoundsEffort(clock or Clock())
        )
        self.resources = list(range(len(growth[0])))
        self._growth, self._round, self._stopped = growth, -1, clock

    def heads_from(self, begins: IntArray) -> IntArray:
        self._round += 1
        return begins

    def end_after(self, device: int, heads: IntArray) -> Reason:
        if self._stopped is not None:
            self._stopped.stop()
        return Reason(
            int(heads[device]) + self._growth[self._round % len(self._growth)][device]
        )
