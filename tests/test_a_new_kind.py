"""A kind that is declared outside the package gets every command, without a change to any file."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import Result
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.base import Number
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.measures import Time
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import KINDS
from ppsolve.solver.cli.main import build
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.narrowing import Narrowing
from ppsolve.solver.run.task import Task
from ppsolve.solver.structure.timing import time_orders


class FlowShop(Instance):
    """Jobs that visit all machines in the same order; `times` are per job and machine."""

    schema_version: Literal[1] = 1
    kind: Literal["flow-shop"] = "flow-shop"
    name: str = "flow-shop"
    description: str | None = None
    time_unit: str = "s"
    times: Time[tuple[tuple[Number, ...], ...]]


def lower(instance: FlowShop, *, exact: bool = False) -> Problem:
    times = np.array([[Fraction(time) for time in job] for job in instance.times]).T
    scale = TimeScale.fit(times.ravel(), instance.time_unit, exact=exact)
    machine, job = np.indices(times.shape)
    builder = ProblemBuilder(instance.name, scale)
    resources = np.array(
        [builder.add_resource(DeviceName("machine", (m,))) for m in range(len(times))]
    )
    ops = builder.add_ops(
        "J",
        np.vectorize(scale.ticks)(times),
        resources[:, None, None],
        OpLabels(stage=machine, device=machine, microbatch=job),
    )
    builder.add_precedences(ops[:-1], ops[1:])
    builder.span_resources = resources
    return builder.build()


def johnson(request: Request) -> Proposal:
    first, second = request.problem.duration.reshape(2, -1)
    late = first >= second
    jobs = np.lexsort((np.where(late, -second, first), late))
    return Proposal(time_orders(request.problem, [jobs, jobs + len(first)]))


JOHNSON = Heuristic("johnson", "Johnson's rule", johnson, "a flow shop")
FLOW_SHOP = Kind("flow-shop", FlowShop, lower, (JOHNSON,))
DOCUMENT = {
    "kind": "flow-shop",
    "name": "two",
    "times": [[3, 6], [5, 2], [1, 2], [6, 6], [7, 5]],
}
BEST = 24
"""By Johnson's rule: jobs 2, 0, 3, 4, 1."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    monkeypatch.setitem(KINDS, FLOW_SHOP.name, FLOW_SHOP)
    monkeypatch.chdir(tmp_path)
    Path("two.json").write_text(json.dumps(DOCUMENT))

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(build(), arguments)
        assert done.exit_code == code, done.output
        return done.stdout

    return run


def test_a_new_kind(run: Callable[..., str]) -> None:
    run("optimize", "two.json", "-q", "-o", "found.json", "--time-limit", "20")
    found = json.loads(Path("found.json").read_text())
    assert (found["kind"], found["status"], found["value"]) == (
        "flow-shop",
        "OPTIMAL",
        BEST,
    )
    entries = {entry["name"]: entry["value"] for entry in found["heuristics"]}
    assert entries["johnson"] == BEST <= min(entries.values())
    assert "machine 1" in run("show", "two.json", "found.json")
    assert "a flow-shop instance" in run("show", "two.json")
    assert "no violations" in run("check", "two.json", "found.json")
    found["schedule"]["ops"][3]["start"] += 1
    Path("wrong.json").write_text(json.dumps(found))
    run("check", "two.json", "wrong.json", code=5)
    assert "johnson" in run("compare", "two.json", "--time-limit", "0")
    assert json.loads(run("schema", "flow-shop"))["title"] == "FlowShop"
    assert ppsolve.simulate(ppsolve.load_instance("two.json"), "johnson").value == BEST


class OneLine(Narrowing):
    is_finite = False

    def __init__(self, instance: FlowShop) -> None:
        self.instance = instance

    def task(self) -> Task:
        return FLOW_SHOP.task(self.instance)

    def fields(
        self, task: Task | None, result: Result, best: Result | None
    ) -> dict[str, Any]:
        return {"time_unit": f"{result.time_unit} of the line"}


class LineKind(Kind[FlowShop]):
    runtimes = ("line",)

    def for_runtime(
        self, instance: FlowShop, runtime: str, *, exact: bool
    ) -> Narrowing:
        return OneLine(instance)

    def with_files(self, data: dict[str, Any], folder: Path) -> dict[str, Any]:
        return data | {"times": json.loads((folder / data["times"]).read_text())}


def test_a_new_kind_says_for_itself_which_runtimes_and_files_it_has(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ppsolve.load_instance("two.json")
    with pytest.raises(
        InputError, match='runtime: expected a pipeline, got "flow-shop"'
    ):
        ppsolve.optimize(plain, time_limit=0, runtime="megatron")
    monkeypatch.setitem(
        KINDS, FLOW_SHOP.name, LineKind("flow-shop", FlowShop, lower, (JOHNSON,))
    )
    Path("times.json").write_text(json.dumps(DOCUMENT["times"]))
    Path("files.json").write_text(json.dumps(DOCUMENT | {"times": "times.json"}))
    instance = ppsolve.load_instance("files.json")
    result = ppsolve.optimize(instance, time_limit=0, runtime="line")
    assert (result.value, result.time_unit) == (BEST, "s of the line")
    graph = {"kind": "graph", "resources": ["a"], "ops": [{"id": "x", "duration": 1}]}
    with pytest.raises(InputError, match='runtime: expected a flow-shop, got "graph"'):
        ppsolve.optimize(ppsolve.parse_instance(graph), time_limit=0, runtime="line")
    with pytest.raises(InputError, match='unknown runtime "lime"; did you mean "line"'):
        ppsolve.optimize(plain, time_limit=0, runtime="lime")
