"""Where sends and receives stand: what is exported loses as little as any places do."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.kinds.pipeline.grammar import Action, Communication, parse_step
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.programs.waits import (
    Network,
    ProgramStep,
    Wait,
    run_programs,
)
from ppsolve.solver.kinds.pipeline.runtimes.primus_waits import as_primus_waits
from ppsolve.solver.kinds.pipeline.runtimes.torch_waits import as_torch_waits
from tests.kinds.pipeline.runtimes.cases import LOOPED, pipeline, solved

PERMUTED = ("F", "B")


def orders_of_rank(stage: int, count: int) -> list[list[Action]]:
    """Return all orders of the ops of a rank, micro-batches by their numbers."""
    orders = []
    for row in sorted(set(itertools.permutations("F" * count + "B" * count))):
        counts = {kind: itertools.count() for kind in PERMUTED}
        begun = [row[:n].count("F") - row[:n].count("B") for n in range(len(row) + 1)]
        if min(begun) >= 0:
            orders.append([Action(stage, kind, next(counts[kind])) for kind in row])
    return orders


def placed(
    row: Sequence[Action], kind: str, name: str, peer: int
) -> Iterator[list[Any]]:
    """Yield a row of one stage with its sends, and receives at all places before their ops."""
    users = [n for n, action in enumerate(row) if action.kind == kind]
    for places in itertools.product(*(range(place + 1) for place in users)):
        if list(places) != sorted(places):
            continue
        program: list[Any] = []
        for number, action in enumerate(row):
            program += [
                Communication(action.stage, name, row[user].microbatch)
                for user, place in zip(users, places, strict=True)
                if place == number
            ]
            program.append(action)
            if action.kind != kind:
                sent = "SEND_F" if action.kind == "F" else "SEND_B"
                program.append(Communication(action.stage, sent, action.microbatch))
        yield program


def best_of_all_programs(times: Any, count: int, network: Network) -> int:
    """Return the shortest run of two ranks, over all orders and places of receives."""

    def duration(step: Any) -> int:
        return int(times["forward" if step.kind == "F" else "backward"][step.stage])

    sides = [
        [
            as_torch_waits(program)
            for row in orders_of_rank(stage, count)
            for program in placed(row, kind, name, 1 - stage)
        ]
        for stage, kind, name in ((0, "B", "RECV_B"), (1, "F", "RECV_F"))
    ]
    values = []
    for programs in itertools.product(*sides):
        try:
            values.append(run_programs(programs, duration, network).makespan)
        except (DeadlockError, InputError):
            continue
    return min(values)


@pytest.mark.parametrize("rendezvous", [False, True])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.fuzz) for n in range(2, 100))]
)
def test_no_places_are_better_than_those_exported_for_torch(
    seed: int, rendezvous: bool
) -> None:
    rng = random.Random(seed)
    count = 2 if seed < 60 else 3
    times = {
        "forward": [rng.randint(1, 9) for _ in range(2)],
        "backward": [rng.randint(1, 12) for _ in range(2)],
    }
    mode, latency = "rendezvous" if rendezvous else "buffered", rng.randint(0, 8)
    instance = pipeline(2, count, times=times, p2p={"mode": mode, "latency": latency})
    result = ppsolve.optimize(instance, runtime="torch", time_limit=5)
    network = Network((0, 1), lambda *_: latency, rendezvous)
    assert result.value == best_of_all_programs(times, count, network)
    program = read_program(json.loads(result.model_dump_json()))
    rows = with_communications(program.rows, program.ends)
    run = run_programs(
        [as_torch_waits(row) for row in rows],
        lambda s: times["forward" if s.kind == "F" else "backward"][s.stage],
        network,
    )
    assert run.makespan == result.value


class TestPrimus:
    """Transfers between two ops are one group, posted once the sends of the last one ended."""

    def steps(self, text: str) -> list[str]:
        row = [parse_step(name) for name in text.split(", ")]
        return [str(step) for step in as_primus_waits(row)]

    def test_a_group_waits_for_the_sends_before(self) -> None:
        assert self.steps(
            "0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0REDUCE_GRAD"
        ) == [
            *("0F0", "0SEND_F0", "0F1", "wait 0SEND_F0", "0SEND_F1", "0RECV_B0"),
            *("wait 0RECV_B0", "0B0"),
        ]

    def test_the_last_group_waits_too(self) -> None:
        assert self.steps("1F0, 1SEND_F0, 1W0, 1SEND_F1")[-2:] == [
            "wait 1SEND_F0",
            "1SEND_F1",
        ]

    def test_a_send_that_waits_holds_up_its_rank(self) -> None:
        """By hand: F 1 ends at 2, its send waits for that of F 0 until 1 + 4; by delays 6."""
        instance = pipeline(
            2,
            2,
            times={"forward": [1, 1], "backward": [1, 1]},
            p2p={"mode": "rendezvous", "latency": 4},
        )
        delays = pipeline(2, 2, times=instance.times.model_dump(), p2p={"latency": 4})
        assert solved(delays, "primus").value < solved(instance, "primus").value

    @pytest.mark.parametrize("mode", ["buffered", "rendezvous"])
    @pytest.mark.parametrize(
        "seed",
        [*range(4), *(pytest.param(n, marks=pytest.mark.fuzz) for n in range(4, 80))],
    )
    def test_tables_take_what_is_claimed(self, seed: int, mode: str) -> None:
        rng = random.Random(seed)
        v = {"placement": "vshape", "stages_per_device": 2}
        where = rng.choice([{}, LOOPED, v])
        ranks = rng.choice([2, 3])
        stages, count = ranks * (2 if where else 1), rng.randint(ranks, 6)
        names = ("forward", "backward_input", "backward_weight")
        times = {name: [rng.randint(1, 20) for _ in range(stages)] for name in names}
        p2p = {"mode": mode, "latency": rng.randint(0, 15)}
        instance = pipeline(ranks, count, times=times, p2p=p2p, **where)
        result = solved(instance, "primus", heuristics=["list-tail"])
        assert ppsolve.check(instance, result) == []
        assert result.value == makespan_of_table(instance, result, times, stages)
        later = json.loads(result.model_dump_json())
        last = max(later["schedule"]["ops"], key=lambda op: op["end"])
        last["start"], last["end"] = last["start"] + 1, last["end"] + 1
        assert ppsolve.check(instance, later) != []


def makespan_of_table(instance: Any, result: Any, times: Any, stages: int) -> int:
    """Run the nodes of an exported table as the handlers of Primus do."""
    target = chosen("primus")
    program = read_program(json.loads(result.model_dump_json()))
    text = target.files(program, target.settings(), Path("out"))[Path("out")]
    table = json.loads(text)
    kinds = {"F": "F", "BW": "B", "B": "I", "W": "W"}
    posts = {"SF": "SEND_F", "RF": "RECV_F", "SB": "SEND_B", "RB": "RECV_B"}
    rows: list[list[ProgramStep]] = []
    for rank, nodes in enumerate(table["table"]):
        row: list[ProgramStep] = []
        cache: list[Communication] = []
        sends: list[Communication] = []
        arrived: dict[tuple[str, int, int], Communication] = {}
        for number, node in enumerate(nodes):
            stage = table["stages"][rank][node["chunk"]]
            key, name = (stage, node["mini_batch"]), node["func_type"]
            if name in kinds:
                receive = arrived.pop(("RF" if name == "F" else "RB", *key), None)
                row += [] if receive is None else [Wait(receive)]
                row.append(Action(stage, kinds[name], node["mini_batch"]))
                continue
            if node["args"]["from_pp_rank"] != node["args"]["to_pp_rank"]:
                cache.append(Communication(stage, posts[name], node["mini_batch"]))
                if name in {"RF", "RB"}:
                    arrived[(name, *key)] = cache[-1]
            elif name in {"RF", "RB"} and not cache:
                continue
            if number + 1 < len(nodes) and nodes[number + 1]["func_type"] in posts:
                continue
            row += [*map(Wait, sends), *cache]
            sends = [post for post in cache if post.kind.startswith("SEND")]
            cache = []
        rows.append(row)
    names = {"F": "forward", "I": "backward_input", "W": "backward_weight"}

    def duration(step: Any) -> int:
        if step.kind == "B":
            return int(
                times["backward_input"][step.stage]
                + times["backward_weight"][step.stage]
            )
        return int(times[names[step.kind]][step.stage])

    p2p = instance.p2p
    network = Network(
        instance.stage_to_device, lambda *_: int(p2p.latency), p2p.mode == "rendezvous"
    )
    return run_programs(rows, duration, network).makespan
