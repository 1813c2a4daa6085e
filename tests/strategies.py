"""Random tiny problems of every feature, valid schedules of them, and the rules in plain loops."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import lower, parse_instance

FRACTIONS = ("0.1", "0.25", "0.3", "0.43243243243243246", "0.5", "0.7")
Generator = np.random.Generator


def tiny_problem(seed: int) -> Problem:
    """Return a random problem of at most about 12 ops; equal seeds give equal problems."""
    return lower(tiny_instance(seed))


def tiny_problems(count: int, seed: int = 0) -> list[Problem]:
    """Return `count` random tiny problems."""
    return [nth_tiny_problem(index, seed) for index in range(count)]


def nth_tiny_problem(index: int, seed: int = 0) -> Problem:
    """Return one of `tiny_problems`."""
    return tiny_problem(seed * 1_000_003 + index)


def tiny_instance(seed: int) -> Instance:
    """Return the instance behind `tiny_problem`: graphs and pipelines in turn."""
    rng = np.random.default_rng(seed)
    make = _tiny_graph if rng.random() < 0.5 else _tiny_pipeline
    return parse_instance({"name": f"tiny-{seed}", **make(rng)})


def problems() -> st.SearchStrategy[Problem]:
    """Hypothesis strategy of tiny problems."""
    return st.integers(0, 2**32 - 1).map(tiny_problem)


def _pick(rng: Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _tiny_graph(rng: Generator) -> dict[str, Any]:
    span = rng.random() < 0.3
    size = int(rng.integers(3, 6 if span else 8))
    half = not span and rng.random() < 0.15
    names = [f"r{r}" for r in range(int(rng.integers(1, 3 if span else 4)))]
    ops: list[dict[str, Any]] = []
    for index in range(size):
        length = 0 if rng.random() < 0.15 else int(rng.integers(1, 4 if span else 6))
        used = 1 if rng.random() < 0.75 else int(rng.integers(0, len(names) + 1))
        op = {
            "id": f"op{index}",
            "duration": length / 2 if half else length,
            "resources": sorted(rng.choice(names, size=used, replace=False).tolist()),
        }
        if rng.random() < 0.12:
            op["release"] = int(rng.integers(1, 6))
        elif rng.random() < 0.04:
            op["start"] = int(rng.integers(0, 10))
        ops.append(op)
    precedences = _precedences(rng, ops)
    return {
        "kind": "graph",
        "resources": names,
        "ops": ops,
        "precedences": precedences,
        "pools": _add_pools(rng, ops, precedences) if rng.random() < 0.6 else [],
        "objective": "device_span" if span else "makespan",
    }


def _precedences(rng: Generator, ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    order = rng.permutation(len(ops)).tolist()
    for late in range(len(ops)):
        for early in range(late):
            if rng.random() < 0.22:
                edge: dict[str, Any] = {
                    "before": ops[order[early]]["id"],
                    "after": ops[order[late]]["id"],
                }
                if rng.random() < 0.35:
                    edge["lag"] = int(rng.integers(1, 4))
                found.append(edge)
    return found


def _add_pools(
    rng: Generator, ops: list[dict[str, Any]], precedences: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Give some ops memory: held by the op, until a successor ends, in two parts, or for ever."""
    pools = []
    for name in [f"pool{k}" for k in range(int(rng.integers(1, 3)))]:
        taken: list[Fraction] = []
        for op in ops:
            if rng.random() < 0.4:
                continue
            whole = rng.random() < 0.4
            text = str(int(rng.integers(1, 4))) if whole else _pick(rng, *FRACTIONS)
            taken.append(Fraction(text))
            op.setdefault("acquire", {})[name] = float(text)
            successors = [e["after"] for e in precedences if e["before"] == op["id"]]
            for releaser, amount in _releases(rng, op, successors, Fraction(text), ops):
                held = releaser.setdefault("release_at_end", {})
                held[name] = held.get(name, Fraction(0)) + amount
        initial = Fraction(_pick(rng, "0", "0", "0", *FRACTIONS[:2]))
        tight = max(taken, default=Fraction(1)) + sum(taken) * Fraction(
            int(rng.integers(0, 4)), 6
        )
        capacity = Fraction(f"{float(tight + initial):.2f}")
        pools.append(
            {"name": name, "capacity": float(capacity), "initial": float(initial)}
        )
    for op in ops:
        held = op.get("release_at_end", {})
        op["release_at_end"] = {name: float(amount) for name, amount in held.items()}
    return pools


def _releases(
    rng: Generator,
    op: dict[str, Any],
    successors: list[str],
    amount: Fraction,
    ops: list[dict[str, Any]],
) -> list[tuple[dict[str, Any], Fraction]]:
    kind = rng.random()
    if kind < 0.08:
        return []
    if kind < 0.14:
        return [(_pick(rng, *ops), amount)]
    named = {other["id"]: other for other in ops}
    if not successors or kind < 0.5:
        return [(op, amount)]
    last = named[_pick(rng, *successors)]
    if kind < 0.7:
        return [(op, amount / 2), (last, amount / 2)]
    return [(last, amount)]


def _tiny_pipeline(rng: Generator) -> dict[str, Any]:
    span = rng.random() < 0.3
    placement = _pick(
        rng, "linear", "linear", "vshape", "bidirectional", "explicit", "interleaved"
    )
    devices, stages = 2, 2
    if placement == "linear" and rng.random() < 0.4:
        devices = stages = 3
    if placement == "explicit":
        stages = 3
    if placement in {"vshape", "interleaved"}:
        devices, stages = _pick(rng, (1, 2), (2, 4))
    microbatches = (
        2 if placement == "bidirectional" or stages == 2 else int(rng.integers(1, 3))
    )
    split = stages * microbatches <= 4 and rng.random() < 0.6
    if stages * microbatches > 6:
        microbatches = 1
    longest = 3 if span else 5
    data: dict[str, Any] = {
        "kind": "pipeline",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "placement": placement,
        "times": _tiny_times(rng, stages, microbatches, split=split, longest=longest),
        "objective": "device_span" if span else "makespan",
    }
    if placement == "explicit":
        data["placement"] = {
            "stage_to_device": _pick(rng, [0, 1, 0], [1, 0, 0], [0, 0, 1])
        }
    if placement == "interleaved":
        data["stages_per_device"] = stages // devices
    _add_p2p(rng, data, stages, small=span)
    if rng.random() < 0.6:
        data["memory"] = _tiny_memory(rng, stages, devices)
    for field in ("allreduce", "optimizer"):
        if stages * microbatches <= 4 and rng.random() < 0.2:
            data[field] = _pick(
                rng, int(rng.integers(1, 4)), rng.integers(0, 3, stages).tolist()
            )
    return data


def _tiny_times(
    rng: Generator, stages: int, microbatches: int, *, split: bool, longest: int
) -> dict[str, Any]:
    kinds = (
        ["forward", "backward_input", "backward_weight"]
        if split
        else ["forward", "backward"]
    )
    times: dict[str, Any] = {}
    for kind in kinds:
        times[kind] = rng.integers(
            0 if rng.random() < 0.2 else 1, longest, stages
        ).tolist()
        if rng.random() < 0.3:
            times[kind] = times[kind][0]
        elif rng.random() < 0.15:
            times[kind][0] = rng.integers(1, longest, microbatches).tolist()
    if not re.search("[1-9]", str(times)):
        times["forward"] = 1  # all zero are refused
    return times


def _add_p2p(rng: Generator, data: dict[str, Any], stages: int, *, small: bool) -> None:
    devices = data["num_devices"]
    latency = _pick(rng, 0, 1, 2, rng.integers(0, 3, (devices, devices)).tolist())
    data["p2p"] = {"latency": latency}
    if stages == 2 and rng.random() < 0.5:
        sizes = int(rng.integers(1, 4))
        data["p2p"] |= {
            "mode": _pick(rng, "link", "nic"),
            "bytes": _pick(rng, sizes, [sizes] * (stages - 1)),
            "bandwidth": 1 if small else _pick(rng, 1, 2, [[0, 2], [1, 0]]),
        }
        if devices != 2 and isinstance(data["p2p"]["bandwidth"], list):
            data["p2p"]["bandwidth"] = 1


def _tiny_memory(rng: Generator, stages: int, devices: int) -> dict[str, Any]:
    return {
        "capacity": _pick(rng, 1, 1.5, 2, 3, rng.integers(1, 4, devices).tolist()),
        "activation": _pick(
            rng, 1, 0.7, [float(_pick(rng, *FRACTIONS)) for _ in range(stages)]
        ),
        "released_by_backward_weight": _pick(rng, 0, 1, 0.43243243243243246),
        "static": _pick(rng, 0, 0, 0.1),
    }


def broken_rules(problem: Problem, start: list[int]) -> set[str]:
    """Return the rules that starts break: the definitions in plain loops, for comparison."""
    duration = problem.duration.tolist()
    end = [s + d for s, d in zip(start, duration, strict=True)]
    found = {"start" for s in start if s < 0}
    release, pinned = problem.release.tolist(), problem.pinned.tolist()
    found |= {"release" for s, r in zip(start, release, strict=True) if r > 0 and s < r}
    found |= {"pin" for s, p in zip(start, pinned, strict=True) if p not in (FREE, s)}
    edges = zip(
        problem.before.tolist(),
        problem.after.tolist(),
        problem.lag.tolist(),
        strict=True,
    )
    found |= {"precedence" for a, b, lag in edges if start[b] < end[a] + lag}
    busy = [set(problem.resources_of(op).tolist()) for op in range(problem.num_ops)]
    for a in range(problem.num_ops):
        for b in range(a):
            if busy[a] & busy[b] and max(start[a], start[b]) < min(end[a], end[b]):
                found.add("overlap")
    moments = {min([0, *start]) - 1, *start, *end}
    if any(
        most_in_use(problem, start, end, moments)[k] > pool.limit
        for k, pool in enumerate(problem.pools)
    ):
        found.add("memory")
    return found


def most_in_use(
    problem: Problem, start: list[int], end: list[int], moments: set[int]
) -> list[Fraction]:
    """Return the most that each pool holds at any of `moments`, straight from the definition."""
    peaks = []
    for pool in problem.pools:
        acquires = list(
            zip(pool.acquire_op.tolist(), pool.acquire_amount.tolist(), strict=True)
        )
        releases = list(
            zip(pool.release_op.tolist(), pool.release_amount.tolist(), strict=True)
        )
        peaks.append(
            max(
                pool.initial
                + sum(pool.amounts[k] for op, k in acquires if start[op] <= t)
                - sum(pool.amounts[k] for op, k in releases if end[op] <= t)
                for t in moments
            )
        )
    return peaks


def serial_schedule(
    problem: Problem, rng: Generator, tries: int = 20
) -> Schedule | None:
    """Return a valid schedule in random order, or None where the tries end in full memory."""
    for _ in range(tries):
        start = _serial(problem, rng)
        if start is not None and not broken_rules(problem, start):
            return Schedule(problem, np.array(start, dtype=np.int64))
    return None


def _serial(problem: Problem, rng: Generator) -> list[int] | None:
    """Start ops one by one in random topological order, each as early as rules but memory allow.

    An op that finds memory full waits for the next end; ops are placed in time order, so what was
    checked stays valid.
    """
    n, duration = problem.num_ops, problem.duration.tolist()
    edges = list(
        zip(
            problem.before.tolist(),
            problem.after.tolist(),
            problem.lag.tolist(),
            strict=True,
        )
    )
    start: dict[int, int] = {}
    free = [0] * problem.num_resources
    now = 0
    while len(start) < n:
        ready = []
        for op in set(range(n)) - start.keys():
            before = [(a, lag) for a, b, lag in edges if b == op]
            if all(a in start for a, _ in before):
                used = problem.resources_of(op).tolist() if duration[op] else []
                bounds = [start[a] + duration[a] + lag for a, lag in before]
                bounds += [now, int(problem.release[op]), int(problem.pinned[op])]
                ready.append((max([*bounds, *(free[r] for r in used)]), op))
        keys = rng.random(len(ready)) * 3
        for _, (t, op) in sorted(zip(keys + [t for t, _ in ready], ready, strict=True)):
            t = _when_it_fits(problem, start, op, t)
            if t is not None:
                break
        else:
            return None
        start[op] = now = t
        for r in problem.resources_of(op).tolist() if duration[op] else []:
            free[r] = t + duration[op]
    return [start[op] for op in range(n)]


def _when_it_fits(
    problem: Problem, start: dict[int, int], op: int, t: int
) -> int | None:
    ends = {s + int(problem.duration[other]) for other, s in start.items()}
    for moment in sorted({t, *(end for end in ends if end > t)}):
        if all(
            in_use(pool, problem, {**start, op: moment}, moment) <= pool.limit
            for pool in problem.pools
        ):
            return moment
    return None


def in_use(pool: Any, problem: Problem, start: dict[int, int], t: int) -> Fraction:
    used: Fraction = pool.initial
    for op, k in zip(
        pool.acquire_op.tolist(), pool.acquire_amount.tolist(), strict=True
    ):
        used += pool.amounts[k] if op in start and start[op] <= t else 0
    for op, k in zip(
        pool.release_op.tolist(), pool.release_amount.tolist(), strict=True
    ):
        done = op in start and start[op] + int(problem.duration[op]) <= t
        used -= pool.amounts[k] if done else 0
    return used
