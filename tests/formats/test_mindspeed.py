"""Policy files of MindSpeed: the order and layers of its answer become a schedule."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.mindspeed import convert_mindspeed

SHAPE = {"num_devices": 2, "num_microbatches": 3}
LAYERS = {"body": {"count": 6, "forward": 1, "backward": 2}}
ORDER = {
    "stage0": ["F0", "F1", "F2", "B0", "B1", "B2"],
    "stage1": ["F0", "B0", "F1", "B1", "F2", "B2"],
}


def answer(**fields):
    sizes = {"num_layers": 6, "pipeline_model_parallel_size": 2, "enable_scheduler": 1}
    return {**sizes, "pp_schedule_list": ORDER, "optimal_layers": [4, 2], **fields}


def policy(tmp_path, *answers):
    path = tmp_path / "policy.json"
    model = {"model_configs": {"hidden_size": 8}, "optimpipeline_policy": answers}
    path.write_text(json.dumps([model]))
    return path


def pipeline(**fields):
    return ppsolve.PipelineInstance.parse({**SHAPE, **fields})


def test_its_layers_and_order_count(tmp_path):
    """4 and 2 layers: forwards of 4 and 2, backwards of 8 and 4.

    Stage 0 runs forwards until 12 and waits for nothing: backwards 12 to 36, as stage 1 ends its
    own at 10, 16 and 22.
    """
    instance = pipeline(layers=LAYERS)
    entry = convert_mindspeed(policy(tmp_path, answer()), instance)
    assert (entry.name, entry.value, entry.reason) == ("mindspeed", 36, None)
    assert entry.layers == ({"keep": 4}, {"keep": 2})
    assert ppsolve.check(instance, json.loads(entry.model_dump_json())) == []


def test_the_answer_of_this_shape_is_taken_among_several(tmp_path):
    other = {"stage0": ["F0", "B0"], "stage1": ["F0", "B0"]}
    answers = answer(pp_schedule_list=other), answer(pp_schedule_list=None), answer()
    times = {"forward": [4, 2], "backward": [8, 4]}
    entry = convert_mindspeed(policy(tmp_path, *answers), pipeline(times=times))
    assert entry.value == 36


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimal_layers": [3, 2]}, "optimal_layers: expected 6 layers on 2 stages"),
        ({"pp_schedule_list": None}, "expected one answer with an order of 2 stages"),
        (
            {"pp_schedule_list": ORDER | {"stage0": ["F0", 3]}},
            r'stage0: expected ops such as "F0" and "B0", got',
        ),
        (
            {"pp_schedule_list": ORDER | {"stage0": ["B0", *ORDER["stage0"][:5]]}},
            "pp_schedule_list: twice: 0B0 is there 2 times",
        ),
    ],
)
def test_wrong_answers_are_refused(fields, words, tmp_path):
    with pytest.raises(InputError, match=words):
        convert_mindspeed(policy(tmp_path, answer(**fields)), pipeline(layers=LAYERS))


def test_the_command(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(json.dumps({"kind": "pipeline", **SHAPE, "layers": LAYERS}))
    line = ["convert", "mindspeed", str(policy(tmp_path, answer()))]
    done = CliRunner().invoke(build(), [*line, "--instance", str(path)])
    assert done.exit_code == 0, done.stderr
    assert "note: makespan 36" in done.stderr
    assert json.loads(done.stdout)["value"] == 36
