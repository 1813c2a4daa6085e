"""PipeFisher's greedy against its own output, and each of its quirks by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.unrolling import lower_refresh
from ppsolve.solver.kinds.kfac.heuristics import scheduled
from ppsolve.solver.kinds.kfac.pipefisher import pipefisher
from ppsolve.solver.kinds.kfac.placement import (
    DevicePlan,
    Placed,
    absolute_starts,
    common_interval,
)
from tests.kinds.kfac.cases import (
    NAMES,
    Timeline,
    expected,
    measured,
    pattern_of,
    unplaced_work,
)

FORWARD, BACKWARD = "call_forward", "call_backward"


def rows(plan: DevicePlan) -> list[list[Any]]:
    return [[e.label, e.start, e.end, e.iteration, e.phase] for e in plan.placed]


def kfac(pattern: RefreshPattern, device: int = 0) -> list[tuple[str, int, int, str]]:
    """Label, start, iteration and phase of the K-FAC work in list order."""
    plan = pipefisher(pattern)[device]
    return [
        (e.label, e.start, e.iteration, e.phase)
        for e in plan.placed
        if e.work is not None
    ]


@pytest.mark.parametrize("name", NAMES)
class TestPublished:
    def test_every_entry_is_the_originals(self, name: str) -> None:
        for plan, node in zip(pipefisher(measured(name)), expected(name), strict=True):
            assert rows(plan) == node["schedule"]

    def test_figures_are_the_originals(self, name: str) -> None:
        pattern = measured(name)
        for plan, node in zip(pipefisher(pattern), expected(name), strict=True):
            assert plan.iterations == node["iterations"]
            assert round(plan.usage(pattern), 4) == node["usage_percent"]
            assert [len(group) for group in plan.labels()] == node["iteration_lengths"]
            assert [list(rest) for rest in unplaced_work(plan, pattern)] == node[
                "unplaced"
            ]
            assert pattern.period == node["pipeline_time"]

    def test_every_part_has_one_start(self, name: str) -> None:
        pattern = measured(name)
        for plan, device in zip(pipefisher(pattern), pattern.devices, strict=True):
            parts = {
                (i, k) for i, work in enumerate(device.work) for k in range(work.parts)
            }
            assert set(absolute_starts(plan, pattern)) == parts

    def test_common_interval_is_the_longest(self, name: str) -> None:
        most = max(node["iterations"] for node in expected(name))
        assert common_interval(pipefisher(measured(name))) == most


class TestQuirks:
    def test_a_hole_begins_after_the_latest_start_even_where_an_op_still_runs(
        self,
    ) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100)],
                f"{FORWARD}:up_pipe": [(10, 20)],
                BACKWARD: [(110, 200)],
                "inv_kron_A:m": [(300, 310)],
            }
        )
        assert kfac(pattern) == [("inv_kron_A:m", 20, 0, "first")]

    def test_class_comes_before_recorded_start_and_none_counts_as_zero(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100)],
                BACKWARD: [(200, 300)],
                "inv_kron_B:m": [(1, 11)],
                "inv_kron_A:late": [(500, 510)],
                "inv_kron_A:x": [(400, 410)],
                "inv_kron_A:none": [(None, None)],
            }
        )
        # The scan skips the entry after each one that it removes.
        assert [label for label, *_ in kfac(pattern)] == [
            "inv_kron_A:none",
            "inv_kron_A:late",
            "inv_kron_A:x",
            "inv_kron_B:m",
        ]

    def test_null_entries_are_zero_length_items(self) -> None:
        plan = pipefisher(
            pattern_of(
                {
                    FORWARD: [(0, 100)],
                    BACKWARD: [(200, 300)],
                    "sync_kron_A:m": [(None, None)],
                    "cov_kron_A:m": [(300, 310)],
                }
            )
        )[0]
        assert [row[:3] for row in rows(plan) if row[4] == "first"] == [
            ["cov_kron_A:m", 100, 110],
            ["sync_kron_A:m", 110, 110],
        ]

    def test_a_removal_skips_the_right_hand_neighbour(self) -> None:
        work = {f"inv_kron_A:m{i}": [(300 + i, 310 + i)] for i in range(5)}
        pattern = pattern_of({FORWARD: [(0, 100)], BACKWARD: [(200, 300)], **work})
        assert [label[-1] for label, *_ in kfac(pattern)] == ["0", "2", "4", "1", "3"]

    def test_a_sync_waits_for_the_curvature_of_every_module(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100), (120, 220)],
                BACKWARD: [(300, 400), (400, 500)],
                "cov_kron_A:a": [(500, 510)],
                "cov_kron_A:b": [(510, 550)],
                "sync_kron_A:a": [(560, 562)],
            }
        )
        # a's parts of 5 go at 100 and 220; b's parts of 20 fit only from 220 on.
        assert kfac(pattern) == [
            ("cov_kron_A:a", 100, 0, "first"),
            ("cov_kron_A:a", 220, 0, "first"),
            ("cov_kron_A:b", 225, 0, "first"),
            ("cov_kron_A:b", 245, 0, "first"),
            ("sync_kron_A:a", 265, 0, "first"),
        ]

    def test_ops_of_the_second_pipe_release_no_curvature(self) -> None:
        pattern = pattern_of(
            {
                f"{FORWARD}:up_pipe": [(0, 100)],
                FORWARD: [(200, 300)],
                BACKWARD: [(400, 500)],
                "cov_kron_A:m:up_pipe": [(600, 610)],
            }
        )
        assert kfac(pattern) == [("cov_kron_A:m:up_pipe", 300, 0, "first")]

    @pytest.mark.parametrize(("hole", "phase"), [(105, "unplaced"), (106, "first")])
    def test_the_margin_is_strict(self, hole: int, phase: str) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100)],
                BACKWARD: [(100 + hole, 300 + hole)],
                "inv_kron_A:m": [(500, 600)],
            }
        )
        assert [entry[3] for entry in kfac(pattern)] == [phase]

    def test_the_refill_takes_holes_before_the_data(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100)],
                BACKWARD: [(200, 300)],
                "cov_kron_B:m": [(300, 310)],
            }
        )
        assert kfac(pattern) == [("cov_kron_B:m", 100, 0, "refill")]

    def test_a_refill_that_leaves_work_is_discarded_whole(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100)],
                BACKWARD: [(200, 300)],
                "cov_kron_B:m": [(300, 360)],
                "inv_kron_B:m": [(360, 420)],
            }
        )
        assert kfac(pattern) == [
            ("inv_kron_B:m", 100, 0, "refill"),
            ("cov_kron_B:m", 100, 1, "extra"),
        ]

    def test_it_gives_up_when_an_iteration_finishes_no_entry(self) -> None:
        pattern = pattern_of(
            {
                FORWARD: [(0, 100), (100, 200), (200, 300)],
                BACKWARD: [(340, 400), (400, 450), (450, 500)],
                "cov_kron_A:m": [(600, 690)],
            }
        )
        plan = pipefisher(pattern)[0]
        assert kfac(pattern) == [
            ("cov_kron_A:m", 300, 0, "first"),
            ("cov_kron_A:m", 300, 1, "extra"),
            ("cov_kron_A:m", 600, 1, "unplaced"),
        ]
        assert unplaced_work(plan, pattern) == [("cov_kron_A:m", 1, 90)]
        assert absolute_starts(plan, pattern) == {
            (0, 0): 300,
            (0, 1): 800,
            (0, 2): 1100,
        }

    def test_ops_of_a_clock_that_runs_ahead_come_before_the_start_marker(self) -> None:
        pattern = pattern_of(
            {FORWARD: [(0, 100)], BACKWARD: [(200, 300)]},
            {
                FORWARD: [(-40, -30)],
                BACKWARD: [(0, 10)],
                "inv_kron_A:m": [(300, 320)],
                "inv_kron_A:n": [(320, 340)],
            },
        )
        plan = pipefisher(pattern)[1]
        assert rows(plan)[:3] == [
            [FORWARD, -40, -30, -1, "pipeline"],
            ["inv_kron_A:m", -30, -10, -1, "first"],
            ["-- start --", 0, 0, 0, "pipeline"],
        ]
        assert [len(group) for group in plan.labels()] == [2, 6]
        assert absolute_starts(plan, pattern) == {(0, 0): -30, (1, 0): 10}

    def test_forwards_come_before_backwards_that_start_at_the_same_time(self) -> None:
        plan = pipefisher(
            pattern_of({BACKWARD: [(0, 0), (1, 9)], FORWARD: [(0, 0), (0, 1)]})
        )[0]
        assert plan.labels()[0][1:4] == [FORWARD, FORWARD, BACKWARD]


def test_a_sync_that_does_not_meet_ends_where_the_last_device_ends_it() -> None:
    """In the hole from 2 to 4 of an iteration of 10: at 2 on device 0, on device 1 at 12."""
    line: Timeline = {
        "call_forward": [(0, 2)], "call_backward": [(4, 10)], "sync_kron_A:m": [(0, 2)]
    }  # fmt: skip
    pattern = pattern_of(line, line, margin_ratio=0, sync_groups=[[0, 1]])
    lowered = lower_refresh(pattern, [2, 2])
    for second, last in ((0, []), (1, [14])):
        plans = [
            DevicePlan(
                device, (Placed("sync_kron_A:m", 2, 4, iteration, "first", 0, 0),)
            )
            for device, iteration in ((0, 0), (1, second))
        ]
        schedule, apart = scheduled(pattern, plans, lowered)
        assert list(apart.values()) == last
        assert schedule.start[lowered.op_of[0, 0, 0]] == 2
