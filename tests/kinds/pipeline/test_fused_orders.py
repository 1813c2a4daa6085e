"""Published orders of fused blocks: torch's and Megatron's, timed by a plain clock."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.kinds.pipeline.grammar import pair_of
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from tests.marks import first
from tests.paths import DATA
from tests.running import run_heuristic

CASES = json.loads((DATA / "torch_orders.json").read_text())["schedules"]
DUALPIPE = [case for case in CASES if case["schedule"] == "ScheduleDualPipeV"]
FIVE, SEVEN = {"forward": 5, "backward_input": 6, "backward_weight": 3}, [7, 5, 9, 4]
ACTION = re.compile(r"(\d+)([FBIW])(\d+)")

Op = tuple[int, str, int]
"""Stage, kind and micro-batch."""


def run(name: str, instance: PipelineInstance) -> HeuristicOutcome:
    return run_heuristic(name, instance, lower(instance))


def fields(devices: int, microbatches: int, **more: Any) -> dict[str, Any]:
    usual = {"num_devices": devices, "num_microbatches": microbatches, "times": FIVE}
    return {**usual, "overlap": {"time": 8}, **more}


def parsed(orders: list[list[str]]) -> list[list[list[Op]]]:
    """Return the actions of each step of each device."""
    return [
        [[(int(s), k, int(m)) for s, k, m in ACTION.findall(text)] for text in row]
        for row in orders
    ]


def ends(
    rows: list[list[list[Op]]],
    times: dict[str, int],
    fused: dict[tuple[int, int], int],
    lag: int,
) -> dict[Op, int]:
    """Run each device's steps in order by the rules of the README of blocks, one op after another.

    A full backward is one op here, whose gradient leaves at its end; so does that of a block.
    """
    device = {
        op[0]: rank for rank, row in enumerate(rows) for step in row for op in step
    }
    last = max(device)
    done: dict[Op, int] = {}

    def ready(op: Op) -> int | None:
        stage, kind, index = op
        waits: list[tuple[Op, ...]] = []
        if kind == "F" and stage:
            waits = [((stage - 1, "F", index),)]
        elif kind in "BI":
            waits = [((stage, "F", index),)]
            if stage < last:
                waits.append(((stage + 1, "B", index), (stage + 1, "I", index)))
        elif kind == "W":
            waits = [((stage, "I", index),)]
        moments = [0]
        for options in waits:
            known = [other for other in options if other in done]
            if not known:
                return None
            moments += [
                done[o] + (lag if device[o[0]] != device[stage] else 0) for o in known
            ]
        return max(moments)

    clock, place = [0] * len(rows), [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while place[rank] < len(row):
                step = row[place[rank]]
                pair = (step[0][0], step[-1][0])
                parts = (
                    [step] if len(step) == 1 or pair in fused else [[op] for op in step]
                )
                for part in parts:
                    moments = [ready(op) for op in part]
                    if None in moments:
                        break
                    length = fused[pair] if len(part) == 2 else times[part[0][1]]
                    clock[rank] = max(clock[rank], *moments) + length  # type: ignore[type-var]
                    done.update({op: clock[rank] for op in part})
                    moved = True
                if any(op not in done for op in step):
                    break
                place[rank] += 1
    assert place == [len(row) for row in rows]
    return done


def schedule_ends(outcome: HeuristicOutcome) -> dict[Op, int]:
    """Return the ends of the actions of a schedule; blocks are both of theirs."""
    schedule = outcome.schedule
    assert schedule is not None
    problem, found = schedule.problem, {}
    for name, end in zip(
        problem.op_names(range(problem.num_ops)), schedule.end.tolist(), strict=True
    ):
        pair = pair_of(name)
        kind, stage, index = (
            re.split(r"(\d+)\.", name) if pair is None else ("", "0", "0")
        )
        for op in pair or ((int(stage), kind, int(index)),):
            found[tuple(op)] = end
    return found


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("time", first(1, ["by pair", 8, 14]))
@pytest.mark.parametrize(
    "case", DUALPIPE, ids=lambda c: f"{c['ranks']}x{c['microbatches']}"
)
def test_dualpipe_v_with_given_blocks_is_reproduced_op_by_op(
    case: dict[str, Any], time: Any, lag: int
) -> None:
    stages = case["stages"]
    table = [[8 + (3 * s + t) % 5 for t in range(stages)] for s in range(stages)]
    table = table if time == "by pair" else [[time] * stages] * stages
    instance = PipelineInstance.parse(
        fields(
            case["ranks"],
            case["microbatches"],
            placement="vshape",
            overlap={"time": table},
            p2p={"latency": lag},
        )
    )
    outcome = run("dualpipe-v", instance)
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.orders == case["orders"]
    fused = {(s, t): table[s][t] for s in range(stages) for t in range(stages)}
    wanted = ends(parsed(case["orders"]), {"F": 5, "B": 9, "I": 6, "W": 3}, fused, lag)
    found = schedule_ends(outcome)
    for (stage, kind, index), end in wanted.items():
        # A backward that stands alone is its I and its W.
        op = (
            (stage, kind, index)
            if (stage, kind, index) in found
            else (stage, "W", index)
        )
        assert found[op] == end


def test_pairs_that_may_not_fuse_run_one_after_the_other() -> None:
    table: list[list[int | None]] = [[None] * 4 for _ in range(4)]
    table[0][3] = 8
    instance = PipelineInstance.parse(
        fields(2, 6, placement="vshape", overlap={"time": table})
    )
    outcome = run("dualpipe-v", instance)
    assert outcome.schedule is not None
    case = next(case for case in DUALPIPE if case["ranks"] == 2)
    wanted = ends(
        parsed([*outcome.orders]), {"F": 5, "B": 9, "I": 6, "W": 3}, {(0, 3): 8}, 0
    )
    assert max(wanted.values()) == outcome.schedule.makespan
    assert case["stages"] == 4
    names = outcome.schedule.problem.op_names(range(outcome.schedule.problem.num_ops))
    assert {name[:2] + name.split("+")[1][:2] for name in names if "+" in name} == {
        "F0I3"
    }


def megatron(
    ranks: int, rank: int, chunks: int, microbatches: int, group: int
) -> Iterator[list[str]]:
    """Yield the steps of a rank as Megatron-LM runs them with combined forwards and backwards.

    From schedules.py: the table of (micro-batch, chunk), (p - r - 1) x 2 + (v - 1) N + 1 forwards
    first, then one forward and one backward in each call, then the other backwards.
    """
    table = []
    for begin in range(0, microbatches, group):
        members = range(begin, min(begin + group, microbatches))
        table += [(index, chunk) for chunk in range(chunks) for index in members]
    count = len(table)
    warmup = min((ranks - rank - 1) * 2 + (chunks - 1) * group + 1, count)

    def forward(k: int) -> str:
        return f"{table[k][1] * ranks + rank}F{table[k][0]}"

    def backward(k: int) -> str:
        return f"{(chunks - 1 - table[k][1]) * ranks + rank}B{table[k][0]}"

    for k in range(warmup):
        yield [forward(k)]
    for k in range(count - warmup):
        yield [forward(k + warmup), backward(k)]
    for k in range(count - warmup, count):
        yield [backward(k)]


@pytest.mark.parametrize(("ranks", "chunks"), [(2, 2), (4, 2), (3, 3), (1, 1), (4, 1)])
@pytest.mark.parametrize(
    ("microbatches", "group"), [(4, 4), (8, 4), (12, 4), (9, 5), (16, 8)]
)
def test_combined_orders_are_those_of_megatron(
    ranks: int, chunks: int, microbatches: int, group: int
) -> None:
    orders = interleaved_1f1b(ranks, chunks, microbatches, group, combined=True)
    for rank, order in enumerate(orders):
        steps = megatron(ranks, rank, chunks, microbatches, group)
        wanted = [
            step[0] if len(step) == 1 else f"({step[0]};{step[1]})OVERLAP_F_B"
            for step in steps
        ]
        assert list(map(str, order)) == wanted


def dualpipe(ranks: int, rank: int, microbatches: int) -> list[list[str]]:
    """Return the steps of a rank as dualpipe.py of DeepSeek runs them, without communication.

    A phase is a pipe, exchanged on the second half of the ranks; a pipe's micro-batches are its
    half of all, in order.
    """
    half_ranks, half = ranks // 2, min(rank, ranks - 1 - rank)
    is_second, is_middle = rank >= half_ranks, half == half_ranks - 1
    forwards, backwards, steps, weights = [0, 0], [0, 0], [], []

    def text(phase: int, kind: str, number: int) -> str:
        pipe = phase ^ is_second
        stage = ranks - 1 - rank if pipe else rank
        return f"{stage}{kind}{number + pipe * (microbatches // 2)}"

    def forward(phase: int) -> str:
        forwards[phase] += 1
        return text(phase, "F", forwards[phase] - 1)

    def backward(phase: int, *, split: bool = False) -> str:
        backwards[phase] += 1
        if split:
            weights.append(text(phase, "W", backwards[phase] - 1))
        return text(phase, "I" if split else "B", backwards[phase] - 1)

    for _ in range((half_ranks - half - 1) * 2):
        steps.append([forward(0)])
    for _ in range(half + 1):
        steps += [[forward(0)], [forward(1)]]
    for _ in range(half_ranks - half - 1):
        steps += [[backward(1, split=True)], [weights.pop(0)], [forward(1)]]
    for i in range(microbatches // 2 - ranks + half + 1):
        pair = [forward(0), backward(1)]
        steps += [pair[:1], pair[1:]] if i == 0 and is_middle else [pair]
        steps.append([forward(1), backward(0)])
    for _ in range(half_ranks - half - 1):
        steps += [[backward(1)], [forward(1), backward(0)]]
    split = False
    for i in range(half + 1):
        split |= i == (half + 1) // 2 and half % 2 == 1
        steps.append([backward(1, split=split)])
        split |= i == (half + 1) // 2 and half % 2 == 0
        steps.append([backward(0, split=split)])
    for _ in range(half_ranks - half - 1):
        steps.append([weights.pop(0)])
        steps.append([backward(0, split=True)])
    steps += [[weight] for weight in weights]
    return steps


@pytest.mark.parametrize("overlap", [{"time": 8}, None], ids=["blocks", "alone"])
@pytest.mark.parametrize(
    ("ranks", "microbatches"), [(2, 4), (2, 10), (4, 8), (6, 14), (8, 20)]
)
def test_dualpipe_is_deepseeks(ranks: int, microbatches: int, overlap: Any) -> None:
    more = {"placement": "bidirectional", "overlap": overlap}
    outcome = run(
        "dualpipe", PipelineInstance.parse(fields(ranks, microbatches, **more))
    )
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule is not None and outcome.orders is not None
    steps = [dualpipe(ranks, rank, microbatches) for rank in range(ranks)]
    assert list(outcome.orders) == [
        [s[0] if len(s) == 1 else f"({s[0]};{s[1]})OVERLAP_F_B" for s in row]
        for row in steps
    ]
    pairs = sum(len(step) == 2 for row in steps for step in row)
    assert (
        len(outcome.schedule.problem.chosen("fused")) == (pairs if overlap else 0)
        and pairs > 0
    )


@pytest.mark.parametrize(
    "times", [FIVE, {"forward": 5, "backward": 9}], ids=["split", "whole"]
)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("combined-1f1b", {}),
        ("combined-1f1b", {"placement": {"stage_to_device": [2, 0, 3, 1]}}),
        (
            "combined-interleaved-1f1b",
            {"placement": "interleaved", "stages_per_device": 2},
        ),
        (
            "combined-interleaved-1f1b",
            {"placement": "interleaved", "stages_per_device": 3},
        ),
    ],
)
def test_combined_orders_run_every_pair_as_a_block(
    name: str, more: dict[str, Any], times: dict[str, int]
) -> None:
    outcome = run(name, PipelineInstance.parse(fields(4, 8, times=times, **more)))
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule is not None and outcome.orders is not None
    rows = parsed([*outcome.orders])
    blocks = sum(len(step) == 2 for row in rows for step in row)
    assert blocks == len(outcome.schedule.problem.chosen("fused")) > 0
    every = {(s, t): 8 for s in range(12) for t in range(12)}
    wanted = ends(rows, {"F": 5, "B": 9}, every, 0)
    assert max(wanted.values()) == outcome.schedule.makespan


def test_combined_orders_need_blocks() -> None:
    plain = {"num_devices": 4, "num_microbatches": 8, "times": FIVE}
    outcome = run("combined-1f1b", PipelineInstance.parse(plain))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason == "needs blocks of a forward and a backward (overlap)"


def test_other_published_orders_run_without_blocks() -> None:
    for name, placement in (("1f1b", "linear"), ("zb-h1", "linear"), ("zbv", "vshape")):
        more = {"placement": placement}
        plain = fields(4, 8, **more)
        del plain["overlap"]
        alone, beside = (
            run(name, PipelineInstance.parse(each))
            for each in (plain, fields(4, 8, **more))
        )
        assert alone.schedule is not None and beside.schedule is not None
        assert alone.schedule.makespan == beside.schedule.makespan
        assert beside.orders == alone.orders


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("F0.4+B7.0", "(0F4;7B0)OVERLAP_F_B"),
        ("F12.34+I5.6+W5.6", "(12F34;5B6)OVERLAP_F_B"),
        ("F0.4+I7.0", "None"),
        ("F0.4", "None"),
    ],
)
def test_blocks_are_pairs_by_their_names(name: str, pair: str) -> None:
    assert str(pair_of(name)) == pair
