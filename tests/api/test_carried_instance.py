"""A result carries its instance, so that its file is enough for whoever reads it."""

import json

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import fingerprint
from ppsolve.solver.api.kinds import instance_in, parse_instance
from ppsolve.solver.run import solve_run
from tests.paths import ROOT

PIPELINE = ppsolve.PipelineInstance(
    name="three",
    num_devices=2,
    num_microbatches=3,
    times={"forward": 1.5, "backward": [2, 3]},
)


def written(result):
    return json.loads(result.model_dump_json())


def test_the_carried_instance_asks_the_same_question_under_the_same_name():
    carried = instance_in(written(ppsolve.optimize(PIPELINE, time_limit=0)))
    assert (carried.name, fingerprint(carried)) == ("three", fingerprint(PIPELINE))


@pytest.mark.parametrize("folder", ["kfac", "overlap", "step_end", "p2p_heavy"])
def test_every_kind_is_carried(folder):
    path = min(
        (ROOT / "instances" / folder).rglob("*.json"),
        key=lambda file: file.stat().st_size,
    )
    instance = ppsolve.load_instance(path)
    carried = instance_in(written(ppsolve.optimize(instance, time_limit=0)))
    assert fingerprint(carried) == fingerprint(instance)


def test_a_result_without_its_instance_is_told_what_is_missing():
    data = written(ppsolve.optimize(PIPELINE, time_limit=0)) | {
        "instance_document": None
    }
    with pytest.raises(
        InputError, match=r"old\.json: instance_document: this result carries no"
    ):
        instance_in(data, "old.json")


def test_an_instance_is_no_result():
    with pytest.raises(InputError, match="expected a result"):
        instance_in({"kind": "pipeline"}, "x.json")


def test_a_broken_carried_instance_is_named():
    data = written(ppsolve.optimize(PIPELINE, time_limit=0))
    data["instance_document"]["num_devices"] = 0
    with pytest.raises(InputError, match=r"r\.json: instance_document: num_devices"):
        instance_in(data, "r.json")
    assert parse_instance(
        written(ppsolve.optimize(PIPELINE, time_limit=0))["instance_document"]
    )


def test_the_carried_instance_is_made_when_it_is_first_read(monkeypatch):
    dumped = []
    monkeypatch.setattr(
        solve_run, "instance_data", lambda instance: dumped.append(1) or {"name": "x"}
    )
    result = ppsolve.optimize(PIPELINE, time_limit=0)
    assert dumped == []
    assert (result.instance_document, result.instance_document, dumped) == (
        {"name": "x"},
        {"name": "x"},
        [1],
    )
