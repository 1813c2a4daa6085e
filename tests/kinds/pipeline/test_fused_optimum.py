"""Optima of pipelines with fused blocks: by exhaustive search from the rules, and as given."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import ppsolve
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from tests.marks import first
from tests.paths import DATA

Op = tuple[str, int, int]
"""Kind, stage and micro-batch."""

CASES = json.loads((DATA / "fused" / "cases.json").read_text())["cases"]


class Exhaustive:
    """All schedules of a tiny pipeline in which no op could start earlier in its device's order.

    What a device holds changes with its own ops only, so orders decide what fits. Items, which are
    ops or blocks, are added in order of their starts.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.overlap = data, data.get("overlap")
        devices, stages = data["num_devices"], data["num_devices"]
        if data.get("placement") == "vshape":
            stages *= 2
        self.device = [s if s < devices else 2 * devices - 1 - s for s in range(stages)]
        names = {
            "forward": "F",
            "backward": "B",
            "backward_input": "I",
            "backward_weight": "W",
        }
        self.time = {names[key]: row for key, row in data["times"].items()}
        self.is_split = "W" in self.time
        self.ops = list(
            product(self.time, range(stages), range(data["num_microbatches"]))
        )
        self.least: int | None = None

    def before(self, op: Op) -> Iterator[tuple[Op, int]]:
        kind, stage, i = op
        back = "I" if self.is_split else "B"
        latency = self.data["p2p"]["latency"]
        if kind == "F" and stage:
            yield (
                ("F", stage - 1, i),
                latency * (self.device[stage] != self.device[stage - 1]),
            )
        if kind == back:
            yield ("F", stage, i), 0
            if stage + 1 < len(self.device):
                yield (
                    (back, stage + 1, i),
                    latency * (self.device[stage] != self.device[stage + 1]),
                )
        if kind == "W":
            yield ("I", stage, i), 0

    def items(self) -> Iterator[tuple[tuple[Op, ...], Fraction, Fraction]]:
        """Yield the ops of each item, its time and what it holds more."""
        for op in self.ops:
            yield (op,), Fraction(self.time[op[0]][op[1]]), Fraction(0)
        if self.overlap is None:
            return
        with_weight = self.is_split and self.overlap.get("with_weight", True)
        for f, b in product(self.ops, self.ops):
            if f[0] != "F" or b[0] not in "BI" or f[2] == b[2]:
                continue
            ops = (f, b, ("W", *b[1:])) if with_weight else (f, b)
            if "ratio" in self.overlap:
                alone = sum(Fraction(self.time[op[0]][op[1]]) for op in ops)
                time = Fraction(str(self.overlap["ratio"])) * alone
            else:
                given = self.overlap["time"]
                time = given[f[1]][b[1]] if isinstance(given, list) else given
            if time is not None and self.device[f[1]] == self.device[b[1]]:
                yield ops, Fraction(time), Fraction(self.overlap.get("memory", 0))

    def held(self, op: Op) -> tuple[Fraction, Fraction]:
        """Return what an op takes at its start and gives back at its end."""
        memory = self.data["memory"]
        amount = Fraction(memory["activation"][op[1]])
        share = (
            Fraction(str(memory["released_by_backward_weight"])) if self.is_split else 0
        )
        taken = {"F": 1, "B": 0, "I": 0, "W": 0}[op[0]]
        given = {"F": 0, "B": 1, "I": 1 - share, "W": share}[op[0]]
        return taken * amount, given * amount

    def run(self) -> Fraction | None:
        self.all = list(self.items())
        self.best: Fraction | None = None
        self.search({}, {}, {}, (Fraction(0), -1))
        return self.best

    def search(
        self, end: Any, free: Any, level: Any, last: tuple[Fraction, int]
    ) -> None:
        if len(end) == len(self.ops):
            value = max(end.values())
            self.best = value if self.best is None else min(self.best, value)
            return
        for ops, time, extra in self.all:
            waits = [
                pair for op in ops for pair in self.before(op) if pair[0] not in ops
            ]
            if any(op in end for op in ops) or any(op not in end for op, _ in waits):
                continue
            at = self.device[ops[0][1]]
            start = max(
                [free.get(at, Fraction(0)), *(end[op] + lag for op, lag in waits)]
            )
            if (start, at) < last or (
                self.best is not None and start + time >= self.best
            ):
                continue
            after = level.get(at, Fraction(0))
            if "memory" in self.data:
                taken, given = map(sum, zip(*map(self.held, ops), strict=True))
                if after + taken + extra > self.data["memory"]["capacity"]:
                    continue
                after += taken - given
            ends = {**end, **dict.fromkeys(ops, start + time)}
            self.search(
                ends, {**free, at: start + time}, {**level, at: after}, (start, at)
            )


def tiny(seed: int) -> dict[str, Any]:
    """Return a random pipeline with fused blocks of at most 12 ops."""
    rng = random.Random(seed)
    placement, devices, microbatches, is_split = rng.choice(
        [
            ("linear", 2, 3, False),
            ("linear", 2, 2, False),
            ("linear", 2, 2, True),
            ("linear", 1, 3, False),
            ("linear", 1, 3, True),
            ("vshape", 1, 2, False),
            ("vshape", 1, 2, True),
            ("linear", 3, 2, False),
        ]
    )
    stages = 2 * devices if placement == "vshape" else devices
    kinds = ["forward", "backward"]
    if is_split:
        kinds[1:] = ["backward_input", "backward_weight"]
    time = [
        [rng.choice([None, *range(2, 11)]) for _ in range(stages)]
        for _ in range(stages)
    ]
    overlap = rng.choice(
        [{"time": time}, {"time": rng.randint(3, 9)}, {"ratio": 0.625}]
    )
    if is_split:
        overlap["with_weight"] = rng.random() < 0.6
    data: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "placement": placement,
        "times": {kind: [rng.randint(1, 6) for _ in range(stages)] for kind in kinds},
        "p2p": {"latency": rng.randint(0, 2)},
        "overlap": overlap,
    }
    if rng.random() < 0.6:
        data["memory"] = {
            "activation": [rng.randint(1, 3) for _ in range(stages)],
            "capacity": rng.randint(3, 7),
            "released_by_backward_weight": rng.choice([0, 0.5, 1]),
        }
        overlap["memory"] = rng.choice([0, 0, 1])
    return data


@pytest.mark.parametrize("begin", first(1, range(0, 200, 10)))
def test_optima_are_those_of_exhaustive_search(begin: int) -> None:
    """The search tries pairs of micro-batches in any order, numbered in whatever way."""
    for seed in range(begin, begin + 10):
        data = tiny(seed)
        instance = PipelineInstance.parse(data)
        found = ppsolve.optimize(instance, time_limit=60, verify=False)
        expected = Exhaustive(data).run()
        if expected is None:
            assert found.status == "INFEASIBLE", seed
            continue
        assert (found.status, found.value) == ("OPTIMAL", expected), seed
        assert ppsolve.check(instance, found) == []


def converted(case: dict[str, Any], *, fuses: bool) -> dict[str, Any]:
    """Return the instance of a case, whose lists have an entry for the one slice."""
    data = {
        key: case[key]
        for key in ("num_devices", "stages_per_device", "placement", "num_microbatches")
    }
    data["times"] = {
        key: [row[0] for row in rows] for key, rows in case["times"].items()
    }
    data["p2p"] = {"latency": case["p2p"]}
    if "memory" in case:
        kept = [row[0] for row in case["memory"]["activation"]]
        data["memory"] = {"capacity": case["memory"]["capacity"], "activation": kept}
    return data | ({"overlap": {"time": case["fused"]}} if fuses else {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_known_optima_are_proved(case: dict[str, Any]) -> None:
    instance = PipelineInstance.parse(converted(case, fuses=True))
    found = ppsolve.optimize(instance, time_limit=60)
    assert (found.status, found.value) == ("OPTIMAL", case["expected"]["makespan"])
    assert found.fused and ppsolve.check(instance, found) == []
    plain = PipelineInstance.parse(converted(case, fuses=False))
    assert (
        ppsolve.optimize(plain, time_limit=60).value
        == case["expected"]["without_fusing"]
    )
