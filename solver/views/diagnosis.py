"""The verdict on a recorded run on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.solver.studies.traces.diagnosis import verdict
from ppsolve.solver.views.figures import ABSENT, figure, percent
from ppsolve.solver.views.tables import (
    Field,
    FittingTable,
    TableColumn,
    indented,
    table_of,
)

MOST_STEPS = 20  # listed one by one; of more only the mean is shown, `--json` has all
MOST_REPLICAS = 12


def _slowness(found: verdict.Diagnosis) -> RenderableType:
    """Return the time of a micro-batch by stage, of the slowest replicas."""
    rows = found.slowness
    slowest = sorted(
        range(len(found.replicas)), key=lambda n: -max(row[n] for row in rows)
    )
    columns = (
        TableColumn(
            f"replica\n{found.replicas[n]}",
            [f"{row[n]:.2f}" for row in rows],
            expendable=place,
        )
        for place, n in enumerate(slowest[:MOST_REPLICAS])
    )
    stages = TableColumn("stage", [str(stage) for stage in range(len(rows))])
    return indented(FittingTable(stages, *columns))


def diagnosis_report(found: verdict.Diagnosis) -> RenderableType:
    """Return the verdict on a run: sentences, steps, what would help, the bubble, slow replicas."""
    by_saving = sorted(
        found.helps, key=lambda one: (one.saved is None, -(one.saved or 0.0))
    )
    return Group(
        _sentence(found),
        Text(),
        _steps(found),
        Text(),
        Text("What would help, mean step", "bold"),
        indented(table_of(by_saving, *_HELP_FIELDS)),
        Text(),
        Text("Idle time of a device, mean of the slowest replicas", "bold"),
        _bubble(found),
        Text(),
        Text(
            "Time of a micro-batch, mean of all = 1, the slowest replicas first", "bold"
        ),
        _slowness(found),
    )


def _sentence(found: verdict.Diagnosis) -> Text:
    replay, bound = found.mean("replay"), found.mean("ordered_bound")
    ordered = found.mean("ordered")
    if found.is_order_optimal:
        text = f"The recorded order is optimal (within {100 * verdict.NEARLY:g} %: replayed "
        text += f"{_seconds(replay)} s, bound {_seconds(bound)} s)."
    else:
        found_one = (
            f"A better order saves {percent(1 - ordered / replay)} of the replayed"
        )
        text = (
            found_one
            if ordered < replay
            else "No better order was found than the replayed"
        )
        text += f" {_seconds(replay)} s; none can save more than {percent(1 - bound / replay)}."
    if found.best is not None and found.best.saved is not None:
        text += f" Most would help: {found.best.change}, {percent(found.best.saved)}."
    return Text(text, "bold")


def _seconds(nanoseconds: float | None) -> str:
    # Replays agree to 1 %.
    return ABSENT if nanoseconds is None else figure(nanoseconds / verdict.SECOND, 5)


# How soon each column of `FIGURES` is left out.
_STEP_FIELDS = (
    ("recorded", 2),
    ("replayed", 0),
    ("ordered", 0),
    ("bound", 1),
    ("exchanged", 3),
    ("bound of\nexchange", 4),
)


def _steps(found: verdict.Diagnosis) -> RenderableType:
    groups = _alike(found.steps)
    shown = groups if len(groups) <= MOST_STEPS else []
    rows = [*shown, found.steps]
    columns = [
        TableColumn(
            head,
            [
                _seconds(verdict.mean_of(getattr(one, name) for one in each))
                for each in rows
            ],
            expendable=place,
        )
        for (head, place), name in zip(_STEP_FIELDS, verdict.FIGURES, strict=True)
    ]
    if any(len(each) > 1 for each in shown):
        columns.insert(0, TableColumn("alike", [str(len(each)) for each in rows]))
    names = TableColumn(
        "step (s)", [*(str(each[0].step) for each in shown), "mean"], is_text=True
    )
    return indented(FittingTable(names, *columns, styles=[*[""] * len(shown), "bold"]))


def _alike(steps: Sequence[verdict.StepVerdict]) -> list[list[verdict.StepVerdict]]:
    """Return groups of steps of one shape, whose figures are within `NEARLY` of the first's."""
    groups: list[list[verdict.StepVerdict]] = []
    for step in steps:
        group = next((one for one in groups if _are_alike(one[0], step)), None)
        if group is None:
            groups.append([step])
        else:
            group.append(step)
    return groups


def _are_alike(one: verdict.StepVerdict, other: verdict.StepVerdict) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in verdict.FIGURES)
    is_near = all(abs(its - mine) <= verdict.NEARLY * its for its, mine in pairs)
    return is_near and one.microbatches == other.microbatches


_HELP_FIELDS: tuple[Field[verdict.Help], ...] = (
    Field("change", lambda one: one.change),
    Field("s", lambda one: one.value, 0, _seconds),
    Field("bound", lambda one: one.bound, 2, _seconds),
    Field("saves", lambda one: one.saved, 0, percent),
    Field("steps", lambda one: len(one.steps) or None, 3, str),
    Field(
        "assumed",
        lambda one: "not computed: " * (not one.steps) + one.assumes,
        1,
        wraps=True,
    ),
)


def _bubble(found: verdict.Diagnosis) -> RenderableType:
    span, whole = found.mean("recorded"), sum(found.bubble.values())
    part: tuple[Field[tuple[str, float]], ...] = (
        Field("part", lambda one: one[0]),
        Field("s", lambda one: one[1], 0, _seconds),
        Field("of the span", lambda one: one[1] / span, 0, percent),
    )
    parts = indented(table_of([*found.bubble.items(), ("in all", whole)], *part))
    return Group(parts, indented(Text(BUBBLE_NOTE, "dim")))


BUBBLE_NOTE = (
    "Causes are taken away one by one, from the unexplained up. One that saves nothing by itself "
    "is 0; the one above it then counts for both."
)
