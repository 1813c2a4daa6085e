"""For how long ranks wait for work, and for transfers of what is made."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from rich.console import Console

import ppsolve
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.page.schedules import read_shown
from ppsolve.solver.views.reports import report
from tests.kinds.pipeline.runtimes.cases import LOOPED, pipeline, solved


def test_waits_in_every_call() -> None:
    """By hand: rank 0 runs F 0 from 0, F 1 from 2, B 0 from 6, B 1 from 10.

    What B 0 and B 1 need is made at 5 and 9. Rank 1 runs F 0 from 2, B 0, and F 1 from 6.
    """
    result = solved(
        pipeline(2, 2, p2p={"mode": "rendezvous", "latency": 1}), "megatron"
    )
    assert result.runtime.waits == {"work": [3, 1], "transfers": [3, 2]}


@pytest.mark.parametrize("place", ["before_backward", "anytime"])
def test_gradients_of_split_backwards_leave_behind_both_halves(place: str) -> None:
    """Where transfers take no time, ranks wait for work alone."""
    recompute = {"modes": [{"name": "full", "time": 2, "held": 0}], "place": place}
    memory = {
        "capacity": 9,
        "activation": 1,
        "recompute": {**recompute, "decide": ["full"] * 3},
    }
    times = {"forward": 3, "backward_input": [2, 3, 4], "backward_weight": [4, 2, 3]}
    p2p = {"mode": "buffered"}
    instance = pipeline(3, 4, times=times, memory=memory, p2p=p2p)
    waits = solved(instance, "megatron").runtime.waits
    assert waits["transfers"] == [0, 0, 0]
    assert min(waits["work"][1:]) > 0


@pytest.mark.parametrize("runtime", ["megatron", "primus", "torch"])
@pytest.mark.parametrize("seed", range(4))
def test_waits_are_all_idle_time_before_the_last_op(seed: int, runtime: str) -> None:
    rng = random.Random(seed)
    where = rng.choice([{}, LOOPED])
    stages = 6 if where else 3
    names = rng.choice(
        [("forward", "backward"), ("forward", "backward_input", "backward_weight")]
    )
    times = {name: [rng.randint(1, 20) for _ in range(stages)] for name in names}
    p2p = {"mode": rng.choice(["buffered", "rendezvous"]), "latency": rng.randint(0, 9)}
    instance = pipeline(3, 5, times=times, p2p=p2p, **where)
    result = solved(instance, runtime, heuristics=["list-tail"])
    rows: dict[int, list[Any]] = {rank: [] for rank in range(3)}
    for op in result.schedule.ops:
        rows[op.device].append(op)
    waits = result.runtime.waits
    for rank, ops in rows.items():
        idle = max(op.end for op in ops) - sum(op.end - op.start for op in ops)
        assert waits["work"][rank] + waits["transfers"][rank] == idle


def test_delays_are_not_waited_for() -> None:
    result = solved(pipeline(2, 2, p2p={"latency": 1}), "megatron")
    assert result.runtime.waits is None


def test_reports_say_them() -> None:
    """Times are told in ms where they are long; the page holds back no op."""
    times = {"forward": 100_000, "backward": 200_000}
    p2p = {"mode": "rendezvous", "latency": 100_000}
    instance = pipeline(2, 4, times=times, p2p=p2p, time_unit="us", **LOOPED)
    result = solved(instance, "megatron")
    data = json.loads(result.model_dump_json())
    assert ppsolve.check(instance, data) == []
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as capture:
        console.print(report(result))
    text = capture.get()
    assert "waits for work (ms)" in text
    rows = [line.split() for line in text.splitlines()]
    first = result.runtime.waits
    wanted = ["0", *(f"{first[name][0] / 1_000:,g}" for name in ("work", "transfers"))]
    assert wanted in rows
    shown = page(read_shown(data, "result.json"))
    assert "waits for work (ms)" in shown
    assert "held back</th>" not in shown


def test_blocks_of_split_backwards() -> None:
    """Forwards and backwards that are combined are one op with both halves."""
    times = {"forward": 1, "backward_input": 2, "backward_weight": 1}
    fields = {"times": times, "overlap": {"time": 3}, **LOOPED}
    instance = pipeline(2, 4, p2p={"mode": "buffered"}, **fields)
    result = solved(instance, "megatron")
    assert "combined" in str(result.runtime.settings)
    rows: dict[int, list[Any]] = {0: [], 1: []}
    for op in result.schedule.ops:
        rows[op.device].append(op)
    for rank, ops in rows.items():
        idle = max(op.end for op in ops) - sum(op.end - op.start for op in ops)
        assert sum(row[rank] for row in result.runtime.waits.values()) == idle
