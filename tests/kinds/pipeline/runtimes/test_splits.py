"""Layers shared out for a runtime of few orders: every split, order and choice to recompute."""

from __future__ import annotations

import copy
import json
import random
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json
from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import (
    has_open_chunks,
    in_chunks,
    split_by,
)
from ppsolve.models.kinds.pipeline.lowering import lower_split
from ppsolve.solver.clock import Clock
from ppsolve.solver.formats.activations import notes_on_modes, with_recomputed
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.kinds.pipeline.layers.ordered import even_counts
from ppsolve.solver.kinds.pipeline.layers.rules import RecomputeRule
from ppsolve.solver.kinds.pipeline.runtimes import splits
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.kinds.pipeline.runtimes.splits import NEVER, RuntimeSplits
from ppsolve.solver.run.progress import Progress
from tests.kinds.pipeline.runtimes import split_oracle
from tests.marks import first
from tests.paths import ROOT

CASES = ROOT / "tests" / "data" / "layers_runtime"

SMALL: dict[str, Any] = {
    "kind": "pipeline",
    "name": "small",
    "num_devices": 3,
    "num_microbatches": 6,
    "p2p": {"latency": 1},
    "layers": {
        "first": {"forward": 2, "backward": 3, "static": 2},
        "body": {
            "count": 13,
            "forward": 5,
            "backward": 11,
            "activation": 3,
            "static": 1,
        },
        "last": {"forward": 7, "backward": 12, "static": 2},
        "recompute": [
            {"name": "selective", "time": 2, "held": 2},
            {"name": "full", "time": 5, "held": 1},
        ],
    },
    "memory": {"capacity": 46},
}


def solved(instance: Any, runtime: str, **options: Any) -> Any:
    few: dict[str, Any] = {"time_limit": 0, "heuristics": []}
    return ppsolve.optimize(instance, runtime=runtime, **few | options)


def searched(instance: PipelineInstance, runtime: str = "megatron") -> RuntimeSplits:
    even = lower_split(instance, even_counts(instance))
    return RuntimeSplits(family_of(runtime), instance, even.scale, lambda _: None)


def written(document: Any, to: str = "megatron", heuristic: str | None = None) -> str:
    """Return the file for a runtime."""
    program, target = read_program(document, heuristic=heuristic), chosen(to)
    settings = with_recomputed(program, target.settings(), to)
    list(notes_on_modes(program, settings, to))
    return target.files(program, settings, Path("out"))[Path("out")]


def document_of(result: Any) -> Any:
    return json.loads(result.model_dump_json())


def agrees(seed: int) -> None:
    """Hold a drawn pipeline to a simulator of its own, with memory counted op by op."""
    data, runtime = split_oracle.drawn(seed)
    instance = PipelineInstance.parse(data)
    result, best = solved(instance, runtime), split_oracle.best_of(data, runtime)
    if best is None:
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    assert result.value == result.bound == best
    document = document_of(result)
    carried = PipelineInstance.parse(document["instance_document"])
    assert ppsolve.check(instance, document) == []
    assert ppsolve.check(carried, document) == []


@pytest.mark.parametrize("seed", first(15, range(400)))
def test_tiny_pipelines(seed: int) -> None:
    agrees(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(20))
def test_many_tiny_pipelines(block: int) -> None:
    for seed in range(1_000 + 100 * block, 1_100 + 100 * block):
        agrees(seed)


@pytest.mark.parametrize("seed", first(3, range(40)))
def test_searches_without_a_list_of_all_splits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds are never above what is best, and values never below it."""
    monkeypatch.setattr(splits, "MOST_RATED", -1)
    data, runtime = split_oracle.drawn(seed)
    instance = PipelineInstance.parse(data)
    best = split_oracle.best_of(data, runtime)
    search = searched(instance, runtime)
    optimum = NEVER if best is None else int(search.scale.ticks(Fraction(best)))
    assert min(search.bound, NEVER) <= optimum
    search.begin(Clock())
    assert search.bound <= optimum <= search.value
    search.search(Clock(), 1, 4, lambda: False)
    assert search.bound <= optimum <= search.value


@pytest.mark.parametrize(
    "fields",
    [
        {"p2p": {"mode": "link", "latency": 1, "bytes": 8, "bandwidth": 2}},
        {"optimizer": 4},
        {"allreduce": 6, "optimizer": 3},
        {"objective": "device_span"},
        {"num_microbatches": 5, "memory": None},
    ],
)
@pytest.mark.parametrize("chunks", [1, 2])
def test_each_split_is_timed_as_a_pipeline_of_its_own(fields: Any, chunks: int) -> None:
    """Links, all-reduces and optimizers too: the best of all splits, each solved by itself."""
    body = {"count": 5, "forward": 3, "backward": 5, "activation": 2, "static": 1}
    layers = {"body": body, "last": {"forward": 4, "backward": 6}}
    layers["recompute"] = [{"name": "selective", "time": 1, "held": 1}]
    shape = {"placement": "interleaved", "stages_per_device": 2} if chunks == 2 else {}
    data = {**SMALL, "num_devices": 2, "num_microbatches": 4, "layers": layers}
    data = data | {"memory": {"capacity": 22}} | shape | fields
    instance = PipelineInstance.parse(data | {"placement": "linear"} | shape)
    values = []
    for types in split_oracle.types_of_stages(data, "deepspeed", 2 * chunks):
        counts = np.array(
            [[row.count(n) for row in types] for n in ("keep", "selective")]
        )
        alone = solved(split_by(instance, counts), "megatron")
        values += [] if alone.value is None else [alone.value]
    result = solved(instance, "megatron")
    assert (result.value, result.status) == (min(values), Status.OPTIMAL)
    assert ppsolve.check(instance, document_of(result)) == []


def test_each_number_of_virtual_stages_has_a_bound() -> None:
    """A question of that number alone is not below it."""
    few = copy.deepcopy(SMALL)
    few["layers"]["body"]["count"] = 7
    bounds = solved(PipelineInstance.parse(few), "megatron").runtime.virtual_stages
    assert list(bounds) == [1, 2]
    for chunks, bound in bounds.items():
        placed = {"placement": "interleaved", "stages_per_device": chunks}
        alone = solved(PipelineInstance.parse(few | placed), "megatron")
        assert (alone.value is None) == (bound is None)
        assert bound is None or bound <= alone.value


def test_the_bottleneck_is_not_a_device_that_any_split_could_relieve() -> None:
    small = PipelineInstance.parse(SMALL)
    found = ppsolve.optimize(small, time_limit=0, heuristics=["split-1f1b"])
    assert (found.bottleneck.rule, found.bottleneck.about) == ("layers", None)


def test_layers_of_no_time() -> None:
    """Forwards of no time: memory is that of moments."""
    layers = {
        "body": {"count": 5, "forward": 0, "backward": 4, "activation": 2},
        "last": {"forward": 3, "backward": 3},
    }
    data = {**SMALL, "num_devices": 2, "layers": layers, "memory": {"capacity": 12}}
    instance = PipelineInstance.parse(data | {"placement": "linear"})
    values = []
    for counts in ([[1, 4]], [[2, 3]], [[3, 2]], [[4, 1]]):
        alone = solved(split_by(instance, np.array(counts)), "megatron")
        values += [] if alone.value is None else [alone.value]
    result = solved(instance, "megatron")
    assert (result.value, result.status) == (min(values), Status.OPTIMAL)
    assert ppsolve.check(instance, document_of(result)) == []


def test_times_that_are_rounded() -> None:
    """Stages are rounded once, so that they are no sums over rounded layers."""
    layers = copy.deepcopy(SMALL["layers"])
    layers["body"] |= {"count": 7, "forward": 1.0123456789012345}
    layers["body"] |= {"backward": 2.0712345678901234, "activation": 2}
    layers["last"] |= {"forward": 1.3123456789012377, "backward": 2.712345678901234}
    instance = PipelineInstance.parse(SMALL | {"layers": layers})
    result = solved(instance, "megatron")
    assert result.status is Status.OPTIMAL
    assert result.tick_error > 0
    assert ppsolve.check(instance, document_of(result)) == []
    values = []
    for types in split_oracle.types_of_stages({"layers": layers}, "deepspeed", 6):
        names = [kind["name"] for kind in ({"name": "keep"}, *layers["recompute"])]
        counts = np.array([[row.count(name) for row in types] for name in names])
        placed = in_chunks(instance, 2)
        alone = solved(split_by(placed, counts), "megatron")
        values += [] if alone.value is None else [alone.value]
    assert float(result.value) <= float(min(values)) * (1 + 1e-8)


def test_moves_by_hand_find_nothing_better() -> None:
    """Random moves in plain Python, timed by a simulator that shares nothing with the program."""
    rng = random.Random(5)
    search = searched(PipelineInstance.parse(SMALL))
    search.begin(Clock())
    search.search(Clock(), 0, 3, lambda: False)
    for chunks in (1, 2, 3, 4):
        stages = 3 * chunks
        split = [13 // stages + (s < 13 % stages) for s in range(stages)]
        for _ in range(250):
            moved = list(split)
            a, b = rng.sample(range(stages), 2)
            moved[a], moved[b] = moved[a] - 1, moved[b] + 1
            if moved[a] < 1:
                continue
            name, limit = rng.choice(["keep", "selective", "full"]), 13
            if rng.random() < 0.4:
                name, limit = "full", rng.randint(1, 4)
            size = None if chunks == 1 else rng.choice([3, 6])
            value = split_oracle.value_of(SMALL, moved, name, limit, chunks, size)
            assert value is None or search.scale.ticks(Fraction(value)) >= search.value
            if rng.random() < 0.7:
                split = moved
    assert search.bound <= search.value


def test_the_same_with_the_same_seed() -> None:
    """Neither the clock nor anything but the seed decides what is found."""
    runs = []
    for _ in range(2):
        kept: list[tuple[str, int]] = []
        instance = PipelineInstance.parse(SMALL)
        even = lower_split(instance, even_counts(instance))
        search = RuntimeSplits(
            family_of("megatron"),
            instance,
            even.scale,
            lambda contender, kept=kept: kept.append(
                (contender.settings.words, contender.value)
            ),
        )
        search.begin(Clock())
        search.search(Clock(), 3, 2, lambda: False)
        runs.append((kept, search.bound))
    assert runs[0] == runs[1]


def test_an_interrupt_keeps_the_best() -> None:
    def stop(event: Progress) -> None:
        if event.event == "incumbent":
            raise KeyboardInterrupt

    instance = PipelineInstance.parse(SMALL)
    result = solved(instance, "megatron", time_limit=20, on_progress=stop)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert ppsolve.check(instance, document_of(result)) == []


class TestDense34b:
    """A model of 48 layers on 8 devices; 18,304.8 ms is the best of 15 splits by hand."""

    @pytest.mark.parametrize("name", first(1, ["split", "fused"]))
    def test_megatron(self, name: str) -> None:
        instance = PipelineInstance.parse(read_json(CASES / f"{name}.json"))
        search = searched(instance)
        search.begin(Clock())
        search.search(Clock(), 0, 3, lambda: False)
        assert search.value == search.bound == search.scale.ticks(Fraction("18304.8"))

    def test_deepspeed(self) -> None:
        instance = PipelineInstance.parse(read_json(CASES / "fused.json"))
        search = searched(instance, "deepspeed")
        search.begin(Clock())
        assert search.num_settings == 3
        assert search.value == search.scale.ticks(Fraction("18304.8"))

    @pytest.mark.parametrize(
        ("name", "best"), [("fused", 16_827.1), ("split", 16_310.6)]
    )
    def test_torch(self, name: str, best: float) -> None:
        """Schedules of so many ms are known; the bound is at most 2 % below them."""
        instance = PipelineInstance.parse(read_json(CASES / f"{name}.json"))
        assert 0.98 * best <= solved(instance, "torch").bound <= best

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["fused", "split"])
    @pytest.mark.parametrize("runtime", ["megatron", "deepspeed", "torch"])
    def test_one_command(self, name: str, runtime: str) -> None:
        """Never worse than by hand, with a bound of 3 %, and what is found is exported."""
        instance = PipelineInstance.parse(read_json(CASES / f"{name}.json"))
        result = ppsolve.optimize(instance, runtime=runtime, time_limit=30)
        assert result.value <= 18_304.8
        assert result.gap <= 0.03
        assert ppsolve.check(instance, result) == []
        assert written(document_of(result), runtime)


ROOMY = PipelineInstance.parse(SMALL | {"memory": {"capacity": 90}})


@cache
def of_megatron() -> str:
    """Return the result of a pipeline for which several stages of a device are best."""
    return solved(ROOMY, "megatron").model_dump_json()


def is_refused(instance: PipelineInstance, document: Any) -> bool:
    """Whether a document breaks a rule, or has ops that the pipeline does not have."""
    try:
        return ppsolve.check(instance, document) != []
    except InputError:
        return True


class TestClaims:
    """`check` holds results to the settings that they name."""

    def test_virtual_stages(self) -> None:
        document = json.loads(of_megatron())
        assert document["runtime"]["settings"]["virtual_stages"] > 1
        assert ppsolve.check(ROOMY, document) == []
        for chunks in (1, 0, 9, "2", None):
            claim = json.loads(of_megatron())
            claim["runtime"]["settings"]["virtual_stages"] = chunks
            assert is_refused(ROOMY, claim)
        data = instance_data(ROOMY) | {"placement": "linear"}
        assert is_refused(PipelineInstance.parse(data), document)

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"mode": "full"}, "other layers recompute"),
            ({"mode": "full", "recompute_num_layers": 1}, "other layers recompute"),
            ({"mode": "none"}, "has no settings"),
        ],
    )
    def test_what_recomputes(self, settings: Any, words: str) -> None:
        claim = json.loads(of_megatron())
        claimed = claim["runtime"]["settings"]
        claim["runtime"]["settings"] = {
            key: claimed[key] for key in ("virtual_stages", "group_size")
        } | settings
        (violation,) = ppsolve.check(ROOMY, claim)
        assert violation.rule == "runtime"
        assert words in violation.message

    def test_starts(self) -> None:
        claim = json.loads(of_megatron())
        size = claim["runtime"]["settings"]["group_size"]
        claim["runtime"]["settings"]["group_size"] = 6 if size == 3 else 3
        (violation,) = ppsolve.check(ROOMY, claim)
        assert "starts" in violation.message

    def test_few_settings_are_listed(self) -> None:
        """Each with what a file of the runtime needs."""
        document = json.loads(of_megatron())
        assert 1 < len(document["heuristics"]) <= 8
        for entry in document["heuristics"]:
            flags = written(document, heuristic=entry["name"])
            chunks = entry["runtime"]["settings"]["virtual_stages"]
            assert len(entry["layers"]) == 3 * chunks
            assert flags.count("|") == 3 * chunks - 1

    def test_only_whole_layers_of_primus(self) -> None:
        data = SMALL | {"placement": "linear", "memory": {"capacity": 40}}
        instance = PipelineInstance.parse(data)
        options = {"time_limit": 2, "heuristics": None}
        result = solved(instance, "primus", **options)
        assert {name for row in result.layers for name in row} <= {"keep", "full"}
        document = document_of(result)
        assert document["instance_document"]["layers"]["recompute"][0]["name"] == (
            "selective"
        )
        assert ppsolve.check(instance, document) == []
        selective = document_of(solved(instance, "deepspeed"))
        assert selective["runtime"]["settings"]["mode"] == "selective"
        (violation,) = ppsolve.check(
            instance, selective | {"runtime": {"name": "primus"}}
        )
        assert "Primus recomputes whole layers (full), stage 0" in violation.message


@pytest.mark.parametrize("runtime", ["torch", "torchtitan"])
def test_any_order_with_any_split(runtime: str) -> None:
    """The best of all is what ranks run, op after op, and no worse than any fixed order."""
    instance = PipelineInstance.parse(SMALL)
    result = solved(instance, runtime, time_limit=1, heuristics=None)
    fixed = solved(instance, "deepspeed")
    assert fixed.status is Status.OPTIMAL
    assert result.bound <= result.value <= fixed.value
    assert ppsolve.check(instance, document_of(result)) == []


def test_a_runtime_that_shares_layers_out_itself() -> None:
    data = SMALL | {"placement": "vshape", "num_microbatches": 6}
    layers = copy.deepcopy(SMALL["layers"])
    for field in ("first", "body", "last"):
        layers[field]["backward_input"] = layers[field].pop("backward")
        layers[field]["backward_weight"] = 1
    instance = PipelineInstance.parse(data | {"layers": layers})
    with pytest.raises(InputError, match="layers: ColossalAI shares them out evenly"):
        solved(instance, "colossalai")


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("overlap", {"ratio": 0.8}),
        ("collectives", {"reduce_scatter": 1}),
    ],
)
def test_what_is_not_beside_layers(field: str, entry: Any) -> None:
    instance = PipelineInstance.parse(SMALL | {field: entry})
    for runtime in ("megatron", "torch"):
        with pytest.raises(InputError, match=f"is not searched beside {field}"):
            solved(instance, runtime)


class TestOpenChunks:
    """How many stages a device has is open where nothing says it."""

    @pytest.mark.parametrize(
        "fields",
        [
            {"placement": "linear"},
            {"placement": "interleaved", "stages_per_device": 2},
            {"optimizer": 1},
            {"allreduce": 1},
            {"num_devices": 1},
        ],
    )
    def test_given(self, fields: Any) -> None:
        instance = PipelineInstance.parse(SMALL | fields)
        assert not has_open_chunks(instance)
        assert "placement" in instance_data(instance)

    def test_open(self) -> None:
        instance = PipelineInstance.parse(SMALL)
        assert has_open_chunks(instance)
        assert has_open_chunks(PipelineInstance.parse(instance_data(instance)))
        placed = in_chunks(instance, 2)
        assert placed.stage_to_device == (0, 1, 2, 0, 1, 2)
        assert not has_open_chunks(placed)
        assert placed == PipelineInstance.parse(
            SMALL | {"placement": "interleaved", "stages_per_device": 2}
        )
        assert in_chunks(placed, 1).stage_to_device == (0, 1, 2)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (RecomputeRule(), [[3, 1, 2], [0, 0, 0]]),
        (RecomputeRule("full", 1), [[0, 0, 0], [3, 1, 2]]),
        (RecomputeRule("full", 1, 2), [[1, 0, 0], [2, 1, 2]]),
    ],
)
def test_rules(rule: RecomputeRule, counts: Any) -> None:
    assert rule.counts(np.array([3, 1, 2]), 2).tolist() == counts


class TestExports:
    """What is found can be said to the runtime, and comes back."""

    @pytest.mark.parametrize(
        ("capacity", "mode", "flags"),
        [
            (200, "keep", []),
            (33, "selective", ["--recompute-granularity selective"]),
            (
                27,
                "full",
                [
                    "--recompute-granularity full",
                    "--recompute-method block",
                    "--recompute-num-layers 3",
                ],
            ),
        ],
    )
    def test_megatron(self, capacity: int, mode: str, flags: list[str]) -> None:
        data = SMALL | {"placement": "linear", "memory": {"capacity": capacity}}
        document = document_of(solved(PipelineInstance.parse(data), "megatron"))
        assert document["runtime"]["settings"]["mode"] == mode
        lines = written(document).splitlines()
        split = [sum(row.values()) for row in document["layers"]]
        a, b, c = split
        assert lines[:3] == [
            "--pipeline-model-parallel-size 3",
            "--num-layers 13",
            f'--pipeline-model-parallel-layout "Et*{a}|t*{b}|t*{c}L"',
        ]
        assert lines[3:] == flags

    @pytest.mark.parametrize(("capacity", "interval"), [(200, None), (33, 1)])
    def test_deepspeed(self, capacity: int, interval: int | None) -> None:
        data = SMALL | {"memory": {"capacity": capacity}}
        document = document_of(solved(PipelineInstance.parse(data), "deepspeed"))
        parts = json.loads(written(document, "deepspeed"))
        split = [sum(row.values()) for row in document["layers"]]
        assert parts["parts"] == [0, 1 + split[0], 1 + split[0] + split[1], 15]
        assert parts.get("activation_checkpoint_interval") == interval

    def test_deepspeed_recomputes_all_layers_or_none(self) -> None:
        data = SMALL | {"placement": "linear", "memory": {"capacity": 40}}
        document = document_of(solved(PipelineInstance.parse(data), "megatron"))
        assert "recompute_num_layers" in document["runtime"]["settings"]
        with pytest.raises(InputError, match="which no file for deepspeed can say"):
            written(document, "deepspeed")
