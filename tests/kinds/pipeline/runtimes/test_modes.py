"""Choices of what to recompute, among those that a runtime can be told."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.modes import modes_of
from ppsolve.solver.formats.activations import notes_on_modes
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from tests.kinds.pipeline.runtimes import megatron
from tests.kinds.pipeline.runtimes.cases import (
    LOOPED,
    MODES,
    drawn,
    flags_of,
    pipeline,
    recomputing,
    solved,
)


@pytest.mark.parametrize(
    ("capacity", "mode", "longer"),
    [(3, "keep", 0), (2, "selective", "0.5"), (1, "full", 1)],
)
@pytest.mark.parametrize("decide", ["all", "stage", "microbatch"])
def test_one_mode_for_all(capacity: int, mode: str, longer: Any, decide: str) -> None:
    """Backwards of 1F1B take as much longer as the fastest mode that fits rank 0."""
    instance = recomputing(capacity, decide)
    result = solved(instance, "megatron", heuristics=None)
    data = json.loads(pipeline(3, 6).model_dump_json())
    data["times"]["backward"] = float(2 + Fraction(longer))
    assert result.value == megatron.makespan(flags_of(3, 1, 0), data)
    assert result.runtime.settings == {"mode": mode}
    assert result.modes == (mode,) * 3
    assert ppsolve.check(instance, json.loads(result.model_dump_json())) == []


def test_windows() -> None:
    """One mode for all takes 2 of memory; a window leaves the first micro-batch of each."""
    instance = recomputing(2, "window")
    result = solved(instance, "megatron", heuristics=None)
    alone = solved(recomputing(2, "all"), "megatron", heuristics=None)
    assert result.value <= alone.value
    assert result.runtime.orders == 3 + 2 * 2
    assert ppsolve.check(instance, result) == []


def test_windows_of_virtual_stages() -> None:
    """Groups of 2, 3, 4, 6 of 6: rank 0 warms up with 2 forwards and those of a group."""
    windows = [2 + size for size in (2, 3, 4, 6)]
    for decide, tried in (("window", 4 * windows[0]), ("microbatch", sum(windows))):
        instance = recomputing(9, decide, 2, **LOOPED)
        assert [
            int(modes_of(instance).windows_of(n).max()) for n in (2, 3, 4, 6)
        ] == windows
        result = solved(instance, "megatron", heuristics=None)
        assert result.runtime.orders == 4 * 3 + tried * 2, decide
        assert ppsolve.check(instance, result) == []
    assert ppsolve.check(instance, result) == []


def test_deepspeed_recomputes_in_intervals() -> None:
    """Modes that `activation_checkpoint_interval` does not say are not tried."""
    result = solved(recomputing(3, "stage"), "deepspeed", heuristics=None)
    assert result.modes == ("keep",) * 3
    assert {entry.name for entry in result.heuristics} == {
        "1F1B, all stages keep",
        "1F1B, all stages full",
    }
    tight = recomputing(1, "stage")
    result = solved(tight, "deepspeed", heuristics=None)
    assert result.modes == ("full",) * 3
    assert ppsolve.check(tight, json.loads(result.model_dump_json())) == []


@pytest.mark.parametrize(
    ("capacity", "mode", "value", "interval"),
    [(4, "keep", 330, None), (3, "interval 2", 385, 2), (2, "full", 440, 1)],
)
def test_intervals_of_deepspeed_are_searched_and_exported(
    capacity: int, mode: str, value: int, interval: int | None
) -> None:
    """By hand: 1F1B takes m + p - 1 = 11 forwards and backwards, with what recomputes."""
    modes = [
        {"name": "full", "time": 10, "held": 0.1},
        {"name": "interval 2", "time": 5, "held": 0.6},
    ]
    recompute = {"modes": modes, "decide": "all"}
    memory = {"capacity": capacity, "activation": 1, "recompute": recompute}
    times = {"forward": 10, "backward": 20}
    instance = pipeline(4, 8, times=times, memory=memory)
    result = solved(instance, "deepspeed", heuristics=None)
    assert (result.value, result.runtime.settings) == (value, {"mode": mode})
    data = json.loads(result.model_dump_json())
    assert ppsolve.check(instance, data) == []
    program, target = read_program(data), chosen("deepspeed")
    object.__setattr__(program, "layers", (2,) * 4)
    settings = target.settings()
    list(notes_on_modes(program, settings, "deepspeed"))
    parts = json.loads(target.files(program, settings, Path("out"))[Path("out")])
    assert parts.get("activation_checkpoint_interval") == interval


@pytest.mark.parametrize("mode", ["mlp", "interval 0", "interval"])
def test_given_modes_that_are_no_interval(mode: str) -> None:
    recompute = {"modes": [{"name": mode, "time": 1}], "decide": [mode] * 3}
    memory = {"recompute": recompute}
    with pytest.raises(InputError, match=rf'full or "interval N", .* not "{mode}"'):
        solved(recomputing(3, "stage", memory=memory), "deepspeed")


def test_torch_recomputes_by_stage() -> None:
    instance = recomputing(2, "microbatch")
    result = solved(instance, "torch", time_limit=4, heuristics=None)
    assert all(isinstance(mode, str) for mode in result.modes)
    assert ppsolve.check(instance, json.loads(result.model_dump_json())) == []
    assert result.instance_document["memory"]["recompute"]["decide"] == "microbatch"


@pytest.mark.parametrize(
    ("decide", "narrowed"),
    [("all", "all"), ("window", "all"), ("stage", "stage"), ("microbatch", "stage")],
)
def test_modes_that_are_searched(decide: str, narrowed: str) -> None:
    offload = {"amount": 1, "out": 1, "back": 1, "decide": decide}
    instance = recomputing(2, decide, memory={"offload": offload})
    memory = family_of("primus").narrowed(instance).memory
    assert (memory.recompute.decide, memory.offload) == (narrowed, None)
    memory = family_of("colossalai").narrowed(instance).memory
    assert (memory.recompute, memory.offload) == (None, None)
    assert memory.capacity == instance.memory.capacity


def test_given_modes() -> None:
    mixed = recomputing(3, ["keep", "full", "keep"])
    assert family_of("torch").obstacle(mixed) is None
    for name, message in (
        ("megatron", "modes: Megatron-LM has one mode for all stages, stage 1 another"),
        ("deepspeed", "modes: DeepSpeed has one mode for all stages, stage 1 another"),
    ):
        with pytest.raises(InputError, match=message):
            solved(mixed, name)
    alike = recomputing(3, ["full"] * 3)
    result = solved(alike, "megatron")
    assert result.status is Status.OPTIMAL
    assert ppsolve.check(alike, result) == []


@pytest.mark.parametrize(
    ("heuristic", "message"),
    [
        ("offload-first", "modes: stage 0 offloads, which PyTorch cannot be told"),
        (
            "recompute-window",
            "modes: PyTorch recomputes all micro-batches of stage 0 or none",
        ),
        ("recompute-full", None),
    ],
)
def test_modes_that_no_file_says(heuristic: str, message: str | None) -> None:
    """Of documents of runtimes that run any order the modes are checked too."""
    offload = {"amount": 1, "out": 0.5, "back": 0.5, "decide": "microbatch"}
    instance = recomputing(2.5, "microbatch", memory={"offload": offload})
    entry = json.loads(ppsolve.simulate(instance, heuristic).model_dump_json())
    found = ppsolve.check(instance, entry | {"runtime": {"name": "torch"}})
    own = [each.message for each in found if each.rule == "runtime"]
    assert own == ([] if message is None else [message])


def test_recomputing_early_is_not_run() -> None:
    recompute = {"modes": list(MODES), "place": "anytime"}
    instance = recomputing(2, "stage", memory={"recompute": recompute})
    with pytest.raises(
        InputError, match='right before a backward, the place is "anytime"'
    ):
        solved(instance, "torch")
    result = solved(instance, "megatron", heuristics=None)
    assert result.runtime.settings == {"mode": "selective"}
    before = solved(recomputing(2, "stage"), "megatron", heuristics=None)
    assert result.value == before.value
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("seed", range(12))
def test_recomputing_of_its_own_waits_for_the_whole_backward_behind(seed: int) -> None:
    """Megatron-LM recomputes inside the backward, so an op of its own is no faster."""
    data = drawn(seed)
    full = {"name": "full", "time": 7, "held": 0}
    values = []
    for place in ("before_backward", "anytime"):
        recompute = {"modes": [full], "decide": "all", "place": place}
        memory = {"capacity": 10**6, "activation": 1, "recompute": recompute}
        instance = ppsolve.PipelineInstance.parse({**data, "memory": memory})
        result = solved(instance, "megatron")
        assert ppsolve.check(instance, result) == []
        values.append({entry.name: entry.value for entry in result.heuristics})
    assert values[0] == values[1]
