"""A graph that the installed torch compiles now is the one that is kept, pass by pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.torch.drawn_programs import KEPT, SEEDS, drawn, torch_orders
from tests.paths import DATA, ROOT

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["fsdp-step", "moe-sharded-step"])
def test_a_dump_made_again_is_the_same(name: str, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "dump_inductor.py"
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(script),
        str(tmp_path),
        "--only",
        name,
    ]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    made, kept = (
        json.loads((folder / f"{name}.json").read_text())
        for folder in (tmp_path, DATA / "inductor")
    )
    for rule in ("frozen", "free"):
        assert len(made[rule]) >= 6
        for heuristic, found in made.pop(rule).items():
            assert found == kept[rule][heuristic], heuristic
    assert made.pop("torch")
    assert made.items() <= kept.items()


def test_the_scheduler_orders_random_graphs_as_is_kept(tmp_path: Path) -> None:
    made = tmp_path / "graphs.json"
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.formats.torch.drawn_graphs",
        str(made),
    ]
    subprocess.run(
        command, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    kept = DATA / "inductor" / "drawn" / "graphs.json"
    assert json.loads(made.read_text()) == json.loads(kept.read_text())


def test_passes_move_random_programs_as_is_kept() -> None:
    kept = json.loads(KEPT.read_text())
    for seed, one in zip(SEEDS, kept, strict=True):
        assert drawn(seed) == one["graph"]
        for rule, found in torch_orders(one["graph"]).items():
            assert found.items() <= one[rule].items()
