"""Every group of Megatron-LM with every window of it is tried, held to a list of all of them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.pipeline.modes import modes_of
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
        "recompute": {"modes": [{"name": "full", "time": 3, "held": 0}], "decide": "window"},
    },
}
"""5 micro-batches on 3 ranks: the only legal group has 5, since one of 3 leaves 2."""


def drawn(seed: int) -> dict[str, Any]:
    """Return a random pipeline whose activations may be recomputed, as JSON."""
    rng = random.Random(seed)
    ranks, chunks = rng.randint(2, 3), rng.randint(1, 3)
    stages, count = ranks * chunks, rng.randint(ranks, 6)
    names = ["full", "part"][: rng.randint(1, 2)]
    activation = rng.choice([2, 4])
    modes = [
        {"name": name, "time": rng.randint(0, 6), "held": rng.randint(0, activation - 1)}
        for name in names
    ]
    recompute = {"modes": modes, "decide": rng.choice(["window", "window", "microbatch", "all"])}
    placed = {} if chunks == 1 else {"placement": "interleaved", "stages_per_device": chunks}
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
    return ppsolve.optimize(ppsolve.parse_instance(data), runtime="megatron", **few | options)


def test_windows_of_a_group_that_is_not_of_p() -> None:
    """Rank 0 warms up with 4 + 5 of 10 forwards: all but the first 3 of 10 are recomputed."""
    fitting = [run for run in windows.every_run(GROUPS_OF_5) if run.fits]
    best = min(fitting, key=lambda run: run.makespan)
    assert (best.group, best.mode, best.kept, best.makespan) == (5, 0, 3, 178)
    result = optimized(GROUPS_OF_5)
    assert (result.value, result.status) == (178, Status.OPTIMAL)
    assert result.runtime.settings == {"group_size": 5, "mode": "full", "kept": 3}
    document = json.loads(result.model_dump_json())
    assert ppsolve.check(ppsolve.parse_instance(GROUPS_OF_5), document) == []
    note = next(iter(notes_on_modes(read_program(document), Settings(), "megatron")))
    assert note.endswith("--num-microbatches-with-partial-activation-checkpoints 3")


def test_the_best_of_all_may_have_the_windows_of_any_group() -> None:
    result = optimized(GROUPS_OF_5, time_limit=1)
    assert result.runtime.free_value <= result.value
    modes = modes_of(ppsolve.parse_instance(GROUPS_OF_5))
    assert modes.allows(modes.in_window(1, 3))
    assert not modes.allows(modes.in_window(1, 3, 5)), "a pipeline alone has the usual groups"


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


def test_windows_that_are_too_many_are_not_all_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """9 windows of groups of 5 by bisection: 5, 3, 4; those that keep more or less are left out."""
    data = {**GROUPS_OF_5, "p2p": {"latency": 1}}
    every = optimized(data)
    monkeypatch.setattr(task, "FEW_WINDOWS", 8)
    found = optimized(data)
    assert (found.value, found.runtime.settings) == (every.value, every.runtime.settings)
    assert (every.runtime.orders, found.runtime.orders) == (2 + 9, 2 + 3)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_many_drawn(first: int) -> None:
    for seed in range(first, first + 100):
        hold(seed)
