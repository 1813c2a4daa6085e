"""Layers and modes as lists of MindFormers: what SAPP answers comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.solver.formats.program import RuntimeProgram, read_program
from tests.formats.memory_cases import (
    FUSED,
    V,
    exported,
    offloading,
    recomputing,
    refused,
    simulated,
)
from tests.paths import ROOT


def read_back(found: dict[str, Any]) -> list[dict[str, int]]:
    """Return the layers of each stage by mode as SAPP reads its lists, chunk after chunk."""
    lists = found["recompute_config"]
    config = found["model"]["model_config"]
    ranks = found["parallel_config"]["pipeline_stage"]
    even = config["num_layers"] // (ranks * config["pp_interleave_num"])
    stages = []
    for chunk, offsets in enumerate(config["offset"]):
        for stage, offset in enumerate(offsets):
            full = lists["recompute"][chunk][stage]
            select = lists["select_recompute"][chunk][stage] - full
            comm = lists["select_comm_recompute"][chunk][stage] - full
            both = min(select, comm)
            counts = {
                "full": full,
                "both": both,
                "select": select - both,
                "comm": comm - both,
            }
            counts["keep"] = even + offset - sum(counts.values())
            stages.append({name: count for name, count in counts.items() if count})
    return stages


class TestMindFormers:
    """Lists by chunk and stage, as SAPP writes them."""

    CASES = sorted((ROOT / "tests" / "data" / "recompute").glob("sapp_*.json"))

    @staticmethod
    def answers(path: Path) -> list[tuple[int, int, list[dict[str, int]]]]:
        """Return ranks, chunks and the layers of each stage by mode, of all answers of a file."""
        case = json.loads(path.read_text())
        ranks, chunks = case["num_stages"], case["chunks"]
        found = []
        for run in case["runs"]:
            if "layers_per_stage" in run:
                by_type = run["layers_per_stage"].items()
                stages = [
                    {
                        "keep" if name == "none" else name: rows[chunk][rank]
                        for name, rows in by_type
                        if rows[chunk][rank]
                    }
                    for chunk in range(chunks)
                    for rank in range(ranks)
                ]
                found.append((ranks, chunks, stages))
        return found

    @staticmethod
    @cache
    def order(ranks: int, chunks: int) -> RuntimeProgram:
        shape = {"num_devices": ranks, "num_microbatches": ranks, "times": FUSED}
        if chunks == 1:
            return simulated("1f1b", ppsolve.PipelineInstance.parse(shape))
        looped = {"placement": "interleaved", "stages_per_device": chunks}
        return simulated(
            "interleaved-1f1b", ppsolve.PipelineInstance.parse({**shape, **looped})
        )

    @pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
    def test_answers_of_sapp_come_back(self, path):
        answers = self.answers(path)
        assert answers
        for ranks, chunks, stages in answers:
            layers = tuple(sum(stage.values()) for stage in stages)
            program = replace(
                self.order(ranks, chunks), layers=layers, layer_modes=tuple(stages)
            )
            mixed = [
                s
                for s, stage in enumerate(stages)
                if {"select", "comm"} <= stage.keys()
            ]
            if mixed:
                refused(
                    "mindformers",
                    program,
                    f"stage {mixed[0]} has layers of select and others",
                )
                continue
            found = json.loads(exported("mindformers", program)[0])
            assert read_back(found) == stages

    def test_small_lists_by_hand(self):
        # 7 layers on 2 ranks with 2 chunks: 1 each and 3 more.
        stages = (
            {"full": 1, "keep": 1},
            {"select": 2, "both": 1},
            {"comm": 1},
            {"keep": 1},
        )
        program = replace(self.order(2, 2), layers=(2, 3, 1, 1), layer_modes=stages)
        assert json.loads(exported("mindformers", program)[0]) == {
            "parallel_config": {"pipeline_stage": 2, "micro_batch_num": 2},
            "model": {
                "model_config": {
                    "num_layers": 7,
                    "pp_interleave_num": 2,
                    "offset": [[1, 2], [0, 0]],
                }
            },
            "recompute_config": {
                "recompute": [[1, 0], [0, 0]],
                "select_recompute": [[1, 3], [0, 0]],
                "select_comm_recompute": [[1, 1], [1, 0]],
            },
        }

    def test_a_result_has_layers_by_mode(self):
        layers = {
            "body": {"count": 5, "forward": 2, "backward": 4, "activation": 1},
            "recompute": [{"name": "full", "time": 2, "held": 0.25}],
        }
        instance = ppsolve.PipelineInstance.parse(
            {
                "num_devices": 2,
                "num_microbatches": 4,
                "layers": layers,
                "memory": {"capacity": 2},
            }
        )
        result = json.loads(ppsolve.optimize(instance, time_limit=1).model_dump_json())
        assert any("full" in stage for stage in result["layers"])
        program = read_program(result)
        assert (
            read_back(json.loads(exported("mindformers", program)[0]))
            == result["layers"]
        )
        recomputed = [stage.get("full", 0) for stage in result["layers"]]
        table = json.loads(exported("primus", program)[0])
        ids = list(map(int, table["recompute_layer_ids"].split(",")))
        first = sum(result["layers"][0].values())
        assert [sum(i < first for i in ids), sum(i >= first for i in ids)] == recomputed

    def test_stages_in_a_mode_recompute_all_of_their_layers(self):
        program = recomputing("select", "keep", layers=(3, 2))
        found = json.loads(exported("mindformers", program)[0])
        assert found["recompute_config"]["select_recompute"] == [[3, 0]]
        assert found["model"]["model_config"]["offset"] == [[1, 0]]

    def test_refusals(self):
        plain = replace(self.order(2, 1), layers=(3, 2))
        refused("mindformers", self.order(2, 1), "needs the layers of each stage")
        refused(
            "mindformers",
            plain,
            "expected the 5 layers of the split, got 4",
            model="EttL",
        )

    def test_layers_that_it_does_not_share_out(self):
        plain = replace(self.order(2, 1), layers=(3, 3))
        refused(
            "mindformers",
            plain,
            r'shares out decoder layers t.* stage 1 has "tmL"',
            model="EtttmL",
        )
        late = replace(self.order(2, 1), layers=(0, 3))
        refused("mindformers", late, 'stage 0 has ""', model="EtL")

    def test_modes_and_orders_that_it_does_not_have(self):
        refused(
            "mindformers",
            recomputing("mlp", "keep", layers=(3, 2)),
            'has both, comm, full, keep, select, stage 0 "mlp"',
        )
        both = replace(
            self.order(2, 1),
            layers=(3, 2),
            layer_modes=({"select": 1, "comm": 2}, {"keep": 2}),
        )
        refused("mindformers", both, "stage 0 has layers of select and others of comm")
        other = replace(recomputing("full", "keep", heuristic="gpipe"), layers=(1, 1))
        refused("mindformers", other, "MindFormers runs 1F1B; rank 0 runs 0F2")
        looped = {"placement": "interleaved", "stages_per_device": 2, "microbatches": 3}
        odd = recomputing("full", *["keep"] * 3, heuristic="looped-bfs", **looped)
        refused(
            "mindformers",
            replace(odd, layers=(1,) * 4),
            "a multiple of 2 micro-batches, got 3",
        )
        looped["microbatches"] = 4
        other = recomputing("full", *["keep"] * 3, heuristic="looped-bfs", **looped)
        refused(
            "mindformers",
            replace(other, layers=(1,) * 4),
            "interleaved 1F1B in groups of 2",
        )
        folded = recomputing("full", *["keep"] * 3, **V)
        refused(
            "mindformers", replace(folded, layers=(1,) * 4), r"V placement \(vshape\)"
        )
        offloaded = replace(offloading("offload", "keep"), layers=(1, 1))
        refused(
            "mindformers", offloaded, "stage 0 offloads, which no file for mindformers"
        )
