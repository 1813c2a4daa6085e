"""A rank runs its rows one at a time, in order: times and optimum of that, by themselves.

Shares nothing with the program. Instances are JSON with a number or a list for each stage; entries
of stages are numbers, or lists with one for each micro-batch.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

Op = tuple[str, int, int]
"""F, B, I or W; stage; micro-batch."""


def of_csv(text: str) -> list[list[Op]]:
    """Return the ops of a file of PyTorch, its rows of actions."""
    return [
        [_op(cell) for cell in row if cell] for row in csv.reader(io.StringIO(text))
    ]


def _op(cell: str) -> Op:
    match = re.fullmatch(r"(\d+)([FBIW])(\d+)", cell)
    assert match, cell
    return match[2], int(match[1]), int(match[3])


def of_primus(text: str) -> list[list[Op]]:
    """Return the ops of a table of Primus, whose B is an input gradient."""
    data, kinds = json.loads(text), {"F": "F", "BW": "B", "B": "I", "W": "W"}
    return [
        [
            (kinds[node["func_type"]], stages[node["chunk"]], node["mini_batch"])
            for node in row
            if node["func_type"] in kinds
        ]
        for row, stages in zip(data["table"], data["stages"], strict=True)
    ]


def of_colossalai(text: str) -> list[list[Op]]:
    """Return the ops of ColossalAI's nodes on a V."""
    data, kinds = json.loads(text), {"F": "F", "B": "I", "W": "W"}
    last = 2 * data["pp_size"] - 1
    return [
        [
            (
                kinds[n["type"]],
                last - n["stage"] if n["chunk"] else n["stage"],
                n["minibatch"],
            )
            for n in row
            if n["type"] in kinds
        ]
        for row in data["scheduler_nodes"]
    ]


def rank_of(instance: dict[str, Any], stage: int) -> int:
    """Return the rank of a stage of a linear, interleaved or V placement."""
    ranks = instance["num_devices"]
    turn, place = divmod(stage, ranks)
    is_back = instance.get("placement") == "vshape" and turn % 2 == 1
    return ranks - 1 - place if is_back else place


def time_of(instance: dict[str, Any], op: Op) -> int:
    """Return the time of an op; a whole backward of a split one takes both."""
    kind, stage, microbatch = op
    times = instance["times"]
    halves = ("backward_input", "backward_weight")
    whole = ("backward",) if "backward" in times else halves
    fields = {"F": ("forward",), "B": whole, "I": halves[:1], "W": halves[1:]}[kind]
    rows = [times[field][stage] for field in fields]
    return sum(row[microbatch] if isinstance(row, list) else row for row in rows)


def _waits(op: Op, stages: int) -> list[list[Op]]:
    """Return what an op waits for: of each list what there is."""
    kind, stage, k = op
    if kind == "W":
        return [[("I", stage, k)]]
    if kind == "F":
        return [[("F", stage - 1, k)]] if stage else []
    later = [[("B", stage + 1, k), ("I", stage + 1, k)]] if stage + 1 < stages else []
    return [[("F", stage, k)], *later]


def makespan(rows: Sequence[Sequence[Op]], instance: dict[str, Any]) -> int:
    """Return the time of a step, each op as early as its row allows."""
    stages = len(instance["times"]["forward"])
    latency = instance.get("p2p", {}).get("latency", 0)
    ends: dict[Op, int] = {}
    clocks, places = [0] * len(rows), [0] * len(rows)
    has_moved = True
    while has_moved:
        has_moved = False
        for rank, row in enumerate(rows):
            while places[rank] < len(row):
                op = row[places[rank]]
                ready = [
                    [each for each in group if each in ends]
                    for group in _waits(op, stages)
                ]
                if not all(ready):
                    break
                begin = clocks[rank]
                for each in (group[0] for group in ready):
                    is_near = rank_of(instance, each[1]) == rank
                    begin = max(begin, ends[each] + (0 if is_near else latency))
                clocks[rank] = ends[op] = begin + time_of(instance, op)
                places[rank] += 1
                has_moved = True
    assert places == [len(row) for row in rows], "it stops for ever"
    return max(clocks)


def optimum(instance: dict[str, Any]) -> int:
    """Return the least time of a step in any rows, by a plain model."""
    stages, count = len(instance["times"]["forward"]), instance["num_microbatches"]
    latency = instance.get("p2p", {}).get("latency", 0)
    kinds = ("F", "B") if "backward" in instance["times"] else ("F", "I", "W")
    ops = [(kind, s, k) for kind in kinds for s in range(stages) for k in range(count)]
    horizon = sum(time_of(instance, op) + latency for op in ops)
    model = cp_model.CpModel()
    start = {op: model.new_int_var(0, horizon, "") for op in ops}
    end = model.new_int_var(0, horizon, "")
    of_ranks: dict[int, list[Any]] = {}
    for op in ops:
        interval = model.new_fixed_size_interval_var(
            start[op], time_of(instance, op), ""
        )
        of_ranks.setdefault(rank_of(instance, op[1]), []).append(interval)
        model.add(end >= start[op] + time_of(instance, op))
        for each in (o for group in _waits(op, stages) for o in group if o in start):
            is_near = rank_of(instance, each[1]) == rank_of(instance, op[1])
            lag = 0 if is_near else latency
            model.add(start[op] >= start[each] + time_of(instance, each) + lag)
    for intervals in of_ranks.values():
        model.add_no_overlap(intervals)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return int(solver.objective_value)
