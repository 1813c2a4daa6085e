"""Columns say of a schedule what the schedule says."""

from dataclasses import replace

from ppsolve.solver.views.chart import pool_curves
from ppsolve.solver.views.page.columns import columns_of
from ppsolve.solver.views.page.idle import causes_of
from ppsolve.solver.views.time_units import in_unit
from tests.small import at, holding, small
from tests.views.page.cases import pipeline, shipped, shown_of, two_streams


def columns(schedule):
    kinds = ["op"] * schedule.problem.num_ops
    return columns_of(schedule, causes_of(schedule), pool_curves(schedule), kinds)


def test_ops_keep_their_numbers_and_lanes_name_them():
    found = columns(two_streams())
    assert found["names"] == ["a", "b", "c", "d"]
    assert found["start"] == [0, 3, 6, 0]
    assert found["duration"] == [2, 3, 2, 1]
    assert [(lane["name"], lane["ops"]) for lane in found["lanes"]] == [
        ("x", [0, 2]),
        ("y", [1, 3]),
    ]


def test_slack_cause_and_critical_path_are_those_of_the_schedule():
    found = columns(two_streams())
    assert found["slack"] == [0, 0, 0, 2]
    assert found["cause"] == [-1, 0, 1, -1]
    assert found["path"] == [0, 1, 2]
    assert (found["before"], found["after"], found["lag"]) == ([0, 1], [1, 2], [1, 0])


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
    found = replace(
        shown, result=in_unit(shown.result, shown.result.time_unit, "us")
    ).columns()
    assert found["tick"] * found["makespan"] == 120_000
    assert found["bound"] == 108_000


def test_kernels_and_collectives_are_told_apart():
    found = shipped("overlap/tensor-parallel-6l", "original").columns()
    assert {kind["words"] for kind in found["kinds"]} >= {"K kernel", "R all-reduce"}
