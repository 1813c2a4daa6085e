"""What is claimed for a runtime is what the rows of its file take, with empty stages too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from ppsolve.solver.formats.torch_csv import convert_torch_csv
from ppsolve.solver.kinds.pipeline.runtimes.families import FAMILIES, family_of
from tests.kinds.pipeline.runtimes import megatron, rows
from tests.kinds.pipeline.runtimes.cases import LOOPED
from tests.marks import first

EMPTY = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 4,
    **LOOPED,
    "times": {"forward": [10, 4, 0, 4], "backward": [20, 8, 0, 8]},
}
"""Stage 2 is empty, as in a Megatron-LM layout ``E||t|L``; rank 0 works for 120."""

READERS = {
    "torch": rows.of_csv,
    "torchtitan": rows.of_csv,
    "primus": rows.of_primus,
    "colossalai": rows.of_colossalai,
}


def drawn(seed: int) -> dict[str, Any]:
    """Return a random pipeline with empty stages and ops of no time, as JSON."""
    rng = random.Random(seed)
    placement = rng.choice(["linear", "interleaved", "vshape"])
    ranks, chunks = rng.randint(2, 3), 1 if placement == "linear" else 2
    stages, count = ranks * chunks, rng.randint(1, 4)
    names = [
        "forward",
        *rng.choice([["backward"], ["backward_input", "backward_weight"]]),
    ]
    empty = {stage for stage in range(1, stages) if rng.random() < 0.3}
    is_uneven = rng.random() < 0.3

    def entry(stage: int) -> Any:
        if stage in empty or (stage and rng.random() < 0.1):
            return 0
        return (
            [rng.randint(0, 9) for _ in range(count)]
            if is_uneven
            else rng.randint(1, 9)
        )

    times = {name: [entry(stage) for stage in range(stages)] for name in names}
    shape = {"num_devices": ranks, "num_microbatches": count, "placement": placement}
    if chunks > 1:
        shape["stages_per_device"] = chunks
    return {
        "kind": "pipeline",
        **shape,
        "times": times,
        "p2p": {"latency": rng.choice([0, 0, 2])},
    }


def exported(result: Any, to: str) -> tuple[str, tuple[int, ...]]:
    """Return the file of a runtime, and the micro-batch at each of its indices."""
    data = json.loads(result.model_dump_json())
    program = in_data_order(read_program(data), may_permute=True)
    if to == "torchtitan":
        object.__setattr__(program, "layers", (1,) * program.num_stages)
    target = chosen(to)
    files = target.files(program, target.settings(), Path("out.py"))
    path = next((each for each in files if each.suffix == ".csv"), Path("out.py"))
    return files[path], program.microbatches


def replayed(result: Any, runtime: str, data: dict[str, Any]) -> Any:
    """Return the time of the exported file, by simulators of this folder."""
    if runtime == "deepspeed":
        flags = f"--pipeline-model-parallel-size {data['num_devices']}"
        return megatron.makespan(flags, data)
    text, microbatches = exported(result, runtime)
    if runtime == "megatron":
        return megatron.makespan(text, data)
    read = READERS[runtime](text)
    return rows.makespan(
        [[(k, s, microbatches[i]) for k, s, i in row] for row in read], data
    )


def optimized(data: dict[str, Any], runtime: str | None, **options: Any) -> Any:
    few: dict[str, Any] = {"time_limit": 20, "workers": 1}
    return ppsolve.optimize(
        ppsolve.parse_instance(data), runtime=runtime, **few | options
    )


def test_an_op_of_no_time_waits_for_the_op_of_its_rank() -> None:
    """126 is the work of rank 0 and 1F0, with 2F and 2B inside other ops; in rows it is 138."""
    result = optimized(EMPTY, "torch")
    assert (result.value, result.status) == (138, Status.OPTIMAL)
    assert rows.optimum(EMPTY) == 138
    assert replayed(result, "torch", EMPTY) == 138


def test_what_rules_cost_is_said_of_rows() -> None:
    """Interleaved 1F1B takes 148: 7.25 % above the best rows, 138."""
    result = optimized(EMPTY, "megatron")
    assert (result.value, result.runtime.free_value, result.runtime.free_bound) == (
        148,
        138,
        138,
    )


def test_a_pipeline_without_a_runtime_keeps_its_optimum() -> None:
    result = optimized(EMPTY, None)
    assert (result.value, result.status) == (126, Status.OPTIMAL)
    assert ppsolve.check(ppsolve.parse_instance(EMPTY), result) == []


def test_a_file_puts_an_op_that_lies_inside_another_behind_it() -> None:
    result = optimized(EMPTY, None)
    assert replayed(result, "torch", EMPTY) >= 138
    document = json.loads(result.model_dump_json())
    claimed = document | {"runtime": {"name": "torch"}}
    broken = ppsolve.check(ppsolve.parse_instance(EMPTY), claimed)
    assert {each.rule for each in broken} == {"overlap"}


def runtimes_of(data: dict[str, Any]) -> list[str]:
    instance = ppsolve.parse_instance(data)
    return [
        each.name
        for each in FAMILIES
        if family_of(each.name).obstacle(instance) is None
    ]


def hold(seed: int) -> None:
    """Hold every runtime of a drawn pipeline to the file that it gets, and to the optimum."""
    data = drawn(seed)
    best = rows.optimum(data)
    for runtime in runtimes_of(data):
        result = optimized(data, runtime)
        assert result.value == replayed(result, runtime, data), runtime
        assert ppsolve.check(ppsolve.parse_instance(data), result) == [], runtime
        if runtime in {"torch", "torchtitan"}:
            assert (result.value, result.status) == (best, Status.OPTIMAL), runtime
        elif runtime in {"megatron", "deepspeed"}:
            assert result.runtime.free_value == best, runtime
        else:
            assert result.bound <= result.value, runtime


def with_more(seed: int) -> dict[str, Any]:
    """Return a drawn pipeline with optimizers, and with links or queues between ranks."""
    rng, data = random.Random(1000 + seed), drawn(seed)
    stages = len(data["times"]["forward"])
    data["optimizer"] = [rng.choice([0, 1, 3, 8]) for _ in range(stages)]
    if rng.random() < 0.5:
        data["allreduce"] = [rng.choice([0, 1, 3, 8]) for _ in range(stages)]
    sizes = [rng.randint(0, 6) for _ in range(stages - 1)]
    mode = rng.choice(["link", "nic", "send_queue"])
    data["p2p"] = {
        "mode": mode,
        "bytes": sizes,
        "bandwidth": 1,
        "latency": rng.choice([0, 1]),
    }
    return data


def hold_read_back(seed: int, path: Path) -> None:
    """Hold the order for PyTorch to what `convert` makes of its file."""
    data = with_more(seed)
    instance = ppsolve.parse_instance(data)
    result = optimized(data, "torch", time_limit=5)
    text, microbatches = exported(result, "torch")
    path.write_text(text)
    document = json.loads(result.model_dump_json())
    entry, _ = convert_torch_csv(path, instance, microbatches, document)
    assert (entry.status, entry.value) == ("feasible", result.value)
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_drawn(seed: int) -> None:
    hold(seed)


@pytest.mark.parametrize("seed", range(3))
def test_links_and_optimizers(seed: int, tmp_path: Path) -> None:
    hold_read_back(seed, tmp_path / "order.csv")


def test_optimizers_run_when_the_rank_has_run_all_ops() -> None:
    """Rank 0 waits from 8, where 2B ends, to 10; its row ends with 0B at 12, then come 2 and 1."""
    times = {"forward": [1, 1, 1, 1], "backward": [2, 2, 2, 2]}
    data = {**EMPTY, "num_microbatches": 1, "times": times, "optimizer": [1, 1, 2, 1]}
    assert optimized(data, None).value == 13
    assert optimized(data, "torch").value == 15


def test_a_heuristic_that_a_runtime_does_not_run_is_not_feasible() -> None:
    """Primus takes data in one order; `list-tail` runs forwards of the two stages in others."""
    result = optimized(drawn(3), "primus")
    (other,) = [each for each in result.heuristics if each.name == "list-tail"]
    assert other.status == "infeasible"
    assert "Primus takes data in the order of forwards" in other.reason


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(4, 204, 20))
def test_many_drawn(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        hold(seed)
        hold_read_back(seed, tmp_path / "order.csv")
