"""``ppsolve heuristics``: what each needs and is from, and which apply to an instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.cli.main import build
from ppsolve.solver.heuristics.heuristic import OURS

KNOWN = list(all_heuristics().values())
AN_INSTANCE = {
    "schema": 1,
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 1},
}


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(
        build(), ["heuristics", *arguments], env={"COLUMNS": "400"}
    )
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(AN_INSTANCE))
    return str(path)


def test_every_heuristic_declares_its_source() -> None:
    named = {one.name: one.source for one in KNOWN}
    assert named["zb-h1"] == "ZB-H1: Qi et al. 2024"
    assert named["sink-waits"] == "PyTorch Inductor: torch/_inductor/comms.py"
    assert (
        named["pinned-1f1b"] == "ppsolve, around PipeDream-Flush: Narayanan et al. 2021"
    )
    assert all(named.values())
    ours = {name for name, source in named.items() if source == OURS}
    assert ours == {
        "descending", "ascending", "permutations", "original",
        "list-tail", "list-work", "list-backward-first", "list-serial", "list-sweep",
        "order-search", "frontier-beam", "reload-in-time",
        *(name for name in named if name.startswith("two-stream-")),
    }  # fmt: skip


def test_all_are_listed_with_what_they_need() -> None:
    words = " ".join(run().split())
    assert all(f" {one.name} {' '.join(one.summary.split())}" in words for one in KNOWN)
    assert "needs bidirectional pipes from Chimera: Li and Hoefler 2021" in words


def test_json_lists_the_same() -> None:
    rows = json.loads(run("--json"))
    assert [row["name"] for row in rows] == [one.name for one in KNOWN]
    (chimera,) = (row for row in rows if row["name"] == "chimera")
    assert chimera == {
        "name": "chimera",
        "summary": "1F1B in both directions, merged on each device by earliest start",
        "made_for": "a pipeline",
        "needs": ["bidirectional pipes"],
        "source": "Chimera: Li and Hoefler 2021",
        "is_search": False,
    }


def test_an_instance_tells_which_apply_and_why_others_do_not(file: str) -> None:
    rows = {row["name"]: row for row in json.loads(run(file, "--json"))}
    assert rows["1f1b"]["applies"] is True
    assert rows["1f1b"]["reason"] is None
    assert rows["zb-h1"]["applies"] is False
    assert rows["zb-h1"]["reason"] == (
        "needs split backwards (backward_input and backward_weight)"
    )
    assert rows["pipefisher"]["reason"].startswith(
        "needs K-FAC work around a pinned pipeline"
    )
    able, others = run(file).split("do not apply")
    assert "list-tail" in able
    assert "needs split backwards (backward_input and backward_weight):\n" in others
    assert "zb-1p, zb-h1, zb-h2" in others


def test_what_applies_is_what_runs(file: str) -> None:
    rows = {row["name"]: row["applies"] for row in json.loads(run(file, "--json"))}
    result = ppsolve.optimize(ppsolve.load_instance(file), time_limit=0)
    for entry in result.heuristics:
        assert rows[entry.name] == (entry.status != "not_applicable")


def test_searches_do_not_apply_where_micro_batches_are_exchanged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({**AN_INSTANCE, "replicas": {"count": 2, "assignment": "free"}})
    )
    rows = {row["name"]: row["reason"] for row in json.loads(run(str(path), "--json"))}
    assert rows["list-sweep"] == "needs micro-batches that stay in their replicas"
    assert rows["list-tail"] is None


def test_names_in_upper_case_are_shown_as_they_are_listed(file: str) -> None:
    done = CliRunner().invoke(build(), ["simulate", file, "--heuristic", "ZB-H1"])
    assert done.exit_code == 2
    assert done.stderr == (
        "error: zb-h1 is not applicable: needs split backwards (backward_input and "
        "backward_weight)\n"
    )
    done = CliRunner().invoke(build(), ["simulate", file, "--heuristic", "1F1B", "-q"])
    assert done.stdout == "1f1b: feasible 6 us\n"


def test_an_instance_that_is_none_is_wrong_input(tmp_path: Path) -> None:
    done = CliRunner().invoke(build(), ["heuristics", str(tmp_path / "missing.json")])
    assert done.exit_code == 2
