"""What a runtime runs, held to simulators and counts that share no code with the program."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Result, Status, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.bound_check import check_bound
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.formats.torch_csv import check_csv
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Request
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.claims import rows_of
from ppsolve.solver.kinds.pipeline.runtimes.families import (
    FAMILIES,
    MEGATRON,
    family_of,
)
from ppsolve.solver.kinds.pipeline.runtimes.task import RuntimeTask, by_index
from ppsolve.solver.views.drawings import caption_of
from tests.kinds.pipeline.runtimes import megatron
from tests.kinds.pipeline.runtimes.cases import (
    LOOPED,
    SPLIT,
    drawn,
    flags_of,
    pipeline,
    recomputing,
    solved,
)
from tests.marks import first
from tests.paths import ROOT

SHIPPED = (
    "heterogeneous/embedding-head-4x8-1p",
    "heterogeneous/random-7x12-seed4",
    "heterogeneous/slow-device-8x16-1p",
    "few_microbatches/random-16x8",
    "few_microbatches/random-8x1",
    "memory_scan/scan-4x8-5",
    "p2p_heavy/delay-100-8x16",
    "p2p_heavy/link-90-4x8",
    "p2p_heavy/link-uneven-4x12",
    "p2p_heavy/two-nodes-8x16",
    "published/zb-6.2b-8x24-1p-fused",
    "uniform/uniform-4x8-1p",
    "virtual_stages/interleaved-4x8-fused",
)


def written(result: Result, to: str, **fields: Any) -> str:
    data = json.loads(result.model_dump_json())
    program = in_data_order(read_program(data), may_permute=False)
    for name, value in fields.items():
        object.__setattr__(program, name, value)
    target = chosen(to)
    return target.files(program, target.settings(), Path("out"))[Path("out")]


class TestMegatron:
    """The flags that are exported make its own schedule take as long as was promised."""

    @pytest.mark.parametrize("name", first(5, SHIPPED))
    def test_shipped(self, name: str) -> None:
        path = ROOT / "instances" / f"{name}.json"
        instance = load_instance(path)
        result = solved(instance, "megatron")
        assert result.status is Status.OPTIMAL
        flags = written(result, "megatron")
        promised = Fraction(result.makespan).limit_denominator(10**6)
        data = json.loads(path.read_text())
        assert megatron.makespan(flags, data) == promised
        assert ppsolve.check(instance, result) == []

    @pytest.mark.parametrize("seed", first(4, range(24)))
    def test_drawn(self, seed: int) -> None:
        data = drawn(seed)
        instance = ppsolve.parse_instance(data)
        result = solved(instance, "megatron")
        assert megatron.makespan(written(result, "megatron"), data) == result.makespan
        # No legal size of groups is better, by the same simulator.
        ranks, chunks = data["num_devices"], data.get("stages_per_device", 1)
        sizes = (
            megatron.group_sizes(ranks, data["num_microbatches"]) if chunks > 1 else [0]
        )
        assert result.runtime.orders == len(sizes)
        assert result.value == min(
            megatron.makespan(flags_of(ranks, chunks, n), data) for n in sizes
        )
        assert (result.status, result.bound) == (Status.OPTIMAL, result.value)
        assert ppsolve.check(instance, json.loads(result.model_dump_json())) == []

    @pytest.mark.parametrize("capacity", range(4, 16))
    def test_memory_rules_orders_out(self, capacity: int) -> None:
        """Interleaved on 2 devices: an order is run where the peak of each rank fits."""
        memory = {"capacity": capacity, "activation": [1, 2, 1, 1]}
        times = {"forward": [3, 5, 4, 3], "backward": [6, 9, 8, 7]}
        instance = pipeline(2, 6, memory=memory, times=times, **LOOPED)
        data = json.loads(instance.model_dump_json())
        every = [flags_of(2, 2, n) for n in megatron.group_sizes(2, 6)]
        fitting = [
            flags for flags in every if max(megatron.peaks(flags, data)) <= capacity
        ]
        result = solved(instance, "megatron")
        if fitting:
            assert result.value == min(
                megatron.makespan(flags, data) for flags in fitting
            )
            assert result.status is Status.OPTIMAL
        else:
            assert result.status is Status.INFEASIBLE
            assert (
                "none of the orders that Megatron-LM runs (4 timed) fits"
                in result.reason
            )
            # The smallest groups exceed it least.
            assert "; groups of 2: memory: device " in result.reason
        assert (
            check_bound(instance, json.loads(result.model_dump_json())).proved_by
            is not None
        )

    def test_a_clock_that_is_over(self) -> None:
        """Orders that were not timed may be better: only the bounds of all schedules hold."""
        instance = pipeline(2, 4, **LOOPED)
        task = RuntimeTask(PIPELINE, instance, MEGATRON, exact=False)
        task.find_bounds(Clock(0.0))
        assert (task.board.value, task.infeasible) == (None, None)
        assert "runtime orders" not in {bound.name for bound in task.board.bounds}
        assert 0 < task.board.bound.value <= solved(instance, "megatron").value

    def test_why_none_fits(self) -> None:
        """Rank 0 of 1F1B on 3 ranks has 3 micro-batches in flight."""
        result = solved(
            pipeline(3, 6, memory={"capacity": 2, "activation": 1}), "megatron"
        )
        assert result.status is Status.INFEASIBLE
        assert "1F1B: memory: device 0 holds 3 of 2" in result.reason
        assert result.runtime.orders == 1
        assert result.runtime.order is None

    def test_the_price_of_its_rules(self) -> None:
        """Two devices, two micro-batches: the whole backward on 1 delays that on 0 by W."""
        result = solved(
            pipeline(2, 2, times=SPLIT), "megatron", time_limit=20, heuristics=None
        )
        # 0F0 1F0 1B0 0B0 at 0, 1, 2, 4; then 1F1 1B1 0B1 at 4, 5, 7: 9. Split: I before W, 7.
        assert result.value == 9
        assert (result.runtime.free_value, result.runtime.free_bound) == (7, 7)
        assert result.runtime.price == pytest.approx(9 / 7 - 1)
        assert caption_of(result).endswith("proved optimal for Megatron-LM")

    def test_listeners_hear_figures_of_the_runtime_alone(self) -> None:
        """The search for any schedule, which ends at 7, is told beside them."""
        heard = []
        result = solved(
            pipeline(2, 2, times=SPLIT),
            "megatron",
            time_limit=20,
            heuristics=None,
            on_progress=heard.append,
        )
        assert {news.incumbent for news in heard} - {None} == {result.value}
        assert (heard[-1].incumbent, heard[-1].bound) == (result.value, result.bound)
        beside = [news for news in heard if news.source.startswith("any schedule: ")]
        assert {news.event for news in beside} == {"phase"}
        moments = [news.seconds for news in heard]
        assert moments == sorted(moments)
        assert 0 < result.runtime.free_seconds < result.wall_seconds

    def test_the_best_of_all_is_no_worse(self) -> None:
        """Its search begins with what the runtime runs."""
        times = {"forward": [1, 4, 1, 1], "backward": [2, 2, 5, 2]}
        instance = pipeline(2, 6, times=times, **LOOPED)
        result = solved(instance, "megatron", heuristics=["looped-bfs"])
        assert ppsolve.simulate(instance, "looped-bfs").value > result.value
        assert (result.runtime.free_value, result.runtime.price) == (result.value, 0)

    def test_backwards_are_whole(self) -> None:
        result = solved(pipeline(2, 3, times=SPLIT), "megatron")
        assert written(result, "megatron") == "--pipeline-model-parallel-size 2\n"

    def test_an_interrupt_keeps_what_was_proved(self) -> None:
        """It comes while the best of all schedules is searched, by a heuristic of the user."""

        def interrupted(problem: Any) -> Any:
            raise KeyboardInterrupt

        result = solved(
            pipeline(2, 3, times=SPLIT),
            "megatron",
            heuristics=[interrupted],
            time_limit=5,
        )
        assert (result.status, result.stop_reason) == (
            Status.OPTIMAL,
            StopReason.INTERRUPTED,
        )

    def test_no_start_and_no_jitter(self) -> None:
        instance = pipeline(2, 3)
        known = solved(instance, "megatron")
        with pytest.raises(
            InputError, match="start: expected none: Megatron-LM runs few orders"
        ):
            solved(instance, "megatron", start=known)
        with pytest.raises(
            InputError, match="robust: expected none: Megatron-LM runs few orders"
        ):
            solved(instance, "megatron", robust=0.1)


class TestAnyOrder:
    """Runtimes that read the order: what is found can be exported."""

    @pytest.mark.parametrize("seed", first(1, range(4)))
    @pytest.mark.slow
    def test_torch(self, seed: int, tmp_path: Path) -> None:
        instance = ppsolve.parse_instance(drawn(seed))
        result = solved(instance, "torch", time_limit=2, heuristics=None)
        free = ppsolve.optimize(instance, time_limit=2)
        assert result.bound <= free.value
        path = tmp_path / "order.csv"
        path.write_text(written(result, "torch"))
        assert check_csv(path, instance) == []

    @pytest.mark.parametrize("runtime", ["colossalai", "primus"])
    def test_v(self, runtime: str) -> None:
        instance = pipeline(2, 4, times=SPLIT, placement="vshape")
        result = solved(instance, runtime, time_limit=3, heuristics=None)
        best = ppsolve.optimize(instance, time_limit=3)
        assert (result.value, result.status) == (best.value, best.status)
        assert json.loads(written(result, runtime))
        assert ppsolve.check(instance, result) == []

    def test_ops_in_pieces(self) -> None:
        """Lists run other ops between the pieces of an op, which no runtime's file says."""
        instance = load_instance(
            ROOT / "instances" / "overlap_pipelines" / "tp-split-2x4-2p.json"
        )
        pieces, whole = (
            json.loads(ppsolve.simulate(instance, name).model_dump_json())
            for name in ("list-tail", "zb-h1")
        )
        (violation,) = ppsolve.check(instance, pieces | {"runtime": {"name": "torch"}})
        assert "an op runs in pieces, with others between them" in violation.message
        assert ppsolve.check(instance, whole | {"runtime": {"name": "torch"}}) == []
        result = solved(instance, "torch", heuristics=["list-tail", "zb-h1"])
        assert result.best_by == "zb-h1"

    def test_alike_micro_batches_are_renumbered(self) -> None:
        """Breadth-first looping runs backwards from the last micro-batch to the first."""
        instance = pipeline(2, 4, times=SPLIT, placement="vshape")
        result = solved(instance, "colossalai", heuristics=["looped-bfs"])
        assert result.best_by == "looped-bfs"
        assert ppsolve.check(instance, result) == []

    def test_primus_takes_data_in_one_order(self) -> None:
        """Micro-batches that differ pass the first and the last stage in one order."""
        times = {
            "forward": [[1, 9, 2, 7], [8, 1, 9, 1]],
            "backward": [[2, 9, 1, 5], [1, 6, 2, 8]],
        }
        instance = pipeline(2, 4, times=times)
        result = solved(instance, "primus", time_limit=3, heuristics=None)
        rows = [[op for op in row if "F" in op] for row in result.orders]
        first, last = ([op.split("F")[1] for op in row] for row in rows)
        assert first == last
        assert ppsolve.check(instance, result) == []

    def test_a_start_that_it_does_not_run(self) -> None:
        times = {"forward": [[1, 1], [1, 1]], "backward": [[2, 2], [2, 3]]}
        instance = pipeline(2, 2, times=times)
        ops = [
            ("F", 0, 0, 0, 1),
            ("F", 0, 1, 1, 2),
            ("F", 1, 1, 2, 3),
            ("B", 1, 1, 3, 6),
        ]
        ops += [
            ("F", 1, 0, 6, 7),
            ("B", 1, 0, 7, 9),
            ("B", 0, 1, 6, 8),
            ("B", 0, 0, 9, 11),
        ]
        names = ("kind", "stage", "microbatch", "start", "end")
        rows = [dict(zip(names, op, strict=True)) for op in ops]
        rows = [
            {**op, "id": f"{op['kind']}{op['stage']}.{op['microbatch']}"} for op in rows
        ]
        rows = [{**op, "device": op["stage"]} for op in rows]
        start = {"schedule": {"time_unit": "us", "ops": rows}}
        assert ppsolve.check(instance, start) == []
        assert solved(instance, "torch", start=start).value <= 11
        with pytest.raises(
            InputError, match="start: data-order: Primus takes data in the order"
        ):
            solved(instance, "primus", start=start)

    @pytest.mark.parametrize("seed", range(6))
    def test_alike_ops_in_the_order_of_micro_batches(self, seed: int) -> None:
        instance = ppsolve.parse_instance(drawn(seed))
        problem = lower(instance)
        for heuristic in (one for one in GENERIC if not one.is_search):
            found = heuristic.propose(Request(instance, problem)).schedule
            ordered = by_index(found)
            assert ordered.value == found.value
            assert check_schedule(problem, ordered) == []
            for row in rows_of(ordered) or ():
                for stage, kind in {step[:2] for step in row}:
                    own = [step.microbatch for step in row if step[:2] == (stage, kind)]
                    assert own == sorted(own)


class TestDeepSpeed:
    """1F1B on one stage per rank: Megatron-LM's schedule without virtual stages."""

    @pytest.mark.parametrize(
        ("ranks", "count"), list(product(range(1, 6), range(1, 9)))
    )
    def test_steps_of_its_schedule(self, ranks: int, count: int) -> None:
        """Rank s of `TrainSchedule` runs F k at step 2k + s, B k at step 2k + 2p - s - 1."""
        shape = PipelineShape(count, tuple(range(ranks)))
        orders = family_of("deepspeed").orders
        assert orders is not None
        (found,) = orders(shape)
        for rank, order in enumerate(found.orders):
            steps = [(2 * k + rank, f"{rank}F{k}") for k in range(count)]
            steps += [
                (2 * k + 2 * ranks - rank - 1, f"{rank}B{k}") for k in range(count)
            ]
            assert [str(each) for each in order] == [text for _, text in sorted(steps)]

    @pytest.mark.parametrize(
        "seed", [seed for seed in range(24) if "placement" not in drawn(seed)]
    )
    def test_drawn(self, seed: int) -> None:
        data = drawn(seed)
        ranks = data["num_devices"]
        result = solved(ppsolve.parse_instance(data), "deepspeed")
        assert megatron.makespan(flags_of(ranks, 1, 0), data) == result.makespan
        parts = json.loads(written(result, "deepspeed", layers=(2,) * ranks))["parts"]
        assert parts == [2 * rank for rank in range(ranks + 1)]


class TestCheck:
    """A document that claims a runtime is refused where that does not run its schedule."""

    def document(self) -> tuple[Any, dict[str, Any]]:
        instance = pipeline(2, 4, **LOOPED)
        return instance, json.loads(solved(instance, "megatron").model_dump_json())

    def violations(self, instance: Any, document: dict[str, Any]) -> list[str]:
        return [str(each) for each in ppsolve.check(instance, document)]

    def test_another_order(self) -> None:
        instance, document = self.document()
        other = json.loads(ppsolve.simulate(instance, "looped-bfs").model_dump_json())
        changed = {"schedule": other["schedule"], "runtime": document["runtime"]}
        (text,) = self.violations(instance, changed)
        assert text.startswith("runtime: ")
        assert "Megatron-LM with groups of" in text
        for name in ("torch", "torchtitan", "primus"):
            assert (
                self.violations(instance, changed | {"runtime": {"name": name}}) == []
            )

    def test_claims_that_are_none(self) -> None:
        instance, document = self.document()
        for claim, message in (
            (
                {"name": "megatorn"},
                'unknown runtime "megatorn"; did you mean "megatron"',
            ),
            (
                {"name": "deepspeed"},
                "DeepSpeed has one stage per rank, stage 2 is on rank 0",
            ),
            (
                {"name": "megatron", "settings": {"group_size": 3}},
                'Megatron-LM has no settings {"group_size": 3} for it',
            ),
            (["megatron"], "expected a runtime with its name"),
        ):
            (text,) = self.violations(instance, document | {"runtime": claim})
            assert message in text

    def test_an_idle_moment(self) -> None:
        instance, document = self.document()
        for op in document["schedule"]["ops"]:
            op["start"] += op["start"] > 0
            op["end"] += op["start"] > 0
        found = self.violations(
            instance, {**document["schedule"], "runtime": document["runtime"]}
        )
        assert any("starts it at" in text for text in found)

    def test_other_modes(self) -> None:
        instance = recomputing(3, "all")
        document = json.loads(
            solved(instance, "megatron", heuristics=None).model_dump_json()
        )
        document["runtime"]["settings"] = {"mode": "full"}
        (text,) = self.violations(instance, document)
        assert "Megatron-LM runs 1F1B, all stages full, the modes are others" in text

    def test_a_false_bound(self) -> None:
        instance, document = self.document()
        assert check_bound(instance, document).proved_by == "runtime orders"
        higher = check_bound(instance, document | {"bound": document["bound"] + 1})
        assert (higher.proved_by, higher.better) == (None, document["value"])
        # The best of all schedules takes 7: it refutes nothing that is said of the runtime.
        split = pipeline(2, 2, times=SPLIT)
        above = check_bound(split, {"bound": 10, "runtime": {"name": "megatron"}})
        assert (above.proved_by, above.better) == (None, 9)
        refuted = check_bound(
            instance, document | {"bound": None, "status": "INFEASIBLE"}
        )
        assert refuted.better == document["value"]


class TestObstacles:
    """Pipelines of which a runtime runs no schedule are refused in words."""

    @pytest.mark.parametrize(
        ("runtime", "fields", "message"),
        [
            ("megatron", {"placement": "vshape"}, r"this is a V placement \(vshape\)"),
            (
                "megatron",
                {"placement": "bidirectional"},
                "placement: expected one rank per stage",
            ),
            (
                "torch",
                {"replicas": {"count": 2}},
                "replicas: expected one rank per stage",
            ),
            ("deepspeed", LOOPED, "one stage per rank, stage 2 is on rank 0"),
            ("colossalai", {}, "which makes 4 stages, got 2"),
            (
                "colossalai",
                {"placement": "vshape"},
                "runs I and W apart, backwards are whole",
            ),
            (
                "primus",
                {"placement": "wave", "stages_per_device": 3},
                "stage 2 is on rank 1",
            ),
            (
                "torchtitan",
                {"placement": "wave", "stages_per_device": 3},
                "stage 2 is on rank 1",
            ),
        ],
    )
    def test_placements(
        self, runtime: str, fields: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError, match=f"runtime: .*{message}"):
            solved(pipeline(2, 4, **fields), runtime)

    def test_too_few_micro_batches(self) -> None:
        with pytest.raises(
            InputError, match="groups of at least 2 micro-batches, there are 1"
        ):
            solved(pipeline(2, 1, **LOOPED), "megatron")
        with pytest.raises(
            InputError, match="needs a multiple of 2 micro-batches, got 3"
        ):
            solved(pipeline(2, 3, placement="vshape", times=SPLIT), "colossalai")

    def test_names_and_kinds(self) -> None:
        with pytest.raises(
            InputError, match='runtime: unknown runtime "torhc"; did you mean "torch"'
        ):
            solved(pipeline(2, 4), "torhc")
        graph = {
            "kind": "graph",
            "resources": ["a"],
            "ops": [{"id": "x", "duration": 1}],
        }
        with pytest.raises(
            InputError, match='runtime: expected a pipeline, got "graph"'
        ):
            solved(ppsolve.parse_instance(graph), "torch")

    def test_every_shape_has_a_simulated_order(self) -> None:
        """Legal sizes of groups by the documentation, for all small shapes."""
        for ranks, count in product(range(2, 6), range(2, 14)):
            shape = PipelineShape(count, tuple(range(ranks)) * 2)
            assert MEGATRON.orders is not None
            found = [order.group_size for order in MEGATRON.orders(shape)]
            assert found == megatron.group_sizes(ranks, count)

    def test_exporters_know_them_all(self) -> None:
        assert all(chosen(family.name) for family in FAMILIES)
