"""Columns say of a schedule what the schedule says."""

from dataclasses import replace

from ppsolve.solver.views.chart import pool_curves
from ppsolve.solver.views.page.columns import columns_of
from ppsolve.solver.views.page.idle import causes_of
from ppsolve.solver.views.page.units import in_unit
from tests.small import at, holding, op, small
from tests.views.page.cases import pipeline, shipped, shown_of, two_streams


def columns(schedule):
    kinds = ["op"] * schedule.problem.num_ops
    return columns_of(schedule, causes_of(schedule), pool_curves(schedule), kinds)


def test_ops_stand_by_lane_then_by_start():
    found = columns(two_streams())
    assert found["names"] == ["a", "c", "d", "b"]
    assert found["start"] == [0, 6, 0, 3]
    assert found["duration"] == [2, 2, 1, 3]
    assert [(lane["name"], lane["ops"]) for lane in found["lanes"]] == [
        ("x", [0, 1]),
        ("y", [2, 3]),
    ]


def test_slack_cause_and_critical_path_follow_the_new_numbers():
    found = columns(two_streams())
    assert found["slack"] == [0, 0, 2, 0]
    assert found["cause"] == [-1, 3, -1, 0]
    assert found["path"] == [0, 3, 1]
    needs = found["needs"]
    assert (needs["pointer"], needs["op"], needs["lag"]) == ([0, 0, 1, 1, 2], [3, 0], [0, 1])


def test_ops_without_a_resource_share_lanes_that_are_free():
    problem = small([op("a", 2), op("b", 2), op("c", 1), op("d", 0)])
    found = columns(at(problem, 0, 1, 2, 0))
    names = [[found["names"][number] for number in lane["ops"]] for lane in found["lanes"]]
    assert names == [["a", "c"], ["b"]]


def test_memory_is_a_step_at_each_change():
    problem = small([holding("a", 3, 2, "x"), holding("b", 1, 0.5, "x")], capacity=2)
    (strip,) = columns(at(problem, 0, 3))["strips"]
    assert (strip["time"], strip["amount"], strip["cap"]) == ([0, 3, 4], [2, 0.5, 0], 2)


def test_transfers_have_a_direction_and_names_are_made_of_labels():
    found = shipped("p2p_heavy/nic-40-4x8").columns()
    letters = {kind["name"]: kind["letter"] for kind in found["kinds"]}
    assert (letters["TF"], letters["TB"], letters["F"]) == (">", "<", "F")
    assert found["names"] is None


def test_times_are_told_in_the_unit_of_the_page():
    shown = shown_of(pipeline(time_unit="ms"), "gpipe")
    found = replace(shown, result=in_unit(shown.result, "us")).columns()
    assert found["tick"] * found["makespan"] == 120_000
    assert found["bound"] == 108_000


def test_kernels_and_collectives_are_told_apart():
    found = shipped("overlap/tensor-parallel-6l", "original").columns()
    assert {kind["words"] for kind in found["kinds"]} >= {"K kernel", "R all-reduce"}
