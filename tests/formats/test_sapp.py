"""SAPP's layers and answers: its simulated steps and memory come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api import api
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.sapp import convert_sapp, sapp_answer
from tests.paths import DATA

FOLDER = DATA / "recompute"
PREFIX = {
    "select": ("select_rec", "memory_select_rec"),
    "comm": ("select_comm", "memory_select_comm"),
    "both": ("both_comm_select", "memory_both_comm_select"),
    "full": ("recompute", "memory_recompute"),
}
LISTS = {
    "recompute": ("full",),
    "select_recompute": ("select", "both", "full"),
    "select_comm_recompute": ("comm", "both", "full"),
}


def case(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def table(found: dict[str, Any]) -> dict[str, Any]:
    """Return the layers of a case as SAPP's own files say them."""
    rows = []
    for part, kind in (("head", "HEAD"), ("body", "BODY"), ("tail", "TAIL")):
        layer = found["layers"][part]
        row = {
            "name": part,
            "type": kind,
            "time": layer["forward"],
            "nb_layer": layer.get("count", 1),
            "memory_parameter": layer["parameter"],
        }
        for name, mode in layer.get("types", {}).items():
            if name == "none":
                row["memory_activation"] = mode["activation"]
            else:
                time, memory = PREFIX[name]
                row[memory] = mode["activation"]
                row[f"{time}_coef"] = mode["backward"] / (2 * layer["forward"]) - 1
        rows.append(row)
    return {"name": found["name"], "layers_description": rows}


def lists(found: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as SAPP prints it."""
    types = run["layers_per_stage"]
    even = found["layers"]["body"]["count"] // (found["num_stages"] * found["chunks"])
    chunks, stages = range(found["chunks"]), range(found["num_stages"])

    def summed(names: Any, minus: int = 0) -> list[list[int]]:
        return [
            [sum(types[n][c][s] for n in names if n in types) - minus for s in stages]
            for c in chunks
        ]

    recompute = {name: summed(of) for name, of in LISTS.items()}
    return {"offset": summed(types, even), **recompute}


def answered(name: str, tmp_path: Any, index: int) -> tuple[Any, Any, dict[str, Any]]:
    found = case(name)
    run = [run for run in found["runs"] if "layers_per_stage" in run][index]
    layers, answer = tmp_path / "layers.json", tmp_path / "answer.json"
    layers.write_text(json.dumps(table(found)))
    answer.write_text(json.dumps(lists(found, run)))
    shape = found["num_stages"], found["num_microbatches"], run["memory_limit"]
    instance, warnings = convert_sapp(layers, *shape, found["chunks"])
    assert '"time" is taken for a forward' in warnings[0]
    less = found["schedule"] == "interleaved_less_memory"
    return instance, sapp_answer(answer, instance, less_memory=less), run


@pytest.mark.parametrize(
    "name",
    [
        "sapp_test_p8_m32_v1",
        "sapp_test_p16_m16_v1",
        "sapp_sim_p16_m16_v1",
        "sapp_test_p16_m16_v2",
        "sapp_seq_p8_m32_v1",
    ],
)
def test_answers_take_the_step_and_memory_of_sapps_simulator(name, tmp_path):
    _, entry, run = answered(name, tmp_path, 0)
    assert entry.reason is None
    assert float(entry.value) == pytest.approx(run["simulated"]["step_time"], abs=1e-4)
    assert entry.layers is not None
    held = [*entry.peak_memory.values()]
    assert held == pytest.approx(run["simulated"]["peak_memory"], abs=1)


def test_the_command_writes_both(tmp_path):
    found = case("sapp_test_p8_m32_v1")
    run = found["runs"][1]
    paths = [tmp_path / name for name in ("l.json", "a.yaml", "i.json", "e.json")]
    paths[0].write_text(json.dumps(table(found)))
    settings = lists(found, run)
    offset = settings.pop("offset")
    wrapped = {
        "model": {"model_config": {"offset": offset}},
        "recompute_config": settings,
    }
    paths[1].write_text(json.dumps(wrapped))
    options = ["--stages", "8", "--microbatches", "32", "--memory", "32000"]
    options += ["--answer", str(paths[1]), "--result-out", str(paths[3])]
    line = ["convert", "sapp", str(paths[0]), *options, "-o", str(paths[2])]
    done = CliRunner().invoke(build(), line)
    assert done.exit_code == 0, done.stderr
    assert "note: makespan 320850 ms" in done.stderr
    shown = CliRunner().invoke(build(), ["check", str(paths[2]), str(paths[3])])
    assert shown.exit_code == 0


BODY = {"type": "BODY", "nb_layer": 8, "time": 10, "memory_activation": 5}


def converted(tmp_path, *rows):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"layers_description": rows}))
    return convert_sapp(path, 4, 8, 1000)[0]


def test_heads_add_up_and_times_of_types_may_be_given(tmp_path):
    heads = [{"type": "HEAD", "forward_time": 2, "backward_time": n} for n in (3, 4)]
    body = BODY | {"memory_recompute": 1, "recompute_time ": 32, "forward_time": 11}
    layers = converted(tmp_path, *heads, body).layers
    assert (layers.first.forward, layers.first.backward) == (4, 7)
    assert (layers.body.forward, layers.body.backward) == (11, 22)
    assert [(mode.name, mode.time) for mode in layers.recompute] == [("full", 10)]


def test_the_checker_takes_an_answer_as_a_schedule_of_the_instance(tmp_path):
    """3, 2, 2 and 1 layers of 10 and 20: the first stage works 8 x 90."""
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"offset": [1, 0, 0, -1]}))
    instance = converted(tmp_path, BODY)
    entry = sapp_answer(path, instance)
    assert entry.layers == ({"keep": 3}, {"keep": 2}, {"keep": 2}, {"keep": 1})
    assert entry.value >= 8 * 90
    assert api.check(instance, json.loads(entry.model_dump_json())) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"type": "BODY", "nb_layer": 8}], 'expected "forward_time" or "time"'),
        ([BODY, BODY], "expected one kind of layer of type BODY"),
        ([BODY | {"type": "NECK"}], r"layers_description\[0\].type: input should be"),
        ([3], "expected the layers of SAPP, a list of objects"),
    ],
)
def test_wrong_layers_are_refused(rows, words, tmp_path):
    with pytest.raises(InputError, match=words):
        converted(tmp_path, *rows)


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"recompute": 0}, "offset: this field is required"),
        ({"offset": [0, 0]}, "offset: expected a whole number for each of 4 stages"),
        ({"offset": [0, 0, 0, 1]}, "offset: expected 8 layers in all, got 9"),
        ({"offset": [2, 0, 0, -2]}, "expected a layer on stage 3"),
        ({"offset": 0, "recompute": [3, 0, 0, 0]}, "no more recomputed than there are"),
        ({"offset": 0, "recompute": True}, "no type full, stage 0 has"),
        ([], "expected an object, got"),
    ],
)
def test_wrong_answers_are_refused(lists, words, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(lists))
    with pytest.raises(InputError, match=words):
        sapp_answer(path, converted(tmp_path, BODY))
