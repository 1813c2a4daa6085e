"""The hook of the page: ranges around Megatron-LM's calls that say stage and micro-batch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ppsolve.solver.formats.detect import read_trace
from tests.docs.snippets import snippets_of
from tests.formats.test_kineto_calls import order, starts
from tests.paths import ROOT
from tests.studies.traces.cases import profile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Megatron:
    """Stands in for the functions that the hook calls or replaces, one rank at a time."""

    def __init__(self, ranks: int) -> None:
        self.rank = 0
        self.schedules: Any = ModuleType("megatron.core.pipeline_parallel.schedules")
        self.schedules.forward_step = self._forward_step
        self.schedules.backward_step = self._backward_step
        self.parallel_state = SimpleNamespace(
            get_pipeline_model_parallel_rank=lambda: self.rank,
            get_pipeline_model_parallel_world_size=lambda: ranks,
        )
        self.kept: dict[tuple[int, int], Any] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        core = SimpleNamespace(parallel_state=self.parallel_state)
        pipeline = SimpleNamespace(schedules=self.schedules)
        for name, module in (
            ("megatron", SimpleNamespace(core=core)),
            ("megatron.core", core),
            ("megatron.core.pipeline_parallel", pipeline),
        ):
            monkeypatch.setitem(sys.modules, name, module)

    def _forward_step(self, model: Any, **given: int) -> Any:
        return [model(torch.zeros(2, 2))], len(given)

    def _backward_step(self, input_tensor: Any, output_tensor: Any, grad: Any) -> Any:
        output_tensor[0].sum().backward()
        return input_tensor, grad

    def call(self, op: tuple[str, int, int], ranks: int, chunks: int) -> None:
        """Run one op as Megatron's schedules do: both functions are looked up in the module."""
        kind, stage, number = op
        self.rank = stage % ranks
        if kind == "F":
            chunk = {"vp_stage": stage // ranks} if chunks > 1 else {}
            model = torch.nn.Linear(2, 2)
            done = self.schedules.forward_step(
                model, current_microbatch=number, **chunk
            )
            self.kept[stage, number] = done[0]
        else:
            self.schedules.backward_step(None, self.kept.pop((stage, number)), None)


@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), [(3, 1, 4), (2, 2, 4)])
def test_the_hook_names_what_the_reader_reads(
    tmp_path, monkeypatch, ranks, chunks, microbatches
):
    megatron = Megatron(ranks)
    megatron.install(monkeypatch)
    page = (ROOT / "docs" / "how-to" / "trace.md").read_text()
    (hook,) = (one.text for one in snippets_of(page) if "import schedules" in one.text)
    exec(compile(hook, "trace.md", "exec"), {})
    orders = [order(rank, ranks, chunks, microbatches, ranks) for rank in range(ranks)]
    begun = starts(orders, ranks * chunks)
    with torch.profiler.profile() as profiler:
        for op in sorted(begun, key=lambda op: begun[op]):
            megatron.call(op, ranks, chunks)
    profiler.export_chrome_trace(str(tmp_path / "all.json"))
    files = split(
        tmp_path, json.loads((tmp_path / "all.json").read_text())["traceEvents"], ranks
    )
    trace = read_trace(files)
    assert len(trace) == len(begun)
    assert trace.device.tolist() == (trace.stage % ranks).tolist()
    assert set(trace.microbatch.tolist()) == set(range(microbatches))
    assert not any("k-th" in text for text in trace.notes.warnings)


def split(folder: Path, events: list[dict[str, Any]], ranks: int) -> list[Path]:
    """Write the file of each rank, of one process that has run the ops of all."""
    named = [one for one in events if str(one.get("name")).startswith("PP:")]
    return [
        profile(
            folder / f"rank-{rank}.json",
            rank,
            [one for one in named if int(one["name"][3]) % ranks == rank],
        )
        for rank in range(ranks)
    ]
