"""The published passes: every oracle, validity, names, failures; and our own list scheduling."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.kinds.overlap.heuristics import LIST_RULES
from ppsolve.solver.kinds.overlap.passes import (
    MOVING,
    PASSES,
    RAISE_FAILURE,
    STABLE,
    estimate,
    run_passes,
)
from ppsolve.solver.kinds.overlap.replay import is_valid_order, replay
from tests.kinds.overlap.cases import (
    HEURISTICS,
    NAMES,
    NAMINGS,
    case,
    program,
    programs,
    renamed,
    ticks,
)
from tests.kinds.overlap.plain import plain_list, plain_raise, plain_reorder
from tests.marks import examples

LISTS = [f"two-stream-{rule}" for rule in LIST_RULES]
TURNING = {*MOVING, "overlap-scheduler"}
"""Heuristics that choose an order of collectives where it is free."""

FROZEN, FREE = "exact_fixed_comm_order", "exact_free_comm_order"


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("original", HEURISTICS)
def test_every_oracle(name: str, naming: str, original: str) -> None:
    graph = case(name, naming)
    expected = graph.expected["passes"][original]
    result = run_passes(graph.instance, HEURISTICS[original])
    if "error" in expected:
        assert result.order is None
        assert result.error == expected["error"]
        assert list(result.completed) == expected["completed"]
        return
    assert result.error is None
    assert result.order == graph.places(expected["order"])
    timed = replay(graph.instance, result.order, ticks(graph.instance))
    assert timed.makespan == expected["makespan"]
    assert timed.exposed_wait == expected["exposed_wait"]
    assert max(timed.in_flight.values()) == expected["max_collectives_in_flight"]
    estimated, is_overlapping = estimate(graph.instance, result.order)
    assert estimated == expected["est_runtime_new"]
    assert (None if is_overlapping else estimated) == expected["est_runtime_seed"]


def test_all_names_are_there() -> None:
    assert set(PASSES) == {
        *HEURISTICS.values(),
        *MOVING,
        "simple-overlap",
        "overlap-scheduler",
    }


@examples(24)
@given(programs())
def test_a_pass_gives_a_valid_order_or_says_why_not(instance: OverlapInstance) -> None:
    for name in (*PASSES, *(name + STABLE for name in PASSES)):
        result = run_passes(instance, name)
        assert (result.order is None) == (result.error is not None)
        if result.order is not None:
            assert is_valid_order(instance, result.order), name
            frozen = instance.model_copy(update={"collective_order": "frozen"})
            assert name.removesuffix(STABLE) in TURNING or is_valid_order(
                frozen, result.order
            ), name


@examples(34)
@given(programs(), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_stable_passes_do_not_see_names(
    instance: OverlapInstance, shuffler: random.Random
) -> None:
    names = [f"n{number}" for number in range(len(instance.nodes))]
    shuffler.shuffle(names)
    other = renamed(instance, names)
    for name in (*(name + STABLE for name in PASSES), *PASSES):
        if name.endswith(STABLE) or "list" in name:
            before, after = run_passes(instance, name), run_passes(other, name)
            assert before.order == after.order


@examples(20)
@given(programs(most=18))
def test_fast_passes_are_the_rules_word_by_word(instance: OverlapInstance) -> None:
    expected = {
        "reorder-compute": plain_reorder(instance),
        "raise-comms": plain_raise(instance),
        "inductor-list-sink": plain_list(
            instance, raises=False, sinks=True, fills=False
        ),
        "inductor-list-raise": plain_list(
            instance, raises=True, sinks=False, fills=False
        ),
        "inductor-list-reorder": plain_list(
            instance, raises=True, sinks=True, fills=True
        ),
    }
    for name, order in expected.items():
        found = run_passes(instance, name).order
        names = (
            None if found is None else [instance.nodes[place].name for place in found]
        )
        assert names == order, name


def test_names_decide_and_stable_variants_repair_it() -> None:
    first, second = (
        case("I3a_names_f2_f10").instance,
        case("I3b_names_f02_f10").instance,
    )
    makespans = {
        suffix: [
            replay(graph, order, ticks(graph)).makespan
            for graph in (first, second)
            if (order := run_passes(graph, "reorder-compute" + suffix).order)
            is not None
        ]
        for suffix in ("", STABLE)
    }
    assert makespans[""][0] != makespans[""][1]
    assert makespans[STABLE][0] == makespans[STABLE][1]


def test_raise_comms_fails_on_several_collectives_without_input() -> None:
    instance = case("o01_fsdp_fwd_noinput_4l").instance
    result = run_passes(instance, "inductor-default-stable")
    assert result.order is None
    assert result.error == RAISE_FAILURE
    assert result.completed == ("reorder_compute_for_overlap", "sink_waits")


def test_a_wait_held_past_its_user_is_a_failure_of_the_pass() -> None:
    instance = program(
        {"name": "a", "kind": "comm", "duration": 3},
        {"name": "b", "kind": "comm", "duration": 3},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
        {"name": "wb", "kind": "wait", "deps": ["b", "wa"]},
        {"name": "k", "kind": "compute", "duration": 1, "deps": ["wb"]},
    )
    result = run_passes(instance, "sink-waits")
    assert (result.order, result.completed) == (None, ())
    assert result.error == (
        'wrong order from sink_waits: "wb" comes before "wa", which it depends on'
    )
    assert run_passes(instance, "inductor-list-sink").error is None


def test_estimates_by_hand() -> None:
    instance = program(
        {"name": "k", "kind": "compute", "duration": 0.5},
        {"name": "a", "kind": "comm", "duration": 3},
        {"name": "b", "kind": "comm", "duration": 4},
        {"name": "j", "kind": "compute", "duration": 100},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
        {"name": "wb", "kind": "wait", "deps": ["b"]},
    )
    assert estimate(instance, range(6)) == (Fraction("7.5"), True)
    assert estimate(instance, [0, 1, 4, 2, 3, 5]) == (Fraction("7.5"), False)


@pytest.mark.parametrize("collective_order", ["frozen", "free"])
@pytest.mark.parametrize(
    "name", [name for name in NAMES if not name.startswith(("I1", "I3"))]
)
def test_list_rules_together_reach_the_optimum(
    name: str, collective_order: str
) -> None:
    # In the other cases a kernel has to be held back, which no list does.
    graph = case(name)
    best = graph.expected[FROZEN if collective_order == "frozen" else FREE]["makespan"]
    instance = graph.instance.model_copy(update={"collective_order": collective_order})
    found = [
        ppsolve.simulate(instance, name).makespan for name in ("list-tail", *LISTS)
    ]
    assert min(found) == best


@examples(34)
@given(programs(max_in_flight=1, max_live_bytes=3))
@example(program())
@pytest.mark.slow
def test_lists_keep_caps_or_fail(instance: OverlapInstance) -> None:
    for name in LISTS:
        found = ppsolve.simulate(instance, name)
        if found.status is not HeuristicStatus.FAILED:
            assert found.order is not None
            assert not ppsolve.check(instance, found)


@pytest.mark.parametrize("name", LISTS)
def test_caps_on_prefetched_gathers(name: str) -> None:
    nodes = []
    for layer in range(12):
        gather, wait = f"g{layer}", f"w{layer}"
        nodes += [
            {"name": gather, "kind": "comm", "duration": 3, "bytes": 10},
            {"name": wait, "kind": "wait", "deps": [gather]},
            {"name": f"k{layer}", "kind": "compute", "duration": 4, "deps": [wait]},
        ]
    unlimited = ppsolve.simulate(program(*nodes), name)
    assert unlimited.makespan == 51
    assert unlimited.max_in_flight > 2
    assert ppsolve.simulate(program(*nodes, max_in_flight=2), name).max_in_flight == 2
    small = ppsolve.simulate(program(*nodes, max_live_bytes=25), name)
    assert (small.peak_live_bytes, small.makespan) == (20, 51)


@pytest.mark.slow
@examples(134)
@given(programs(most=18))
def test_the_same_of_many_more_programs(instance: OverlapInstance) -> None:
    for test in (
        test_a_pass_gives_a_valid_order_or_says_why_not,
        test_fast_passes_are_the_rules_word_by_word,
        test_lists_keep_caps_or_fail,
    ):
        test.hypothesis.inner_test(instance)  # type: ignore[attr-defined]
