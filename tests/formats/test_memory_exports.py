"""What runtimes are told of activations that are recomputed or offloaded, and what is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.activations import notes_on_modes
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.primus import _refuse_offloading
from ppsolve.solver.formats.program import (
    _copies,
    _ops_in,
    read_program,
)
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.kinds.pipeline.grammar import Action, Overlap
from tests.formats.memory_cases import (
    FULL,
    SPLIT,
    V,
    exported,
    offloading,
    pipeline,
    recomputing,
    refused,
)


class TestRecomputing:
    """Whole layers by number, in Megatron-LM as many on every stage."""

    def test_stages_in_mode_full_need_no_numbers(self):
        program = recomputing("full", "full", layers=(3, 2))
        assert (
            "--recompute-num-layers 3" in exported("megatron", program)[0].splitlines()
        )
        program = recomputing("keep", "full", layers=(3, 2))
        refused("megatron", program, "2 of stage 0, not 0")
        assert (
            json.loads(exported("primus", program)[0])["recompute_layer_ids"] == "3,4"
        )

    @pytest.mark.parametrize("to", ["megatron", "primus"])
    def test_other_modes_and_unknown_splits_do(self, to):
        message = r"--recompute: expected the layers .* that are recomputed: stages 0 \(half\)"
        refused(to, recomputing("half", "keep", layers=(1, 1)), message)
        refused(to, recomputing("full", "keep"), r"stages 0 \(full\)")
        text, _ = exported(
            "primus", recomputing("half", "keep", layers=(2, 1)), recomputed=(1, 0)
        )
        assert json.loads(text)["recompute_layer_ids"] == "0"
        module, rule = (
            recomputing("mlp", "keep", layers=(2, 1)),
            "primus recomputes whole layers",
        )
        refused("primus", module, rule, recomputed=(1, 0))

    def test_a_mode_of_a_module_and_something_else_is_counted(self):
        refused(
            "megatron", recomputing("mlp half", "mlp half"), "whole layers are counted"
        )

    @pytest.mark.parametrize("name", ["mlp", "core_attn", "mla_up_proj mlp", "mhc"])
    def test_modules_of_megatron_are_recomputed_in_every_layer(self, name):
        program = recomputing(name, name)
        flags, notes = exported("megatron", program)
        assert flags.splitlines()[1:] == [
            "--recompute-granularity selective",
            f"--recompute-modules {name}",
        ]
        assert notes == []
        rule = (
            f"Megatron-LM recomputes {name} of all layers and micro-batches or of none"
        )
        counted = replace(program, layers=(2, 2))
        refused("megatron", counted, rule, recomputed=(2, 2))
        for other in ("keep", "full"):
            refused("megatron", recomputing(name, other), rule)
            refused(
                "megatron",
                recomputing(name, other, layers=(2, 2)),
                rule,
                recomputed=(2, 0),
            )
        layers = replace(
            recomputing("keep", "keep"), modes=(), layer_modes=({name: 2}, {name: 1})
        )
        text = exported("megatron", replace(layers, layers=(2, 1)))[0]
        assert text.endswith(f"--recompute-modules {name}\n")
        mixed = replace(
            layers, layers=(2, 2), layer_modes=({name: 2}, {name: 1, "keep": 1})
        )
        refused("megatron", mixed, rule)

    @pytest.mark.parametrize("to", ["torch", "colossalai", "deepspeed", "primus"])
    def test_windows_are_told_to_megatron_only(self, to):
        recompute = {"modes": [FULL], "decide": "window"}
        instance = pipeline({"recompute": recompute, "capacity": 2}, devices=3)
        result = json.loads(ppsolve.optimize(instance, time_limit=5).model_dump_json())
        windows = [["keep", "keep", "full", "keep"], ["keep"] * 4, ["keep"] * 4]
        program = replace(
            read_program(result), modes=tuple(map(tuple, windows)), layers=(1, 1, 1)
        )
        flag = "--num-microbatches-with-partial-activation-checkpoints 2"
        notes = list(
            notes_on_modes(
                program, chosen("megatron").settings(recomputed=(1, 1, 1)), "megatron"
            )
        )
        assert notes == [f"megatron: set {flag}"]
        if to == "torch":
            assert "wrap what stages 0 (full or keep)" in exported(to, program)[1][0]
        else:
            refused(to, program, "stage 0 recomputes some micro-batches only")

    def test_the_modes_of_a_heuristic_are_its_own(self):
        recompute = {"modes": [FULL], "decide": "stage"}
        instance = pipeline({"recompute": recompute, "capacity": 1.5})
        result = json.loads(ppsolve.optimize(instance, time_limit=5).model_dump_json())
        assert "keep" in result["modes"]
        entry = next(
            each for each in result["heuristics"] if each["name"] == "recompute-full"
        )
        assert entry["schedule"] is None
        program = read_program(result, heuristic="recompute-full")
        assert [row[0] for row in program.modes] == ["full", "full"]
        assert max((program.ends or {}).values()) == entry["makespan"]

    def test_a_window_of_a_heuristic_is_a_flag(self):
        recompute = {"modes": [FULL], "decide": "window"}
        instance = pipeline({"recompute": recompute, "capacity": 2}, devices=3)
        result = json.loads(ppsolve.optimize(instance, time_limit=5).model_dump_json())
        program = read_program(result, heuristic="recompute-window")
        # Of three micro-batches in a row the first stage keeps one, as its two units allow.
        assert program.modes[0] == ("keep", "full", "full", "keep")
        program = replace(program, layers=(1, 1, 1))
        text, notes = exported("megatron", program)
        assert text.endswith(
            "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n"
        )
        counted, notes_of_counted = exported("megatron", program, recomputed=(1, 1, 1))
        assert "--recompute-method block\n--recompute-num-layers 1" in counted
        assert (
            notes
            == notes_of_counted
            == [
                "megatron: set --num-microbatches-with-partial-activation-checkpoints 1"
            ]
        )

    def test_orders_do_not_say_when_a_stage_recomputes(self):
        recompute = {"modes": [FULL], "decide": "stage", "place": "anytime"}
        instance = pipeline({"recompute": recompute, "capacity": 1.5})
        result = json.loads(ppsolve.optimize(instance, time_limit=5).model_dump_json())
        with pytest.raises(
            InputError, match="expected a schedule: an order does not say"
        ):
            read_program(result, heuristic="recompute-full")


class TestMegatronOffload:
    """All of every stage, or nothing."""

    def test_all_stages(self):
        program = offloading("offload", "offload")
        text, notes = exported(
            "megatron", program, offload_modules=("core_attn", "attn_proj")
        )
        assert text.splitlines()[1:] == [
            "--fine-grained-activation-offloading",
            "--offload-modules core_attn attn_proj",
            "--activation-offload-fraction 1.0",
        ]
        assert notes[0].startswith("megatron: copies out as soon as it can")

    def test_refusals(self):
        partly = offloading("offload", "keep")
        refused(
            "megatron", partly, "every stage and micro-batch, stage 1 does not .* 0$"
        )
        every = offloading("offload", "offload")
        refused(
            "megatron", every, "--offload-modules: expected the modules of Megatron-LM"
        )
        for to in ("torch", "torchtitan", "colossalai", "deepspeed"):
            refused(to, every, f"stage 0 offloads, which no file for {to} can say")


class TestPrimusOffload:
    """Nodes O and R of the first chunk of a V."""

    def test_nodes(self):
        program = offloading("offload", "offload", "keep", "keep", **V)
        text, notes = exported("primus", program)
        found = json.loads(text)
        assert found["offload"] is True
        assert notes == [
            "primus: set offload_ops to the ops whose activations are copied out"
        ]
        for nodes in found["table"]:
            for number in range(4):
                own = [n for n in nodes if (n["mini_batch"], n["chunk"]) == (number, 0)]
                kinds = [n["func_type"] for n in own if len(n["func_type"]) == 1]
                assert kinds == ["F", "O", "R", "B", "W"]
            flags = {
                (n["chunk"], str(n["args"])) for n in nodes if n["func_type"] == "F"
            }
            assert flags == {(0, "{'should_offload': True}"), (1, "None")}

    def test_one_stage_of_two(self):
        program = offloading("keep", "offload", "keep", "keep", **V)
        first, second = json.loads(exported("primus", program)[0])["table"]
        assert not any(n["func_type"] in "OR" for n in first)
        assert sum(n["func_type"] == "O" for n in second) == 4

    def test_refusals(self):
        message = "offloads the first chunk of each rank .*, this is stage"
        refused("primus", offloading("keep", "offload"), f"{message} 1")
        refused(
            "primus",
            offloading("offload", "keep", "keep", "offload", **V),
            f"{message} 3",
        )
        refused(
            "primus",
            offloading("offload", "keep", "offload", "keep", **V),
            f"{message} 2",
        )
        program = offloading("offload", "offload", "keep", "keep", **V)
        refused(
            "primus", replace(program, copies={}), r"a schedule with copies \(O, L\)"
        )
        pair = Overlap(Action(2, "F", 3), Action(1, "B", 0))
        paired = replace(program, rows=((*program.rows[0], pair), *program.rows[1:]))
        with pytest.raises(
            InputError, match=r"beside combined groups such as \(2F3;1B0\)"
        ):
            _refuse_offloading(paired, is_v=True)


def rank_with(*copies: tuple[str, int, int]) -> dict[Any, Any]:
    """Return the copies of micro-batch 0 or 1 of one rank that runs F, F, B, B in 8 units."""
    ops = [("F", 0, 0, 2), ("F", 1, 2, 4), ("B", 1, 4, 6), ("B", 0, 8, 10)]
    timed = [*ops, *((kind, int(kind == "X"), *span) for kind, *span in copies)]
    labels = {"stage": 0, "device": 0}
    document = [
        {"kind": kind, "microbatch": number, "start": start, "end": end, **labels}
        for kind, number, start, end in timed
    ]
    rows = read_program({"schedule": {"ops": document[:4]}}).rows
    found = _copies(document, rows)
    return {
        str(action): "".join(copy.kind for copy in each)
        for action, each in found.items()
    }


@pytest.mark.parametrize(
    ("copies", "found"),
    [
        # The copy back begins in the idle unit, or as the first backward runs, or with it.
        ([("O", 2, 4), ("L", 7, 8)], {"0B1": "O", "0B0": "L"}),
        ([("O", 2, 4), ("L", 5, 8)], {"0B1": "OL"}),
        ([("O", 2, 4), ("L", 4, 8)], {"0B1": "OL"}),
        ([("O", 2, 4), ("L", 6, 8)], {"0B1": "O", "0B0": "L"}),
        # The copy out ends as the first backward runs: what comes back cannot begin with it.
        ([("O", 3, 5), ("L", 5, 7)], {"0B0": "OL"}),
        ([("O", 2, 3), ("L", 3, 8)], {"0B1": "OL"}),
    ],
)
def test_copies_stand_before_the_op_that_they_serve(copies, found):
    assert rank_with(*copies) == found


OPEN = ("pipe-offload", "pipe-offload-longest", "offload-first")
GIVEN = ("list-tail", "list-backward-first", "list-work")


def offloaded(seed: int) -> dict[str, Any]:
    """Return a schedule, with its pipeline, of stages or micro-batches that have to offload."""
    draw = random.Random(seed)
    while True:
        devices, folded = draw.choice([(3, False), (2, True), (2, False), (4, False)])
        stages = devices * (1 + folded)
        times = {name: [draw.randint(1, 4) for _ in range(stages)] for name in SPLIT}
        out, back, is_open = draw.randint(1, 5), draw.randint(1, 5), draw.random() < 0.5
        decide = "microbatch" if is_open else ["offload"] * stages
        offload = {"amount": 0.75, "out": out, "back": back, "decide": decide}
        links = {"links": [[0, 1]]} if draw.random() < 0.5 else {}
        memory = {
            "offload": {**offload, "duplex": draw.random() < 0.5, **links},
            "capacity": 2,
        }
        placement = {"placement": "vshape"} if folded else {}
        instance = pipeline(
            memory, devices, draw.randint(3, 8), times=times, **placement
        )
        heuristic = draw.choice(OPEN if is_open else GIVEN)
        entry = ppsolve.simulate(instance, heuristic).model_dump(mode="json")
        if entry["status"] == "feasible" and any(
            op["kind"] == "O" for op in _ops_in(entry)
        ):
            return {"instance": instance, **entry}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.slow
def test_memory_holds_and_nothing_waits_where_copies_stand(seed):
    result = offloaded(seed)
    instance = result.pop("instance")
    program = read_program(result, instance)
    ops = {(op["stage"], op["kind"], op["microbatch"]): op for op in _ops_in(result)}
    copied = [copy for copies in program.copies.values() for copy in copies]
    assert sorted(copied) == sorted(key for key in ops if key[1] in "OL")
    for rank in range(len(program.rows)):
        held = Fraction(0)
        steps = program.actions(rank)
        starts = [ops[step]["start"] for step in steps]
        for step in steps:
            for copy in program.copies.get(step, ()):
                held += Fraction(3, 4) * (1 if copy.kind == "L" else -1)
                assert held <= Fraction(instance.memory.capacity)
                if copy.kind == "O":
                    assert ops[step]["start"] >= ops[copy]["end"]
                else:
                    later = [each for each in starts if each >= ops[copy]["start"]]
                    assert ops[step]["start"] <= later[0]
            held += {"F": 1, "I": 0, "W": -1}[step.kind]
            assert held <= Fraction(instance.memory.capacity)
        assert held == 0


def test_copies_are_renumbered_with_their_micro_batches():
    program = offloading("offload", "offload", "keep", "keep", **V)
    rows = tuple(
        tuple(step.renumbered([1, 0, 2, 3]) for step in row) for row in program.rows
    )
    copies = {
        action.renumbered([1, 0, 2, 3]): tuple(c.renumbered([1, 0, 2, 3]) for c in each)
        for action, each in program.copies.items()
    }
    modes = (("keep", "full", "keep", "full"),)
    other = replace(program, rows=rows, copies=copies, ends=None, modes=modes)
    found = in_data_order(other, may_permute=False)
    assert found.copies == program.copies
    assert found.modes == (("full", "keep", "keep", "full"),)


def test_megatron_recomputes_all_layers_of_all_stages_without_their_number():
    instance = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=4,
        times={"forward": 1, "backward": 2},
        memory={
            "activation": 1,
            "capacity": 1.5,
            "recompute": {
                "modes": [{"name": "full", "time": 1, "held": 0.1}],
                "decide": "all",
            },
        },
    )
    found = ppsolve.optimize(instance, runtime="megatron", time_limit=5)
    assert set(found.modes) == {"full"}
    program = read_program(found.model_dump(mode="json"))
    flags = chosen("megatron").files(program, chosen("megatron").settings(), Path("-"))[
        Path("-")
    ]
    assert "--recompute-granularity full\n--recompute-method uniform\n" in flags
    assert "--recompute-num-layers 1\n" in flags
    assert (
        list(notes_on_modes(program, chosen("megatron").settings(), "megatron")) == []
    )
