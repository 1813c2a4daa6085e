"""Pipelines whose ranks wait for transfers: for runtimes, in any order, checked and exported."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.kinds.pipeline.grammar import (
    RESHARD,
    Action,
    Communication,
    parse_step,
)
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.programs.waits import Network, run_programs
from ppsolve.solver.kinds.pipeline.runtimes.deepspeed_waits import deepspeed_waits
from ppsolve.solver.kinds.pipeline.runtimes.families import DEEPSPEED
from ppsolve.solver.kinds.pipeline.runtimes.torch_waits import (
    as_torch_waits,
    lowered,
    torch_programs,
)
from ppsolve.solver.views.pipeline import _worth_of_waits
from tests.kinds.pipeline.runtimes.cases import LOOPED, pipeline, solved
from tests.kinds.pipeline.runtimes.waiting import (
    alike,
    drawn_cases,
    has_settings,
    instance_of,
    judged,
    ops_of,
    simulated,
)
from tests.marks import later
from tests.paths import DATA

SMALL: dict[str, Any] = {
    **LOOPED,
    "times": {"forward": [1, 2, 3, 1], "backward": [1, 4, 4, 1]},
}


def flags_of(result: Any) -> str:
    target = chosen("megatron")
    program = read_program(document(result))
    return target.files(program, target.settings(), Path("out"))[Path("out")]


class TestStepsOfSeveralOps:
    """What a rank runs as one step is timed as one op of the same length."""

    def values(self, instance: Any) -> list[Any]:
        result = solved(instance, "megatron")
        assert ppsolve.check(instance, result) == []
        return sorted(entry.value for entry in result.heuristics)

    @pytest.mark.parametrize("mode", ["buffered", "rendezvous"])
    def test_halves_of_backwards(self, mode: str) -> None:
        halves = {"backward_input": [1, 3, 1, 1], "backward_weight": [0, 1, 3, 0]}
        split = waiting(mode, 2, times={"forward": [1, 2, 3, 1], **halves})
        assert self.values(split) == self.values(waiting(mode, 2))

    @pytest.mark.parametrize("mode", ["buffered", "rendezvous"])
    def test_recomputing(self, mode: str) -> None:
        """Each backward recomputes its forward for 1, or is that much longer."""
        full = {"name": "full", "time": 1, "held": 0}
        recompute = {"modes": [full], "decide": ["full"] * 4}
        memory = {"capacity": 9, "activation": 1, "recompute": recompute}
        longer = {"forward": [1, 2, 3, 1], "backward": [2, 5, 5, 2]}
        again = self.values(waiting(mode, 2, memory=memory))
        assert again == self.values(waiting(mode, 2, times=longer))

    @pytest.mark.parametrize("rendezvous", [False, True])
    def test_blocks(self, rendezvous: bool) -> None:
        mode = "rendezvous" if rendezvous else "buffered"
        entry = {"time": 3}
        case = {
            "p": 2,
            "v": 2,
            "m": 4,
            "F": [1, 2, 3, 1],
            "B": [1, 4, 4, 1],
            "block": 3,
        }
        assert self.values(waiting(mode, 2, overlap=entry)) == sorted(
            simulated(
                {
                    **{**case, "group": size, "combined": combined},
                    **{"overlap": overlap, "rendezvous": rendezvous, "latency": 2},
                }
            ).makespan
            for size in (2, 4)
            for combined in (False, True)
            for overlap in ("steady", "all")
        )

    def test_what_follows_the_rows(self) -> None:
        """The all-reduces of 5 and the optimizers of 2 begin when gradients are there."""
        late = waiting("rendezvous", 2, allreduce=5, optimizer=2)
        plain = solved(waiting("rendezvous", 2), "megatron")
        result = solved(late, "megatron")
        assert ppsolve.check(late, result) == []
        assert plain.value + 7 <= result.value <= plain.value + 14


def document(result: Any) -> dict[str, Any]:
    return dict(json.loads(result.model_dump_json()))


def waiting(mode: str, latency: int = 0, **fields: Any) -> ppsolve.PipelineInstance:
    p2p = {"mode": mode, "latency": latency}
    return pipeline(2, 4, p2p=p2p, **{**SMALL, **fields})


class TestForMegatron:
    """The group and the flag are chosen by what its ranks take, waits and all."""

    def test_buffered_sends(self) -> None:
        """Groups of 4 take 39 with the flag and 48 without; groups of 2 take 40."""
        result = solved(waiting("buffered"), "megatron")
        assert result.value == 39
        assert result.runtime.settings == {"group_size": 4, "p2p_overlap": "all"}
        assert result.runtime.transfers == {"default": 40, "warm-up flush": 39}
        flags = flags_of(result)
        assert "--overlap-p2p-communication-warmup-flush" in flags
        assert "per-virtual-pipeline-stage 4" in flags

    def test_sends_that_wait_for_the_receiver(self) -> None:
        result = solved(waiting("rendezvous"), "megatron")
        assert result.value == 40
        assert result.runtime.settings == {"group_size": 2}
        assert "--overlap-p2p" not in flags_of(result)
        values = {entry.name: entry.value for entry in result.heuristics}
        assert values == {
            "groups of 2": 40,
            "groups of 2, warm-up flush": 40,
            "groups of 4": 48,
            "groups of 4, warm-up flush": 41,
        }

    def test_delays_know_no_flag(self) -> None:
        result = solved(waiting("delay"), "megatron")
        assert (result.value, result.runtime.settings) == (39, {"group_size": 4})
        assert result.runtime.transfers is None

    def test_two_ranks_are_not_told_to_overlap_nothing(self) -> None:
        names = {e.name for e in solved(waiting("buffered"), "megatron").heuristics}
        assert not any("no overlap" in name for name in names)
        three = pipeline(3, 3, p2p={"mode": "buffered"}, **LOOPED)
        names = {entry.name for entry in solved(three, "megatron").heuristics}
        assert "groups of 3, no overlap" in names

    def test_one_stage_per_rank_waits_in_every_call(self) -> None:
        """By hand: rank 0 sends F 0 until 2, then runs F 1; rank 1 receives it at 6 at last."""
        plain = pipeline(2, 2, p2p={"mode": "rendezvous", "latency": 1})
        case = {"p": 2, "v": 1, "m": 2, "F": [1, 1], "B": [2, 2], "latency": 1}
        value = simulated({**case, "rendezvous": True}).makespan
        result = solved(plain, "megatron")
        assert result.value == value == 12
        assert solved(pipeline(2, 2, p2p={"latency": 1}), "megatron").value == 11


@pytest.mark.parametrize("seed", [2, 4, *later("fuzz", range(5, 40))])
def test_the_best_of_all_groups_and_flags_is_chosen(seed: int) -> None:
    for cases in alike(drawn_cases(seed)):
        instance = instance_of(cases[0])
        result = solved(instance, "megatron")
        settings = result.runtime.settings
        (chosen,) = (case for case in cases if has_settings(case, settings))
        assert result.value == simulated(chosen).makespan
        assert result.value == min(simulated(case).makespan for case in cases)
        assert ppsolve.check(instance, result) == []


class TestCheck:
    def test_an_op_that_does_not_wait_for_its_rank(self) -> None:
        instance = waiting("buffered", 2)
        result = document(solved(instance, "megatron"))
        for op in result["schedule"]["ops"]:
            if op["stage"] == 0 and op["kind"] == "B" and op["microbatch"] == 3:
                op["start"], op["end"] = op["start"] + 1, op["end"] + 1
        texts = map(str, ppsolve.check(instance, result))
        assert any("warm-up flush starts it at" in text for text in texts)

    def test_a_setting_that_takes_longer_is_another_schedule(self) -> None:
        instance = waiting("buffered")
        result = document(solved(instance, "megatron"))
        result["runtime"]["settings"] = {"group_size": 4}
        (violation,) = ppsolve.check(instance, result)
        assert "groups of 4 starts it at" in str(violation)

    @pytest.mark.parametrize(
        "runtime", ["megatron", "deepspeed", "torchtitan", "primus"]
    )
    @pytest.mark.parametrize("mode", ["buffered", "rendezvous"])
    def test_any_op_that_waits_longer_or_less(self, mode: str, runtime: str) -> None:
        times = {"forward": [2, 3], "backward": [5, 4]}
        p2p = {"mode": mode, "latency": 2}
        instance = pipeline(2, 3, times=times, p2p=p2p)
        result = document(solved(instance, runtime, heuristics=["1f1b", "list-tail"]))
        assert ppsolve.check(instance, result) == []
        for op in result["schedule"]["ops"]:
            for shift in (-1, 1):
                op["start"], op["end"] = op["start"] + shift, op["end"] + shift
                assert ppsolve.check(instance, result) != [], (op, shift)
                op["start"], op["end"] = op["start"] - shift, op["end"] - shift


class TestPyTorch:
    """Its runtime runs a program with sends and receives as it is, and so any may be given."""

    @pytest.mark.parametrize("mode", ["buffered", "rendezvous"])
    @pytest.mark.parametrize("seed", range(4))
    def test_exported_programs_wait_no_longer_than_for_delays(
        self, seed: int, mode: str
    ) -> None:
        """A receive stands behind the ops that have ended when its data are sent."""
        rng = random.Random(seed)
        placed = rng.choice(
            [{}, LOOPED, {"placement": "vshape"}, {"placement": "linear"}]
        )
        stages = 6 if placed.get("placement") in {"interleaved", "vshape"} else 3
        names = ("forward", "backward_input", "backward_weight")
        times = {name: [rng.randint(1, 30) for _ in range(stages)] for name in names}
        p2p = {"mode": mode, "latency": rng.randint(0, 20)}
        instance = pipeline(3, rng.randint(1, 7), times=times, p2p=p2p, **placed)
        result = ppsolve.optimize(instance, time_limit=0, heuristics=["list-tail"])
        program = read_program(document(result))
        rows = with_communications(program.rows, program.ends)
        duration = {
            Action(stage, kind, k): times[name][stage]
            for kind, name in zip("FIW", names, strict=True)
            for stage in range(stages)
            for k in range(instance.num_microbatches)
        }
        network = Network(
            instance.stage_to_device, lambda *_: p2p["latency"], mode == "rendezvous"
        )
        run = run_programs(
            [as_torch_waits(row) for row in rows], duration.__getitem__, network
        )
        assert program.ends == run.end
        assert run.makespan == result.value

    def test_waits_are_searched_as_delays(self) -> None:
        times = {"forward": 2, "backward": 3}
        values = {
            ppsolve.optimize(
                pipeline(2, 3, times=times, p2p={"mode": mode, "latency": 4}),
                runtime="torch",
                time_limit=5,
            ).value
            for mode in ("delay", "buffered", "rendezvous")
        }
        assert len(values) == 1


def orders_of(rank: int, count: int) -> list[list[Action]]:
    """Return all orders of the ops of a rank, micro-batches by their numbers."""
    orders = []
    for row in sorted(set(itertools.permutations("F" * count + "B" * count))):
        counts = {kind: itertools.count() for kind in "FB"}
        actions = [Action(rank, kind, next(counts[kind])) for kind in row]
        begun = [row[:n].count("F") - row[:n].count("B") for n in range(len(row) + 1)]
        if min(begun) >= 0:
            orders.append(actions)
    return orders


def best_of_all_orders(instance: Any) -> int:
    times = {"F": instance.times.forward, "B": instance.times.backward}
    latency = int(instance.p2p.latency)
    network = Network(instance.stage_to_device, lambda *_: latency, True)
    values = []
    rows = [
        orders_of(rank, instance.num_microbatches)
        for rank in range(instance.num_devices)
    ]
    for program in itertools.product(*rows):
        try:
            run = run_programs(
                torch_programs(program), lambda s: int(times[s.kind][s.stage]), network
            )
        except DeadlockError:
            continue
        values.append(run.makespan)
    return min(values)


class TestTorchtitan:
    """Its files say no sends and receives: PyTorch adds them by turns, whatever ops take."""

    def test_turns_are_those_of_the_real_runtime(self) -> None:
        data = json.loads((DATA / "torch_lowered.json").read_text())
        for case in (*data["files"], *data["five_stages_per_rank"]):
            rows = [
                list(map(parse_step, re.split(r",(?![^(]*\))", row)))
                for row in case["text"]
            ]
            computing = [
                [step for step in row if not isinstance(step, Communication)]
                for row in rows
            ]
            for row, turns in zip(rows, lowered(computing), strict=True):
                # Behind all others it drops the stages that are left.
                assert row[: len(turns)] == turns
                assert {step.kind for step in row[len(turns) :]} == {RESHARD}

    def test_ops_that_wait_for_each_other(self) -> None:
        rows = [
            [Action(0, "B", 0), Action(0, "F", 0)],
            [Action(1, "F", 0), Action(1, "B", 0)],
        ]
        with pytest.raises(DeadlockError, match="0B0 -> 1F0"):
            lowered(rows)

    def test_a_receive_that_stands_behind_a_long_op(self) -> None:
        """Rank 1 takes 1F0 in its second turn, before 0F1 is sent to it: received at 20.

        Sent at 12, it is there at 17 by delays, and at 25 as rank 1 runs from 11 to 20.
        """
        rows = [
            [Action(0, *key) for key in (("F", 0), ("F", 1), ("B", 0), ("B", 1))],
            [Action(1, *key) for key in (("F", 0), ("F", 1), ("B", 0), ("B", 1))],
        ]
        network = Network((0, 1), lambda *_: 5, True)
        duration = {0: 6, 1: 9}
        run = run_programs(
            torch_programs(rows), lambda step: duration[step.stage], network
        )
        assert run.start[Action(1, "F", 0)] == 11
        assert run.start[Action(1, "F", 1)] == 25

    @pytest.mark.parametrize(
        "seed",
        [*range(3), *later("fuzz", range(3, 200))],
    )
    def test_the_best_of_all_orders_is_found(self, seed: int) -> None:
        rng = random.Random(seed)
        ranks, count = rng.choice([(2, 2), (2, 3), (3, 2)])
        times = {
            name: [rng.randint(1, longest) for _ in range(ranks)]
            for name, longest in (("forward", 9), ("backward", 12))
        }
        p2p = {"mode": "rendezvous", "latency": rng.randint(1, 8)}
        instance = pipeline(ranks, count, times=times, p2p=p2p)
        result = ppsolve.optimize(instance, runtime="torchtitan", time_limit=5)
        assert result.value == best_of_all_orders(instance)
        assert ppsolve.check(instance, result) == []

    def test_a_schedule_of_delays_is_refused(self) -> None:
        times = {"forward": [6, 9], "backward": [9, 1]}
        late = {"mode": "rendezvous", "latency": 5}
        free, waiting_one = (
            ppsolve.optimize(
                pipeline(2, 3, times=times, p2p=late), runtime=name, time_limit=5
            )
            for name in ("torch", "torchtitan")
        )
        assert waiting_one.value > free.value
        claim = document(free)
        claim["runtime"]["name"] = "torchtitan"
        texts = map(str, ppsolve.check(pipeline(2, 3, times=times, p2p=late), claim))
        assert any("torchtitan starts it at" in text for text in texts)


class TestRefusals:
    def test_a_runtime_whose_waits_are_not_known(self) -> None:
        split = {"forward": 1, "backward_input": 1, "backward_weight": 1}
        instance = pipeline(
            2, 4, p2p={"mode": "buffered"}, times=split, placement="vshape"
        )
        with pytest.raises(InputError, match=r"wait for transfers is not known"):
            solved(instance, "colossalai")

    def test_layers_for_a_runtime_of_few_orders(self) -> None:
        body = {"count": 4, "forward": 1, "backward": 2}
        data = {"num_devices": 2, "num_microbatches": 2, "layers": {"body": body}}
        instance = ppsolve.PipelineInstance.parse({**data, "p2p": {"mode": "buffered"}})
        with pytest.raises(InputError, match="they are not timed where ranks wait"):
            solved(instance, "megatron")

    def test_collectives_for_a_runtime_of_few_orders(self) -> None:
        instance = waiting("buffered", collectives={"all_gather": 1})
        with pytest.raises(InputError, match="they are not timed where ranks wait"):
            solved(instance, "megatron")

    def test_bytes_are_of_transfers_that_occupy_something(self) -> None:
        with pytest.raises(InputError, match='mode "link", "nic" or "send_queue"'):
            pipeline(2, 2, p2p={"mode": "rendezvous", "bytes": 1, "bandwidth": 1})


def test_what_a_flag_is_worth_in_words() -> None:
    transfers = {"default": 40, "warm-up flush": 39, "no overlap": 42}
    words = "warm-up flush: 2.50 % less; no overlap: 5.00 % more (default: 40)"
    assert _worth_of_waits(transfers) == words


class TestDeepSpeed:
    def test_sends_of_a_turn_wait_for_the_neighbour(self) -> None:
        """By hand: rank 0 receives the gradient of B 0 until 6, before it sends F 1 until 7."""
        instance = pipeline(2, 2, p2p={"mode": "rendezvous", "latency": 1})
        assert solved(instance, "deepspeed").value == 13
        buffered = pipeline(2, 2, p2p={"mode": "buffered", "latency": 1})
        assert solved(buffered, "deepspeed").value == 13
        assert solved(pipeline(2, 2, p2p={"latency": 1}), "deepspeed").value == 11

    @pytest.mark.runtimes
    def test_every_op_as_the_real_schedule_has_it(self) -> None:
        if importlib.util.find_spec("deepspeed") is None:
            pytest.skip("needs deepspeed")
        rng = random.Random(1)
        cases = [
            {
                **{"p": p, "m": m, "rendezvous": rendezvous, "latency": latency},
                **{kind: [rng.randint(1, 30) for _ in range(p)] for kind in "FB"},
            }
            for p in range(1, 9)
            for m in range(1, 13)
            for rendezvous in (False, True)
            for latency in (0, 3)
        ]
        runs = judged(Path(__file__).with_name("real_deepspeed.py"), cases)
        for case, ops in zip(cases, runs, strict=True):
            shape = PipelineShape(case["m"], tuple(range(case["p"])))
            order = next(iter(DEEPSPEED.orders(shape)))
            programs = deepspeed_waits(shape)[0].programs(shape, order)
            assert ops_of(simulated(case, programs)) == set(map(tuple, ops)), case
