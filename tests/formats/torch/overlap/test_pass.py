"""The pass of Inductor, under a group of eight ranks of which seven are not there."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.solver.formats.torch.overlap.durations import Estimates
from ppsolve.solver.formats.torch.overlap.graph import CompiledGraph
from ppsolve.solver.formats.torch.overlap.ordering import OverlapPass, use_overlap_pass
from tests.formats.torch.overlap.graphs import STEPS, arguments, inductor, run_time, see
from tests.paths import ROOT

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

RANKS = 8


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def order_of(instance: Any) -> list[str]:
    found: Any = ppsolve.optimize(instance, time_limit=5)
    return [name for name in found.order if not name.startswith("wait:")]


@pytest.mark.parametrize("name", STEPS)
def test_the_peak_is_that_of_inductor(group: Any, name: str) -> None:
    def look(nodes: Sequence[Any]) -> None:
        graph = CompiledGraph.of(nodes)
        peak = graph.peak(nodes)
        instance = graph.instance(Estimates(), "seen", float(peak))
        given: Any = ppsolve.simulate(instance, "original")
        assert given.peak_live_bytes == peak
        names = {node.get_name(): node for node in nodes}
        result: Any = ppsolve.optimize(instance, time_limit=5)
        order = [names[each] for each in result.order if each in names]
        assert graph.broken(order, peak) is None
        assert graph.peak(order) == result.peak_live_bytes <= peak
        assert result.value <= given.value

    see(name, group, RANKS, look)


def corrupted(rng: random.Random, graph: CompiledGraph, order: list[Any]) -> list[Any]:
    """Return an order with one fault: a node too early, missing or twice, or collectives turned."""
    found = list(order)
    kind = rng.choice(["early", "early", "late", "missing", "twice"])
    place = rng.randrange(len(found))
    if kind == "missing":
        del found[place]
    elif kind == "twice":
        found[place] = found[place - 1]
    else:
        made = [(a, b) for b in order for a, _ in graph._dependencies(b)]
        first, second = rng.choice(made)
        if kind == "early":
            found.remove(second)
            found.insert(found.index(first), second)
        else:
            found.remove(first)
            found.insert(found.index(second) + 1, first)
    return found


@pytest.mark.parametrize("name", STEPS)
def test_corrupted_orders_are_refused(group: Any, name: str) -> None:
    def look(nodes: Sequence[Any]) -> None:
        rng, graph = random.Random(name), CompiledGraph.of(nodes)
        assert graph.broken(nodes) is None
        for _ in range(70):
            assert graph.broken(corrupted(rng, graph, list(nodes)))
        assert "bytes" in (graph.broken(nodes, graph.peak(nodes) - 1) or "")

    see(name, group, RANKS, look)


def test_a_wrong_answer_leaves_the_order(
    group: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ppsolve.solver.formats.torch.overlap import ordering

    def look(nodes: Sequence[Any]) -> None:
        names = [node.get_name() for node in nodes]
        monkeypatch.setattr(ordering, "best_order", lambda *_: names[::-1])
        assert OverlapPass()(nodes) == list(nodes)
        monkeypatch.setattr(ordering, "best_order", lambda *_: None)
        assert OverlapPass()(nodes) == list(nodes)
        monkeypatch.setattr(ordering, "refused_version", lambda: "expected torch 9")
        assert OverlapPass()(nodes) == list(nodes)

    with caplog.at_level(logging.WARNING):
        see("sharded step", group, RANKS, look)
    told = [
        record.getMessage()
        for record in caplog.records
        if record.name == "ppsolve.torch"
    ]
    expected = ("comes before", "no order was found", "expected torch 9")
    assert [any(words in line for line in told) for words in expected] == [True] * 3
    assert len(told) == 3


def test_answers_are_kept_and_written(group: Any, tmp_path: Path) -> None:
    def look(nodes: Sequence[Any]) -> None:
        options: dict[str, Any] = {
            "cache": str(tmp_path / "kept"),
            "dump": str(tmp_path),
        }
        first = OverlapPass(**options)(nodes)
        (kept,) = (tmp_path / "kept").iterdir()
        assert json.loads(kept.read_text()) == [node.get_name() for node in first]
        kept.write_text(json.dumps([node.get_name() for node in nodes]))
        assert OverlapPass(**options)(nodes) == list(nodes)

    see("experts", group, RANKS, look)
    written = ppsolve.load_instance(tmp_path / "graph-1.json")
    assert len(order_of(written)) <= len(written.nodes)


def test_measured_run_times_count_first(group: Any, tmp_path: Path) -> None:
    """A profile knows the gathers of 128 elements and one matmul, 5 and 7 ms each."""
    gather = {
        "Collective name": "_allgather_base",
        "Process Group Ranks": str([*range(RANKS)]),
    }
    sizes = {
        "In msg nelems": 128,
        "Out msg nelems": 1024,
        "dtype": "Float",
        "Group size": RANKS,
    }
    shapes = {"Input Dims": [[16, 32], [32, 32]], "Input Strides": [[32, 1], [1, 32]]}
    matmul = {"External id": 7, "Input type": ["float"] * 2, **shapes}
    events = [
        {"cat": "kernel", "dur": 5000, "args": gather | sizes},
        {
            "cat": "cpu_op",
            "name": "aten::mm",
            "args": {"External id": 7, "Input type": ["float"] * 2, **matmul},
        },
        {"cat": "kernel", "dur": 7000, "args": {"External id": 7}},
    ]
    profile = tmp_path / "trace.json"
    profile.write_text(json.dumps({"traceEvents": events}))

    def look(nodes: Sequence[Any]) -> None:
        found = [Estimates(str(profile)).measured(node) for node in nodes]
        assert found.count(5) == 3
        assert found.count(7) == 3
        times = [Estimates(str(profile))(node) for node in nodes]
        unknown = [place for place, time in enumerate(found) if time is None]
        assert [times[place] for place in unknown] == [
            run_time(nodes[place]) for place in unknown
        ]

    see("sharded step", group, RANKS, look)


@pytest.mark.parametrize("collectives", ["frozen", "free"])
def test_collectives_move_only_where_that_is_asked(
    group: Any, collectives: Any
) -> None:
    def look(nodes: Sequence[Any]) -> None:
        graph = CompiledGraph.of(nodes, collectives)
        instance = graph.instance(Estimates(), "seen", None)
        assert instance.collective_order == collectives
        names = {node.get_name(): node for node in nodes}
        order = [names[each] for each in order_of(instance)]
        assert graph.broken(order) is None
        moved = [node for node in order if graph._groups(node)]
        kept = [node for node in nodes if graph._groups(node)]
        assert collectives == "free" or moved == kept

    see("two micro-batches", group, RANKS, look)


@pytest.mark.parametrize("name", STEPS)
def test_compiled_steps_equal_eager_ones(group: Any, name: str) -> None:
    given = [each.requires_grad_() for each in arguments(name, RANKS)]

    def step(*each: Any) -> Any:
        return STEPS[name](group, *each)

    expected = step(*given)
    moved: list[bool] = []

    class Watched(OverlapPass):
        def __call__(self, nodes: Sequence[Any]) -> list[Any]:
            found = super().__call__(nodes)
            moved.append(found != list(nodes))
            return found

    with inductor([Watched()]):
        found = torch.compile(step, fullgraph=True)(*given)
    assert any(moved)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_five_lines_of_the_page(
    group: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "pytorch.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (program,) = (text for text in programs if "use_overlap_pass" in text)
    batch, *weights = arguments("sharded step", RANKS)

    def model(given: Any) -> Any:
        return STEPS["sharded step"](group, given, *weights)

    torch._dynamo.reset()
    names = {"model": model, "batch": batch}
    exec(compile(program, "pytorch.md", "exec"), names)
    torch._dynamo.reset()


def test_the_pass_is_used_inside_its_block_only() -> None:
    from torch._inductor import config

    before = config.reorder_for_compute_comm_overlap_passes
    with use_overlap_pass(time_limit=1.5) as used:
        assert config.reorder_for_compute_comm_overlap
        assert config.reorder_for_compute_comm_overlap_passes == [used]
        assert used.time_limit == 1.5
    assert config.reorder_for_compute_comm_overlap_passes == before
