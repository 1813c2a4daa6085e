from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.documents.errors import DeadlockError
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import short_cycle, time_orders
from tests.marks import examples


def graph(
    ops: list[dict[str, Any]], edges: tuple[tuple[Any, ...], ...] = ()
) -> Problem:
    names = sorted({name for op in ops for name in op.get("resources", ())})
    precedences = [
        dict(zip(("before", "after", "lag"), edge, strict=False)) for edge in edges
    ]
    data = {"kind": "graph", "resources": names, "ops": ops, "precedences": precedences}
    return lower(parse_instance(data))


def op(name: str, duration: int, *resources: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "duration": duration, "resources": list(resources), **fields}


def chain(problem: Problem, *names: str) -> Any:
    every = problem.op_names(range(problem.num_ops))
    return np.array([every.index(name) for name in names], dtype=np.int64)


def starts(problem: Problem, *orders: tuple[str, ...], extra: Any = None) -> list[int]:
    chains = [chain(problem, *order) for order in orders]
    return time_orders(problem, chains, extra).start.tolist()


def test_order_precedence_lag_and_release() -> None:
    problem = graph(
        [op("a", 3, "r"), op("b", 2, "r"), op("c", 1, "s", release=9), op("d", 1, "s")],
        (("b", "d", 4),),
    )
    assert starts(problem, ("b", "a"), ("d", "c")) == [2, 0, 9, 6]


def test_extra_precedences_hold() -> None:
    problem = graph([op("a", 3, "r"), op("b", 2, "s")])
    extra = tuple(np.array([value]) for value in (0, 1, 5))
    assert starts(problem, ("a",), ("b",), extra=extra) == [0, 8]


def test_free_resource_serves_by_ready_time_then_number() -> None:
    problem = graph(
        [
            op("late", 2, "n", release=1),
            op("x", 4, "n"),
            op("y", 3, "n"),
            op("z", 1, "n"),
        ]
    )
    assert starts(problem) == [8, 0, 4, 7]


def test_first_come_on_two_resources_at_once() -> None:
    problem = graph(
        [op("a", 2, "n1"), op("both", 2, "n1", "n2"), op("b", 1, "n2", release=1)]
    )
    assert starts(problem) == [0, 2, 4]


def test_ops_outside_the_order_of_their_resource_are_served_first_come() -> None:
    ops = [op("a", 3, "r"), op("b", 2, "r", release=5), op("extra", 4, "r", release=1)]
    problem = graph(ops)
    # The order does not name every op of r, so r serves by ready time: a, extra, then b.
    assert starts(problem, ("a", "b")) == [0, 7, 3]
    # With every op in the order r serves nobody first come: b waits for its release.
    assert starts(problem, ("a", "b", "extra")) == [0, 5, 7]


def test_op_without_resources_only_waits_for_predecessors() -> None:
    problem = graph([op("a", 2, "r"), op("free", 7), op("b", 1, "r")], (("a", "free"),))
    assert starts(problem, ("a", "b")) == [0, 2, 2]


def test_zero_length_ops_occupy_nothing() -> None:
    problem = graph(
        [op("a", 5, "r"), op("mark", 0, "r", release=2), op("b", 5, "r", release=1)]
    )
    assert starts(problem) == [0, 2, 5]


def test_pins_are_kept_and_served_around() -> None:
    problem = graph(
        [op("pinned", 3, "r", start=4), op("long", 5, "r"), op("short", 4, "r")]
    )
    assert starts(problem) == [4, 7, 12]
    assert starts(graph([op("p", 3, "r", start=4), op("fits", 4, "r")])) == [4, 0]


def test_pinned_op_that_comes_late_takes_no_place_of_others() -> None:
    # "late" is ready at 6 only, behind its pin at 2; there r is kept for another pinned op.
    ops = [op("slow", 6, "s"), op("late", 1, "r", start=2), op("kept", 3, "r", start=6)]
    assert starts(graph(ops, (("slow", "late"),))) == [0, 9, 6]


def test_op_in_a_gap_before_others_frees_nothing_early() -> None:
    # "long" does not fit before the pinned op and runs at 7; the pinned op ends before that.
    ops = [
        op("pinned", 3, "r", start=4),
        op("long", 5, "r"),
        op("next", 1, "r", release=5),
    ]
    assert starts(graph(ops)) == [4, 7, 12]


def test_pin_that_the_order_forbids_is_passed_late() -> None:
    problem = graph([op("first", 6, "r"), op("pinned", 1, "r", start=2)])
    assert starts(problem, ("first", "pinned")) == [0, 6]


def test_order_that_serves_all_of_a_resource_decides_alone() -> None:
    # r is in an order of its own, so nothing is kept free there for the pinned op; s comes after.
    ops = [
        op("first", 6, "r"),
        op("pinned", 1, "r", start=2),
        op("x", 1, "s"),
        op("y", 2, "s"),
    ]
    assert starts(graph(ops), ("first", "pinned"), ("y", "x")) == [0, 6, 2, 0]


def test_deadlock_names_a_short_cycle_with_order_edges() -> None:
    ops = [op(name, 1, "r" if name in "abcd" else "s") for name in "abcdef"]
    problem = graph(ops, (("e", "a"), ("d", "f")))
    with pytest.raises(DeadlockError) as caught:
        starts(problem, ("a", "b", "c", "d"), ("f", "e"))
    assert caught.value.cycle == ["a", "b", "c", "d", "f", "e"]
    assert str(caught.value) == "deadlock: a -> b -> c -> d -> f -> e -> a"


def test_shortest_of_several_cycles_is_named() -> None:
    ops = [op(name, 1, "r") for name in "abcde"]
    problem = graph(ops, (("e", "a"), ("d", "c")))
    with pytest.raises(DeadlockError) as caught:
        starts(problem, ("a", "b", "c", "d", "e"))
    assert caught.value.cycle in (["c", "d"], ["d", "c"])


def test_shortest_of_two_long_cycles_is_named() -> None:
    # s serves d0, then s0 .. s3; the way back is longer through the l's than straight from s3.
    ops = [op(f"s{k}", 1, "r") for k in range(4)] + [
        op(f"l{k}", 1, "q") for k in range(3)
    ]
    edges = (("s3", "s0"), ("s3", "l0"), ("l0", "l1"), ("l1", "l2"), ("l2", "s0"))
    problem = graph(ops, edges)
    with pytest.raises(DeadlockError) as caught:
        starts(problem, ("s0", "s1", "s2", "s3"))
    assert caught.value.cycle == ["s0", "s1", "s2", "s3"]


def test_a_cycle_is_found_behind_what_only_waits_for_it() -> None:
    # a waits for the cycle of b, c and d, but is not in it.
    problem = graph(
        [op(name, 1) for name in "abcd"], (("d", "a"), ("b", "c"), ("c", "d"))
    )
    assert short_cycle(problem, tuple(np.array([n]) for n in (3, 1, 0))) == [1, 2, 3]


def test_op_without_length_takes_no_turn_of_an_ordered_resource() -> None:
    # mark is in no order and occupies nothing, so the order still serves r completely.
    ops = [op("a", 3, "r", release=4), op("b", 2, "r"), op("mark", 0, "r", release=5)]
    assert starts(graph(ops), ("a", "b")) == [4, 7, 5]


def test_op_twice_in_an_order_waits_for_itself() -> None:
    with pytest.raises(DeadlockError, match="deadlock: a -> a"):
        starts(graph([op("a", 1, "r")]), ("a", "a"))


def test_large_pipeline_equals_longest_paths() -> None:
    data = {
        "kind": "pipeline",
        "num_devices": 16,
        "num_microbatches": 256,
        "times": {"forward": 3, "backward": 5},
        "p2p": {"latency": 1},
    }
    problem = lower(parse_instance(data))
    forward, backward = problem.grid("F"), problem.grid("B")
    orders = [np.concatenate(pair) for pair in zip(forward, backward, strict=True)]
    expected = Dag.of(problem, chain_edges(orders)).heads(problem.release.copy())
    assert (time_orders(problem, orders).start == expected).all()


@examples(20)
@given(st.data())
def test_random_orders_give_the_longest_paths(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    resources = data.draw(st.lists(st.sampled_from("rs"), min_size=size, max_size=size))
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    ops = [op(f"o{i}", lengths[i], resources[i]) for i in range(size)]
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)))
    )
    edges = tuple((f"o{a}", f"o{b}", (a + b) % 3) for a, b in pairs if a < b)
    problem = graph(ops, edges)
    schedule = time_orders(problem, list(problem.ops_by_resource))
    expected = Dag.of(problem, chain_edges(problem.ops_by_resource)).heads(
        problem.release.copy()
    )
    assert (schedule.start == expected).all()
    assert not (schedule.start == FREE).any()
