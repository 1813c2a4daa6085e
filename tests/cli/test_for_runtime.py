"""``ppsolve optimize --for``: from an instance to the flags of a runtime."""

import json

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build

EQUAL = {
    "kind": "pipeline",
    "name": "equal",
    "num_devices": 2,
    "num_microbatches": 4,
    "placement": "interleaved",
    "stages_per_device": 2,
    "times": {"forward": 2, "backward_input": 2, "backward_weight": 2},
}
TIGHT = EQUAL | {"memory": {"capacity": 1, "activation": 1}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "equal.json").write_text(json.dumps(EQUAL))
    (tmp_path / "tight.json").write_text(json.dumps(TIGHT))
    return lambda *args: CliRunner().invoke(build(), list(args))


def test_from_an_instance_to_flags(run, tmp_path):
    assert (
        run("optimize", "equal.json", "--for", "megatron", "-o", "best.json").exit_code
        == 0
    )
    found = json.loads((tmp_path / "best.json").read_text())
    size = found["runtime"]["settings"]["group_size"]
    assert found["best_by"] == found["runtime"]["order"] == f"groups of {size}"
    for command in (("check", "best.json"), ("check", "--bound", "best.json")):
        assert run(*command).exit_code == 0
    flags = run("export", "best.json", "--to", "megatron").stdout
    assert f"--microbatch-group-size-per-virtual-pipeline-stage {size}\n" in flags
    page = run("report", "best.json", "-o", "page.html")
    assert page.exit_code == 0


def test_the_report_says_what_the_rules_cost(run):
    done = run("optimize", "equal.json", "--for", "megatron")
    words = " ".join(done.stdout.split())
    assert "runtime megatron, groups of" in words
    assert "(2 timed)" in words
    assert "; the rules of megatron cost " in words
    assert (
        "bottleneck none of the orders that Megatron-LM runs (2 timed) is shorter"
        in words
    )
    assert "runtime torch, any order" in " ".join(
        run("optimize", "equal.json", "--for", "torch").stdout.split()
    )


def test_nothing_fits(run, tmp_path):
    done = run(
        "optimize", "tight.json", "--for", "megatron", "-t", "2", "-o", "none.json"
    )
    assert done.exit_code == 3
    found = json.loads((tmp_path / "none.json").read_text())
    assert found["status"] == "INFEASIBLE"
    assert "device 0 holds" in found["reason"]
    shown = run("optimize", "tight.json", "--for", "megatron", "-t", "2")
    assert "megatron, no order fits (2 timed)" in " ".join(shown.stdout.split())
    refused = run("export", "none.json", "--to", "megatron")
    assert refused.exit_code == 2
    assert "there is none: none of the orders that Megatron-LM runs" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--for", "megatorn"),
            'error: --for: unknown runtime "megatorn"; did you mean "megatron"',
        ),
        (
            ("--for", "deepspeed"),
            "equal.json: --for: placement: DeepSpeed has one stage per rank",
        ),
        (
            ("--for", "megatron", "--robust", "0.1"),
            "--robust: expected none: Megatron-LM runs few",
        ),
    ],
)
def test_refusals(run, arguments, words):
    done = run("optimize", "equal.json", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
