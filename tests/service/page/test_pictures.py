"""Pictures of the page hold what the library says, without a service."""

from __future__ import annotations

import json

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.service.pictures import picture_of
from ppsolve.solver.service.runtime_files import NAMES, runtime_files
from tests.paths import ROOT
from tests.views.page.cases import pipeline

PAGE = ROOT / "solver/service/page"
TIMES = {"forward": 10, "backward_input": 12, "backward_weight": 8}
MEMORY = {"capacity": 2, "activation": 1}
FULL = {"name": "full", "time": 10, "held": 0.1}


def test_rows_and_charts_are_those_of_simulate():
    instance = pipeline(times=TIMES, memory=MEMORY)
    answer = picture_of(instance, ["1f1b", "zb-h2", "zbv"], "all")
    known = ppsolve.quick(instance)
    assert (answer["value"], answer["bound"]) == (known.value, known.bound)
    assert answer["published"] == known.published
    rows = {row["name"]: row for row in answer["heuristics"]}
    for name, makespan in known.published.items():
        entry = ppsolve.simulate(instance, name)
        assert rows[name]["makespan"] == entry.makespan
        assert (rows[name]["status"] == "feasible") == (makespan is not None)
    assert rows["zbv"]["status"] == "not_applicable"
    assert answer["chart"]["titles"] == ["1f1b", "zb-h2"]
    shown = answer["chart"]["shown"][0]
    assert shown["makespan"] * shown["tick"] == ppsolve.simulate(instance, "1f1b").value
    assert shown["bound"] == known.bound


@pytest.mark.parametrize(
    "open_parts",
    [
        {"memory": MEMORY | {"recompute": {"modes": [FULL]}}, "times": TIMES},
        {"placement": "bidirectional", "num_microbatches": 4, "times": TIMES},
    ],
)
def test_pipelines_that_quick_refuses_have_rows_and_a_bound(open_parts):
    instance = pipeline(**open_parts)
    answer = picture_of(instance, ["1f1b"], "all")
    assert answer["published"] is None
    best = min(row["makespan"] or 1e9 for row in answer["heuristics"])
    assert 0 < answer["bound"] <= ppsolve.optimize(instance, time_limit=5).value <= best
    assert picture_of(instance, ["1f1b"], [])["bound"] is None


def test_the_schedule_of_a_result_is_drawn_on_the_instance_of_the_question():
    instance = pipeline(times=TIMES, memory=MEMORY)
    result = ppsolve.optimize(instance, time_limit=5)
    document = json.loads(result.model_dump_json())
    chart = picture_of(instance, [document], [])["chart"]
    assert chart["titles"] == [result.best_by]
    assert chart["shown"][0]["makespan"] * chart["shown"][0]["tick"] == result.value
    with pytest.raises(InputError, match="not a whole schedule"):
        picture_of(pipeline(times=TIMES, num_microbatches=5), [document], [])


def test_searches_are_refused():
    with pytest.raises(InputError, match="does not search"):
        picture_of(pipeline(), [], ["order-search"])


@pytest.mark.parametrize("runtime", ["torch", "torchtitan", "megatron", "primus"])
def test_files_of_runtimes_are_named(runtime):
    answer = runtime_files(pipeline(), "1f1b", runtime)
    assert next(iter(answer["files"])) == NAMES[runtime]
    assert all(answer["files"].values())


def test_presets_are_shipped_instances():
    presets = json.loads((PAGE / "presets.json").read_text(encoding="utf-8"))
    for preset in presets:
        text = (ROOT / preset["file"]).read_text(encoding="utf-8")
        assert preset["instance"] == json.loads(text), preset["title"]


def test_modules_of_the_page_are_short_and_hold_no_address():
    modules = sorted(PAGE.glob("*.js"))
    assert len(modules) > 10
    for module in modules:
        lines = module.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 300, module.name
        assert all(len(line) <= 120 for line in lines), module.name
        assert not any("https://" in line for line in lines), module.name
