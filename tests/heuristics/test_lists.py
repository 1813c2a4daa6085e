from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    backward_first,
    fillers,
    generate_parallel,
    generate_serial,
    longest_tail,
    most_work,
    tails,
)
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.timing import time_orders
from tests.marks import examples, first
from tests.paths import DATA
from tests.running import run_heuristic
from tests.strategies import tiny_instance

LISTS = [name for name in all_heuristics() if name.startswith("list-")]
RULES = [name for name in LISTS if name != "list-sweep"]
SWEEP = "list-sweep"
"""Tries many rules, so that one run takes as long as all others together."""

SCAN = json.loads((DATA / "zero_bubble_memory_scan_4x8.json").read_text())["rows"]
PUBLISHED = json.loads((DATA / "zero_bubble_published.json").read_text())["rows"]
CURVE = json.loads((DATA / "zero_bubble_memory_curve.json").read_text())["curves"][0]
SHARE = 0.43243243243243246


def pipeline(
    devices: int, microbatches: int, capacity: Any = None, **fields: Any
) -> Any:
    base: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    }
    if capacity is not None:
        share = fields.pop("share", 1)
        base["memory"] = {
            "capacity": capacity,
            "activation": 1,
            "released_by_backward_weight": share,
        }
    return PipelineInstance.parse(base | fields)


def measured(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "times": {
            "forward": row["forward_us"],
            "backward_input": row["backward_input_us"],
            "backward_weight": row["backward_weight_us"],
        },
        "p2p": {"latency": row["p2p_us"]},
        "share": SHARE,
    }


def run(name: str, instance: Any) -> HeuristicOutcome:
    return run_heuristic(name, instance, lower(instance))


def values(instance: Any, names: list[str] = LISTS) -> list[int]:
    problem = lower(instance)
    outcomes = [run_heuristic(name, instance, problem) for name in names]
    return [
        o.schedule.value
        for o in outcomes
        if o.status is HeuristicStatus.FEASIBLE and o.schedule
    ]


@pytest.mark.parametrize(
    ("devices", "microbatches"),
    first(2, [(4, 8), (8, 16), (16, 32), (32, 64)]),
)
@pytest.mark.parametrize("times_p", [1, 2])
def test_uniform_pipelines_reach_the_bound(
    devices: int, microbatches: int, times_p: int
) -> None:
    instance = pipeline(devices, microbatches, times_p * devices)
    bound = 3 * microbatches + devices - 1
    assert min(values(instance, ["zb-h1"])) == bound
    if times_p == 2:
        assert values(instance, ["list-tail", "list-backward-first"]) == [bound, bound]
    else:
        assert min(values(instance, ["list-tail", "list-sweep"])) <= bound + 1


@pytest.mark.parametrize("row", first(2, SCAN), ids=lambda row: f"cap-{row['lim']}")
def test_memory_scan_is_feasible_and_close(row: dict[str, Any]) -> None:
    instance = pipeline(4, 8, row["lim"], **measured(PUBLISHED[2]))
    found = values(instance)
    assert len(found) == len(LISTS)
    assert row["obj"] <= min(found) <= 1.03 * row["obj"]


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 8])
def test_memory_curve_is_nearly_met(index: int) -> None:
    capacity = CURVE["memory_limit_over_p"][index] * 16
    instance = pipeline(16, 48, capacity, objective="device_span", **measured(CURVE))
    work = 48 * (
        CURVE["forward_us"] + CURVE["backward_input_us"] + CURVE["backward_weight_us"]
    )
    best = min(values(instance, ["list-sweep"]))
    assert (best - work) / best <= CURVE["zb_bubble_rate"][index] + 0.01


def test_device_span_beats_the_published_heuristic() -> None:
    instance = pipeline(8, 24, 16, objective="device_span", **measured(PUBLISHED[2]))
    published = PUBLISHED[2]["measured_heuristic"]["2p/zb"]["device_span_us"]
    assert min(values(instance, ["list-sweep"])) < published


TIGHT = [
    (4, 8, 2, {"placement": "vshape"}),
    (4, 8, 1, {"placement": "bidirectional"}),
    (4, 8, 3, {"placement": "vshape", "share": SHARE}),
    (3, 7, 3, {"placement": "wave", "stages_per_device": 3}),
    (4, 8, 4, {"placement": "interleaved", "stages_per_device": 3, "share": 0.5}),
    (5, 10, 2, {"placement": "bidirectional", "share": SHARE}),
    (3, 6, 3, {"placement": {"stage_to_device": [0, 1, 0, 2, 1, 0]}}),
]
"""Devices, micro-batches, capacity and other fields, several chunks on each device."""

LESS = [(share, capacity) for capacity in (1, 2.4, 1.5, 2) for share in (SHARE, 0, 1)]
"""Share that weight gradients give back, and capacity, on four devices."""


def with_sweep(by_rules: int, by_sweep: int, cases: list[Any]) -> list[Any]:
    """Return every case for every rule and the sweep; the default run takes the first ones."""
    rules = [(name, *case) for case in cases for name in RULES]
    return first(by_rules * len(RULES), rules) + first(
        by_sweep, [(SWEEP, *case) for case in cases]
    )


@pytest.mark.parametrize(("name", "share", "capacity"), with_sweep(4, 1, LESS))
def test_less_memory_than_devices(name: str, share: float, capacity: float) -> None:
    outcome = run(name, pipeline(4, 8, capacity, share=share))
    assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "capacity", "fields"), with_sweep(5, 1, TIGHT)
)
def test_promises_avoid_memory_deadlocks(
    name: str, devices: int, microbatches: int, capacity: float, fields: dict[str, Any]
) -> None:
    outcome = run(name, pipeline(devices, microbatches, capacity, **fields))
    assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason


def test_reserved_memory_keeps_v_placements_moving() -> None:
    instance = pipeline(8, 64, 16, placement="vshape", share=SHARE)
    zbv, list_tail = values(instance, ["zbv"]), values(instance, ["list-tail"])
    assert list_tail[0] <= 1.1 * zbv[0]


def test_activation_that_never_fits_is_a_failure_with_reason() -> None:
    outcome = run("list-tail", pipeline(2, 2, 0.5))
    assert outcome.status is HeuristicStatus.FAILED
    assert outcome.reason == (
        "memory deadlock: F0.0 waits for memory of device 0 that is never released"
    )
    assert run("list-serial", pipeline(2, 2, 0.5)).reason == outcome.reason
    assert run("list-sweep", pipeline(2, 2, 0.5)).reason == outcome.reason


def test_too_many_ops_for_serial_generation() -> None:
    outcome = run("list-serial", pipeline(16, 1050))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason == "needs at most 50000 ops (serial generation), got 50400"


@pytest.mark.slow
def test_large_split_pipeline() -> None:
    outcome = run("list-tail", pipeline(64, 1024, 64))
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule is not None
    assert outcome.schedule.makespan <= 1.01 * (3 * 1024 + 63)


def test_orders_and_index_order_of_alike_microbatches() -> None:
    outcome = run("list-backward-first", pipeline(2, 2))
    assert outcome.orders == [
        ["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"],
        ["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"],
    ]


@pytest.mark.parametrize("seed", first(5, range(150)))
def test_tiny_problems_are_scheduled_by_every_rule(seed: int) -> None:
    instance = tiny_instance(seed)
    problem = lower(instance)
    for name in LISTS:
        outcome = run_heuristic(name, instance, problem)
        if outcome.schedule is None:
            assert outcome.status is HeuristicStatus.FAILED
            assert outcome.reason is not None
            assert outcome.reason.startswith("memory deadlock: ")
            continue
        broken = {
            violation.rule for violation in check_schedule(problem, outcome.schedule)
        }
        assert broken <= {"pin"}
        again = time_orders(problem, outcome.schedule.resource_orders())
        assert (again.start <= outcome.schedule.start).all()


def graph(ops: list[dict[str, Any]], **fields: Any) -> Any:
    names = sorted({name for op in ops for name in op.get("resources", ())})
    return lower(
        parse_instance({"kind": "graph", "resources": names, "ops": ops, **fields})
    )


def op(name: str, duration: int, *resources: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "duration": duration, "resources": list(resources), **fields}


def rule(problem: Any, **options: Any) -> PriorityRule:
    return PriorityRule(longest_tail(problem), fillers(problem), **options)


def test_parallel_takes_the_longest_tail_first() -> None:
    problem = graph(
        [op("short", 2, "r"), op("long", 2, "r"), op("rest", 9, "s")],
        precedences=[{"before": "long", "after": "rest"}],
    )
    assert generate_parallel(problem, rule(problem)).start.tolist() == [2, 0, 2]
    assert generate_serial(problem, longest_tail(problem)).start.tolist() == [2, 0, 2]


def test_patience_keeps_a_resource_for_a_better_op() -> None:
    ops = [
        op("before", 2, "s"),
        op("urgent", 5, "r"),
        op("tail", 9, "s"),
        op("other", 6, "r"),
    ]
    edges = [
        {"before": "before", "after": "urgent"},
        {"before": "urgent", "after": "tail"},
    ]
    problem = graph(ops, precedences=edges)
    assert generate_parallel(problem, rule(problem)).start.tolist()[1] == 6
    assert (
        generate_parallel(problem, rule(problem, patience=1.0)).start.tolist()[1] == 2
    )


@pytest.mark.parametrize(("length", "waits"), [(3, False), (4, True), (5, True)])
def test_waiting_pays_while_it_is_no_longer_than_the_delay_it_saves(
    length: int, waits: bool
) -> None:
    # The urgent op arrives at 2; the other one would hold it up for `length` - 2 ticks.
    ops = [op("before", 2, "s"), op("urgent", 5, "r"), op("tail", 9, "s")]
    ops.append(op("other", length, "r"))
    edges = [
        {"before": "before", "after": "urgent"},
        {"before": "urgent", "after": "tail"},
    ]
    problem = graph(ops, precedences=edges)
    schedule = generate_parallel(problem, rule(problem, patience=1.0))
    assert schedule.start.tolist()[1] == (2 if waits else length)


def test_several_resources_pins_and_zero_lengths() -> None:
    ops = [
        op("both", 3, "r", "s"),
        op("pinned", 2, "r", start=2),
        op("mark", 0, "r"),
        op("small", 2, "r"),
        op("free", 4),
    ]
    problem = graph(ops)
    for schedule in (
        generate_parallel(problem, rule(problem)),
        generate_serial(problem, longest_tail(problem)),
    ):
        assert check_schedule(problem, schedule) == []
        assert schedule.start.tolist() == [4, 2, 0, 0, 0]


@pytest.mark.parametrize("patience", [1.0, 0.0])
def test_fillers_wait_by_their_own_patience(patience: float) -> None:
    # As above with 4 ticks: the other op, a filler now, would hold the urgent one up for 2.
    ops = [
        op("before", 2, "s"),
        op("urgent", 5, "r"),
        op("tail", 9, "s"),
        op("other", 4, "r"),
    ]
    edges = [
        {"before": "before", "after": "urgent"},
        {"before": "urgent", "after": "tail"},
    ]
    problem = graph(ops, precedences=edges)
    filling = np.array([False, False, False, True])
    patient = PriorityRule(longest_tail(problem), filling, filler_patience=patience)
    assert generate_parallel(problem, patient).start.tolist()[1] == (
        2 if patience else 4
    )


def test_pins_at_time_0_are_kept_on_every_resource() -> None:
    ops = [op("long", 9, "r"), op("pinned", 1, "r", start=0)]
    ops += [op("longer", 10, "s"), op("other", 2, "s", start=0)]
    problem = graph(ops)
    assert generate_parallel(problem, rule(problem)).start.tolist() == [1, 0, 2, 0]


def test_pin_that_cannot_be_kept_is_overrun() -> None:
    problem = graph(
        [op("long", 5, "r"), op("pinned", 2, "r", start=3)],
        precedences=[{"before": "long", "after": "pinned"}],
    )
    for schedule in (
        generate_parallel(problem, rule(problem)),
        generate_serial(problem, longest_tail(problem)),
    ):
        assert {v.rule for v in check_schedule(problem, schedule)} == {"pin"}


def test_urgency_of_ops_before_a_pin() -> None:
    ops = [op("big", 9, "r"), op("first", 2, "r"), op("pinned", 1, "s", start=2)]
    problem = graph(ops, precedences=[{"before": "first", "after": "pinned"}])
    assert generate_parallel(problem, rule(problem)).start.tolist() == [2, 0, 2]


def test_ranks() -> None:
    problem = lower(pipeline(2, 2))
    assert tails(problem).max() == 6
    for rank in (longest_tail(problem), most_work(problem), backward_first(problem)):
        assert sorted(rank.tolist()) == list(range(problem.num_ops))
    classes = [
        problem.kinds[k] for k in problem.kind[np.argsort(backward_first(problem))]
    ]
    assert classes == ["I"] * 4 + ["F"] * 4 + ["W"] * 4
    before, after, lag = index_order(problem)
    assert len(before) == len(after) == 6
    assert not lag.any()


@examples(14)
@given(
    devices=st.integers(2, 5),
    microbatches=st.integers(1, 8),
    capacity=st.sampled_from([2, 2.5, 3, 4, 7]),
    share=st.sampled_from([0, 0.3, SHARE, 1]),
    placement=st.sampled_from(["linear", "vshape", "interleaved"]),
    seed=st.integers(0, 1000),
)
def test_random_pipelines_are_never_stuck(
    devices: int,
    microbatches: int,
    capacity: float,
    share: float,
    placement: str,
    seed: int,
) -> None:
    chunks = 1 if placement == "linear" else 2
    draw = np.random.default_rng(seed)
    times = {
        kind: draw.integers(0, 9, devices * chunks).tolist()
        for kind in ("forward", "backward_input", "backward_weight")
    }
    fields = {"placement": placement, "stages_per_device": chunks, "times": times}
    instance = pipeline(devices, microbatches, capacity, share=share, **fields)
    for name in ("list-tail", "list-backward-first", "list-serial"):
        outcome = run(name, instance)
        assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason
