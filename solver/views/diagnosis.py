"""The verdict on a recorded run on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.solver.studies.traces.diagnosis.verdict import FIGURES, NEARLY, SECOND, Diagnosis, Help
from ppsolve.solver.views.figures import ABSENT, figure, percent
from ppsolve.solver.views.tables import Field, FittingTable, TableColumn, indented, table_of

MOST_STEPS = 20  # listed one by one; of more only the mean is shown, `--json` has all
MOST_REPLICAS = 12


def _slowness(found: Diagnosis) -> RenderableType:
    """Return the time of a micro-batch by stage, of the slowest replicas."""
    rows = found.slowness
    slowest = sorted(range(len(found.replicas)), key=lambda n: -max(row[n] for row in rows))
    columns = (
        TableColumn(
            f"replica\n{found.replicas[n]}", [f"{row[n]:.2f}" for row in rows], expendable=place
        )
        for place, n in enumerate(slowest[:MOST_REPLICAS])
    )
    stages = TableColumn("stage", [str(stage) for stage in range(len(rows))])
    return indented(FittingTable(stages, *columns))


def diagnosis_report(found: Diagnosis) -> RenderableType:
    """Return the verdict on a run: sentences, steps, what would help, the bubble, slow replicas."""
    return Group(
        _sentence(found),
        Text(),
        _steps(found),
        Text(),
        Text("What would help, mean step", "bold"),
        indented(table_of(found.helps, *_HELP_FIELDS)),
        Text(),
        Text("Idle time of a device, mean of the slowest replicas", "bold"),
        _bubble(found),
        Text(),
        Text("Time of a micro-batch, mean of all = 1, the slowest replicas first", "bold"),
        _slowness(found),
    )


def _sentence(found: Diagnosis) -> Text:
    replay, bound = found.mean("replay"), found.mean("ordered_bound")
    ordered = found.mean("ordered")
    if found.is_order_optimal:
        text = f"The recorded order is optimal (within {100 * NEARLY:g} %: replayed "
        text += f"{_seconds(replay)} s, bound {_seconds(bound)} s)."
    else:
        found_one = f"A better order saves {percent(1 - ordered / replay)} of the replayed"
        text = found_one if ordered < replay else "No better order was found than the replayed"
        text += f" {_seconds(replay)} s; none can save more than {percent(1 - bound / replay)}."
    best = max(
        (one for one in found.helps if one.saved is not None), key=lambda one: one.saved or 0.0
    )
    if best.saved is not None and best.saved > 0:
        text += f" Most would help: {best.change}, {percent(best.saved)}."
    return Text(text, "bold")


def _seconds(nanoseconds: float | None) -> str:
    # Replays agree to 1 %.
    return ABSENT if nanoseconds is None else figure(nanoseconds / SECOND, 5)


# How soon each column of `FIGURES` is left out.
_STEP_FIELDS = (
    ("recorded", 2),
    ("replayed", 0),
    ("ordered", 0),
    ("bound", 1),
    ("exchanged", 3),
    ("bound of\nexchange", 4),
)


def _steps(found: Diagnosis) -> RenderableType:
    shown = found.steps if len(found.steps) <= MOST_STEPS else ()
    columns = (
        TableColumn(
            head,
            [*(_seconds(getattr(step, name)) for step in shown), _seconds(found.mean(name))],
            expendable=place,
        )
        for (head, place), name in zip(_STEP_FIELDS, FIGURES, strict=True)
    )
    names = TableColumn("step (s)", [*(str(step.step) for step in shown), "mean"], is_text=True)
    return indented(FittingTable(names, *columns, styles=[*[""] * len(shown), "bold"]))


_HELP_FIELDS: tuple[Field[Help], ...] = (
    Field("change", lambda one: one.change),
    Field("s", lambda one: one.value, 0, _seconds),
    Field("bound", lambda one: one.bound, 2, _seconds),
    Field("saves", lambda one: one.saved, 0, percent),
    Field("steps", lambda one: len(one.steps) or None, 3, str),
    Field(
        "assumed",
        lambda one: one.assumes if one.steps else f"not computed: {one.assumes}",
        1,
        wraps=True,
    ),
)


def _bubble(found: Diagnosis) -> RenderableType:
    span, whole = found.mean("recorded"), sum(found.bubble.values())
    part: tuple[Field[tuple[str, float]], ...] = (
        Field("part", lambda one: one[0]),
        Field("s", lambda one: one[1], 0, _seconds),
        Field("of the span", lambda one: one[1] / span, 0, percent),
    )
    return indented(table_of([*found.bubble.items(), ("in all", whole)], *part))
