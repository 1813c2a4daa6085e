"""The rules of a pipeline by themselves: read from the JSON of an instance and of a schedule.

Shares nothing with the program: no lowering, no problem, no checker. Knows F, B, I and W, delays
between devices, and memory; not links, collectives and optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

Op = tuple[str, int, int]
"""Kind, stage, micro-batch."""

Finding = tuple[str, ...]
"""Rule, then what breaks it: ops by name, or the device."""


def broken_rules(instance: dict[str, Any], document: dict[str, Any]) -> set[Finding]:
    """Return what a schedule document breaks of a pipeline instance, both as JSON."""
    start = {entry["id"]: _exact(entry["start"]) for entry in document["ops"]}
    rules = _Rules(instance)
    expected = {rules.name(op): op for op in rules.ops()}
    found = {("missing", name) for name in expected.keys() - start.keys()}
    if found:
        return found
    begin = {op: start[name] for name, op in expected.items()}
    end = {op: begin[op] + rules.duration(op) for op in begin}
    for entry in document["ops"]:
        op = expected[entry["id"]]
        if entry.get("end") is not None and _exact(entry["end"]) != end[op]:
            found.add(("duration", entry["id"]))
    found |= {("start", rules.name(op)) for op in begin if begin[op] < 0}
    for before, after in rules.precedences():
        if begin[after] < end[before] + rules.delay(before, after):
            found.add(("precedence", rules.name(before), rules.name(after)))
    for a, b in combinations(begin, 2):
        same = rules.device(a) == rules.device(b)
        if same and max(begin[a], begin[b]) < min(end[a], end[b]):
            found.add(("overlap", *sorted((rules.name(a), rules.name(b)))))
    for device in range(instance["num_devices"]):
        if rules.runs_out_of_memory(device, begin, end):
            found.add(("memory", f"device {device}"))
    return found


def _exact(number: float) -> Fraction:
    return Fraction(Decimal(repr(number)))


class _Rules:
    def __init__(self, instance: dict[str, Any]) -> None:
        self.instance = instance
        self.pipes = _devices_of_pipes(instance)
        self.stages = len(self.pipes[0])
        times = instance["times"]
        self.entries = {"F": times["forward"]}
        self.is_split = "backward" not in times
        if self.is_split:
            self.entries |= {
                "I": times["backward_input"],
                "W": times["backward_weight"],
            }
        else:
            self.entries["B"] = times["backward"]
        self.back = "I" if self.is_split else "B"

    def ops(self) -> Iterator[Op]:
        for kind in self.entries:
            for stage in range(self.stages):
                for microbatch in range(self.instance["num_microbatches"]):
                    yield kind, stage, microbatch

    @staticmethod
    def name(op: Op) -> str:
        kind, stage, microbatch = op
        return f"{kind}{stage}.{microbatch}"

    def device(self, op: Op) -> int:
        _, stage, microbatch = op
        half = self.instance["num_microbatches"] / len(self.pipes)
        return self.pipes[int(microbatch / half)][stage]

    def duration(self, op: Op) -> Fraction:
        kind, stage, microbatch = op
        return _per(self.entries[kind], stage, microbatch)

    def precedences(self) -> Iterator[tuple[Op, Op]]:
        for microbatch in range(self.instance["num_microbatches"]):
            for stage in range(self.stages):
                here = (stage, microbatch)
                yield ("F", *here), (self.back, *here)
                if self.is_split:
                    yield ("I", *here), ("W", *here)
            for low, high in pairwise(range(self.stages)):
                yield ("F", low, microbatch), ("F", high, microbatch)
                yield (self.back, high, microbatch), (self.back, low, microbatch)

    def delay(self, before: Op, after: Op) -> Fraction:
        source, target = self.device(before), self.device(after)
        latency = self.instance.get("p2p", {}).get("latency", 0)
        if source == target:
            return Fraction(0)
        return _exact(latency[source][target] if isinstance(latency, list) else latency)

    def runs_out_of_memory(
        self, device: int, begin: dict[Op, Fraction], end: dict[Op, Fraction]
    ) -> bool:
        memory = self.instance.get("memory")
        if memory is None:
            return False
        # A stage that both pipes have here has its weights once.
        held_here = {
            stage
            for pipe in self.pipes
            for stage, place in enumerate(pipe)
            if place == device
        }
        static = sum(
            (_per(memory.get("static", 0), stage) for stage in held_here), Fraction(0)
        )
        capacity = _per(memory["capacity"], device)
        mine = [op for op in begin if self.device(op) == device]
        for moment in {Fraction(-(10**9)), *begin.values(), *end.values()}:
            held = static
            for op in mine:
                amount = _per(memory["activation"], *op[1:])
                if op[0] == "F" and begin[op] <= moment:
                    running = end[op] > moment and "forward_peak" in memory
                    held += _per(memory["forward_peak"], *op[1:]) if running else amount
                elif op[0] != "F" and end[op] <= moment:
                    held -= amount * self._share(op[0], memory)
            if held > capacity * (1 + Fraction(1, 10**9)):
                return True
        return False

    @staticmethod
    def _share(kind: str, memory: dict[str, Any]) -> Fraction:
        late = _exact(memory.get("released_by_backward_weight", 1))
        return {"B": Fraction(1), "W": late, "I": 1 - late}[kind]


def _per(entry: Any, *indices: int) -> Fraction:
    for index in indices:
        entry = entry[index] if isinstance(entry, list) else entry
    return _exact(entry)


def _devices_of_pipes(instance: dict[str, Any]) -> list[list[int]]:
    devices = list(range(instance["num_devices"]))
    placement = instance.get("placement", "linear")
    chunks = instance.get("stages_per_device")
    match placement:
        case "linear":
            return [devices]
        case "bidirectional":
            return [devices, devices[::-1]]
        case "vshape":
            return [devices + devices[::-1]]
        case "interleaved":
            return [devices * (chunks or 1)]
        case "wave":
            return [
                [
                    d
                    for k in range(chunks or 1)
                    for d in (devices[::-1] if k % 2 else devices)
                ]
            ]
        case _:
            return [list(placement["stage_to_device"])]
