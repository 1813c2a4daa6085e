"""Experts inside pipeline ops: all-to-alls between unequal pieces, on streams of their own."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import ScheduleDocument, Status
from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.formats.perfetto import TracedSchedule, perfetto_json
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.studies.changes import AXES
from ppsolve.solver.views.chart import chart_rows
from tests.kinds.pipeline.plain_alltoall import optimum, tiny
from tests.kinds.pipeline.test_collectives import (
    FUSED,
    SPLIT,
    durations,
    edges,
    instance,
    resources,
)
from tests.kinds.pipeline.test_greedy_collectives import starts
from tests.marks import first
from tests.running import run_heuristic

EXPERTS = {"pieces": [1, 2, 1], "alltoall": [3, 3, 0]}


class TestLowering:
    def test_one_device_by_hand(self) -> None:
        problem = lower(
            instance({"forward": EXPERTS}, num_devices=1, num_microbatches=1)
        )
        assert durations(problem) == {
            **{
                "F0.0/0": 1,
                "F0.0/1": 2,
                "F0.0/2": 1,
                "B0.0": 6,
                "A2AF0.0/0": 3,
                "A2AF0.0/1": 3,
            }
        }
        assert edges(problem) == {
            ("F0.0/0", "A2AF0.0/0"): 0,
            ("A2AF0.0/0", "F0.0/1"): 0,
            ("F0.0/1", "A2AF0.0/1"): 0,
            ("A2AF0.0/1", "F0.0/2"): 0,
            ("F0.0/2", "B0.0"): 0,
        }
        assert {name for (name,) in resources(problem).values()} == {
            "device 0",
            "comm 0",
        }

    @pytest.mark.parametrize("pieces", [[0.25, 0.5, 0.25], [1, 2, 1], [3, 6, 3]])
    def test_pieces_are_relative(self, pieces: list[float]) -> None:
        inside = {"pieces": pieces, "alltoall": [3, 3, 0]}
        found = durations(lower(instance({"backward": inside}, num_microbatches=1)))
        times = [found[f"B1.0/{place}"] / found["A2AB1.0/0"] for place in range(3)]
        assert times == [0.5, 1, 0.5]

    def test_layers_repeat_the_pieces(self) -> None:
        inside = {"segments": [1, 2], "pieces": [1, 3], "alltoall": [2, 0]}
        problem = lower(
            instance({"forward": inside}, times={"forward": 8, "backward": 1})
        )
        found = durations(problem)
        assert [found[f"F0.0/{place}"] for place in range(2)] == [2, 6]
        assert [found[f"F1.0/{place}"] for place in range(4)] == [1, 3, 1, 3]
        assert {name for name in found if name.startswith("A2AF1.0")} == {
            "A2AF1.0/0",
            "A2AF1.0/2",
        }
        assert edges(problem)["F1.0/1", "F1.0/2"] == 0

    def test_stages_of_their_own(self) -> None:
        inside = {"pieces": [1, [1, 2, 1]], "alltoall": [0, [3, 5, 7]]}
        found = durations(
            lower(problem := instance({"forward": inside}, num_microbatches=1))
        )
        assert found["F0.0"] == 4
        assert [found[f"A2AF1.0/{place}"] for place in range(3)] == [3, 5, 7]
        assert "A2AF0.0" not in found
        assert ("A2AF1.0/2", "B1.0") in edges(lower(problem))

    def test_weight_gradients_wait_for_the_last_piece_only(self) -> None:
        tensor = {"backward_input": {"pieces": [0, 1], "alltoall": 2}}
        found = edges(lower(instance(tensor, times=SPLIT, num_microbatches=1)))
        assert ("I1.0/1", "W1.0") in found
        assert ("A2AI1.0/1", "I0.0/0") in found
        assert ("A2AI1.0/1", "W1.0") not in found

    def test_streams(self) -> None:
        given = {"forward": EXPERTS, "backward": {"allreduce": 1}, "all_gather": 2}
        own = resources(lower(instance({**given, "comm_streams": "per_kind"})))
        assert own["A2AF1.0/0"] == ["ep comm 1"]
        assert own["ARB1.0"] == ["tp comm 1"]
        assert own["AG1"] == ["dp comm 1"]
        of_nodes = resources(
            lower(instance({**given, "devices_per_node": 2}, num_devices=3))
        )
        assert of_nodes["A2AF0.0/0"] == of_nodes["A2AF1.0/0"] == ["node comm 0-1"]
        assert of_nodes["A2AF2.0/1"] == ["node comm 2"]
        assert of_nodes["ARB1.0"] == of_nodes["AG1"] == ["comm 1"]

    def test_equal_pieces_are_segments(self) -> None:
        whole = lower(instance({"forward": {"segments": 3, "allreduce": 2}}))
        cut = lower(instance({"forward": {"pieces": [2, 2, 2], "allreduce": 2}}))
        experts = lower(instance({"forward": {"pieces": [1, 1, 1], "alltoall": 2}}))
        renamed = {
            tuple(name.replace("A2A", "AR") for name in pair): lag
            for pair, lag in edges(experts).items()
        }
        assert edges(whole) == edges(cut) == renamed
        assert durations(whole) == durations(cut)
        assert whole.duration.tolist() == experts.duration.tolist()
        assert whole.resource_names == experts.resource_names

    def test_round_trip(self) -> None:
        given = instance(
            {"forward": {**EXPERTS, "pieces": [[1, 2, 1], 1], "alltoall": 3}}
        )
        assert PipelineInstance.model_validate_json(instance_text(given)) == given
        assert '"pieces"' not in instance_text(instance({"forward": {"alltoall": 1}}))


@pytest.mark.parametrize("seed", first(5, range(400)))
def test_optimum_is_that_of_the_plain_model(seed: int) -> None:
    found = tiny(seed)
    result = ppsolve.optimize(found.instance, workers=1)
    assert result.status is Status.OPTIMAL
    assert result.value == optimum(found)
    assert ppsolve.check(found.instance, result) == []


class TestHeuristics:
    @pytest.mark.parametrize("times", [FUSED, SPLIT])
    @pytest.mark.parametrize("placement", ["linear", "vshape", "bidirectional"])
    def test_published_orders_keep_pieces_together(
        self, placement: str, times: dict[str, Any]
    ) -> None:
        back = "backward_input" if times is SPLIT else "backward"
        tensor = {
            "forward": EXPERTS,
            back: {"pieces": [0, 2, 1], "alltoall": [1, 1, 0]},
        }
        shape = {"placement": placement, "times": times, "num_microbatches": 4}
        given = instance({**tensor, "devices_per_node": 2}, **shape)
        problem = lower(given)
        found = 0
        for heuristic in PUBLISHED:
            outcome = run_heuristic(heuristic.name, given, problem)
            if outcome.schedule is None:
                continue
            assert check_schedule(problem, outcome.schedule) == []
            found += 1
            start = outcome.schedule.start
            for resource in range(2):
                ops = problem.ops_by_resource[resource]
                ops = ops[problem.duration[ops] > 0]
                names = problem.op_names(ops[np.argsort(start[ops])])
                runs = [
                    whole
                    for whole, _ in groupby(name.partition("/")[0] for name in names)
                ]
                assert len(runs) == len(set(runs))
        assert found

    def test_full_backwards_hand_on_the_gradient_at_their_end(self) -> None:
        tensor = {"backward_input": {"pieces": [1, 2], "alltoall": [1, 0]}}
        given = instance(tensor, times=SPLIT, num_microbatches=1)
        outcome = run_heuristic("gpipe", given, lower(given))
        assert outcome.orders == [["0F0", "0B0"], ["1F0", "1B0"]]
        assert outcome.schedule is not None
        found = starts(outcome.schedule)
        assert (found["I1.0/0"], found["I1.0/1"], found["W1.0"], found["I0.0/0"]) == (
            8,
            10,
            12,
            14,
        )

    def test_list_rules_fill_the_windows_with_the_next_microbatch(self) -> None:
        given = instance(
            {"forward": EXPERTS}, num_devices=1, times={"forward": 4, "backward": 1}
        )
        problem = lower(given)
        filled = run_heuristic("list-tail", given, problem).schedule
        alone = run_heuristic("gpipe", given, problem).schedule
        assert filled is not None
        assert alone is not None
        # The first piece, four all-to-alls one after the other, the last piece, a backward.
        assert (filled.value, alone.value) == (1 + 4 * 3 + 1 + 1, 22)


def test_pictures_show_alltoalls_on_their_stream() -> None:
    given = instance({"forward": EXPERTS, "devices_per_node": 2})
    schedule = run_heuristic("gpipe", given, problem := lower(given)).schedule
    assert schedule is not None
    events = json.loads(perfetto_json([TracedSchedule("gpipe", schedule)]))[
        "traceEvents"
    ]
    (stream,) = [
        each["tid"] for each in events if each.get("args") == {"name": "node comm 0-1"}
    ]
    shown = {
        each["name"] for each in events if each["ph"] == "X" and each["tid"] == stream
    }
    assert {"A2AF0.0/0", "A2AF1.1/1"} <= shown
    document = ScheduleDocument.of(schedule)
    rows = {row.name: row.bars for row in chart_rows(document, problem, links=True)}
    assert {bar.label for bar in rows["node comm 0-1"]} == {"X0", "X1"}


def test_what_if_communication_is_faster() -> None:
    given = instance({"forward": {**EXPERTS, "alltoall": [[3, 3, 0], [4, 0, 1]]}})
    axis = AXES["comm"]
    (factor,) = axis.read("x0.5")
    changed = axis.apply(given, factor)
    assert isinstance(changed, PipelineInstance)
    assert changed.collectives is not None
    assert changed.collectives.forward is not None
    assert changed.collectives.forward.alltoall == ((1.5, 1.5, 0), (2, 0, 0.5))
