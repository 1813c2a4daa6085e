"""The comparison with PyJobShop: fixed instances, a file that is continued, an honest table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import compare

LIMIT = 20.0


def row(family: str, solver: str, seconds: float, *, proved: bool = True) -> dict[str, Any]:
    fields = {"name": "x", "limit": LIMIT, "value": 1.0, "valid": True}
    return {"family": family, "solver": solver, "seconds": seconds, "proved": proved, **fields}


def test_there_are_thirty_capped_instances_of_five_families() -> None:
    found = list(compare.instances())
    assert len(found) == 30
    assert len({family for family, _ in found}) == 5
    assert all(instance.memory is not None for _, instance in found)
    assert [family for family, _ in compare.instances("vshape")] == ["vshape"] * 6


def test_what_the_file_holds_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake(instance: Any, limit: float) -> dict[str, Any]:
        asked.append(instance.name)
        return {"proved": True, "seconds": limit, "value": 1.0, "valid": True}

    monkeypatch.setattr(compare, "SOLVERS", {"ppsolve": fake})
    path = tmp_path / "results.jsonl"
    compare.run(path, LIMIT, "vshape")
    compare.run(path, LIMIT, "vshape")
    assert len(asked) == len(compare.rows(path, LIMIT)) == 6
    assert compare.rows(path, 60.0) == []


def test_unproved_instances_count_with_the_limit() -> None:
    found = [
        row("vshape", "ppsolve", 2.0),
        row("vshape", "ppsolve", 5.0, proved=False),
        row("vshape", "pyjobshop", 20.0, proved=False),
        row("uneven", "ppsolve", 1.0),
    ]
    lines = list(compare.table(found, LIMIT))
    assert lines[2:] == ["| vshape | 2 | 1 | 0 | 11.00 | 20.00 | 0.55 |"]
    assert json.loads(json.dumps(found)) == found


def test_a_proof_of_a_relaxation_is_none() -> None:
    pytest.importorskip("pyjobshop")
    _, instance = next(compare.instances("vshape"))
    answer = compare.their_answer(instance, 20.0)
    assert not (answer["proved"] and not answer["valid"])
