"""From a refresh result to the labels of PipeFisher's schedule pickle."""

from __future__ import annotations

from typing import Any

from ppsolve.models.documents.base import describe, did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac.labels import START
from ppsolve.solver.formats.pickles import ScheduleLabels

NO_LABELS = (
    "expected the result or heuristic entry of a K-FAC instance around a pinned pipeline, "
    "this one has no labels"
)


def schedule_labels(
    data: Any, source: str, heuristic: str | None = None
) -> tuple[ScheduleLabels, list[str]]:
    """Return the labels of a result or heuristic entry, and warnings.

    Parameters
    ----------
    data : JSON data
        What `optimize` or `simulate` wrote.
    source : str
        How errors name it.
    heuristic : str, optional
        Take the schedule of this heuristic of a result.

    Returns
    -------
    tuple of list of list of list of str and list of str
        Labels by device and iteration, markers included; a warning where the schedule breaks
        rules.

    Raises
    ------
    InputError
        There are no labels, they are no labels by device and iteration, or the heuristic is not
        among those of the result.
    """
    if not isinstance(data, dict):
        raise InputError(f"expected an object, got {describe(data)}", source=source)
    if heuristic is not None:
        data = _entry(data, heuristic, source)
    labels = data.get("labels")
    if not labels:
        raise InputError(_why_none(data), source=source, field="labels")
    _check(labels, source)
    warnings = []
    if data.get("status") == "infeasible":
        warnings.append(f"{source}: {data.get('name')} is infeasible: {data.get('reason')}")
    return labels, warnings


def _entry(data: dict[str, Any], heuristic: str, source: str) -> dict[str, Any]:
    entries = data.get("heuristics")
    rows = [row for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []
    found = {str(row.get("name")): row for row in rows}
    if heuristic not in found:
        raise InputError(
            f'the result has no heuristic "{heuristic[:60]}"' + did_you_mean(heuristic, found),
            source=source,
            field="--heuristic",
        )
    return found[heuristic]


def _why_none(data: dict[str, Any]) -> str:
    if data.get("objective") == "iterations" or "iterations_of" in data:
        return "expected a schedule of every device, there is none" + (
            f": {data['reason']}" if data.get("reason") else ""
        )
    return NO_LABELS


def _check(labels: Any, source: str) -> None:
    """Refuse labels that PipeFisher's runner could not follow."""
    for device, rows in enumerate(_items(labels, "labels", "devices", source)):
        field = f"labels[{device}]"
        starts = 0
        for number, row in enumerate(_items(rows, field, "iterations", source)):
            for place, label in enumerate(_items(row, f"{field}[{number}]", "labels", source)):
                if not isinstance(label, str):
                    raise InputError(
                        f"expected a label, got {describe(label)}",
                        source=source,
                        field=f"{field}[{number}][{place}]",
                    )
                starts += label == START
        if not starts:
            raise InputError(f'expected an iteration with "{START}"', source=source, field=field)


def _items(value: Any, field: str, what: str, source: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(
            f"expected a list of {what}, got {describe(value)}", source=source, field=field
        )
    return value
