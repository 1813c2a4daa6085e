"""Fused blocks in files of runtimes: said, read back, refused where a runtime has no such pair."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.formats.torch_csv import check_csv, convert_torch_csv, torch_csv

WHOLE = {"forward": 5, "backward": 9}
SPLIT = {"forward": 5, "backward_input": 6, "backward_weight": 3}


def pipeline(placement: str = "linear", **more: Any) -> PipelineInstance:
    fields = {
        "num_devices": 4,
        "num_microbatches": 8,
        "placement": placement,
        "times": WHOLE,
    }
    return PipelineInstance.parse({**fields, "overlap": {"time": 8}, **more})


def written(to: str, instance: PipelineInstance, name: str, **settings: Any) -> str:
    target, document = (
        chosen(to),
        json.loads(ppsolve.simulate(instance, name).model_dump_json()),
    )
    program = read_program(document, instance)
    files = target.files(program, target.settings(**settings), Path("out"))
    return files[Path("out")]


NAMES = [
    ("combined-1f1b", "linear", WHOLE),
    ("combined-interleaved-1f1b", "interleaved", SPLIT),
    ("dualpipe-v", "vshape", SPLIT),
]


@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
@pytest.mark.parametrize(("name", "placement", "times"), NAMES)
def test_torch_files_come_back_with_their_blocks(
    name: str, placement: str, times: dict[str, int], form: Any, tmp_path: Path
) -> None:
    instance = pipeline(placement, times=times)
    entry = ppsolve.simulate(instance, name)
    file = tmp_path / "order.csv"
    file.write_text(written("torch", instance, name, form=form))
    assert "OVERLAP_F_B" in file.read_text()
    assert check_csv(file, instance) == []
    found, _ = convert_torch_csv(file, instance)
    assert (found.value, found.orders) == (entry.value, entry.orders)
    assert ppsolve.check(instance, json.loads(found.model_dump_json())) == []


@pytest.mark.parametrize(("name", "placement", "times"), NAMES)
def test_a_schedule_of_blocks_alone_says_its_pairs(
    name: str, placement: str, times: dict[str, int]
) -> None:
    instance = pipeline(placement, times=times)
    entry = ppsolve.simulate(instance, name).model_dump(mode="json")
    orders = entry.pop("orders")
    assert torch_csv(read_program(entry, instance)).count("OVERLAP") == str(
        orders
    ).count("OVERLAP")


def test_without_blocks_a_pair_is_f_then_b(tmp_path: Path) -> None:
    with_blocks = pipeline()
    file = tmp_path / "order.csv"
    file.write_text(written("torch", with_blocks, "combined-1f1b"))
    alone = with_blocks.model_copy(update={"overlap": None})
    found, _ = convert_torch_csv(file, alone)
    apart = [
        [text.strip("()").split(")")[0].split(";") for text in row]
        for row in found.orders
    ]
    assert [len(row) for row in found.orders] != [16] * 4
    file.write_text("".join(",".join(chain.from_iterable(row)) + "\n" for row in apart))
    assert convert_torch_csv(file, alone)[0].value == found.value > 8 * 14


def test_a_block_that_waits_for_itself_is_refused(tmp_path: Path) -> None:
    instance = pipeline(num_devices=2, num_microbatches=2)
    rows = "0F0,0F1,0B0,0B1", "(1F1;1B0)OVERLAP_F_B,1F0,1B1"
    file = tmp_path / "order.csv"
    file.write_text("\n".join(rows) + "\n")
    assert {broken.rule for broken in check_csv(file, instance)} == {"precedence"}


def test_blocks_without_weight_gradients_are_no_pairs() -> None:
    instance = pipeline(times=SPLIT, overlap={"time": 8, "with_weight": False})
    entry = ppsolve.simulate(instance, "combined-1f1b").model_dump(mode="json")
    del entry["orders"]
    with pytest.raises(InputError, match="a block of a forward and a whole backward"):
        read_program(entry, instance)


class TestMegatron:
    """Combined forwards and backwards are one flag of interleaved 1F1B."""

    def test_the_flag_is_written(self) -> None:
        instance = pipeline("interleaved")
        assert written(
            "megatron", instance, "combined-interleaved-1f1b"
        ).splitlines() == [
            "--pipeline-model-parallel-size 4",
            "--microbatch-group-size-per-virtual-pipeline-stage 4",
            "--num-virtual-stages-per-pipeline-rank 2",
            "--overlap-moe-expert-parallel-comm",
        ]
        plain = written("megatron", instance, "interleaved-1f1b")
        assert "--overlap-moe-expert-parallel-comm" not in plain

    def test_one_stage_per_rank_is_not_combined(self) -> None:
        with pytest.raises(InputError, match="Megatron-LM runs 1F1B"):
            written("megatron", pipeline(), "combined-1f1b")

    def test_modules_but_no_layers_and_no_experts_are_recomputed_beside_it(
        self,
    ) -> None:
        instance = pipeline("interleaved")
        entry = ppsolve.simulate(instance, "combined-interleaved-1f1b").model_dump(
            mode="json"
        )
        program = replace(read_program(entry, instance), layers=(1,) * 8)
        target = chosen("megatron")
        for recomputed in ((0,) * 8, None):
            target.files(program, target.settings(recomputed=recomputed), Path("out"))
        with pytest.raises(
            InputError, match="recomputes no layers where forwards and backwards"
        ):
            target.files(program, target.settings(recomputed=(1,) * 8), Path("out"))
        for name, is_allowed in (
            ("mla_up_proj mlp", True),
            ("moe_act", True),
            ("mlp moe", False),
        ):
            selective = replace(
                program, modes=((name,) * program.num_microbatches,) * 8
            )
            if is_allowed:
                (text,) = target.files(
                    selective, target.settings(), Path("out")
                ).values()
                assert f"--recompute-modules {name}" in text
            else:
                with pytest.raises(InputError, match="and no moe"):
                    target.files(selective, target.settings(), Path("out"))


class TestPrimus:
    """Groups as `add_combine_1f1b_info_for_schedule_table` makes them in Primus main."""

    @pytest.mark.parametrize(("name", "placement", "times"), NAMES)
    def test_groups_keep_the_rules(
        self, name: str, placement: str, times: dict[str, int]
    ) -> None:
        entry = ppsolve.simulate(pipeline(placement, times=times), name)
        table = json.loads(written("primus", pipeline(placement, times=times), name))[
            "table"
        ]
        for nodes, order in zip(table, entry.orders, strict=True):
            self.check(nodes)
            groups = {
                tuple(n["args"]["combined_group"]) for n in nodes if self.grouped(n)
            }
            assert len(groups) == sum("OVERLAP" in text for text in order)

    @staticmethod
    def grouped(node: dict[str, Any]) -> bool:
        return "combined_group" in (node["args"] or {})

    def check(self, nodes: list[dict[str, Any]]) -> None:
        compute = {"F", "B", "BW", "W"}
        for place, node in enumerate(nodes):
            if not self.grouped(node) or node["func_type"] != "F":
                continue
            group = node["args"]["combined_group"]
            members = nodes[place : place + len(group)]
            assert group == [
                f"({n['func_type']}|{n['mini_batch']}|{n['chunk']})" for n in members
            ]
            assert all(member["args"]["combined_group"] == group for member in members)
            kinds = [n["func_type"] for n in members if n["func_type"] in compute]
            assert kinds == ["F", "BW"]
            last = members[-1]
            own = (last["mini_batch"], last["chunk"])
            assert (node["mini_batch"], node["chunk"]) != own
            later = [
                (n["func_type"], n["mini_batch"], n["chunk"]) for n in nodes[place:]
            ]
            assert ("RB", *own) not in later

    def test_a_pair_of_one_micro_batch_is_refused(self) -> None:
        program = read_program({"orders": [["(0F0;0B0)OVERLAP_F_B"]]})
        target = chosen("primus")
        with pytest.raises(InputError, match="Primus combines different micro-batches"):
            target.files(program, target.settings(), Path("out"))


def test_entries_of_blocks_name_them() -> None:
    entry = ppsolve.simulate(pipeline(), "combined-1f1b")
    assert isinstance(entry, HeuristicEntry)
    data = json.loads(entry.model_dump_json())
    assert len(data["fused"]) == str(data["orders"]).count("OVERLAP") > 0
    data["fused"] = data["fused"][1:]
    with pytest.raises(InputError, match=r"unknown op \"F3\.1\+B3\.0\""):
        ppsolve.check(pipeline(), data)
