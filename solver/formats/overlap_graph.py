"""Graphs of compute, collectives and waits, as other tools dump them, to overlap instances."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ppsolve.models.documents.base import describe, field_names
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import STANDARD_STREAM, read_json, source_name
from ppsolve.models.kinds.overlap.instance import OverlapInstance, OverlapNode


def convert_overlap_graph(path: str | Path) -> tuple[OverlapInstance, list[str]]:
    """Read a graph ``{"name", "unit", "nodes": [{"name", "kind", "duration", "deps"}, ...]}``.

    Nodes stand in program order. `deps` may be missing; so may `name`, then the file's name is
    taken, and `unit`, then it is microseconds. Fields that overlap instances have are kept; a
    warning names every other. Raises `InputError` where the file (``-`` is standard input) cannot
    be read or is not JSON, a field is missing or wrong, or the graph is no program: names twice,
    unknown or later dependencies, collectives without their wait.
    """
    source = source_name(path)
    with errors_in(source):
        data = _renamed(read_json(path))
    data.setdefault(
        "name", "overlap" if str(path) == STANDARD_STREAM else Path(path).stem
    )
    fields, left_out = _split(data, field_names(OverlapInstance))
    counts = Counter(left_out)
    if isinstance(fields.get("nodes"), list):
        fields["nodes"] = [_node(node, counts) for node in fields["nodes"]]
    warnings = [
        f'{source}: the field "{name}" is not used'
        + (f" ({count} nodes)" if count > 1 else "")
        for name, count in counts.items()
    ]
    return OverlapInstance.parse(fields, source), warnings


def _renamed(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(
            f"expected an object, got {describe(data)}", code=ErrorCode.TYPE
        )
    if "unit" in data and "time_unit" in data:
        raise InputError(
            "expected either unit or time_unit, got both",
            field="unit",
            code=ErrorCode.CONFLICT,
        )
    if not isinstance(data.get("unit", ""), str):
        raise InputError(
            f"expected a text, got {describe(data['unit'])}",
            field="unit",
            code=ErrorCode.TYPE,
        )
    return {
        ("time_unit" if name == "unit" else name): value for name, value in data.items()
    }


def _split(data: dict[str, Any], names: list[str]) -> tuple[dict[str, Any], list[str]]:
    kept = {name: value for name, value in data.items() if name in names}
    return kept, [name for name in data if name not in names]


def _node(node: Any, counts: Counter[str]) -> Any:
    if not isinstance(node, dict):
        return node
    kept, left_out = _split(node, field_names(OverlapNode))
    counts.update(f"nodes[].{name}" for name in left_out)
    return kept
