"""Tiny pipelines with experts, and a CP-SAT model of their rules.

The model reads the text of the rules (docs/overlap.md), not the lowering: it builds ops from
numbers that the maker of the instance keeps beside it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.kinds.pipeline.instance import PipelineInstance


@dataclass(frozen=True)
class Tiny:
    """A pipeline, and what its rules need in plain numbers."""

    instance: PipelineInstance
    devices: list[list[int]]  # device of each stage, by micro-batch
    pieces: dict[
        str, list[list[int]]
    ]  # by kind and stage, for a micro-batch of factor 1
    alltoall: dict[str, list[list[int]]]  # as `pieces`, 0 where there is none
    factors: list[int]  # of the ops of each micro-batch
    weight: int  # time of W, 0 where backwards are fused
    streams: str  # "shared", "per_kind" or "node"
    latency: int
    gather: int
    capacity: int


def tiny(seed: int) -> Tiny:
    """Return a pipeline of one to three devices and micro-batches."""
    rng = np.random.default_rng(seed)
    num_devices, num_microbatches, placement = [
        (1, 2, "linear"),
        (1, 3, "linear"),
        (2, 2, "linear"),
        (2, 3, "linear"),
        (3, 2, "linear"),
        (1, 2, "interleaved"),
        (2, 2, "vshape"),
        (2, 2, "bidirectional"),
    ][int(rng.integers(8))]
    stages = num_devices * (2 if placement in {"interleaved", "vshape"} else 1)
    back = "I" if rng.random() < 0.4 else "B"
    pieces, alltoall, fields = {}, {}, {}
    for kind, field in (
        ("F", "forward"),
        (back, "backward_input" if back == "I" else "backward"),
    ):
        rows, own = zip(*(_cut(rng) for _ in range(stages)), strict=True)
        if rng.random() < 0.4:
            rows, own = rows[:1] * stages, own[:1] * stages
            given: dict[str, Any] = {"pieces": rows[0], "alltoall": own[0]}
        else:
            given = {"pieces": rows, "alltoall": own}
        pieces[kind], alltoall[kind] = [*rows], [*own]
        if kind == "F" or rng.random() < 0.7:
            fields[field] = given
        else:
            pieces[kind] = [[sum(row)] for row in rows]
            alltoall[kind] = [[0]] * stages
    factors = [int(rng.integers(1, 3)) if rng.random() < 0.4 else 1 for _ in range(9)]
    factors = (
        factors[:num_microbatches] if rng.random() < 0.3 else [1] * num_microbatches
    )
    found = Tiny(
        instance=PipelineInstance.parse(
            {"num_devices": 1, "num_microbatches": 1, "times": _ONE}
        ),
        devices=[
            _devices(placement, num_devices, i >= num_microbatches // 2)
            for i in range(num_microbatches)
        ],
        pieces=pieces,
        alltoall=alltoall,
        factors=factors,
        weight=int(rng.integers(1, 3)) if back == "I" else 0,
        streams=("shared", "per_kind", "node")[int(rng.integers(3))],
        latency=int(rng.integers(0, 3)),
        gather=int(rng.integers(0, 4)),
        capacity=int(rng.integers(2, 4)) * (stages // num_devices)
        if rng.random() < 0.4
        else 0,
    )
    shape = {"num_devices": num_devices, "num_microbatches": num_microbatches}
    return _filled(found, {**shape, "placement": placement}, fields)


_ONE = {"forward": 1, "backward": 1}


def _cut(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    count = int(rng.integers(1, 4))
    row = [int(each) for each in rng.integers(0, 4, count)]
    row[int(rng.integers(count))] += 1
    return row, [int(each) for each in rng.integers(0, 4, count)]


def _devices(placement: str, count: int, is_second: bool) -> list[int]:
    down = [*range(count)]
    if placement == "bidirectional" and is_second:
        return down[::-1]
    return down + {"vshape": down[::-1], "interleaved": down}.get(placement, [])


def _filled(found: Tiny, shape: dict[str, Any], fields: dict[str, Any]) -> Tiny:
    def times(kind: str) -> list[list[int]]:
        return [
            [sum(row) * factor for factor in found.factors]
            for row in found.pieces[kind]
        ]

    back = next(kind for kind in found.pieces if kind != "F")
    data: dict[str, Any] = {
        **shape,
        "times": {"forward": times("F"), "backward": times("B")}
        if back == "B"
        else {
            "forward": times("F"),
            "backward_input": times("I"),
            "backward_weight": found.weight,
        },
        "p2p": {"latency": found.latency},
        "collectives": {**fields, "all_gather": found.gather},
    }
    if found.streams == "per_kind":
        data["collectives"]["comm_streams"] = "per_kind"
    if found.streams == "node":
        data["collectives"]["devices_per_node"] = 2
    if found.capacity:
        data["memory"] = {"capacity": found.capacity, "activation": 1}
    fixed = {
        key: getattr(found, key)
        for key in found.__dataclass_fields__
        if key != "instance"
    }
    return Tiny(PipelineInstance.parse(data), **fixed)


def optimum(found: Tiny) -> int:
    """Return the least makespan."""
    return _Plain(found).solve()


class _Plain:
    def __init__(self, found: Tiny) -> None:
        self.found, self.model = found, cp_model.CpModel()
        every = itertools.chain(*found.pieces.values(), *found.alltoall.values())
        most = (
            max(found.factors) * sum(map(sum, every))
            + found.weight * 9
            + found.latency * 9
        )
        self.horizon = len(found.factors) * most + 9 * found.gather
        self.busy: dict[tuple[str, int], list[Any]] = {}
        self.ends: list[Any] = []
        self.first: dict[tuple[str, int, int], Any] = {}  # start of the first piece
        self.last: dict[tuple[str, int, int], Any] = {}  # end of the last piece
        self.done: dict[
            tuple[str, int, int], Any
        ] = {}  # moment when the result is there

    def op(self, length: int, stream: tuple[str, int]) -> tuple[Any, Any]:
        start = self.model.new_int_var(0, self.horizon, "")
        self.hold(stream, start, length)
        self.ends.append(start + length)
        return start, start + length

    def hold(self, stream: tuple[str, int], start: Any, length: int) -> None:
        if length:  # what takes no time keeps nothing off its stream
            interval = self.model.new_fixed_size_interval_var(start, length, "")
            self.busy.setdefault(stream, []).append(interval)

    def comm(self, device: int, purpose: str) -> tuple[str, int]:
        if purpose == "experts" and self.found.streams == "node":
            return "node", device // 2
        return (purpose if self.found.streams == "per_kind" else "comm"), device

    def pieces(self, kind: str, stage: int, microbatch: int, device: int) -> None:
        before = None
        key = kind, stage, microbatch
        row = self.found.pieces[kind][stage]
        for place, length in enumerate(row):
            factor = self.found.factors[microbatch]
            start, end = self.op(length * factor, ("compute", device))
            if before is None:
                self.first[key] = start
            else:
                self.model.add(start >= before)
            self.last[key] = before = end
            time = self.found.alltoall[kind][stage][place]
            if time:
                start, before = self.op(time, self.comm(device, "experts"))
                self.model.add(start >= end)
        self.done[key] = before

    def solve(self) -> int:
        found, model = self.found, self.model
        stages = len(found.devices[0])
        back = next(kind for kind in found.pieces if kind != "F")
        freed = dict[tuple[int, int], Any]()
        for i, devices in enumerate(found.devices):
            for stage, device in enumerate(devices):
                for kind in found.pieces:
                    self.pieces(kind, stage, i, device)
                model.add(self.first[back, stage, i] >= self.done["F", stage, i])
                freed[stage, i] = self.last[back, stage, i]
                if found.weight:
                    start, freed[stage, i] = self.op(found.weight, ("compute", device))
                    model.add(start >= self.last[back, stage, i])
            for stage in range(1, stages):
                lag = found.latency if devices[stage] != devices[stage - 1] else 0
                model.add(
                    self.first["F", stage, i] >= self.done["F", stage - 1, i] + lag
                )
                model.add(
                    self.first[back, stage - 1, i] >= self.done[back, stage, i] + lag
                )
        self.gathers(stages)
        if found.capacity:
            self.memory(freed)
        for intervals in self.busy.values():
            model.add_no_overlap(intervals)
        makespan = model.new_int_var(0, self.horizon, "")
        model.add_max_equality(makespan, self.ends)
        model.minimize(makespan)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        assert solver.solve(model) == cp_model.OPTIMAL
        return int(solver.value(makespan))

    def gathers(self, stages: int) -> None:
        for stage in range(stages):
            start, end = self.op(self.found.gather, ("gather", stage))
            for i in range(len(self.found.devices)):
                self.model.add(self.first["F", stage, i] >= end)
            for device in {devices[stage] for devices in self.found.devices}:
                self.hold(self.comm(device, "data"), start, self.found.gather)

    def memory(self, freed: dict[tuple[int, int], Any]) -> None:
        for device in {each for devices in self.found.devices for each in devices}:
            held = []
            for (stage, i), end in freed.items():
                if self.found.devices[i][stage] == device:
                    start = self.first["F", stage, i]
                    size = self.model.new_int_var(0, self.horizon, "")
                    held.append(self.model.new_interval_var(start, size, end, ""))
            self.model.add_cumulative(held, [1] * len(held), self.found.capacity)
