"""Every rule of the CP-SAT model by itself, on problems whose optimum is plain to see."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact import constraints
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.exact.models import change_model
from tests.small import at, holding, op, small

SEARCH = SearchLimits(seconds=20)


def answer(
    problem: Problem, incumbent: Schedule | None = None, **options: Any
) -> ExactAnswer:
    given = {"lower": 0, "limits": SEARCH, **options}
    found = solve(ImpliedOrder(problem), incumbent=incumbent, **given)
    if found.schedule is not None:
        assert check_schedule(problem, found.schedule) == []
    return found


def optimum(problem: Problem, **options: Any) -> int | None:
    """Return the proven optimum, None where it is proved that there is no schedule."""
    found = answer(problem, **options)
    if found.schedule is None:
        assert found.infeasible
        assert found.stop_reason is StopReason.INFEASIBLE
        return None
    assert found.stop_reason is StopReason.PROVED
    assert found.schedule.value == found.bound
    assert found.memory_is_exact is True
    return found.bound


@pytest.fixture(params=["orders", "reservoirs", "cumulatives"])
def form_of_pools(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> str:
    if request.param == "cumulatives":
        change_model(monkeypatch, reservoir_events=-1)
    if request.param != "orders":
        change_model(monkeypatch, order_literals=-1)
    return str(request.param)


def test_a_resource_runs_one_op_at_a_time() -> None:
    ops = [op("a", 2, "r"), op("b", 3, "r"), op("c", 4, "s")]
    assert optimum(small(ops)) == 5


def test_precedences_keep_their_lag() -> None:
    assert optimum(small([op("a", 2), op("b", 3)], [("a", "b", 4)])) == 9


def test_of_two_precedences_of_one_pair_the_longer_counts() -> None:
    ops = [op("a", 2), op("b", 3)]
    assert optimum(small(ops, [("a", "b", 4), ("a", "b", 1)])) == 9
    assert optimum(small(ops, [("a", "b", 1), ("a", "b", 4)])) == 9


def test_pin_that_comes_before_its_predecessor_ends_is_infeasible() -> None:
    late, early = op("b", 1, start=5), op("b", 1, start=4)
    assert optimum(small([op("a", 5), late], [("a", "b")])) == 6
    assert optimum(small([op("a", 5), early], [("a", "b")])) is None


def test_pinned_op_keeps_its_start() -> None:
    # Without the pin 5 is possible.
    assert optimum(small([op("a", 3, "r"), op("b", 2, "r", start=2)])) == 7


def test_release_time_is_kept() -> None:
    assert optimum(small([op("a", 3, release=4)])) == 7


def test_an_op_starts_within_one_of_its_windows() -> None:
    ops = [op("a", 3, "r"), op("b", 2, "r")]
    assert optimum(small(ops, windows={"b": [[1, 2], [50, 60]]})) == 6
    assert optimum(small(ops, windows={"b": [[50, 60]]})) == 52
    assert optimum(small(ops, windows={"b": [[1, 3], [50, 60]]})) == 5
    assert optimum(small(ops, windows={"a": [[50, 60]]})) == 53


def test_no_op_runs_around_a_point() -> None:
    ops = [op("a", 4, "r"), op("point", 0, "r", release=2), op("b", 4, "r")]
    assert optimum(small(ops)) == 8
    assert optimum(small(ops, points=["point"])) == 8
    pinned = [op("a", 4, "r"), op("point", 0, "r", start=2)]
    assert optimum(small(pinned)) == 4
    assert optimum(small(pinned, points=["point"])) == 6


def test_alike_ops_without_a_resource_run_together() -> None:
    assert optimum(small([op("a", 5), op("b", 5)], families=[[["a"], ["b"]]])) == 5


@pytest.mark.usefixtures("form_of_pools")
class TestMemory:
    def test_only_what_fits_runs_together(self) -> None:
        ops = [
            holding(name, 2, amount) for name, amount in (("a", 2), ("b", 2), ("c", 1))
        ]
        assert optimum(small(ops, capacity=3)) == 4
        assert optimum(small(ops, capacity=4)) == 4
        assert optimum(small(ops, capacity=5)) == 2

    def test_initial_amount_leaves_less_room(self) -> None:
        ops = [holding("a", 2, 1), holding("b", 2, 1)]
        assert optimum(small(ops, capacity=3, initial=1)) == 2
        assert optimum(small(ops, capacity=3, initial=1.5)) == 4

    def test_hold_lasts_from_one_op_to_another(self) -> None:
        # a0's unit is free once z0 ends (6), long after a0: b has to wait for it.
        ops = [op("a", 1, acquire={"m": 1}), op("z", 5, release_at_end={"m": 1})]
        ops.append(holding("b", 2, 1))
        problem = small(ops, [("a", "z"), ("a", "b")], capacity=1)
        assert optimum(problem) == 8

    def test_hold_without_length_needs_no_room(self) -> None:
        # zero takes and gives back 0.6 at one moment, where a holds 0.5 of 1 from 0 to 2.
        zero = op("zero", 0, acquire={"m": 0.6}, release_at_end={"m": 0.6})
        ops = [zero, holding("a", 2, 0.5), op("b", 1, start=1)]
        assert optimum(small(ops, [("zero", "b")], capacity=1)) == 2

    def test_what_is_never_given_back_is_held_to_the_very_end(self) -> None:
        # Neither fits beside the other, not even at one moment at the very end.
        ops = [op(name, 0, acquire={"m": 1}) for name in "ab"]
        assert optimum(small(ops, capacity=1)) is None
        assert optimum(small(ops, capacity=2)) == 0

    def test_what_is_never_given_back_goes_last(self) -> None:
        ops = [op("keep", 1, acquire={"m": 1}), holding("a", 5, 1)]
        assert optimum(small(ops, capacity=1)) == 6

    def test_what_is_held_from_the_beginning_is_free_after_its_release(self) -> None:
        ops = [op("free", 4, release_at_end={"m": 1}), holding("a", 2, 1)]
        assert optimum(small(ops, capacity=1, initial=1)) == 6
        assert optimum(small(ops, capacity=2, initial=1)) == 4


def test_levels_too_large_for_reservoirs_are_cumulatives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[str] = []
    change_model(monkeypatch, reservoir_level=2)
    reservoir = constraints.Constraints._reservoir

    def told(self: constraints.Constraints, *given: Any) -> None:
        used.append("reservoir")
        reservoir(self, *given)

    monkeypatch.setattr(constraints.Constraints, "_reservoir", told)
    ops = [holding(name, 2, 1) for name in "abcd"]
    assert optimum(small(ops, capacity=3)) == 4
    assert used == []
    assert optimum(small(ops, capacity=2)) == 4
    assert used == ["reservoir"]


def test_makespan_is_the_last_end() -> None:
    # The op that others follow may still end last: c may start right behind a, and b runs on.
    assert optimum(small([op("a", 2), op("b", 9), op("c", 1)], [("a", "c")])) == 9


def test_device_span_runs_from_first_start_to_last_end() -> None:
    # r waits for s between its two ops; the first one moves as close as precedences allow.
    ops = [op("first", 2, "r"), op("slow", 5, "s"), op("last", 3, "r")]
    between = [("first", "slow"), ("slow", "last")]
    assert optimum(small(ops, between, objective="device_span")) == 10
    assert optimum(small(ops, between[1:], objective="device_span")) == 5


@pytest.mark.parametrize("release", [0, 30])
def test_least_device_span_may_take_a_later_makespan(release: int) -> None:
    # Each device has to wait for the other one's end; two release times set nothing else.
    ops = [
        op("a", 1, "r"),
        op("b", 1, "r", release=release),
        op("c", 9, "s"),
        op("d", 1, "s"),
    ]
    problem = small(ops, [("c", "b"), ("a", "d")], objective="device_span")
    assert optimum(problem) == 10
    spread = at(problem, 0, max(9, release), 0, 9)
    assert answer(problem, spread).bound == 10


def test_completion_is_the_weighed_sum_of_ends() -> None:
    ops = [op("a", 2, "r"), op("b", 3, "r"), op("c", 9, "r")]
    # By Smith's rule b (weight 5) goes before a (weight 1); c weighs nothing and goes last.
    problem = small(ops, weight={"a": 1, "b": 5})
    assert optimum(problem) == 5 * 3 + 5


@pytest.mark.parametrize("weight", [None, {"a": 1, "b": 1}])
def test_nothing_above_the_upper_limit_is_looked_at(
    weight: dict[str, int] | None,
) -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")], weight=weight)
    best = 5 if weight is None else 2 + 5
    assert optimum(problem, upper=best) == best
    assert optimum(problem, upper=best - 1) is None


def test_no_possible_start_is_infeasible_at_once() -> None:
    problem = small([op("a", 5), op("b", 1)], [("a", "b")], windows={"b": [[0, 4]]})
    assert optimum(problem) is None


def test_known_lower_bound_becomes_part_of_the_model() -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")])
    assert optimum(problem, lower=5) == 5
    # A bound above the limit is not believed to the point of contradiction.
    assert optimum(problem, lower=7, upper=5) == 5


def test_time_out_without_a_schedule_claims_nothing() -> None:
    problem = small([op(f"o{k}", 2 + k % 3, "r") for k in range(40)])
    found = answer(problem, limits=SearchLimits(seconds=0.0))
    assert found.schedule is None
    assert not found.infeasible
    assert found.stop_reason is StopReason.TIME
    assert found.bound is not None
    assert 0 <= found.bound <= problem.duration.sum()


def test_deterministic_limit_is_named() -> None:
    problem = small([op(f"o{k}", 2 + k % 3, "r") for k in range(40)])
    for seconds in (None, 1000.0):
        limits = SearchLimits(seconds=seconds, deterministic=0.0)
        found = answer(problem, limits=limits)
        assert found.stop_reason is StopReason.DETERMINISTIC
