"""Results in one line, their orders, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ppsolve
from ppsolve import InputError, PipelineInstance, Result
from ppsolve.solver.cli.output import json_text


def pipeline(microbatches: int = 3) -> PipelineInstance:
    return PipelineInstance(
        name="demo",
        num_devices=2,
        num_microbatches=microbatches,
        times={"forward": 1, "backward": [2, 2]},
        optimizer=1,
    )


@pytest.fixture(scope="module")
def result() -> Result:
    return ppsolve.optimize(pipeline(), heuristics=["1f1b"], time_limit=0)


class TestRepr:
    def test_a_result(self, result: Result) -> None:
        assert repr(result) == (
            "PipelineResult(instance='demo', status='OPTIMAL', value=13, value_unit='us', "
            "bound=13, gap=0.0, best_by='1f1b')"
        )
        assert str(result) == repr(result)[len("PipelineResult(") : -1].replace(
            ", ", " "
        )

    def test_its_parts(self, result: Result) -> None:
        (entry,) = result.heuristics
        assert (
            repr(entry)
            == "PipelineEntry(name='1f1b', status='feasible', value=13, gap=0.0)"
        )
        assert repr(result.schedule) == "ScheduleDocument(time_unit='us', ops=14)"

    def test_instances(self) -> None:
        assert repr(pipeline()) == (
            "PipelineInstance(name='demo', num_devices=2, num_microbatches=3, steps=1)"
        )
        graph = ppsolve.GraphInstance(
            name="g" * 1000, resources=("r",), ops=({"id": "a", "duration": 1},)
        )
        assert "ops=1" in repr(graph)
        assert len(repr(graph)) < 150

    def test_no_line_grows_with_the_instance(self) -> None:
        large = ppsolve.optimize(pipeline(400), heuristics=["1f1b"], time_limit=0)
        assert len(repr(large)) < 200
        assert len(repr(large.heuristics)) < 200


class TestOrders:
    def test_are_those_of_the_best_heuristic(self, result: Result) -> None:
        assert result.orders == list(result.heuristics[0].orders or ())
        assert result.orders == [
            ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"],
            ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"],
        ]

    def test_ops_in_segments_are_named(self) -> None:
        cut = {"forward": {"segments": 2, "allreduce": 1}}
        instance = pipeline().model_copy(update={"optimizer": None})
        instance = PipelineInstance.parse({**json.loads(instance.model_dump_json()), **{
            "collectives": cut
        }})  # fmt: skip
        found = ppsolve.optimize(instance, heuristics=["list-tail"], time_limit=0)
        assert found.schedule is not None
        names = {op.id for op in found.schedule.ops if op.kind != "P2P"}
        assert {name for order in found.orders or () for name in order} == names

    def test_without_a_schedule_there_are_none(self, result: Result) -> None:
        assert result.model_copy(update={"schedule": None}).orders is None


class TestSave:
    def test_writes_what_the_command_line_writes(
        self, result: Result, tmp_path: Path
    ) -> None:
        path = tmp_path / "result.json"
        result.save(path)
        assert path.read_text() == json_text(result)
        again = type(result).model_validate_json(path.read_text())
        assert again == result
        assert ppsolve.check(pipeline(), json.loads(path.read_text())) == []

    def test_says_where_it_cannot(self, result: Result, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="missing"):
            result.save(tmp_path / "missing" / "result.json")
