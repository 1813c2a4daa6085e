"""From a refresh result to the schedule pickle that PipeFisher's runner reads."""

from __future__ import annotations

import pickle
from typing import Any

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError, errors_in
from ppsolve.models.kfac.labels import START
from ppsolve.solver.formats.program import entry_in

ScheduleLabels = list[list[list[str]]]
"""Labels by device and iteration, markers included."""


def schedule_labels(
    data: Any, source: str, heuristic: str | None = None
) -> tuple[ScheduleLabels, list[str]]:
    """Return the labels of a result or heuristic entry, and warnings.

    Raises `InputError` where there are no labels, they are no labels by device and iteration, or
    the heuristic is not among those of the result.

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
    labels : list of list of list of str
        By device and iteration, markers included.
    warnings : list of str
        One where the schedule breaks rules.
    """
    with errors_in(source):
        if not isinstance(data, dict):
            raise InputError(f"expected an object, got {describe(data)}")
        if heuristic is not None:
            data = entry_in(data, heuristic)
        labels = data.get("labels")
        if not labels:
            raise InputError(_why_none(data), field="labels")
        _check(labels)
    if data.get("status") != "infeasible":
        return labels, []
    return labels, [f"{source}: {data.get('name')} is infeasible: {data.get('reason')}"]


def _why_none(data: dict[str, Any]) -> str:
    if data.get("objective") == "iterations" or "iterations_of" in data:
        reason = f": {data['reason']}" if data.get("reason") else ""
        return f"expected a schedule of every device, there is none{reason}"
    return (
        "expected the result or heuristic entry of a K-FAC instance around a pinned pipeline, "
        "this one has no labels"
    )


def _check(labels: Any) -> None:
    for device, rows in enumerate(_items(labels, "labels", "devices")):
        field = f"labels[{device}]"
        starts = 0
        for number, row in enumerate(_items(rows, field, "iterations")):
            for place, label in enumerate(_items(row, f"{field}[{number}]", "labels")):
                if not isinstance(label, str):
                    where = f"{field}[{number}][{place}]"
                    raise InputError(f"expected a label, got {describe(label)}", field=where)
                starts += label == START
        if not starts:
            raise InputError(f'expected an iteration with "{START}"', field=field)


def _items(value: Any, field: str, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"expected a list of {what}, got {describe(value)}", field=field)
    return value


def schedule_pickle(labels: ScheduleLabels) -> bytes:
    """Return the pickle of labels by device and iteration, for every Python from 3.4 on."""
    plain = [[[str(label) for label in row] for row in device] for device in labels]
    return pickle.dumps(plain, protocol=4)
