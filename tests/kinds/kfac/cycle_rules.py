"""What is wrong with a refresh cycle around a free pipeline, from the instance document alone.

For linear and bidirectional pipelines with delays, times and amounts that all stages share.
Shares no code with ppsolve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

Document = dict[str, Any]
Starts = Mapping[str, int]


@dataclass
class Op:
    """An op: how long, on which streams, and after which ops with which delay."""

    length: int
    streams: tuple[str, ...] = ()
    after: list[tuple[str, int]] = field(default_factory=list)


class CycleRules:
    """The ops of N iterations and one refresh, and the rules that their starts must keep."""

    def __init__(self, document: Document) -> None:
        pipeline = document["pipeline"]
        self.modules = document["modules"]
        self.length = document.get("refresh_interval", 1)
        self.max_age = document.get("max_age")
        self.times: dict[str, int] = pipeline["times"]
        self.num = pipeline["num_devices"]
        self.count = pipeline["num_microbatches"]
        self.two = pipeline.get("placement") == "bidirectional"
        self.latency = pipeline.get("p2p", {}).get("latency", 0)
        self.reduce, self.step = pipeline.get("allreduce"), pipeline.get("optimizer")
        self.memory = pipeline.get("memory")
        self.split = "backward_weight" in self.times
        self.returning, self.finishing = ("I", "W") if self.split else ("B", "B")
        self.ops: dict[str, Op] = {}
        for k in range(self.length):
            self._add_pipeline(k)
            for stage in range(self.num):
                self._end_iteration(stage, k)
        for module in self.modules:
            for factor in "AB":
                self._add_refresh(module, factor)

    def device(self, stage: int, microbatch: int) -> int:
        """Stage s is on device s; the second half of the micro-batches runs the other way."""
        turned = self.two and microbatch >= self.count // 2
        return self.num - 1 - stage if turned else stage

    def holders(self, stage: int) -> list[int]:
        return sorted({self.device(stage, i) for i in range(self.count)})

    def name(self, kind: str, stage: int, microbatch: int, k: int = 0) -> str:
        return f"{kind}{stage}.{microbatch}" + (f"@{k}" if k else "")

    def at(self, stage: int, device: int) -> str:
        return f"@{device}" if len(self.holders(stage)) > 1 else ""

    def _add(self, name: str, length: int, *streams: str) -> list[tuple[str, int]]:
        self.ops[name] = Op(length, streams)
        return self.ops[name].after

    def _add_pipeline(self, k: int) -> None:
        backward = {"I": "backward_input", "W": "backward_weight"} if self.split else {}
        kinds = {"F": "forward", **(backward or {"B": "backward"})}
        for stage in range(self.num):
            for i in range(self.count):
                device = self.device(stage, i)
                for kind, key in kinds.items():
                    after = self._add(
                        self.name(kind, stage, i, k),
                        self.times[key],
                        f"device {device}",
                    )
                    if kind == "W":
                        after.append((self.name("I", stage, i, k), 0))
                        continue
                    if kind == self.returning:
                        after.append((self.name("F", stage, i, k), 0))
                    source = stage - 1 if kind == "F" else stage + 1
                    if 0 <= source < self.num:
                        after.append((self.name(kind, source, i, k), self.latency))
                    if kind == "F" and k:
                        after.append(
                            (f"STEP{stage}{self.at(stage, device)}@{k - 1}", 0)
                        )

    def _end_iteration(self, stage: int, k: int) -> None:
        tail = f"@{k}" if k else ""
        done = {
            device: [
                (self.name(self.finishing, stage, i, k), 0)
                for i in range(self.count)
                if self.device(stage, i) == device
            ]
            for device in self.holders(stage)
        }
        if self.reduce is not None:
            comm = [f"comm {device}" for device in done]
            after = self._add(f"AR{stage}{tail}", self.reduce, *comm)
            after.extend(last for own in done.values() for last in own)
            done = {device: [(f"AR{stage}{tail}", 0)] for device in done}
        for device, ready in done.items():
            at, last = self.at(stage, device), ready
            own = [module for module in self.modules if module["stage"] == stage]
            for module in own:
                length = module.get("precondition", 0)
                name = f"PC{stage}:{module['name']}{at}@{k}"
                self._add(name, length, f"device {device}").extend(ready)
            if own:
                last = [(f"PC{stage}:{module['name']}{at}@{k}", 0) for module in own]
            if self.step is not None:
                name = f"OPT{stage}{at}{tail}"
                self._add(name, self.step, f"device {device}").extend([*ready, *last])
                last = [(name, 0)]
            if k < self.length - 1:
                self._add(f"STEP{stage}{at}@{k}", 0).extend(last)

    def _add_refresh(self, module: Document, factor: str) -> None:
        stage, name, key = module["stage"], module["name"], factor.lower()
        data = "F" if factor == "A" else self.returning
        gate = []
        for i in range(self.count):
            own = f"C{factor}{stage}.{i}:{name}"
            device = f"device {self.device(stage, i)}"
            self._add(own, module[f"curvature_{key}"], device).append(
                (self.name(data, stage, i), 0)
            )
            gate.append((own, 0))
        if module.get(f"sync_{key}", 0) > 0:
            meets = sorted({*self.holders(stage), *module.get("replicas", ())})
            sync = f"S{factor}{stage}:{name}"
            self._add(
                sync, module[f"sync_{key}"], *(f"comm {d}" for d in meets)
            ).extend(gate)
            gate = [(sync, 0)]
        for holder in self.holders(stage):
            inverse = f"I{factor}{stage}:{name}{self.at(stage, holder)}"
            self._add(inverse, module[f"inverse_{key}"], f"device {holder}").extend(
                gate
            )
            if self.max_age is not None:
                user = f"PC{stage}:{name}{self.at(stage, holder)}@{self.max_age}"
                self.ops[user].after.append((inverse, 0))

    def broken(self, starts: Starts) -> set[str]:
        """Return the rules that starts break, one for each op of the cycle."""
        assert starts.keys() == self.ops.keys()
        end = {name: start + self.ops[name].length for name, start in starts.items()}
        checks = {
            "start": min(starts.values()) < 0,
            "precedence": any(
                starts[name] < end[before] + delay
                for name, op in self.ops.items()
                for before, delay in op.after
            ),
            "overlap": self._overlaps(starts, end),
            "memory": any(
                self._exceeds(device, starts, end) for device in range(self.num)
            ),
        }
        return {rule for rule, is_broken in checks.items() if is_broken}

    def _overlaps(self, starts: Starts, end: Starts) -> bool:
        for stream in {stream for op in self.ops.values() for stream in op.streams}:
            busy = sorted(
                (starts[name], end[name])
                for name, op in self.ops.items()
                if stream in op.streams and op.length
            )
            if any(second[0] < first[1] for first, second in pairwise(busy)):
                return True
        return False

    def _exceeds(self, device: int, starts: Starts, end: Starts) -> bool:
        """Whether activations and saved tensors of a device ever exceed its capacity."""
        if self.memory is None:
            return False
        share = Fraction(str(self.memory.get("released_by_backward_weight", 1)))
        parts = {"W": share, "I": 1 - share} if self.split else {"B": Fraction(1)}
        activation = Fraction(str(self.memory["activation"]))
        events: list[tuple[int, Fraction]] = []
        for stage in range(self.num):
            for i in range(self.count):
                if self.device(stage, i) != device:
                    continue
                for k in range(self.length):
                    events.append((starts[self.name("F", stage, i, k)], activation))
                    events += [
                        (end[self.name(kind, stage, i, k)], -part * activation)
                        for kind, part in parts.items()
                    ]
                events += self._saved(stage, i, starts, end)
        room = Fraction(str(self.memory["capacity"])) * (1 + Fraction(1, 10**9))
        moments = {moment for moment, _ in events}
        return any(
            sum(a for at, a in events if at <= moment) > room for moment in moments
        )

    def _saved(
        self, stage: int, microbatch: int, starts: Starts, end: Starts
    ) -> list[tuple[int, Fraction]]:
        """Return when inputs and errors are saved, and when their curvature frees them."""
        found = []
        for module in self.modules:
            for factor, kind, key in (
                ("A", "F", "input_bytes"),
                ("B", self.returning, "error_bytes"),
            ):
                if module["stage"] == stage:
                    amount = Fraction(str(module.get(key, 0)))
                    curvature = f"C{factor}{stage}.{microbatch}:{module['name']}"
                    found.append((starts[self.name(kind, stage, microbatch)], amount))
                    found.append((end[curvature], -amount))
        return found
