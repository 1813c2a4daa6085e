"""A plain CP-SAT model of pipelines with fillers and several steps, from the rules alone.

It reads the document of an instance and shares no code with the program: one stage per device or a
V, latencies, fused or split backwards, memory, fillers with all their fields.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

Op = tuple[str, int, int, int]


class FillerModel:
    """Variables of all ops and pieces; `optimum` solves it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.model = cp_model.CpModel()
        self.steps, self.m = case.get("steps", 1), case["num_microbatches"]
        devices = case["num_devices"]
        self.device = [*range(devices), *reversed(range(devices))][
            : devices * case.get("stages_per_device", 1)
        ]
        times = case["times"]
        self.times = {"F": times["forward"]}
        if "backward" in times:
            self.times["B"] = times["backward"]
        else:
            self.times |= {"I": times["backward_input"], "W": times["backward_weight"]}
        self.back, self.last = ("B", "B") if "B" in self.times else ("I", "W")
        pieces = sum(
            sum(f["pieces"]) + f.get("release", 0) for f in case.get("fillers", [])
        )
        ops = (
            sum(map(sum, self.times.values())) + 2 * len(self.device) * case["latency"]
        )
        self.horizon = self.steps * (ops * self.m + pieces)
        self.makespan = self.model.new_int_var(0, self.horizon, "")
        self.start: dict[Op, Any] = {}
        self.end: dict[Op, Any] = {}
        self.busy: dict[Any, list[Any]] = defaultdict(list)
        self.events: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        for k in range(self.steps):
            self._add_step(k)
        for filler in case.get("fillers", []):
            for k in range(self.steps if filler.get("per_step") else 1):
                self._add_filler(filler, k)
        for intervals in self.busy.values():
            self.model.add_no_overlap(intervals)
        if "capacity" in case:
            for events in self.events.values():
                moments, amounts = zip(*events, strict=True)
                self.model.add_reservoir_constraint(
                    moments, amounts, 0, case["capacity"]
                )

    def _interval(self, length: int, *resources: Any) -> tuple[Any, Any]:
        # On one of the resources.
        start, end = (self.model.new_int_var(0, self.horizon, "") for _ in range(2))
        chosen = [self.model.new_bool_var("") for _ in resources]
        self.model.add_exactly_one(chosen)
        for resource, literal in zip(resources, chosen, strict=True):
            if length:
                interval = self.model.new_optional_fixed_size_interval_var(
                    start, length, literal, ""
                )
                self.busy[resource].append(interval)
        self.model.add(end == start + length)
        self.model.add(self.makespan >= end)
        return start, end

    def _hold(self, device: int, start: Any, end: Any, amount: int) -> None:
        if amount:
            self.events[device] += [(start, amount), (end, -amount)]

    def _add_step(self, k: int) -> None:
        stages, model, start, end = (
            range(len(self.device)),
            self.model,
            self.start,
            self.end,
        )
        for i in range(self.m):
            for kind, lengths in self.times.items():
                for s in stages:
                    op = (kind, s, i, k)
                    start[op], end[op] = self._interval(lengths[s], self.device[s])
            for s in stages:
                forward, back = ("F", s, i, k), (self.back, s, i, k)
                model.add(start[back] >= end[forward])
                if self.back == "I":
                    model.add(start["W", s, i, k] >= end[back])
                if s:
                    lag = (
                        self.case["latency"]
                        if self.device[s] != self.device[s - 1]
                        else 0
                    )
                    model.add(start[forward] >= end["F", s - 1, i, k] + lag)
                    model.add(start[self.back, s - 1, i, k] >= end[back] + lag)
                self._hold(self.device[s], start[forward], end[self.last, s, i, k], 1)
                if k:
                    for h in range(self.m):
                        model.add(start[forward] >= end[self.last, s, h, k - 1])

    def _named(self, names: Any, k: int) -> list[Op]:
        found = []
        for name in [names] if isinstance(names, str) else names:
            if name.startswith("x"):
                found.append((name, 0, 0, k))
                continue
            op, _, step = name.partition("@")
            stage, _, microbatch = op[1:].partition(".")
            every = [int(microbatch)] if microbatch else range(self.m)
            if int(step or 0) + k < self.steps:
                found += [(op[0], int(stage), i, int(step or 0) + k) for i in every]
        return found

    def _add_filler(self, filler: dict[str, Any], k: int) -> None:
        stream = filler.get("stream", "compute")
        devices = [filler["device"], *filler.get("devices", ())]
        resources = devices if stream == "compute" else [(stream, d) for d in devices]
        ends = [self._interval(length, *resources) for length in filler["pieces"]]
        first, last = ends[0][0], ends[-1][1]
        self.end[filler["name"], 0, 0, k] = last
        for (_, before), (after, _) in pairwise(ends):
            self.model.add(after >= before)
        self.model.add(first >= filler.get("release", 0))
        after = self._named(filler.get("after", ()), k)
        for op in after:
            self.model.add(first >= self.end[op])
        for op in self._named(filler.get("before", ()), k):
            self.model.add(self.start[op] >= last)
        memory = filler.get("memory", {})
        self._hold(filler["device"], first, last, memory.get("running", 0))
        if memory.get("waiting"):
            self._hold(filler["device"], self.start[after[0]], last, memory["waiting"])

    def optimum(self) -> int | None:
        """Return the least makespan, None if there is no schedule."""
        self.model.minimize(self.makespan)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = 20
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL
        return round(solver.objective_value)
