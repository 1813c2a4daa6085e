"""Traces for Perfetto keep every rule of Chrome's trace events."""

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

import ppsolve
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.formats.perfetto import TracedSchedule, perfetto_json
from tests.paths import ROOT

SHIPPED = (
    "uniform/uniform-4x8-1p",
    "p2p_heavy/nic-40-4x8",
    "p2p_heavy/link-90-4x8",
    "step_end/bidirectional-allreduce-4x8",
    "overlap_pipelines/tp-split-4x8-2p",
    "overlap/zero-tail-8l",
)


def shown(instance, heuristic, title="best"):
    kind = kind_of(instance)
    entry = ppsolve.simulate(instance, heuristic).model_dump(mode="json")
    return TracedSchedule(title, kind.read(instance, lower(instance), entry)[0])


def events_of(*each):
    return json.loads(perfetto_json(each))["traceEvents"]


def shipped(name):
    instance = ppsolve.load_instance(ROOT / "instances" / f"{name}.json")
    return shown(instance, "original" if instance.kind == "overlap" else "list-tail")


def nanoseconds(event, *names):
    return sum(round(1000 * event[name]) for name in names)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_rule_of_the_format(name):
    one = shipped(name)
    problem, events = one.schedule.problem, events_of(one)
    by_phase = Counter(event["ph"] for event in events)
    seats = sum(
        len(problem.resources_of(op))
        for op in range(problem.num_ops)
        if problem.duration[op]
    )
    assert by_phase["X"] == seats

    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] > 0 <= event["ts"]
            rows[event["pid"], event["tid"]].append(event)
    for row in rows.values():
        row.sort(key=lambda event: event["ts"])
        for before, after in pairwise(row):
            assert nanoseconds(before, "ts", "dur") <= nanoseconds(after, "ts")

    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    assert set(rows) <= named
    assert {pid for pid, _ in rows} <= processes
    for event in events:
        if event["name"].endswith("sort_index"):
            assert isinstance(event["args"]["sort_index"], int)
        if event["ph"] == "C":
            assert event["pid"] in processes


@pytest.mark.parametrize("name", SHIPPED[:4])
def test_arrows_leave_before_they_arrive(name):
    ways = defaultdict(list)
    for event in events_of(shipped(name)):
        if "bind_id" in event:
            ways[event["bind_id"]].append(event)
    assert ways
    for way in ways.values():
        way.sort(key=lambda event: event["ts"])
        assert way[0].get("flow_out") and not way[0].get("flow_in")
        assert way[-1].get("flow_in") and not way[-1].get("flow_out")


def test_counters_say_the_memory_in_use():
    pipeline = ppsolve.PipelineInstance(
        num_devices=1,
        num_microbatches=2,
        times={"forward": 10, "backward": 20},
        memory={"capacity": 3, "activation": 1, "static": 1},
    )
    events = events_of(shown(pipeline, "gpipe"))
    counted = [(e["ts"], e["args"]["in use"]) for e in events if e["ph"] == "C"]
    assert counted == [(0, 2.0), (10, 3.0), (40, 2.0), (60, 1.0)]


def test_two_schedules_are_two_groups_of_processes():
    pipeline = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=2, times={"forward": 1, "backward": 2}
    )
    events = events_of(
        shown(pipeline, "gpipe", "recorded"), shown(pipeline, "1f1b", "optimal")
    )
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    expected = [
        "recorded: device 0",
        "recorded: device 1",
        "optimal: device 0",
        "optimal: device 1",
    ]
    assert names == expected
    order = [
        e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"
    ]
    assert order == sorted(order)
    ids = [
        {e["bind_id"] for e in events if e["pid"] // 1000 == g and "bind_id" in e}
        for g in (0, 1)
    ]
    assert ids[0] and ids[1] and not ids[0] & ids[1]


@pytest.mark.parametrize(
    ("unit", "first"), [("s", 500_000), ("ms", 500), ("us", 0.5), ("ns", 0.001)]
)
def test_times_are_microseconds(unit, first):
    pipeline = ppsolve.PipelineInstance(
        num_devices=1,
        num_microbatches=1,
        time_unit=unit,
        times={"forward": 0.5, "backward": 1},
    )
    forward = next(e for e in events_of(shown(pipeline, "gpipe")) if e["ph"] == "X")
    assert forward["dur"] == first
