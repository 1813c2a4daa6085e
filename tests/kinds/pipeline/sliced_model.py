"""A plain CP-SAT model of sliced pipelines, written from the rules: it reads the JSON alone.

Shares nothing with the program. Knows F, B, I and W, delays and links between devices, memory with
keys and values; all numbers whole.
"""

from __future__ import annotations

from typing import Any

from ortools.sat.python import cp_model

FIELDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}


def optimum(data: dict[str, Any], seconds: float = 60) -> int | None:
    """Return the least makespan of a sliced pipeline, None where memory allows no schedule."""
    model = _SlicedModel(data)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError("the plain model proved nothing")
    return round(solver.objective_value)


class _SlicedModel:
    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.model = data, cp_model.CpModel()
        self.count, self.batches = data["slices"], data["num_microbatches"]
        devices = list(range(data["num_devices"]))
        self.device = {
            "linear": devices,
            "interleaved": devices * 2,
            "vshape": devices + devices[::-1],
        }[data["placement"]]
        self.kinds = [kind for kind, field in FIELDS.items() if field in data["times"]]
        self.back = "I" if "I" in self.kinds else "B"
        self.cells = [
            (s, i, j)
            for s in range(len(self.device))
            for i in range(self.batches)
            for j in range(self.count)
        ]
        longest = 400
        self.start: dict[Any, Any] = {}
        self.end: dict[Any, Any] = {}
        self.last = self.model.new_int_var(0, longest, "")
        self.busy: dict[Any, list[Any]] = {}
        for kind in self.kinds:
            for cell in self.cells:
                time = self.number(data["times"][FIELDS[kind]], *cell)
                self.add((kind, *cell), time, ("device", self.device[cell[0]]), longest)
        for cell in self.cells:
            self.add_order(*cell, longest)
        for intervals in self.busy.values():
            self.model.add_no_overlap(intervals)
        if "memory" in data:
            for device in devices:
                self.add_memory(device, data["memory"])
        self.model.minimize(self.last)

    def number(self, entry: Any, stage: int, i: int, j: int) -> int:
        """A number, one per stage, or in it one per slice or per slice of every micro-batch."""
        if isinstance(entry, list):
            entry = entry[stage]
        if isinstance(entry, list):
            entry = entry[j] if len(entry) == self.count else entry[i * self.count + j]
        return int(entry)

    def add(self, op: Any, time: int, resource: Any, longest: int) -> None:
        start = self.model.new_int_var(0, longest, "")
        self.start[op], self.end[op] = start, start + time
        interval = self.model.new_fixed_size_interval_var(start, time, "")
        self.busy.setdefault(resource, []).append(interval)
        self.model.add(self.last >= self.end[op])

    def after(self, before: Any, then: Any, delay: int = 0) -> None:
        self.model.add(self.start[then] >= self.end[before] + delay)

    def add_order(self, s: int, i: int, j: int, longest: int) -> None:
        back = self.back
        self.after(("F", s, i, j), (back, s, i, j))
        if back == "I":
            self.after(("I", s, i, j), ("W", s, i, j))
        if j:
            self.after(("F", s, i, j - 1), ("F", s, i, j))
            self.after((back, s, i, j), (back, s, i, j - 1))
        if s:
            self.send(("F", s - 1, i, j), ("F", s, i, j), s - 1, longest)
            self.send((back, s, i, j), (back, s - 1, i, j), s - 1, longest)

    def send(self, before: Any, then: Any, boundary: int, longest: int) -> None:
        source, target = self.device[before[1]], self.device[then[1]]
        p2p = self.data["p2p"]
        if source == target:
            self.after(before, then)
        elif p2p["mode"] == "delay":
            self.after(before, then, p2p["latency"])
        else:
            time = self.number(p2p["bytes"], boundary, *before[2:])
            transfer = ("T", *before)
            self.add(transfer, time, ("link", source, target), longest)
            self.after(before, transfer)
            self.after(transfer, then, p2p["latency"])

    def add_memory(self, device: int, memory: dict[str, Any]) -> None:
        moments: list[Any] = []
        changes: list[int] = []
        for s, i, j in self.cells:
            if self.device[s] != device:
                continue
            cell = (s, i, j)
            held = self.number(memory["activation"], *cell)
            cached = self.number(memory.get("key_value", 0), *cell)
            left = (
                self.number(memory["left_to_weight"], *cell) if self.back == "I" else 0
            )
            peak = self.number(memory.get("forward_peak", 0), *cell) or held
            moments += [
                self.start["F", *cell],
                self.end["F", *cell],
                self.end[self.back, *cell],
            ]
            changes += [peak + cached, held - peak, left - held]
            moments.append(self.end[self.back, s, i, 0])
            changes.append(-cached)
            if left:
                moments.append(self.end["W", *cell])
                changes.append(-left)
        capacity = memory["capacity"]
        self.model.add_reservoir_constraint(moments, changes, 0, capacity)
