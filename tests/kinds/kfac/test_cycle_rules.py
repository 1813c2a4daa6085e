"""The checker against the rules of refresh cycles as read from the instance document alone."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.kinds.kfac.instance import KfacInstance
from tests.kinds.kfac.cycle_rules import CycleRules, Document
from tests.marks import examples


def module(rng: random.Random, stage: int, name: str, devices: int) -> Document:
    times = ("curvature_a", "curvature_b", "inverse_a", "inverse_b", "precondition")
    found: Document = {
        "stage": stage,
        "name": name,
        **{key: rng.randint(0, 3) for key in times},
    }
    for key in ("sync_a", "sync_b"):
        found[key] = rng.choice((0, 0, 1, 2))
    if rng.random() < 0.3:
        found["replicas"] = sorted({stage, rng.randrange(devices)})
    if rng.random() < 0.5:
        found |= {
            "input_bytes": rng.choice((0, 0.5, 1)),
            "error_bytes": rng.choice((0, 1)),
        }
    return found


def cycle(rng: random.Random) -> Document:
    """Return a small free cycle with every feature at random."""
    devices, two = rng.randint(1, 3), rng.random() < 0.3
    backward = (
        ("backward",) if rng.random() < 0.5 else ("backward_input", "backward_weight")
    )
    pipeline: Document = {
        "num_devices": devices,
        "num_microbatches": 2 * rng.randint(1, 2) if two else rng.randint(1, 3),
        "placement": "bidirectional" if two else "linear",
        "times": {key: rng.randint(1, 4) for key in ("forward", *backward)},
    }
    if rng.random() < 0.5 and not (two and devices % 2):
        pipeline["p2p"] = {"latency": rng.randint(1, 2)}
    for key in ("allreduce", "optimizer"):
        if rng.random() < 0.5:
            pipeline[key] = rng.randint(1, 3)
    if rng.random() < 0.6:
        share = rng.choice((0, 0.25, 1))
        capacity = rng.choice((2, 3, 3.5, 5))
        pipeline["memory"] = {"capacity": capacity, "activation": 1}
        pipeline["memory"]["released_by_backward_weight"] = share
    interval = rng.randint(1, 2)
    names = [
        (stage, name) for stage in range(devices) for name in "mn" if rng.random() < 0.6
    ]
    data: Document = {
        "kind": "kfac",
        "pipeline": pipeline,
        "modules": [
            module(rng, stage, name, devices) for stage, name in names or [(0, "m")]
        ],
        "refresh_interval": interval,
    }
    if rng.random() < 0.5:
        data["max_age"] = rng.randrange(interval)
    return data


def scheduled(made: KfacInstance) -> dict[str, int] | None:
    """Return the starts of a valid schedule, if a simple rule finds one."""
    for name in ("list-tail", "list-serial"):
        entry = ppsolve.simulate(made, name)
        if entry.schedule is not None:
            return {op.id: int(op.start) for op in entry.schedule.ops}
    return None


def found_by_checker(
    made: KfacInstance, rules: CycleRules, starts: dict[str, int]
) -> set[str]:
    ops: list[dict[str, Any]] = [
        {"id": name, "start": start, "end": start + rules.ops[name].length}
        for name, start in starts.items()
    ]
    return {v.rule for v in ppsolve.check(made, {"time_unit": "us", "ops": ops})}


def moved(rng: random.Random, starts: dict[str, int]) -> dict[str, int]:
    """Return starts of which one is moved, two change places, or all after a time come later."""
    names = sorted(starts)
    one, other = rng.choice(names), rng.choice(names)
    by = rng.choice((1, -1, 2, -2, 3, 8))
    kind = rng.randrange(4)
    if kind == 0:
        return {**starts, one: starts[one] + by}
    if kind == 1:
        return {**starts, one: starts[other], other: starts[one]}
    since = starts[one] + (kind == 2)
    return {name: at + abs(by) * (at >= since) for name, at in starts.items()}


@examples(9)
@given(st.integers(0, 100_000))
def test_the_checker_is_the_rules(seed: int) -> None:
    rng = random.Random(seed)
    document = cycle(rng)
    made, rules = KfacInstance.parse(document), CycleRules(document)
    starts = scheduled(made)
    if starts is None:
        return
    assert found_by_checker(made, rules, starts) == rules.broken(starts) == set()
    for _ in range(8):
        changed = starts
        for _ in range(rng.choice((1, 1, 2))):
            changed = moved(rng, changed)
        assert found_by_checker(made, rules, changed) == rules.broken(changed)


def test_a_gradient_is_reduced_where_its_stage_is() -> None:
    """Each stage has its own: backwards, all-reduce, preconditions, optimizer, in this order."""
    document: Document = {
        "kind": "kfac",
        "pipeline": {
            "num_devices": 2,
            "num_microbatches": 1,
            "times": {"forward": 1, "backward": 2},
            "allreduce": 3,
            "optimizer": 1,
        },
        "modules": [
            {"stage": stage, "name": "m", "precondition": 1}
            | dict.fromkeys(("curvature_a", "curvature_b", "inverse_a", "inverse_b"), 0)
            for stage in (0, 1)
        ],
        "refresh_interval": 1,
    }
    made, rules = KfacInstance.parse(document), CycleRules(document)
    # F0 0-1, F1 1-2, B1 2-4, AR1 4-7 and PC1 at 7 while B0 runs 4-6, then AR0 6-9.
    starts = {"F0.0": 0, "F1.0": 1, "B1.0": 2, "B0.0": 4, "AR1": 4, "AR0": 6}
    starts |= {"PC1:m@0": 7, "OPT1": 8, "PC0:m@0": 9, "OPT0": 10}
    starts |= dict.fromkeys(("CA0.0:m", "CB0.0:m", "CA1.0:m", "CB1.0:m"), 20)
    starts |= dict.fromkeys(("IA0:m", "IB0:m", "IA1:m", "IB1:m"), 20)
    assert found_by_checker(made, rules, starts) == rules.broken(starts) == set()
    for name, early in (
        ("AR1", 3),
        ("AR0", 5),
        ("PC1:m@0", 6),
        ("PC0:m@0", 8),
        ("OPT1", 7),
    ):
        wrong = {**starts, name: early}
        assert "precedence" in found_by_checker(made, rules, wrong) & rules.broken(
            wrong
        )
