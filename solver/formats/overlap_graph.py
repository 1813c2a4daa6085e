"""Graphs of compute, collectives and waits, as other tools dump them, to overlap instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ppsolve.models.documents.base import describe, field_names
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import STANDARD_STREAM, read_json, source_name
from ppsolve.models.overlap.instance import OverlapInstance, OverlapNode

UNIT = "unit"
"""What such files call the time unit."""


def convert_overlap_graph(path: str | Path) -> tuple[OverlapInstance, list[str]]:
    """Read a graph ``{"name", "unit", "nodes": [{"name", "kind", "duration", "deps"}, ...]}``.

    Nodes stand in program order. `deps` may be missing; so may `name`, then the file's name is
    taken, and `unit`, then it is microseconds. Fields that overlap instances have are kept.

    Parameters
    ----------
    path : str or Path
        JSON file; ``-`` is standard input.

    Returns
    -------
    tuple of OverlapInstance and list of str
        The instance, and a warning for every field that was left out.

    Raises
    ------
    InputError
        The file cannot be read or is not JSON, a field is missing or wrong, or the graph is no
        program: names twice, unknown or later dependencies, collectives without their wait.
    """
    source = source_name(path)
    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"expected an object, got {describe(data)}", source=source)
    known = _renamed(data, source)
    known.setdefault("name", "overlap" if str(path) == STANDARD_STREAM else Path(path).stem)
    fields, left_out = _split(known, field_names(OverlapInstance))
    counts = dict.fromkeys(left_out, 1)
    if isinstance(fields.get("nodes"), list):
        fields["nodes"] = [_node(node, counts) for node in fields["nodes"]]
    return OverlapInstance.parse(fields, source), [
        f"{source}: {_times(name, count)}" for name, count in counts.items()
    ]


def _renamed(data: dict[str, Any], source: str) -> dict[str, Any]:
    if UNIT not in data:
        return dict(data)
    if "time_unit" in data:
        raise InputError("expected either unit or time_unit, got both", source=source, field=UNIT)
    if not isinstance(data[UNIT], str):
        raise InputError(f"expected a text, got {describe(data[UNIT])}", source=source, field=UNIT)
    return {("time_unit" if name == UNIT else name): value for name, value in data.items()}


def _split(given: dict[str, Any], known: list[str]) -> tuple[dict[str, Any], list[str]]:
    kept = {name: value for name, value in given.items() if name in known}
    return kept, [name for name in given if name not in known]


def _node(node: Any, counts: dict[str, int]) -> Any:
    """Return a node without the fields that instances lack, and count those."""
    if not isinstance(node, dict):
        return node
    kept, left_out = _split(node, field_names(OverlapNode))
    for name in left_out:
        key = f"nodes[].{name}"
        counts[key] = counts.get(key, 0) + 1
    return kept


def _times(name: str, count: int) -> str:
    return f'the field "{name}" is not used' + (f" ({count} nodes)" if count > 1 else "")
