"""Two small files of results, whose figures the tests work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ppsolve.models.studies.bench.file import BenchRecord, Records, write_records
from tests.studies.bench.records import record

FULL = "memory: device 0 holds 4 of 3 at 30 us (too much from 20 us to 60 us)"


def heuristic(name: str, value: float | None = None, **changes: Any) -> dict[str, Any]:
    status = "feasible" if value is not None else "not_applicable"
    return {"name": name, "status": status, "value": value, **changes}


def bounds(**values: float) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def peer(value: float, bound: float, status: str) -> list[dict[str, Any]]:
    return [
        {
            "name": "other",
            "status": status,
            "value": value,
            "bound": bound,
            "seconds": 3,
        }
    ]


def proved(**changes: Any) -> BenchRecord:
    """Return the first instance of family a: ours and the peer prove 100."""
    fields: dict[str, Any] = {
        "instance": "one", "family": "a", "value": 100, "bound": 100, "seconds": 1,
        "seconds_to_best": 0.5, "seconds_to_proof": 1, "peers": peer(100, 100, "optimal"),
        "bounds": bounds(work=80, path=100),
        "heuristics": [
            heuristic("gpipe", 150, seconds=0.01),
            heuristic("1f1b", None, status="infeasible", reason=FULL),
            heuristic("zbv", reason="needs a V placement"),
        ],
    }  # fmt: skip
    return record(**{"key": "k1", **fields, **changes})


def unproved(**changes: Any) -> BenchRecord:
    """Return the second one: ours has 200 and the bound 180, the peer has 190."""
    fields: dict[str, Any] = {
        "instance": "two", "family": "a", "status": "FEASIBLE", "value": 200, "bound": 180,
        "gap": 0.1, "stop_reason": "time_limit", "seconds": 10, "seconds_to_best": 4,
        "anytime": [[1, 220, 100], [4, 200, 180]], "peers": peer(190, 150, "feasible"),
        "bounds": bounds(work=180, path=100),
        "heuristics": [
            heuristic("gpipe", 250, seconds=0.03),
            heuristic("1f1b", 200),
            heuristic("zbv", reason="needs a V placement"),
        ],
    }  # fmt: skip
    return record(**{"key": "k2", **fields, **changes})


def crashed(**changes: Any) -> BenchRecord:
    """Return the only instance of family b, which has no answer."""
    fields: dict[str, Any] = {
        "instance": "three", "family": "b", "status": "UNKNOWN", "value": None, "bound": None,
        "gap": None, "stop_reason": None, "seconds": 2, "failure": "crash",
        "error": "killed by SIGSEGV",
    }  # fmt: skip
    return record(**{"key": "k3", **fields, **changes})


def results(*records: BenchRecord) -> Records:
    return Records(records or (proved(), unproved(), crashed()))


def written(path: Path, *records: BenchRecord) -> Path:
    write_records(path, results(*records).records)
    return path
