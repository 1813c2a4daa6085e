"""Random tiny pipelines with memory modes, and a plain model of them that shares no code."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import Any

from ortools.sat.python import cp_model

from tests.paths import DATA

CASES = json.loads((DATA / "memory_modes" / "cases.json").read_text())["cases"]


def at(value: Any, stage: int) -> Fraction:
    """Return the number of a stage."""
    return Fraction(str(value[stage] if isinstance(value, list) else value))


def of_case(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case of `tests/data/memory_modes` as an instance."""
    stages = case["num_devices"] * case["stages_per_device"]
    memory = dict(case["memory"])
    activation = [at(memory["activation"], stage) for stage in range(stages)]
    recompute = [mode for mode in case["modes"] if "recompute" in mode]
    offload = [mode for mode in case["modes"] if "offload" in mode]
    if recompute:
        memory["recompute"] = {
            "modes": [
                {
                    "name": mode["name"],
                    "time": mode["recompute"],
                    "held": [
                        float(Fraction(str(mode["keeps"])) * each)
                        for each in activation
                    ],
                }
                for mode in recompute
            ],
            "decide": case["choice"],
            "place": case["recompute_when"],
        }
    for mode in offload:
        memory["offload"] = {
            "amount": [
                float((1 - Fraction(str(mode["keeps"]))) * each) for each in activation
            ],
            "out": mode["offload"],
            "back": mode["reload"],
            "decide": case["choice"],
        }
    return {
        "name": case["name"],
        "num_devices": case["num_devices"],
        "stages_per_device": case["stages_per_device"],
        "num_microbatches": case["num_microbatches"],
        "placement": case["placement"],
        "times": case["times"],
        "p2p": {"latency": case["p2p"]},
        "memory": memory,
    }


def drawn(seed: int) -> dict[str, Any]:
    """Return a random instance: 2 or 3 devices and micro-batches, links, host memory, windows."""
    draw = random.Random(seed)
    devices = draw.choice([2, 2, 3])
    microbatches = 2 if devices == 3 else draw.choice([2, 3])
    kind = draw.choice(["recompute", "offload", "both"])
    decide = draw.choice(["all", "stage", "window", "microbatch", "given"])
    is_split = draw.random() < 0.7

    def numbers(low: int, high: int) -> list[int]:
        return [draw.randint(low, high) for _ in range(devices)]

    times: dict[str, Any] = {"forward": numbers(1, 9)}
    fields = ("backward_input", "backward_weight") if is_split else ("backward",)
    times |= {field: numbers(1, 9) for field in fields}
    activation = draw.choice([2, [draw.choice([2, 3]) for _ in range(devices)]])
    memory: dict[str, Any] = {
        "capacity": draw.choice(
            [3, 4, 4.5, [draw.choice([3, 4, 5]) for _ in range(devices)]]
        ),
        "activation": activation,
        "released_by_backward_weight": draw.choice([0, 0.25, 0.5, 1]),
    }
    if draw.random() < 0.3:
        memory["static"] = 0.5
    if draw.random() < 0.2 and not isinstance(activation, list):
        memory["forward_peak"] = 2.5
    names = ["keep"]
    if kind != "offload":
        modes = [
            {"name": "full", "time": numbers(1, 9), "held": draw.choice([0, 0.25])}
        ]
        if draw.random() < 0.5:
            modes.append({"name": "half", "time": numbers(1, 3), "held": 1})
        names += [mode["name"] for mode in modes]
        place = draw.choice(["anytime", "before_backward"])
        memory["recompute"] = {"modes": modes, "place": place}
    if kind != "recompute":
        names.append("offload")
        memory["offload"] = {
            "amount": draw.choice([1, 2, 1.5]),
            "out": numbers(1, 9),
            "back": numbers(1, 9),
            "duplex": draw.random() < 0.6,
        }
        if draw.random() < 0.5:
            memory["offload"]["links"] = [[0, 1]]
        if draw.random() < 0.4:
            memory["offload"]["host_capacity"] = draw.choice([1, 2, 3])
    choice = (
        [draw.choice(names) for _ in range(devices)] if decide == "given" else decide
    )
    for part in ("recompute", "offload"):
        if part in memory:
            memory[part]["decide"] = choice
    return {
        "name": f"drawn-{seed}",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": times,
        "p2p": {"latency": draw.choice([0, 1, 2])},
        "memory": memory,
    }


def without_some_times(seed: int) -> dict[str, Any]:
    """Return a random instance in which ops, copies and recomputing here and there take no time."""
    data, draw = drawn(seed), random.Random(seed)
    recompute, offload = (data["memory"].get(part) for part in ("recompute", "offload"))
    rows = [
        *data["times"].values(),
        *(mode["time"] for mode in (recompute or {"modes": []})["modes"]),
    ]
    rows += [offload[way] for way in ("out", "back")] if offload else []
    for row in rows:
        for stage in range(len(row)):
            if draw.random() < 0.35:
                row[stage] = 0
    if recompute and draw.random() < 0.3:
        recompute["modes"][0]["held"] = data["memory"]["activation"]
    return data


def modes_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the modes of an instance: what each leaves in memory, and how it comes back."""
    memory = data["memory"]
    recompute, offload = memory.get("recompute"), memory.get("offload")
    modes: list[dict[str, Any]] = [{"name": "keep"}]
    modes += [
        dict(mode, recompute=True) for mode in (recompute or {"modes": []})["modes"]
    ]
    if offload:
        modes.append({"name": "offload", "offload": True})
    return modes


def choices(data: dict[str, Any]) -> list[tuple[tuple[int, ...], ...]] | None:
    """Return every choice of modes, None where each micro-batch has one of its own."""
    memory, p, m = data["memory"], data["num_devices"], data["num_microbatches"]
    names = [mode["name"] for mode in modes_of(data)]
    decide = (memory.get("recompute") or memory["offload"])["decide"]
    if decide == "microbatch":
        return None
    if decide == "all":
        return [((mode,) * m,) * p for mode in range(len(names))]
    if decide == "stage":
        return [
            tuple((mode,) * m for mode in row)
            for row in product(range(len(names)), repeat=p)
        ]
    if decide == "window":
        found = {((0,) * m,) * p}
        for mode, kept in product(range(1, len(names)), range(p + 1)):
            found.add(
                tuple(
                    tuple(
                        mode if k % (min(p - s - 1, m) + 1) >= kept else 0
                        for k in range(m)
                    )
                    for s in range(p)
                )
            )
        return sorted(found)
    return [tuple((names.index(name),) * m for name in decide)]


def optimum(data: dict[str, Any], seconds: float = 60.0) -> int | None:
    """Return the best makespan of an instance by plain constraints, None where there is none."""
    table = choices(data)
    if table is None:
        return _solve(data, None, seconds)
    found = [_solve(data, choice, seconds) for choice in table]
    return min((value for value in found if value is not None), default=None)


def _solve(
    data: dict[str, Any], choice: tuple[tuple[int, ...], ...] | None, seconds: float
) -> int | None:
    p, m, memory, times = (
        data[k] for k in ("num_devices", "num_microbatches", "memory", "times")
    )
    modes, offload = modes_of(data), memory.get("offload") or {}
    place = (memory.get("recompute") or {}).get("place")
    is_split = "backward_input" in times
    horizon = m * p * 60
    cp = cp_model.CpModel()
    busy: dict[Any, list[Any]] = defaultdict(list)
    events: dict[Any, list[tuple[Any, Fraction, Any]]] = defaultdict(list)
    makespan = cp.new_int_var(0, horizon, "")
    ends: dict[tuple[str, int, int], Any] = {}
    starts: dict[tuple[str, int, int], Any] = {}

    def occupy(start: Any, size: int, where: Any, present: Any) -> None:
        # What takes no time occupies nothing.
        if size:
            interval = cp.new_optional_fixed_size_interval_var(start, size, present, "")
            busy[where].append(interval)

    def op(size: int, where: Any, present: Any = True) -> tuple[Any, Any]:
        start = cp.new_int_var(0, horizon, "")
        occupy(start, size, where, present)
        return start, start + size

    def link(device: int, way: str) -> tuple[Any, ...]:
        shared = next(
            (tuple(each) for each in offload.get("links", []) if device in each), None
        )
        return ("copy", shared or device, way if offload["duplex"] else "both")

    for s, k in product(range(p), range(m)):
        if choice is None:
            z = [cp.new_bool_var("") for _ in modes]
            cp.add_exactly_one(z)
        else:
            z = [choice[s][k] == number for number in range(len(modes))]
        amount = at(memory["activation"], s)
        peak = at(memory.get("forward_peak", 0), s) or amount
        share = (
            at(memory["released_by_backward_weight"], s) if is_split else Fraction(0)
        )
        f_start, f_end = op(int(at(times["forward"], s)), s)
        i_start, i_end = cp.new_int_var(0, horizon, ""), cp.new_int_var(0, horizon, "")
        back = int(at(times["backward_input" if is_split else "backward"], s))
        events[s] += [(f_start, peak, True), (f_end, amount - peak, True)]
        for number, mode in enumerate(modes):
            size = back
            rest = Fraction(0)
            if "recompute" in mode:
                rest = amount - at(mode["held"], s)
                events[s].append((f_end, -rest, z[number]))
                if place == "before_backward":
                    size += int(at(mode["time"], s))
                    events[s].append((i_start, rest, z[number]))
                else:
                    r_start, r_end = op(int(at(mode["time"], s)), s, z[number])
                    for late, early in ((r_start, f_end), (i_start, r_end)):
                        cp.add(late >= early).only_enforce_if(z[number])
                    events[s].append((r_start, rest, z[number]))
            if "offload" in mode:
                rest = at(offload["amount"], s)
                o_start, o_end = op(
                    int(at(offload["out"], s)), link(s, "out"), z[number]
                )
                l_start, l_end = op(
                    int(at(offload["back"], s)), link(s, "back"), z[number]
                )
                for late, early in (
                    (o_start, f_end),
                    (l_start, o_end),
                    (i_start, l_end),
                ):
                    cp.add(late >= early).only_enforce_if(z[number])
                events[s] += [(o_end, -rest, z[number]), (l_start, rest, z[number])]
                events["host", s] += [
                    (o_start, rest, z[number]),
                    (l_end, -rest, z[number]),
                ]
            cp.add(i_end == i_start + size).only_enforce_if(z[number])
            occupy(i_start, size, s, z[number])
        cp.add(i_start >= f_end)
        last = i_end
        events[s].append((i_end, -(1 - share) * amount, True))
        if is_split:
            w_start, last = op(int(at(times["backward_weight"], s)), s)
            cp.add(w_start >= i_end)
            events[s].append((last, -share * amount, True))
        cp.add(makespan >= last)
        starts["F", s, k], ends["F", s, k] = f_start, f_end
        starts["I", s, k], ends["I", s, k] = i_start, i_end
    lag = data["p2p"]["latency"]
    for s, k in product(range(1, p), range(m)):
        cp.add(starts["F", s, k] >= ends["F", s - 1, k] + lag)
        cp.add(starts["I", s - 1, k] >= ends["I", s, k] + lag)
    for intervals in busy.values():
        cp.add_no_overlap(intervals)
    limits = {
        s: at(memory["capacity"], s) - at(memory.get("static", 0), s) for s in range(p)
    }
    if "host_capacity" in offload:
        limits |= {("host", s): at(offload["host_capacity"], s) for s in range(p)}
    for key, limit in limits.items():
        if limit < 0:
            return None
        known = [event for event in events[key] if event[1]]
        if known:
            cp.add_reservoir_constraint_with_active(
                [moment for moment, _, _ in known],
                [int(amount * 64) for _, amount, _ in known],
                [literal for _, _, literal in known],
                0,
                int(limit * 64),
            )
    cp.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(cp)
    assert status in {cp_model.OPTIMAL, cp_model.INFEASIBLE}, data["name"]
    return int(solver.objective_value) if status == cp_model.OPTIMAL else None
