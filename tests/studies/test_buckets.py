"""Buckets of collectives: against every way to merge neighbours, and fixed sizes."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.studies.buckets import BucketAdvice
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies.buckets import _latencies, advise_buckets, fixed, merged
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


def alike(instance: OverlapInstance, latency: Any) -> dict[int, Decimal]:
    """Return one latency for all collectives."""
    return dict.fromkeys(instance.of_kind(NodeKind.COMM), Decimal(latency))


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
        float(
            optimum(json.loads(each.model_dump_json(exclude_none=True))).makespan or 0
        )
        for each in (
            merged(instance, way, alike(instance, latency))
            for way in partitions(instance)
        )
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
    assert merged(instance, ((0, 3),), alike(instance, 1)) is None
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
    same = merged(instance, singles, alike(instance, "0.5"))
    assert same is not None
    assert [node.name for node in same.nodes] == [node.name for node in instance.nodes]


def test_the_answer_is_the_best_schedule_of_its_buckets_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best buckets are searched once more, with a limit; that run may end with a longer one."""

    def worse_within_a_limit(instance: OverlapInstance, *, time_limit: float) -> Any:
        result = ppsolve.optimize(instance, time_limit=0)
        longer = {"value": 2 * result.value} if time_limit and result.value else {}
        return result.model_copy(update=longer)

    monkeypatch.setattr("ppsolve.solver.studies.buckets.optimize", worse_within_a_limit)
    advice = advise_buckets(sharded(3), 0, time_limit=5)
    times = {row.name: row.makespan for row in advice.rows}
    assert [row.name for row in advice.rows] == [
        "searched",
        "as it is",
        "2 each",
        "all in one",
    ]
    assert times["searched"] == min(time for time in times.values() if time is not None)
    assert times["searched"] == ppsolve.optimize(advice.program, time_limit=0).value


def two_groups() -> OverlapInstance:
    """Return two gathers of 5 in one group, two reductions of 9 and a gather of 9 in another."""
    kinds = {
        "a": ("dp", "gather", 5),
        "b": ("tp", "reduce", 9),
        "c": ("tp", "gather", 9),
    }
    nodes: list[dict[str, Any]] = []
    for name in ("a0", "a1", "b0", "b1", "c0"):
        group, collective, duration = kinds[name[0]]
        about = {"group": group, "collective": collective, "duration": duration}
        nodes.append({"name": name, "kind": "comm", **about})
    nodes += [
        {"name": f"w{node['name']}", "kind": "wait", "deps": [node["name"]]}
        for node in nodes
    ]
    nodes.append(
        {"name": "k", "kind": "compute", "duration": 1, "deps": ["wa0", "wb0"]}
    )
    return program(*nodes)


@pytest.mark.parametrize(
    ("latency", "dp", "tp"),
    [
        (4, 6, 14),
        ({"*": 4}, 6, 14),
        ({"*": 4, "tp": 8}, 6, 10),
        ({"gather": 3, "reduce": 7}, 7, 11),
        ({"*": 0, "tp/reduce": 6, "tp": 1, "reduce": 2}, 10, 12),
        ({"*": 4, "tp": 1, "gather": 3}, 7, 17),
    ],
)
def test_collectives_save_the_latency_of_their_group_and_type(
    latency: Any, dp: float, tp: float
) -> None:
    """Two of 5 take 10 less the latency of their group or type, two of 9 take 18 less theirs."""
    saved = latency if isinstance(latency, dict) else {"*": latency}
    instance = two_groups()
    together = merged(instance, ((0, 1), (2, 3), (4,)), _latencies(instance, saved))
    assert together is not None
    assert [
        float(together.nodes[c].duration) for c in together.of_kind(NodeKind.COMM)
    ] == [
        dp,
        tp,
        9,
    ]
    advice = advise_buckets(instance, latency, time_limit=1)
    assert advice.latency == latency
    best = advice.rows[0].makespan
    assert best is not None and advice.bound <= best


@pytest.mark.parametrize(
    ("latency", "words"),
    [
        ({"*": 4, "tp": 10}, 'expected 0 to 9, .* of "tp", got 10'),
        (
            {"*": 6, "tp": 6},
            "expected 0 to 5, the time of the shortest collective, got 6",
        ),
        ({"tp": 1}, 'expected a latency of "dp/gather", or one of all collectives'),
        (
            {"*": 1, "reduc": 1},
            'no collective has the group or type "reduc"; did you mean "reduce"',
        ),
        ({"*": float("nan")}, "expected 0 to 5"),
    ],
)
def test_latencies_that_no_collective_has_are_refused(latency: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as told:
        advise_buckets(two_groups(), latency)
    assert told.value.field == "latency"


def test_a_latency_of_others_may_be_longer_than_a_collective_that_has_its_own() -> None:
    advice = advise_buckets(two_groups(), {"*": 8, "dp": 2}, time_limit=1)
    assert advice.latency == {"*": 8, "dp": 2}


def test_the_command_takes_latencies_by_name(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    path.write_text(two_groups().model_dump_json(exclude_none=True))
    arguments = (
        "buckets",
        path,
        "--latency",
        2,
        "--latency",
        "tp/reduce=6",
        "-t",
        1,
        "--json",
    )
    assert json.loads(run(*arguments).stdout)["latency"] == {"*": 2, "tp/reduce": 6}
    refused = run("buckets", path, "--latency", "tp=x")
    assert refused.exit_code == 2
    assert "expected [NAME=]X" in refused.stderr
