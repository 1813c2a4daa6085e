"""Every group of Megatron-LM with every window of it is tried, held to a list of all of them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.solver.formats.activations import notes_on_modes
from ppsolve.solver.formats.program import Settings, read_program
from ppsolve.solver.kinds.pipeline.runtimes import task
from tests.kinds.pipeline.runtimes import windows
from tests.kinds.pipeline.runtimes.cases import LOOPED

GROUPS_OF_5: dict[str, Any] = {
    "kind": "pipeline",
    "num_devices": 3,
    "num_microbatches": 5,
    **LOOPED,
    "times": {"forward": [5, 7, 9, 3, 5, 3], "backward": [8, 8, 9, 1, 1, 5]},
    "p2p": {"latency": 0.5},
    "memory": {
        "capacity": 12,
        "activation": 2,
        "recompute": {
            "modes": [{"name": "full", "time": 3, "held": 0}],
            "decide": "window",
        },
    },
}
"""5 micro-batches on 3 ranks: the only legal group has 5, since one of 3 leaves 2."""


def drawn(seed: int) -> dict[str, Any]:
    """Return a random pipeline whose activations may be recomputed, as JSON."""
    rng = random.Random(seed)
    ranks, chunks = rng.randint(2, 3), rng.randint(1, 3)
    stages, count = ranks * chunks, rng.randint(ranks, 6)
    names = ["full", "selective"][: rng.randint(1, 2)]
    activation = rng.choice([2, 4])
    modes = [
        {
            "name": name,
            "time": rng.randint(0, 6),
            "held": rng.randint(0, activation - 1),
        }
        for name in names
    ]
    recompute = {
        "modes": modes,
        "decide": rng.choice(["window", "window", "microbatch", "all"]),
    }
    placed = (
        {} if chunks == 1 else {"placement": "interleaved", "stages_per_device": chunks}
    )
    return {
        "kind": "pipeline",
        "num_devices": ranks,
        "num_microbatches": count,
        **placed,
        "times": {
            name: [rng.randint(0 if s else 1, 9) for s in range(stages)]
            for name in ("forward", "backward")
        },
        "p2p": {"latency": rng.choice([0, 1])},
        "memory": {
            "capacity": activation * rng.randint(1, stages + 2),
            "activation": activation,
            "recompute": recompute,
        },
    }


def optimized(data: dict[str, Any], **options: Any) -> Any:
    few: dict[str, Any] = {"time_limit": 0, "workers": 1, "heuristics": ["keep-all"]}
    return ppsolve.optimize(
        ppsolve.parse_instance(data), runtime="megatron", **few | options
    )


def with_decision(data: dict[str, Any], decide: str) -> dict[str, Any]:
    recompute = {**data["memory"]["recompute"], "decide": decide}
    return {**data, "memory": {**data["memory"], "recompute": recompute}}


def best_run(data: dict[str, Any]) -> tuple[int, int, int, int]:
    fitting = [run for run in windows.every_run(data) if run.fits]
    best = min(fitting, key=lambda run: run.makespan)
    return best.group, best.mode, best.kept, best.makespan


def notes_of(document: dict[str, Any]) -> str:
    return next(iter(notes_on_modes(read_program(document), Settings(), "megatron")))


def test_windows_are_tried_under_groups_that_are_not_of_p() -> None:
    """The window of an instance counts in groups of p = 3: rank 0 keeps 2 of each 8 forwards."""
    assert best_run(GROUPS_OF_5) == (5, 0, 2, 176)
    result = optimized(GROUPS_OF_5)
    assert (result.value, result.status) == (176, Status.OPTIMAL)
    assert result.runtime.settings == {"group_size": 5, "mode": "full", "kept": 2}
    document = json.loads(result.model_dump_json())
    assert ppsolve.check(ppsolve.parse_instance(GROUPS_OF_5), document) == []
    assert "checkpoints 2 (in groups of 5 it counts otherwise" in notes_of(document)


def test_windows_of_free_micro_batches_are_those_of_the_groups_that_run() -> None:
    """Rank 0 warms up with 4 + 5 of 10 forwards: all but the first 3 of 10 are recomputed."""
    data = with_decision(GROUPS_OF_5, "microbatch")
    assert best_run(data) == (5, 0, 3, 178)
    result = optimized(data)
    assert (result.value, result.status) == (178, Status.OPTIMAL)
    document = json.loads(result.model_dump_json())
    assert ppsolve.check(ppsolve.parse_instance(data), document) == []
    assert notes_of(document).endswith(
        "--num-microbatches-with-partial-activation-checkpoints 3"
    )


def test_the_best_of_all_is_never_worse() -> None:
    result = optimized(GROUPS_OF_5, time_limit=1)
    assert result.runtime.free_value <= result.value


def hold(seed: int) -> None:
    data = drawn(seed)
    runs = list(windows.every_run(data))
    result = optimized(data)
    fitting = [run.makespan for run in runs if run.fits]
    if fitting:
        assert (result.value, result.status) == (min(fitting), Status.OPTIMAL), seed
        document = json.loads(result.model_dump_json())
        assert ppsolve.check(ppsolve.parse_instance(data), document) == [], seed
    else:
        assert result.status is Status.INFEASIBLE, seed


def test_drawn() -> None:
    for seed in range(5):
        hold(seed)


@pytest.mark.parametrize("seed", range(3))
def test_many_windows_are_bisected(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where keeping more is faster, the window that keeps most and fits is the best."""
    monkeypatch.setattr(task, "FEW_WINDOWS", 1)
    hold(seed)


def test_windows_that_are_too_many_are_not_all_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """9 windows of groups of 5 by bisection: 5, 3, 4; those that keep more or less are left out."""
    data = with_decision({**GROUPS_OF_5, "p2p": {"latency": 1}}, "microbatch")
    every = optimized(data)
    monkeypatch.setattr(task, "FEW_WINDOWS", 8)
    found = optimized(data)
    assert (found.value, found.runtime.settings) == (
        every.value,
        every.runtime.settings,
    )
    assert (every.runtime.orders, found.runtime.orders) == (2 + 9, 2 + 3)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_many_drawn(first: int) -> None:
    for seed in range(first, first + 100):
        hold(seed)
