"""Buckets of collectives: against every way to merge neighbours, and fixed sizes."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.studies.buckets import BucketAdvice
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies.buckets import advise_buckets, fixed, merged
from tests.kinds.overlap.bruteforce import optimum, random_document
from tests.kinds.overlap.cases import program
from tests.marks import first


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(build(), [*map(str, arguments)])


def sharded(layers: int, gather: float = 5, compute: float = 4) -> OverlapInstance:
    nodes: list[dict[str, Any]] = []
    for layer in range(layers):
        before = [f"k{layer - 1}"] if layer else []
        nodes += [
            {"name": f"g{layer}", "kind": "comm", "duration": gather, "bytes": 8},
            {"name": f"w{layer}", "kind": "wait", "deps": [f"g{layer}"]},
            {"name": f"k{layer}", "kind": "compute", "duration": compute, "bytes": 1},
        ]
        nodes[-1]["deps"] = [f"w{layer}", *before]
    return program(*nodes)


def partitions(instance: OverlapInstance) -> list[Any]:
    """Return every way to cut the one run of collectives into buckets."""
    (run_of,) = fixed(instance, 1000)
    found = []
    for cuts in product([False, True], repeat=len(run_of) - 1):
        buckets: list[tuple[int, ...]] = [(run_of[0],)]
        for comm, is_cut in zip(run_of[1:], cuts, strict=True):
            if is_cut:
                buckets.append((comm,))
            else:
                buckets[-1] += (comm,)
        found.append(tuple(buckets))
    return found


@pytest.mark.parametrize("latency", first(1, [1, 0, 3]))
def test_the_best_buckets_are_found(latency: int) -> None:
    instance = sharded(5)
    best = min(
        float(optimum(json.loads(each.model_dump_json(exclude_none=True))).makespan or 0)
        for each in (merged(instance, way, Fraction(latency)) for way in partitions(instance))
        if each is not None
    )
    found = advise_buckets(instance, latency, time_limit=10)
    assert found.rows[0].makespan == best
    assert found.bound <= best
    assert all(row.makespan is None or row.makespan >= best for row in found.rows)


@pytest.mark.parametrize("seed", first(2, range(200)))
def test_never_worse_than_a_fixed_size(seed: int) -> None:
    rng = random.Random(seed)
    instance = OverlapInstance.parse(random_document(rng, most=12))
    comms = [node.duration for node in instance.nodes if node.kind == "comm"]
    found = advise_buckets(instance, float(min(comms, default=0)) / 2, time_limit=2)
    best = found.rows[0].makespan
    assert best is not None
    assert all(row.makespan is None or row.makespan >= best for row in found.rows)
    assert found.bound <= best * (1 + 1e-9)
    assert ppsolve.optimize(found.program).value <= best * (1 + 1e-9)


def test_a_bucket_that_would_wait_for_itself_is_none() -> None:
    nodes = [
        {"name": "a", "kind": "comm", "duration": 2},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
        {"name": "k", "kind": "compute", "duration": 1, "deps": ["wa"]},
        {"name": "b", "kind": "comm", "duration": 2, "deps": ["k"]},
        {"name": "wb", "kind": "wait", "deps": ["b"]},
    ]
    instance = program(*nodes)
    assert merged(instance, ((0, 3),), Fraction(1)) is None
    assert advise_buckets(instance, 1).buckets == ()


@pytest.mark.parametrize("latency", [-1, 6])
def test_a_latency_beyond_a_collective_is_refused(latency: int) -> None:
    with pytest.raises(InputError, match="expected 0 to 5") as told:
        advise_buckets(sharded(2), latency)
    assert told.value.field == "latency"


def test_the_command_writes_advice_and_program(tmp_path: Path) -> None:
    path, out = tmp_path / "program.json", tmp_path / "merged.json"
    path.write_text(sharded(4).model_dump_json(exclude_none=True))
    done = run("buckets", path, "--latency", 3, "-t", 3, "--json", "--program-out", out)
    advice = BucketAdvice.model_validate_json(done.stdout)
    assert ppsolve.load_instance(out) == advice.program
    shown = run("buckets", path, "--latency", 3, "-t", 3).stdout
    assert "no buckets take less than" in shown
    assert "4 each" in shown or "all in one" in shown


def test_only_programs_have_collectives(tmp_path: Path) -> None:
    pipeline = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=2, times={"forward": 1, "backward": 2}
    )
    path = tmp_path / "pipeline.json"
    path.write_text(pipeline.model_dump_json(exclude_none=True))
    refused = run("buckets", path, "--latency", 1)
    assert refused.exit_code == 2
    assert "expected a program" in refused.stderr


def test_what_is_not_merged_keeps_its_order() -> None:
    """Frozen collectives, and what stands between them, stay where they were."""
    instance = OverlapInstance.parse(random_document(random.Random(30), most=12))
    singles = tuple((comm,) for comm in instance.of_kind(NodeKind.COMM))
    same = merged(instance, singles, Fraction(1, 2))
    assert same is not None
    assert [node.name for node in same.nodes] == [node.name for node in instance.nodes]
