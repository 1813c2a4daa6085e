"""A pipeline under changes: one row each."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import Status
from ppsolve.models.documents.printable import printable
from ppsolve.models.studies.what_if import WhatIf, WhatIfRow
from ppsolve.solver.studies.changes import shown
from ppsolve.solver.views.curve import SOLVED_TIMES, proof_cell, value_cell
from ppsolve.solver.views.figures import figure, percent
from ppsolve.solver.views.tables import FittingTable, TableColumn
from ppsolve.solver.views.time_units import readable_rate, scaled
from ppsolve.solver.views.wording import spaced


def what_if_report(study: WhatIf) -> RenderableType:
    """Return a sentence, the table of all changes, and why some leave no schedule."""
    study = _in_readable_unit(study)
    rows = study.rows
    best, gains = _best(study), [row.gain for row in rows]
    has_peak = any(row.peak_memory is not None for row in rows)
    peaks = [figure(row.peak_memory) for row in rows] if has_peak else None
    value = f"{spaced(study.objective)}\n({study.time_unit})"
    gain = "gain per\nmicro-\nbatch" if _varies(study) else "gain"
    table = FittingTable(
        TableColumn("change", [_name(row) for row in rows], is_text=True, wraps=True),
        TableColumn(
            value, list(map(value_cell, rows)), order=[row.value for row in rows]
        ),
        TableColumn("bound", [figure(row.bound) for row in rows], expendable=1),
        TableColumn("gap", [proof_cell(row) for row in rows]),
        TableColumn("peak\nmemory", peaks),
        TableColumn(gain, list(map(percent, gains)), order=gains),
        styles=["bold" if row is best else "" for row in rows],
    )
    notes = [
        Text(f"{_name(row)}: {printable(row.reason)}") for row in rows if row.reason
    ]
    below = [Text(), *notes] if notes else []
    return Group(what_if_line(study), Text(), table, *below)


def _in_readable_unit(study: WhatIf) -> WhatIf:
    times = [time for row in study.rows for time in (row.value, row.bound)]
    unit, factor = readable_rate(study.time_unit, times)
    rows = tuple(scaled(row, factor, *SOLVED_TIMES) for row in study.rows)
    return study.model_copy(update={"rows": rows, "time_unit": unit})


def what_if_line(study: WhatIf) -> Text:
    """Return the share that is proved and the change that gains most, in one line."""
    proved = sum(row.gap == 0 for row in study.rows)
    missing = sum(row.status is Status.INFEASIBLE for row in study.rows)
    best, per = _best(study), " per micro-batch" if _varies(study) else ""
    name = (
        study.instance
        if study.runtime is None
        else f"{study.instance} for {study.runtime}"
    )
    text = f"{printable(name)}: {len(study.rows)} rows, {proved} proved"
    text += f", {missing} infeasible" if missing else ""
    if best is not None:
        text += f". Best: {_name(best)}, {percent(best.gain)} less{per}"
    elif study.rows[0].value is not None:
        text += ". No change gains anything"
        text += " in the schedules found so far" if _open_gains(study) else ""
    return Text(f"{text}{_open(study)}.", "bold")


def _open(study: WhatIf) -> str:
    """Say which change may still gain more than the best one, and how much."""
    gains = _open_gains(study)
    if not gains:
        return ""
    name, gain = max(gains.items(), key=lambda item: item[1])
    per = " per micro-batch" if _varies(study) else ""
    text = f". Not proved: {name} could still gain {percent(gain)}{per}"
    if gain == 1:
        text = f". Not proved: {name} has no schedule and no bound yet"
    others = len(gains) - 1
    return f"{text}; {others} more open" if others else text


def _open_gains(study: WhatIf) -> dict[str, float]:
    """Return the largest gain that each change may have, where it is above the best one.

    It is 1 where there is no bound.
    """
    usual, best = study.rows[0], _best(study)
    if usual.value is None:
        return {}
    least = 0.0 if best is None or best.gain is None else best.gain
    gains = {}
    for row in study.rows[1:]:
        if row.gap == 0 or row.status is Status.INFEASIBLE:
            continue
        share = float((row.bound or 0) / usual.value)
        gain = round(1 - share * usual.microbatches / row.microbatches, 12)
        if gain > least:
            gains[_name(row)] = gain
    return gains


def what_if_section(study: WhatIf) -> tuple[str, RenderableType]:
    """Return the title and the parts of a what-if on a page."""
    return f"{study.instance}: what if", what_if_report(study)


def _varies(study: WhatIf) -> bool:
    return len({row.microbatches for row in study.rows}) > 1


def _name(row: WhatIfRow) -> str:
    return printable(shown(list(row.changes.items()))) or "as it is"


def _best(study: WhatIf) -> WhatIfRow | None:
    """Return the row that gains most, None where none gains anything."""
    best = max(study.rows, key=lambda row: row.gain or 0.0)
    return best if best.gain and best.gain > 0 else None
