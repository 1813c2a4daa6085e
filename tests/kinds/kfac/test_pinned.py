from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kinds.kfac.cycle import lower_cycle
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.generic import list_serial
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.kinds.kfac.pattern import simulated_pattern
from ppsolve.solver.kinds.kfac.pinned import (
    NO_END,
    fill_bubbles,
    pinned_cycle,
    pinned_iteration,
)
from ppsolve.solver.kinds.kfac.placement import Refresh, plan_of_starts
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve_exactly
from tests.kinds.kfac.described_instances import SPLIT, described_instance
from tests.marks import first
from tests.paths import ROOT
from tests.running import run_heuristic

SHIPPED = sorted((ROOT / "instances" / "kfac" / "free").glob("*.json"))

MODULE = {
    "name": "m",
    "curvature_a": 1,
    "curvature_b": 2,
    "inverse_a": 3,
    "inverse_b": 1,
    "precondition": 1,
}


def instance(
    devices: int = 2, microbatches: int = 2, *rest: Any, **fields: Any
) -> KfacInstance:
    return described_instance(
        MODULE, devices, microbatches, *rest, **{"margin_ratio": 0, **fields}
    )


def pinned(made: KfacInstance, heuristic: str = "gpipe") -> Problem:
    return pinned_cycle(made, heuristic)


def pins(problem: Problem, *wanted: str) -> list[int]:
    names = problem.op_names(range(problem.num_ops))
    return [int(problem.pinned[names.index(name)]) for name in wanted]


def windows(problem: Problem, name: str) -> list[list[int]]:
    names = problem.op_names(range(problem.num_ops))
    found: list[list[int]] = problem.windows[names.index(name)].tolist()
    return found


def test_gpipe_is_repeated_after_its_longest_device() -> None:
    # Device 0: F 0-1, F 1-2, B 5-7, B 7-9, PC 9-10; device 1 from 1 to 8: the period is 10.
    problem = pinned(instance(refresh_interval=2))
    assert pins(problem, "F0.0", "F0.1", "F1.0", "F1.1") == [0, 1, 1, 2]
    assert pins(problem, "B1.0", "B1.1", "B0.0", "B0.1") == [3, 5, 5, 7]
    assert pins(problem, "PC0:m@0", "PC1:m@0", "STEP0@0", "STEP1@0") == [9, 7, 10, 8]
    assert pins(problem, "F0.0@1", "F1.0@1", "B0.1@1", "PC1:m@1") == [10, 11, 17, 17]
    free = problem.pinned == FREE
    assert set(problem.kind[free].tolist()) == {
        problem.kinds.index(kind) for kind in ("CA", "CB", "IA", "IB")
    }


def test_preconditions_wait_for_the_all_reduce_and_optimizers_for_them() -> None:
    tail = {"allreduce": 2, "optimizer": 1}
    problem = pinned(instance(pipeline=tail, refresh_interval=2))
    assert pins(problem, "AR0", "PC0:m@0", "OPT0", "STEP0@0") == [9, 11, 12, 13]
    assert pins(problem, "AR1", "PC1:m@0", "OPT1", "STEP1@0") == [7, 9, 10, 11]
    assert pins(problem, "F0.0@1") == [13]


def test_streams_keep_iterations_apart_too() -> None:
    # The link 0->1 is busy from 1 to 41 in iteration 0; the devices alone would allow less.
    slow = {"p2p": {"mode": "link", "bytes": 20, "bandwidth": [[1, 1], [20, 1]]}}
    one = pinned_iteration(instance(1 + 1, 2, pipeline=slow), "gpipe")
    problem = one.problem
    ops = problem.ops_by_resource[problem.resource_names.index("link 0->1")]
    busy = int((one.start + problem.duration)[ops].max() - one.start[ops].min())
    assert busy == 40
    assert one.period == max(busy, one.complete[0, 0], one.complete[1, 1] - 21)


def test_a_late_all_reduce_keeps_the_next_iteration_waiting() -> None:
    # Without modules on stage 1 only the step op follows its all-reduce: F1.0@1 waits for it.
    only_first = [{"stage": 0, **MODULE}]
    one = pinned_iteration(
        instance(modules=only_first, pipeline={"allreduce": [0, 50]}), "gpipe"
    )
    assert one.complete[1, 1] == 57
    assert one.period == 56


def test_windows_leave_the_margin_before_pinned_ops() -> None:
    problem = pinned(instance(refresh_interval=2, margin_ratio=0.05))
    # Device 0 has holes 2-5 and 12-15, and its last pinned op ends at 20.
    assert windows(problem, "CB0.0:m") == [[2, 2], [12, 12], [20, NO_END]]
    assert windows(problem, "IA0:m") == [[20, NO_END]]
    # Device 1 has holes 0-1, 8-11 and begins to be free at 18; PC1 ends at 8.
    assert windows(problem, "CA1.0:m") == [[8, 9], [18, NO_END]]
    assert windows(problem, "IB1:m") == [[8, 9], [18, NO_END]]
    assert not pinned(instance(refresh_interval=2)).windows


def test_a_margin_on_the_border_is_strict() -> None:
    # 1 + 1 x (1 + 1) = 3 is the start of B0.0 with a hole of 2: not before it.
    module = {"stage": 0, **MODULE, "curvature_a": 1}
    one = instance(
        1, 1, [module], {"times": {"forward": 1, "backward": 1}}, margin_ratio=1
    )
    assert windows(pinned(one), "CA0.0:m") == [[3, NO_END]]
    two = instance(modules=[{"stage": 0, **MODULE, "curvature_a": 1.5}], margin_ratio=1)
    assert windows(pinned(two), "CA0.0:m") == [[20, NO_END]]


def test_work_goes_into_the_earliest_hole() -> None:
    made = instance(refresh_interval=2)
    schedule = fill_bubbles(pinned(made))
    # Device 1 has 10 of work, the hole 8-11 with CA, CA and a rest of 1, and its end from 18 on.
    assert schedule.value == 26


def test_alike_microbatches_are_numbered_as_they_run() -> None:
    made = instance(pipeline={"placement": {"stage_to_device": [0, 1]}})
    problem = pinned(made, "looped-bfs")
    assert pins(problem, "B1.0", "B1.1") == sorted(pins(problem, "B1.0", "B1.1"))


def pinned_outcomes(made: KfacInstance) -> dict[str, HeuristicOutcome]:
    problem = lower_cycle(made)
    names = [
        h.name for h in chosen_heuristics(made, None) if h.name.startswith("pinned-")
    ]
    return {name: run_heuristic(name, made, problem) for name in names}


def test_pinned_schedules_are_valid_for_the_free_problem() -> None:
    made = instance(
        3, 4, pipeline={"times": SPLIT}, refresh_interval=2, margin_ratio=0.05
    )
    found = pinned_outcomes(made)
    applicable = {
        name: outcome
        for name, outcome in found.items()
        if outcome.status is not HeuristicStatus.NOT_APPLICABLE
    }
    assert list(applicable) == [
        *(
            "pinned-1f1b",
            "pinned-gpipe",
            "pinned-zb-1p",
            "pinned-zb-h1",
            "pinned-zb-h2",
        ),
        "pinned-looped-bfs",
    ]
    for outcome in applicable.values():
        assert outcome.status is HeuristicStatus.FEASIBLE
        assert outcome.schedule is not None
        assert check_schedule(outcome.schedule.problem, outcome.schedule) == []


def test_pinned_schedules_say_what_is_in_the_way() -> None:
    memory = {"memory": {"capacity": 1, "activation": 1}}
    found = pinned_outcomes(instance(pipeline=memory))
    assert found["pinned-gpipe"].reason == (
        "gpipe gives no valid schedule of the pipeline: memory: device 0 holds 2 of 1 "
        "at 1 us (too much from 1 us to 7 us)"
    )
    assert found["pinned-chimera"].reason == "chimera: needs bidirectional pipes"
    late = pinned_outcomes(instance(max_age=0))["pinned-1f1b"]
    assert late.status is HeuristicStatus.INFEASIBLE
    assert late.reason is not None
    assert late.reason.startswith("precedence: PC")


def test_other_patterns_are_not_tried_around_a_pinned_pipeline() -> None:
    made = instance(pattern="1f1b", objective="makespan")
    found = pinned_outcomes(made)
    assert found["pinned-1f1b"].status is HeuristicStatus.FEASIBLE
    assert found["pinned-gpipe"].reason == "the pipeline is pinned to 1f1b"


def test_patterns_are_named() -> None:
    made = instance()
    with pytest.raises(
        InputError, match='pattern: unknown pipeline heuristic "gpip"; did you'
    ):
        pinned_cycle(made, "gpip")
    with pytest.raises(NotApplicableError, match="chimera: needs bidirectional pipes"):
        pinned_cycle(made, "chimera")


def cycles() -> st.SearchStrategy[KfacInstance]:
    return st.builds(
        _cycle,
        devices=st.integers(1, 4),
        microbatches=st.sampled_from([2, 4]),
        placement=st.sampled_from(["linear", "vshape", "bidirectional"]),
        iterations=st.integers(1, 3),
        numbers=st.lists(st.integers(0, 5), min_size=10, max_size=10),
        margin=st.sampled_from([0, 0.05, 1]),
        p2p=st.sampled_from(
            [{}, {"latency": 1}, {"mode": "nic", "bytes": 2, "bandwidth": 1}]
        ),
    )


def _cycle(
    devices: int,
    microbatches: int,
    placement: str,
    iterations: int,
    numbers: list[int],
    margin: float,
    p2p: dict[str, Any],
) -> KfacInstance:
    fields = (
        "curvature_a",
        "curvature_b",
        "inverse_a",
        "inverse_b",
        "precondition",
        "sync_a",
    )
    stages = devices * (2 if placement == "vshape" else 1)
    modules = [
        {"stage": stage, "name": name, **dict(zip(fields, numbers, strict=False))}
        for stage in range(0, stages, 2)
        for name in "ab"
    ]
    pipeline = {
        "placement": placement,
        "times": {
            kind: 1 + number for kind, number in zip(SPLIT, numbers[6:9], strict=True)
        },
        "p2p": p2p,
        **({"allreduce": numbers[9]} if numbers[0] % 2 else {}),
        **({"optimizer": numbers[1]} if numbers[1] % 2 else {}),
    }
    return instance(
        devices,
        microbatches,
        modules,
        pipeline,
        refresh_interval=iterations,
        margin_ratio=margin,
    )


@given(cycles())
def test_every_pinned_cycle_is_valid(made: KfacInstance) -> None:
    problem = lower_cycle(made)
    for heuristic in ("gpipe", "looped-bfs", "chimera", "list-tail"):
        try:
            repeated = pinned_cycle(made, heuristic)
        except NotApplicableError:
            continue
        schedule = fill_bubbles(repeated)
        assert check_schedule(problem, Schedule(problem, schedule.start)) == []


@given(cycles())
def test_windows_are_the_holes_with_their_margin(made: KfacInstance) -> None:
    repeated = pinned(made, "list-tail")
    margin = 1 + Fraction(made.margin_ratio)
    last = max(end for end in (repeated.pinned + repeated.duration).tolist())
    compute = set(repeated.span_resources.tolist())
    free = np.flatnonzero(repeated.pinned == FREE).tolist()
    on_compute = [
        op for op in free if set(repeated.resources_of(op).tolist()) & compute
    ]
    if made.margin_ratio == 0:
        assert not repeated.windows
        return
    assert sorted(repeated.windows) == on_compute
    for op in on_compute[:6]:
        (resource,) = repeated.resources_of(op).tolist()
        others = repeated.ops_by_resource[resource]
        busy = others[
            (repeated.pinned[others] != FREE) & (repeated.duration[others] > 0)
        ]
        begin, end = repeated.pinned[busy], (repeated.pinned + repeated.duration)[busy]
        length = int(repeated.duration[op])
        for time in range(last + 3):
            later = begin[begin > time]
            inside = bool(np.any((begin <= time) & (time < end)))
            fits = not len(later) or time + margin * length < int(later.min())
            allowed = any(
                first <= time <= final for first, final in windows_of(repeated, op)
            )
            assert allowed == (fits and not inside)


def windows_of(problem: Problem, op: int) -> list[list[int]]:
    found: list[list[int]] = problem.windows[op].tolist()
    return found


def test_generation_keeps_to_the_windows() -> None:
    problem = pinned(instance(refresh_interval=2, margin_ratio=1))
    schedule = fill_bubbles(problem)
    without = fill_bubbles(replace(problem, windows={}))
    # Device 0: CA at 2 only (4 + 2 is not before 5), CA at 12, then CB, CB, IA, IB after 20.
    assert (without.value, schedule.value) == (26, 28)


def iterations(pattern: str = "gpipe", **fields: Any) -> KfacInstance:
    return instance(pattern=pattern, objective="iterations", **fields)


def test_pattern_of_a_described_pipeline() -> None:
    pattern = simulated_pattern(iterations(margin_ratio=0.05))
    assert (pattern.period, pattern.margin, pattern.syncs_in_holes) == (
        10,
        Fraction(1, 20),
        False,
    )
    first, second = pattern.devices
    assert [(op.label, op.kind, op.start, op.end) for op in first.ops] == [
        ("call_forward", "forward", 0, 1),
        ("call_forward", "forward", 1, 2),
        ("call_backward", "backward", 5, 7),
        ("call_backward", "backward", 7, 9),
        ("precondition:m", "precondition", 9, 10),
    ]
    assert [op.start for op in second.ops] == [1, 2, 3, 5, 7]
    assert [(w.label.text, w.parts, w.length, w.participants) for w in second.work] == [
        ("cov_kron_A:m", 2, 1, (1,)),
        ("cov_kron_B:m", 2, 2, (1,)),
        ("inv_kron_A:m", 1, 3, (1,)),
        ("inv_kron_B:m", 1, 1, (1,)),
    ]
    assert pattern.holes(0, 2) == [(2, 5), (12, 15)]


def test_an_inverse_ages_until_a_precondition_starts_after_it() -> None:
    # Device 1 preconditions at 7, and 10 later in the next iteration.
    pattern = simulated_pattern(iterations())
    assert [op.start for op in pattern.devices[1].ops if op.kind == "precondition"] == [
        7
    ]
    inversion = [w.label.kind for w in pattern.devices[1].work].index("inv")
    for start, age in ((4, 0), (5, 1), (7, 1), (14, 1), (15, 2)):
        starts = {(1, inversion, 0): start}
        plan = plan_of_starts(pattern, 1, starts, 2)
        (ages,) = Refresh(pattern, [plan]).figures()["ages_of"]
        assert ages == {"inv_kron_A:m": age}, start


def test_replicas_meet_all_devices_that_hold_the_stage() -> None:
    module = {"stage": 0, **MODULE, "sync_a": 1, "replicas": [1]}
    problem = lower_cycle(instance(modules=[module]))
    assert [n for n in problem.resource_names if n.startswith("comm")] == [
        "comm 0",
        "comm 1",
    ]
    pattern = simulated_pattern(iterations(modules=[module]))
    syncs = [
        w.participants
        for device in pattern.devices
        for w in device.work
        if w.label.kind == "sync"
    ]
    assert syncs == [(0, 1), (0, 1)]


def test_pattern_of_split_backwards_with_an_optimizer() -> None:
    pattern = simulated_pattern(
        iterations(
            "1f1b", devices=1, microbatches=1, pipeline={"times": SPLIT, "optimizer": 2}
        )
    )
    (device,) = pattern.devices
    assert [(op.label, op.kind, op.start) for op in device.ops] == [
        ("call_forward", "forward", 0),
        ("call_backward", "backward", 1),
        ("call_backward_weight", "backward_weight", 2),
        ("precondition:m", "precondition", 3),
        ("optimizer", "precondition", 4),
    ]
    assert pattern.period == 6


def test_pattern_of_two_pipes_tells_stages_and_pipes_apart() -> None:
    modules = [{"stage": stage, **MODULE, "sync_a": 4} for stage in range(2)]
    pattern = simulated_pattern(
        iterations("chimera", modules=modules, pipeline={"placement": "bidirectional"})
    )
    first = pattern.devices[0]
    assert {(op.label, op.kind, op.pipe) for op in first.ops} == {
        ("call_forward", "forward", 0),
        ("call_forward:up_pipe", "forward", 1),
        ("call_backward", "backward", 0),
        ("call_backward:up_pipe", "backward", 1),
        ("precondition:stage0.m", "precondition", 0),
        ("precondition:stage1.m", "precondition", 0),
    }
    assert [
        (w.label.text, w.label.pipe, w.parts, w.length, w.participants)
        for w in first.work
    ] == [
        ("cov_kron_A:stage0.m", 0, 1, 1, (0,)),
        ("cov_kron_B:stage0.m", 0, 1, 2, (0,)),
        ("cov_kron_A:stage1.m:up_pipe", 1, 1, 1, (0,)),
        ("cov_kron_B:stage1.m:up_pipe", 1, 1, 2, (0,)),
        ("sync_kron_A:stage0.m", 0, 1, 4, (0, 1)),
        ("sync_kron_B:stage0.m", 0, 1, 0, (0, 1)),
        ("sync_kron_A:stage1.m", 0, 1, 4, (0, 1)),
        ("sync_kron_B:stage1.m", 0, 1, 0, (0, 1)),
        ("inv_kron_A:stage0.m", 0, 1, 3, (0,)),
        ("inv_kron_B:stage0.m", 0, 1, 1, (0,)),
        ("inv_kron_A:stage1.m", 0, 1, 3, (0,)),
        ("inv_kron_B:stage1.m", 0, 1, 1, (0,)),
    ]
    assert [op.label for op in first.data_of(first.work[2].label)] == [
        "call_forward:up_pipe"
    ]


def test_replicas_meet_with_the_holder_of_the_stage() -> None:
    modules = [{"stage": 0, **MODULE, "sync_a": 4, "replicas": [1]}]
    first, second = simulated_pattern(iterations(modules=modules)).devices
    assert [w.label.text for w in second.work] == ["sync_kron_A:stage0.m"]
    assert [w.participants for w in first.work if w.label.kind == "sync"] == [(0, 1)]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            instance(),
            "pattern: expected a pipeline heuristic whose schedule is pinned, got a free",
        ),
        (
            iterations("1f2b"),
            'pattern: unknown pipeline heuristic "1f2b"; did you mean "1f1b"',
        ),
        (
            iterations("looped-bfs", pipeline={"placement": "vshape"}),
            "pattern: iterations need one stage per device and pipe",
        ),
        (
            iterations(
                modules=[{"stage": 0, **MODULE, "error_bytes": 1}],
                pipeline={"memory": {"capacity": 9, "activation": 1}},
            ),
            "modules\\[0\\]: iterations of a described pipeline know no memory limit",
        ),
        (
            iterations(pipeline={"memory": {"capacity": 1, "activation": 1}}),
            "pattern: gpipe gives no valid schedule of the pipeline: memory: device 0 holds 2 of 1",
        ),
    ],
)
def test_what_has_no_pattern_is_refused(made: KfacInstance, message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulated_pattern(made)


def proved(problem: Problem, known: Schedule | None) -> tuple[int, int]:
    implied = ImpliedOrder(problem)
    lower = best_bound(lower_bounds(implied)).value
    if known is not None and known.value == lower:
        return lower, lower
    limits = SearchLimits(seconds=None, deterministic=20)
    answer = solve_exactly(implied, lower=lower, incumbent=known, limits=limits)
    assert answer.schedule is not None
    assert answer.bound is not None
    assert check_schedule(problem, answer.schedule) == []
    return answer.schedule.value, answer.bound


@pytest.mark.parametrize("path", first(2, SHIPPED), ids=lambda path: path.stem)
def test_free_pipelines_beat_every_pinned_one(path: Path) -> None:
    made = KfacInstance.parse(json.loads(path.read_text()), path.name)
    problem = lower_cycle(made)
    value, _ = proved(problem, list_serial(problem))
    compared = 0
    for heuristic in ("gpipe", "1f1b", "chimera"):
        try:
            repeated = pinned_cycle(made, heuristic)
        except NotApplicableError:
            continue
        _, bound = proved(repeated, fill_bubbles(repeated))
        assert value < bound
        compared += 1
    assert compared == (
        1 if made.pipeline and made.pipeline.placement == "bidirectional" else 2
    )
