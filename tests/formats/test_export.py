"""The command line: exit codes, notes, and files that are written whole or not at all."""

import json
import shutil
import tomllib
from itertools import accumulate

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from tests.formats.cases import FOLDED, TWO_RANKS, schedule
from tests.marks import first
from tests.paths import DATA

TINY = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 1},
}
SWAPPED = schedule("0F1 0F0 . 0B1 . 0B0", ". 1F1 1B1 1F0 1B0")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = {"tiny": TINY, "two": TWO_RANKS, "folded": FOLDED, "swapped": SWAPPED}
    for name, data in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(data))

    def invoke(*args):
        return CliRunner().invoke(build(), list(args))

    return invoke


def test_a_result_goes_to_a_file_and_comes_back(run, tmp_path):
    assert run("optimize", "tiny.json", "-o", "result.json").exit_code == 0
    for form in ("compute_only", "compute_comms"):
        done = run(
            "export",
            "result.json",
            "--to",
            "torch",
            "--format",
            form,
            "-o",
            "order.csv",
        )
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
        assert run("check", "tiny.json", "order.csv").exit_code == 0
        text = (tmp_path / "order.csv").read_text()
        done = run(
            "convert",
            "torch-csv",
            "order.csv",
            "--instance",
            "tiny.json",
            "-o",
            "entry.json",
        )
        assert (done.exit_code, done.stderr) == (
            0,
            "note: makespan 6 us, at most 0.00% above the optimum\n",
        )
        assert run("check", "tiny.json", "entry.json").exit_code == 0
        assert (
            run("export", "entry.json", "--to", "torch", "--format", form).stdout
            == text
        )


OPEN = {
    "modes": {
        "times": {"forward": 1, "backward": 2},
        "memory": {
            "activation": 1,
            "capacity": 1.5,
            "recompute": {
                "modes": [{"name": "mlp", "time": 1, "held": 0.5}],
                "decide": "stage",
            },
        },
    },
    "layers": {
        "layers": {
            "body": {"count": 4, "forward": 1, "backward": 2, "activation": 1},
            "recompute": [{"name": "full", "time": 1, "held": 0.5}],
        },
        "memory": {"capacity": 3},
    },
}


@pytest.mark.parametrize(
    ("choice", "assumed"),
    [("modes", "kept"), ("layers", "kept, layers as split evenly")],
)
def test_a_result_in_place_of_the_instance_says_what_it_chose(
    run, tmp_path, choice, assumed
):
    pipeline = {**TINY, "num_microbatches": 4, **OPEN[choice]}
    if choice == "layers":
        del pipeline["times"]
    (tmp_path / "open.json").write_text(json.dumps(pipeline))
    assert run("optimize", "open.json", "-t", "2", "-o", "result.json").exit_code == 0
    assert (
        run("export", "result.json", "--to", "torch", "-o", "order.csv").exit_code == 0
    )
    note = (
        f"note: a .csv names no {choice}: every activation is taken as {assumed}; a result in the "
        f"place of the instance names its {choice} (`ppsolve check RESULT FILE.csv`)\n"
    )
    done = run("check", "open.json", "order.csv")
    assert (done.exit_code, done.stderr) == (5, note)
    done = run("check", "result.json", "order.csv")
    assert (done.exit_code, done.stderr) == (0, "")

    convert = "convert", "torch-csv", "order.csv", "-o", "entry.json", "--instance"
    done = run(*convert, "open.json")
    assert "above the optimum" not in done.stderr
    assert ", infeasible: memory: device 0 holds " in done.stderr
    done = run(*convert, "result.json")
    assert done.stderr.endswith(f"% above the optimum with these {choice}\n")
    entry, result = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("entry", "result")
    )
    assert (entry[choice], entry["value"]) == (result[choice], result["value"])
    assert run("check", "open.json", "entry.json").exit_code == 0


def test_no_order_says_when_a_stage_recomputes(run, tmp_path):
    memory = {**OPEN["modes"]["memory"]}
    memory["recompute"] = {**memory["recompute"], "place": "anytime"}
    pipeline = {**TINY, "num_microbatches": 4, "memory": memory}
    (tmp_path / "open.json").write_text(json.dumps(pipeline))
    assert run("optimize", "open.json", "-t", "5", "-o", "result.json").exit_code == 0
    assert (
        run("export", "result.json", "--to", "torch", "-o", "order.csv").exit_code == 0
    )
    done = run("check", "result.json", "order.csv")
    assert done.exit_code == 2
    assert (
        "error: schedule: expected a schedule: an order does not say when"
        in done.stderr
    )


def test_check_names_the_rule(run, tmp_path):
    (tmp_path / "order.csv").write_text("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")
    done = run("check", "tiny.json", "order.csv", "--json")
    assert done.exit_code == 5
    assert [found["rule"] for found in json.loads(done.stdout)["violations"]] == [
        "missing"
    ]


def test_a_refusal_writes_nothing(run, tmp_path):
    done = run("export", "folded.json", "--to", "megatron", "-o", "flags.txt")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "error: folded.json: schedule: placement: Megatron-LM puts"
    )
    assert not (tmp_path / "flags.txt").exists()


def test_what_was_not_run_says_so(run):
    done = run("export", "two.json", "--to", "primus")
    assert done.stderr == "note: primus: not tested against the runtime\n"


def test_the_data_order_is_written(run, tmp_path):
    done = run("export", "swapped.json", "--to", "torch", "-o", "order.csv")
    assert done.exit_code == 2
    assert "data-order: 1F1 is forward number 0 of the last stage" in done.stderr
    done = run("export", "swapped.json", "--to", "torch", "--data-order", "data.json")
    assert done.stdout == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert (
        done.stderr
        == "note: micro-batches are renumbered: 0, 1, 2, ... of the file are 1, 0\n"
    )
    assert json.loads((tmp_path / "data.json").read_text()) == [1, 0]


def test_a_heuristic_of_a_result(run):
    run("optimize", "tiny.json", "-o", "result.json")
    done = run("export", "result.json", "--to", "torch", "--heuristic", "gpipe")
    assert done.stdout == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


def test_a_tight_pipeline_refuses_an_order(run, tmp_path):
    tight = {**TINY, "memory": {"capacity": 1, "activation": 1}}
    (tmp_path / "tight.json").write_text(json.dumps(tight))
    run("optimize", "tiny.json", "-o", "result.json")
    options = "--to", "torch", "--heuristic", "gpipe", "--instance", "tight.json"
    done = run("export", "result.json", *options)
    assert done.exit_code == 2
    assert "memory" in done.stderr


def make_plan(run, tmp_path, **model):
    """Write plan.json: four layers on two devices."""
    request = {
        "kind": "plan",
        "model": {
            "microbatch_sizes": [1],
            "layers": [{"count": 4, "forward": 10, "backward": 20}],
            **model,
        },
        "cluster": {
            "nodes": 1,
            "devices_per_node": 2,
            "memory": 1e9,
            "within_node": {"latency": 1, "bandwidth": 1000},
        },
        "goodput": {"init_batch_size": 4},
        "search": {"pipeline_depths": [2], "schedules": ["1f1b"]},
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    done = run("plan", "request.json", "-o", "plan.json")
    assert done.exit_code == 0, done.stderr


def test_a_plan_has_its_split(run, tmp_path):
    make_plan(run, tmp_path)
    done = run("export", "plan.json", "--to", "megatron")
    assert done.stdout.splitlines() == [
        "--pipeline-model-parallel-size 2",
        "--num-layers 4",
        '--pipeline-model-parallel-layout "Et*2|t*2L"',
        "--micro-batch-size 1",
        "--global-batch-size 4",
    ]
    for runtime in ("torch", "primus", "deepspeed", "json"):
        done = run("export", "plan.json", "--to", runtime, "-o", f"out.{runtime}")
        assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out.torch").read_text().startswith("0F0,")
    assert json.loads((tmp_path / "out.deepspeed").read_text())["parts"] == [0, 2, 4]
    assert json.loads((tmp_path / "out.json").read_text())["layers_per_stage"] == [2, 2]
    assert json.loads((tmp_path / "out.primus").read_text())["pp_size"] == 2


@pytest.mark.parametrize(
    "runtime", first(2, ["megatron", "json", "torchtitan", "deepspeed", "primus"])
)
def test_the_result_of_a_winner_is_exported_as_its_plan(run, tmp_path, runtime):
    make_plan(run, tmp_path)
    run(
        "plan",
        "request.json",
        "--result-out",
        "result.json",
        "--instance-out",
        "winner.json",
    )
    run("optimize", "winner.json", "-o", "again.json")
    run("simulate", "winner.json", "--heuristic", "1f1b", "-o", "entry.json")
    ways = (
        ("plan.json",),
        ("result.json",),
        ("again.json", "--heuristic", "1f1b"),
        ("entry.json", "--instance", "winner.json"),
    )
    texts = set()
    for way in ways:
        done = run("export", *way, "--to", runtime, "-o", "out.txt")
        assert done.exit_code == 0, done.stderr
        files = sorted(path for path in tmp_path.glob("out.*"))
        texts.add("".join(path.read_text() for path in files))
        assert ("2,2" in done.stderr) == (runtime == "primus")
    assert len(texts) == 1


def test_a_schedule_alone_tells_that_its_split_is_not_known(run, tmp_path):
    make_plan(run, tmp_path)
    run("plan", "request.json", "--instance-out", "winner.json")
    run("simulate", "winner.json", "--heuristic", "1f1b", "-o", "entry.json")
    done = run("export", "entry.json", "--to", "megatron")
    assert done.stdout == "--pipeline-model-parallel-size 2\n"
    assert (
        "note: megatron: the layers of each stage are not known; --layers says"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("ends", "options", "parts"),
    [
        ({"first": 1, "last": 1}, (), [0, 4, 7]),
        ({"last": 1}, (), [0, 3, 6]),
        ({}, (), [0, 3, 5]),
        ({"first": 1, "last": 1}, ("--model", "Et*5L"), [0, 4, 7]),
        ({}, ("--model", "Et*5L"), [0, 4, 7]),
    ],
)
def test_first_and_last_layers_are_entries_of_the_list_of_deepspeed(
    run, tmp_path, ends, options, parts
):
    """Five equal layers, three and two, between an embedding and a head where they are given."""
    times = {"forward": 1, "backward": 2}
    layers = {**dict.fromkeys(ends, times), "body": {"count": 5, **times}}
    pipeline = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "layers": layers,
    }
    (tmp_path / "pipeline.json").write_text(json.dumps(pipeline))
    run("simulate", "pipeline.json", "--heuristic", "1f1b", "-o", "entry.json")
    export = ("export", "entry.json", "--instance", "pipeline.json", "--to")
    assert json.loads(run(*export, "deepspeed", *options).stdout)["parts"] == parts
    done = run(*export, "megatron", *options)
    assert '--pipeline-model-parallel-layout "Et*3|t*2L"' in done.stdout


def test_the_parts_of_a_model_begin_with_its_embedding(run, tmp_path):
    """The split of 42 layers is 3 on each of 10 stages and 2 on each of 6."""
    shutil.copy(DATA / "stages" / "neox42.json", tmp_path)
    run("simulate", "neox42.json", "--heuristic", "1f1b", "-o", "entry.json")
    export = ("export", "entry.json", "--instance", "neox42.json", "--to", "deepspeed")
    stages = [4, *[3] * 9, *[2] * 5, 3]
    for options in ((), ("--model", "Et*42L")):
        parts = json.loads(run(*export, *options).stdout)["parts"]
        assert parts == [0, *accumulate(stages)]
    for model, words in (
        ("Et*10L", "expected the 44 layers of the split, got 12"),
        ("t*42", "expected E as the first layer"),
    ):
        done = run(*export, "--model", model)
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr


@pytest.mark.parametrize("runtime", ["deepspeed", "megatron"])
def test_a_model_of_other_layers_than_the_split_is_refused(run, tmp_path, runtime):
    (tmp_path / "layered.json").write_text(json.dumps(LAYERED))
    run("simulate", "layered.json", "--heuristic", "1f1b", "-o", "entry.json")
    export = ("export", "entry.json", "--instance", "layered.json", "--to", runtime)
    done = run(*export, "--model", "Et*9L")
    assert done.exit_code == 2
    assert "--model: expected the 7 layers of the split, got 11" in done.stderr


LAYERED = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 3,
    "layers": {
        "body": {"count": 5, "forward": 2, "backward": 4, "activation": 3},
        "recompute": [{"name": "full", "time": 2, "held": 1}],
    },
    "memory": {"capacity": 100},
}


def layered(run, tmp_path):
    (tmp_path / "layered.json").write_text(json.dumps(LAYERED))
    assert (
        run("optimize", "layered.json", "-t", "1", "-o", "result.json").exit_code == 0
    )
    return json.loads((tmp_path / "result.json").read_text())


def recomputing(tmp_path, name):
    """Write result.json: two of three layers of the first stage recompute, none of the second."""
    split = {"layers": [{"keep": 1, name: 2}, {"keep": 2}]}
    (tmp_path / "result.json").write_text(json.dumps({**TWO_RANKS, **split}))


def test_layers_that_a_result_chose_are_exported(run, tmp_path):
    result = layered(run, tmp_path)
    counts = [row["keep"] for row in result["layers"]]
    assert sum(counts) == 5
    done = run("export", "result.json", "--to", "json")
    assert json.loads(done.stdout)["layers_per_stage"] == counts
    done = run("export", "result.json", "--to", "torch")
    words = ",".join(map(str, counts))
    assert (
        done.stderr
        == f"note: torch: not in the file, set by hand: layers per stage {words}\n"
    )
    done = run("export", "result.json", "--to", "megatron", "--heuristic", "1f1b")
    assert "--num-layers 5" in done.stdout
    assert "recompute" not in done.stdout


def test_layers_that_recompute_are_exported(run, tmp_path):
    recomputing(tmp_path, "full")
    found = json.loads(run("export", "result.json", "--to", "primus").stdout)
    assert found["recompute_granularity"] == "full"
    assert found["recompute_layer_ids"] == "0,1"
    found = json.loads(run("export", "result.json", "--to", "json").stdout)
    assert [stage.get("full", 0) for stage in found["layer_modes"]] == [2, 0]
    assert found["layers_per_stage"] == [3, 2]
    done = run("export", "result.json", "--to", "torch")
    assert (
        "wrap what stages 0 (2 full) recompute in torch.utils.checkpoint" in done.stderr
    )
    done = run("export", "result.json", "--to", "megatron")
    assert (
        "--recompute: Megatron-LM recomputes as many layers of every stage"
        in done.stderr
    )
    done = run("export", "result.json", "--to", "deepspeed")
    assert done.exit_code == 2
    assert "which no file for deepspeed can say" in done.stderr


def test_layers_that_recompute_in_part_have_to_be_counted(run, tmp_path):
    recomputing(tmp_path, "attention")
    done = run("export", "result.json", "--to", "primus")
    assert done.exit_code == 2
    assert (
        "--recompute: expected the layers of each stage that are recomputed"
        in done.stderr
    )


@pytest.mark.parametrize("given", [(), ("--recompute", "2,0")])
def test_modules_that_recompute_are_no_whole_layers(run, tmp_path, given):
    recomputing(tmp_path, "mlp")
    done = run("export", "result.json", "--to", "primus", *given)
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        "modes: primus recomputes whole layers, not what stages 0 (2 mlp) do"
        in done.stderr
    )


@pytest.mark.parametrize("layers", [[1, 2], 3, [{"keep": "x"}, {}], [{"keep": 5}]])
def test_odd_splits_are_refused(run, tmp_path, layers):
    result = layered(run, tmp_path)
    for entry in (result, *result["heuristics"]):
        entry["layers"] = layers
    (tmp_path / "result.json").write_text(json.dumps(result))
    for options in ((), ("--heuristic", "1f1b")):
        done = run("export", "result.json", "--to", "megatron", *options)
        assert done.exit_code == 2
        assert "error: result.json: layers: expected " in done.stderr
    del result["instance_document"]
    result["layers"] = [{"keep": "x"}]
    (tmp_path / "result.json").write_text(json.dumps(result))
    done = run("export", "result.json", "--to", "torch")
    assert (
        "layers: expected the numbers of layers of each stage, got a list of 1"
        in done.stderr
    )


def test_a_full_plan_recomputes_every_layer(run, tmp_path):
    make_plan(run, tmp_path, recompute="full")
    done = run("export", "plan.json", "--to", "megatron")
    assert "--recompute-method block\n--recompute-num-layers 2\n" in done.stdout
    done = run("export", "plan.json", "--to", "primus")
    assert json.loads(done.stdout)["recompute_layer_ids"] == "0,1,2,3"


def test_other_layers_than_those_of_the_plan_are_refused(run, tmp_path):
    make_plan(run, tmp_path)
    assert (
        run("export", "plan.json", "--to", "megatron", "--layers", "2,2").exit_code == 0
    )
    done = run("export", "plan.json", "--to", "megatron", "--layers", "3,1")
    assert done.exit_code == 2
    assert done.stderr == "error: --layers: expected the split of the schedule, 2,2\n"


def test_a_plan_without_its_choices_is_refused(run, tmp_path):
    make_plan(run, tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    del plan["instance"]["plan"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = run("export", "plan.json", "--to", "megatron")
    assert done.exit_code == 2
    assert "plan.json: instance.plan: expected the choices of the plan" in done.stderr


def test_a_plan_sets_up_torchtitan(run, tmp_path):
    make_plan(run, tmp_path)
    done = run("export", "plan.json", "--to", "torchtitan", "-o", "run.py")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "run.py").read_text()
    assert '    ["tok_embeddings", "layers.0", "layers.1"],\n' in text
    assert '"PipelineScheduleMulti"' in text
    old = tomllib.loads((tmp_path / "run.toml").read_text())
    assert old["training"]["local_batch_size"] == 4
    assert len((tmp_path / "run.csv").read_text().splitlines()) == 2


def test_layers_are_recomputed(run):
    given = "export", "two.json", "--to", "megatron", "--layers", "3,1", "--recompute"
    done = run(*given, "2,1")
    assert done.exit_code == 0, done.stderr
    assert "--recompute-num-layers 2" in done.stdout.splitlines()
    done = run(*given, "2,x")
    assert done.exit_code == 2
    assert (
        "error: --recompute: expected a number of layers for each stage" in done.stderr
    )
    done = run("export", "two.json", "--to", "perfetto", "--recompute", "1,1")
    assert done.exit_code == 2
    assert "--recompute" in done.stderr


def test_modules_are_offloaded_as_the_modes_say(run, tmp_path):
    offload = {"amount": 1, "out": 1, "back": 1, "decide": ["offload"] * 2}
    memory = {"capacity": 4, "activation": 1, "offload": offload}
    tiny = {**TINY, "times": {"forward": 2, "backward": 2}, "memory": memory}
    (tmp_path / "moved.json").write_text(json.dumps(tiny))
    assert run("optimize", "moved.json", "-o", "result.json").exit_code == 0
    given = "--heuristic", "1f1b", "--offload-modules", "core_attn,moe_act"
    done = run("export", "result.json", "--to", "megatron", *given)
    assert (done.exit_code, done.stdout.splitlines()[2]) == (
        0,
        "--offload-modules core_attn moe_act",
    )
    assert "note: megatron: copies out as soon as it can" in done.stderr
    done = run("export", "result.json", "--to", "primus", *given)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: --offload-modules: expected --to megatron" in done.stderr


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected a result or a plan (an object), got a list of 0"),
        ({}, "schedule: expected the schedule of a pipeline, there is none"),
        (
            {"schedule": {"ops": []}},
            "expected ops of a pipeline (F, B, I, W), there are none",
        ),
        ({"schedule": {"ops": [3]}}, "schedule.ops[0]: expected an object, got 3"),
        ({"orders": [["0F0", "0SEND_F0"]]}, "orders[0][1]: expected a compute action"),
        ({"orders": [[7]]}, "orders[0][0]: expected a compute action, got 7"),
        ({"orders": []}, "orders: expected the actions of each rank, there are none"),
        ({"orders": [[]]}, "placement: rank 0 has no op"),
        ({"kind": "plan-result", "status": "INFEASIBLE"}, "the plan has no winner"),
        ({"schedule": None, "reason": "no room"}, "there is none: no room"),
    ],
)
def test_other_documents_are_refused(run, tmp_path, data, message):
    (tmp_path / "odd.json").write_text(json.dumps(data))
    done = run("export", "odd.json", "--to", "torch", "-o", "order.csv")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: odd.json: ")
    assert message in done.stderr
    assert not (tmp_path / "order.csv").exists()


ODD_NUMBERS = [None, "x", [1], True, -1]
ODD_OPS = [
    *(
        (field, value)
        for field in ("stage", "device", "microbatch")
        for value in ODD_NUMBERS
    ),
    *((field, value) for field in ("start", "end") for value in ODD_NUMBERS[:-1]),
    ("device", 10**12),
    ("stage", 10**12),
    ("microbatch", 10**12),
]


@pytest.mark.parametrize(("field", "value"), ODD_OPS)
def test_odd_ops_are_refused(run, tmp_path, field, value):
    ops = [dict(op) for op in TWO_RANKS["schedule"]["ops"]]
    ops[0][field] = value
    (tmp_path / "odd.json").write_text(json.dumps({"schedule": {"ops": ops}}))
    done = run("export", "odd.json", "--to", "torch", "-o", "order.csv")
    assert done.exit_code == 2, done.stdout
    assert done.stderr.startswith("error: odd.json: schedule")
    assert not (tmp_path / "order.csv").exists()


def test_one_file_is_standard_input(run):
    for command in (
        ("export", "-", "--to", "torch", "--instance", "-"),
        ("convert", "torch-csv", "-", "--instance", "-"),
    ):
        done = run(*command)
        assert done.exit_code == 2
        assert "only one of the two files can be standard input" in done.stderr


@pytest.mark.parametrize("runtime", ["torch", "deepspeed", "json"])
def test_layers_are_of_every_stage(run, tmp_path, runtime):
    done = run(
        "export", "two.json", "--to", runtime, "--layers", "1,2,3", "-o", "order.csv"
    )
    assert done.exit_code == 2
    assert (
        done.stderr
        == "error: --layers: expected the layers of 2 stages, got 3 numbers\n"
    )
    assert not (tmp_path / "order.csv").exists()


@pytest.mark.parametrize("runtime", ["torch", "torchtitan", "megatron"])
def test_a_model_that_is_none_is_refused_without_layers_too(run, runtime):
    done = run("export", "two.json", "--to", runtime, "--model", "Exx")
    assert done.exit_code == 2
    assert "--model: expected layers E, t, m or L in stage 0" in done.stderr


def test_a_broken_instance_in_a_result_is_named_with_the_file(run, tmp_path):
    broken = {
        **TWO_RANKS,
        "kind": "pipeline",
        "instance_document": TINY | {"num_devices": "x"},
    }
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    done = run("export", "broken.json", "--to", "torch")
    assert done.exit_code == 2
    assert (
        "error: broken.json: instance_document.num_devices: expected a whole"
        in done.stderr
    )
