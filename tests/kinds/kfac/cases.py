"""Timelines measured with PipeFisher, as refresh patterns, and small ones made by hand."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.pattern import RefreshPattern, measured_pattern
from ppsolve.solver.kinds.kfac.placement import DevicePlan
from tests.paths import DATA

FOLDERS = sorted(path for path in (DATA / "pipefisher").iterdir())
NAMES = [path.name for path in FOLDERS]

Timeline = dict[str, list[tuple[Any, Any]]]


def pattern_of(*timelines: Timeline, **fields: Any) -> RefreshPattern:
    """The pattern of hand-made timelines."""
    instance = {
        "name": "by hand",
        "time_unit": "ns",
        "timelines": list(timelines),
        **fields,
    }
    return measured_pattern(KfacInstance.parse(instance))


def measured(name: str) -> RefreshPattern:
    """The pattern of a folder of measured timelines."""
    folder = FOLDERS[NAMES.index(name)]
    files = sorted(folder.glob("*.pickle"), key=_human)
    return pattern_of(*(pickle.loads(path.read_bytes()) for path in files), name=name)


def expected(name: str) -> list[dict[str, Any]]:
    """What the original says about each node of a folder."""
    text = (FOLDERS[NAMES.index(name)] / "expected.json").read_text(encoding="utf-8")
    nodes: list[dict[str, Any]] = json.loads(text)["nodes"]
    return nodes


def _human(path: Path) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.split("([0-9]+)", path.name)
    ]


def unplaced_work(
    plan: DevicePlan, pattern: RefreshPattern
) -> list[tuple[str, int, int]]:
    """Return label, parts left and recorded length in ticks of the work that fits into no hole."""
    work = pattern.devices[plan.device].work
    placed = {
        (entry.work, entry.part) for entry in plan.placed if entry.part is not None
    }
    return [
        (
            entry.label,
            1
            if entry.part is not None
            else sum(
                (entry.work, part) not in placed
                for part in range(work[entry.work].parts)
            ),
            entry.length,
        )
        for entry in plan.placed
        if entry.phase == "unplaced" and entry.work is not None
    ]
