"""Pools whose ops share a resource: levels by the order of ops say what holds say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.memory import OrderLiterals
from ppsolve.solver.exact.model import CpsatModel
from ppsolve.solver.exact.params import MODEL
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.structure.dag import reachable_sets
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.exact.models import change_model, model_of
from tests.marks import first
from tests.small import holding, op, small


def kinds(model: CpsatModel) -> set[str]:
    text = str(model.variables.model.proto)
    return {word for word in ("cumulative", "reservoir") if word in text}


def pipeline(seed: int, **memory: Any) -> Problem:
    data = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 3 + seed % 2,
        "stages_per_device": 2,
        "placement": ("vshape", "interleaved")[seed % 2],
        "times": {
            "forward": [2 + (seed + s) % 3 for s in range(4)],
            "backward_input": [3 + (seed * s) % 2 for s in range(4)],
            "backward_weight": [1 + (seed + 2 * s) % 3 for s in range(4)],
        },
        "memory": {"capacity": 3 + seed % 2, "activation": 1, **memory},
    }
    return lower(parse_instance(data))


def proved(problem: Problem) -> int:
    """Return the optimum that CP-SAT proves, in ticks, with a valid schedule of it."""
    answer = solve(
        ImpliedOrder(problem), lower=0, incumbent=None, limits=SearchLimits(seconds=60)
    )
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    assert answer.schedule.value == answer.bound
    return answer.bound


@pytest.mark.parametrize("share", [0, 0.25, 0.43])
@pytest.mark.parametrize("seed", first(2, range(6)))
def test_orders_and_cumulatives_have_the_same_optimum(
    seed: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = pipeline(seed, released_by_backward_weight=share)
    found = []
    for most in (MODEL.order_literals, -1):
        change_model(monkeypatch, order_literals=most)
        change_model(monkeypatch, reservoir_events=-1)
        found.append(proved(problem))
        assert kinds(model_of(problem)) == (set() if most > 0 else {"cumulative"})
    assert found[0] == found[1]


def test_only_so_many_orders_become_literals(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small([holding(name, 2, 1, "r") for name in "abc"], capacity=2)
    assert len(model_of(problem).variables.orders) == 3
    change_model(monkeypatch, order_literals=3)
    assert kinds(model_of(problem)) == set()
    change_model(monkeypatch, order_literals=2)
    assert kinds(model_of(problem)) == {"reservoir"}


def test_where_levels_need_literals_all_open_pairs_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = [holding(name, 2, 1, "r") for name in "abc"]
    beside = [op("d", 2, "r"), op("x", 3, "s"), op("y", 3, "s"), op("z", 0, "s")]
    problem = small([*held, *beside], [("a", "b")], capacity=2)
    # Of a to d all but the known a before b; x and y; z takes no time.
    assert set(model_of(problem).variables.orders) == {
        *((0, 2), (1, 2), (0, 3), (1, 3), (2, 3)),
        (4, 5),
    }
    change_model(monkeypatch, complete_pairs=5)
    assert set(model_of(problem).variables.orders) == {(0, 2), (1, 2)}


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_literals_of_all_open_pairs_keep_the_optimum(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, found, counts = pipeline(seed), [], []
    for most in (MODEL.complete_pairs, -1):
        change_model(monkeypatch, complete_pairs=most)
        found.append(proved(problem))
        counts.append(len(model_of(problem).variables.orders))
    assert found[0] == found[1]
    assert counts[0] > counts[1]


def test_pools_of_several_resources_are_left_to_holds() -> None:
    shared = [holding("a", 2, 1, "r"), holding("b", 2, 1, "r")]
    assert kinds(model_of(small(shared, capacity=1))) == set()
    for other in (holding("c", 2, 1, "s"), holding("c", 2, 1), holding("c", 0, 1, "r")):
        problem = small([*shared, other], capacity=2)
        assert kinds(model_of(problem)) == {"reservoir"}


def test_ops_of_several_resources_share_the_common_one() -> None:
    ops = [holding("a", 2, 1, "r", "s"), holding("b", 2, 1, "s", "t")]
    problem = small(ops, capacity=1)
    orders = OrderLiterals(model_of(problem).variables, ImpliedOrder(problem).full)
    assert orders.shares_resource(ImpliedOrder(problem).pools[0].holds)


def test_known_orders_are_no_literals() -> None:
    ops = [
        op("a", 2, "r"),
        op("b", 2, "r"),
        op("c", 2, "r"),
        op("d", 1, "r", release=3),
    ]
    problem = small(ops, [("a", "b")])
    model = model_of(problem, upper=7)
    orders = OrderLiterals(model.variables, ImpliedOrder(problem).full)
    assert orders.known(0, 0) is False
    assert (orders.known(0, 1), orders.known(1, 0)) == (True, False)
    assert orders.known(0, 2) is orders.known(2, 0) is None
    # a can start at 3 at the latest, and d ends at 4 at the earliest.
    assert (orders.known(0, 3), orders.known(3, 0)) == (True, False)
    assert str(orders.before(2, 0)) == str(~orders.before(0, 2))


def test_what_follows_is_counted_over_several_steps() -> None:
    problem = small([op(name, 1) for name in "abcd"], [("a", "c"), ("c", "b")])
    assert reachable_sets(ImpliedOrder(problem).plain) == [0b0110, 0, 0b0010, 0]


def test_neighbours_in_index_order_are_implied() -> None:
    # Two parts are released apart: the capacity is no precedence, and has to be modelled.
    rows = [[f"f{i}", f"b{i}", f"w{i}"] for i in range(4)]
    ops = [op(f"f{i}", 2, "r", acquire={"m": 1}) for i in range(4)]
    ops += [
        op(f"{k}{i}", 2, "r", release_at_end={"m": 0.5}) for k in "bw" for i in range(4)
    ]
    edges = [pair for row in rows for pair in pairwise(row)]
    variables = model_of(small(ops, edges, families=[rows], capacity=2)).variables
    f2, f3, w0, w1 = 2, 3, 8, 9
    late, early, next_one = (
        variables.orders[p].index for p in ((f2, w1), (f2, w0), (f3, w1))
    )
    implied = {
        (each.enforcement_literal[0], each.bool_and.literals[0])
        for each in variables.model.proto.constraints
        if each.has_bool_and()
    }
    # The negation of a literal has the number -1 - index: here, that w runs before f.
    assert {(-1 - late, -1 - early), (early, late)} <= implied
    assert {(-1 - late, -1 - next_one), (next_one, late)} <= implied


def test_ops_at_which_everything_fits_need_no_literals() -> None:
    ops = [
        holding(name, 2, amount, "r") for name, amount in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert len(model_of(small(ops, capacity=4)).variables.orders) == 0
    assert len(model_of(small(ops, capacity=3)).variables.orders) == 3
