"""Pages on instances and heuristics: what they show is what the program takes and has."""

import json
import re

import pytest
import tables

from ppsolve.models.kinds.pipeline.collectives import Collectives
from ppsolve.models.kinds.pipeline.fields import P2P, Memory, Times
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import parse_instance
from ppsolve.solver.api.registry import all_heuristics
from tests.paths import ROOT

INSTANCES, KFAC, HEURISTICS = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("instances", "kfac", "heuristics")
)
DOCUMENTS = [
    json.loads(block)
    for block in re.findall(r"```json\n(.*?)```", INSTANCES + KFAC, re.DOTALL)
]


def test_every_instance_is_one():
    kinds = [parse_instance(data).kind for data in DOCUMENTS if "kind" in data]
    assert {"pipeline", "kfac"} <= set(kinds)


def test_every_way_to_transfer_is_shown_as_json_of_a_pipeline():
    base = next(data for data in DOCUMENTS if data.get("kind") == "pipeline")
    shown = [json.loads(text) for text in re.findall(r'`(\{"mode": .*?\})`', INSTANCES)]
    pipelines = [parse_instance(base | {"p2p": p2p}) for p2p in shown]
    modes = [pipeline.p2p.mode for pipeline in pipelines]
    assert modes == ["delay", "link", "nic", "send_queue", "rendezvous"]


@pytest.mark.parametrize("name", tables.PAGES)
def test_tables_are_those_of_the_program(name: str):
    kept = (tables.FOLDER / name).read_text(encoding="utf-8")
    assert kept == tables.PAGES[name](), "run python docs/making/tables.py"


def test_every_heuristic_is_in_the_table():
    rows = re.findall(r"^\| `([\w-]+)` \|", tables.heuristics_page(), re.MULTILINE)
    assert rows == list(all_heuristics())
    assert f"all {len(all_heuristics())}" in HEURISTICS


def test_the_cheat_sheet_has_every_field_of_a_pipeline():
    sheet = (ROOT / "docs" / "cheat-sheet.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w.]+)`", sheet)
    shown = {name.rpartition(".")[2] for name in names}
    fields = set(PipelineInstance.model_fields)
    for part in (Times, P2P, Memory, Collectives):
        fields |= set(part.model_fields)
    fields = {"schema" if name == "schema_version" else name for name in fields}
    assert sorted(fields - shown) == []
