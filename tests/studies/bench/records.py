"""Hand-made records of benchmark results."""

from __future__ import annotations

from typing import Any

from ppsolve.models.studies.bench.file import BenchRecord

MACHINE = "A CPU, 2 cores, 8.0 GiB, Linux, Python 3.11.7, OR-tools 9.15, numpy 2.0"


def record(key: str, **changes: Any) -> BenchRecord:
    """Return a proved item, changed as asked."""
    fields: dict[str, Any] = {
        "key": key,
        "instance": f"name-{key}",
        "family": "tiny",
        "path": f"tiny/{key}.json",
        "kind": "pipeline",
        "ops": 12,
        "objective": "makespan",
        "time_unit": "us",
        "status": "OPTIMAL",
        "value": 90,
        "bound": 90,
        "gap": 0.0,
        "stop_reason": "proved",
        "seconds": 0.5,
        "time_limit": 10.0,
        "machine": MACHINE,
    }
    return BenchRecord.parse(fields | changes)
