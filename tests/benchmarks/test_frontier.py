"""The families of the frontier: what they hold, and the figures that are printed of them."""

from __future__ import annotations

import sys

import pytest
from frontier import FAMILIES, Row, line, main, summary

import ppsolve
from ppsolve.models.core.problem import Objective
from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def test_few_microbatches_are_forty_instances_from_half_to_one_and_a_quarter() -> None:
    family = FAMILIES["m-near-p"]
    found = list(family.instances(family.seeds))
    assert len({instance.name for instance in found}) == len(found) == 40
    assert all(isinstance(instance, PipelineInstance) for instance in found)


def test_uneven_pipelines_are_thirty_and_differ() -> None:
    family = FAMILIES["uneven-16x64"]
    found = list(family.instances(family.seeds))
    assert len({instance.name for instance in found}) == len(found) == 30


def test_the_curve_has_34_points_for_each_objective() -> None:
    objectives = [
        instance.objective for instance in FAMILIES["curve"].instances(range(1))
    ]
    assert [
        objectives.count(each) for each in (Objective.DEVICE_SPAN, Objective.MAKESPAN)
    ] == [
        34,
        34,
    ]


def test_rows_without_published_v_schedules_come_as_v_up_to_32_x_256() -> None:
    found = list(FAMILIES["v-rows"].instances(range(1)))
    assert len({instance.name for instance in found}) == len(found) == 24
    assert all(instance.placement == "vshape" for instance in found)
    sizes = {(instance.num_devices, instance.num_microbatches) for instance in found}
    assert sizes == {(8, 24), (8, 64), (16, 48), (32, 96), (32, 256)}


def test_figures_of_a_family() -> None:
    times = {"forward": [1, 1], "backward": [2, 2]}
    pipeline = PipelineInstance(num_devices=2, num_microbatches=2, times=times)
    result = ppsolve.optimize(pipeline, time_limit=0)
    assert summary([Row("one", result, 0.1)]).splitlines()[-1] == line(
        ["one", "1", "1", "0.000", "0.000", f"mostly {result.best_by}"]
    )


def test_a_row_for_each_instance(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--only",
        "m-near-p",
        "--seeds",
        "0",
        "--name",
        "8x8-0.5p",
        "--time-limit",
        "1e-9",
    ]
    monkeypatch.setattr(sys, "argv", ["frontier.py", *words])
    main()
    assert "| m-near-p | 8x8-0.5p-seed0 |" in capsys.readouterr().out
