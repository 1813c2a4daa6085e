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


def _slowness(diagnosis: verdict.Diagnosis) -> RenderableType:
    """Return the time of a micro-batch by stage, of the slowest replicas."""
    rows = diagnosis.slowness
    slowest = sorted(
        range(len(diagnosis.replicas)), key=lambda n: -max(row[n] for row in rows)
    )
    columns = (
        TableColumn(
            f"replica\n{diagnosis.replicas[n]}",
            [f"{row[n]:.2f}" for row in rows],
            expendable=rank,
        )
        for rank, n in enumerate(slowest[:MOST_REPLICAS])
    )
    stages = TableColumn("stage", [str(stage) for stage in range(len(rows))])
    return indented(FittingTable(stages, *columns))


def diagnosis_report(diagnosis: verdict.Diagnosis) -> RenderableType:
    """Return the verdict on a run: sentences, steps, what would help, the bubble, slow replicas."""
    by_saving = sorted(
        diagnosis.helps,
        key=lambda remedy: (remedy.saved is None, -(remedy.saved or 0.0)),
    )
    return Group(
        _sentence(diagnosis),
        Text(),
        _steps(diagnosis),
        Text(),
        Text("What would help, mean step", "bold"),
        indented(table_of(by_saving, *_HELP_FIELDS)),
        Text(),
        Text("Idle time of a device, mean of the slowest replicas", "bold"),
        _bubble(diagnosis),
        Text(),
        Text(
            "Time of a micro-batch, mean of all = 1, the slowest replicas first", "bold"
        ),
        _slowness(diagnosis),
    )


def _sentence(diagnosis: verdict.Diagnosis) -> Text:
    replay, bound = diagnosis.mean("replay"), diagnosis.mean("ordered_bound")
    ordered = diagnosis.mean("ordered")
    if diagnosis.is_order_optimal:
        text = f"The recorded order is optimal (within {100 * verdict.NEARLY:g} %: replayed "
        text += f"{_seconds(replay)} s, bound {_seconds(bound)} s)."
    else:
        text = "No better order was found than the replayed"
        if ordered < replay:
            text = (
                f"A better order saves {percent(1 - ordered / replay)} of the replayed"
            )
        text += f" {_seconds(replay)} s; none can save more than {percent(1 - bound / replay)}."
    if diagnosis.best is not None and diagnosis.best.saved is not None:
        text += f" Most would help: {diagnosis.best.change}, {percent(diagnosis.best.saved)}."
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


def _steps(diagnosis: verdict.Diagnosis) -> RenderableType:
    groups = _alike(diagnosis.steps)
    listed = groups if len(groups) <= MOST_STEPS else []
    rows = [*listed, diagnosis.steps]
    columns = [
        TableColumn(
            head,
            [
                _seconds(verdict.mean_of(getattr(step, name) for step in group))
                for group in rows
            ],
            expendable=priority,
        )
        for (head, priority), name in zip(_STEP_FIELDS, verdict.FIGURES, strict=True)
    ]
    if any(len(group) > 1 for group in listed):
        columns.insert(0, TableColumn("alike", [str(len(group)) for group in rows]))
    names = TableColumn(
        "step (s)", [*(str(group[0].step) for group in listed), "mean"], is_text=True
    )
    return indented(FittingTable(names, *columns, styles=[*[""] * len(listed), "bold"]))


def _alike(steps: Sequence[verdict.StepVerdict]) -> list[list[verdict.StepVerdict]]:
    """Return groups of steps of one shape, whose figures are within `NEARLY` of the first's."""
    groups: list[list[verdict.StepVerdict]] = []
    for step in steps:
        group = next(
            (candidate for candidate in groups if _are_alike(candidate[0], step)), None
        )
        if group is None:
            groups.append([step])
        else:
            group.append(step)
    return groups


def _are_alike(step: verdict.StepVerdict, reference: verdict.StepVerdict) -> bool:
    pairs = (
        (getattr(step, name), getattr(reference, name)) for name in verdict.FIGURES
    )
    is_near = all(abs(its - mine) <= verdict.NEARLY * its for its, mine in pairs)
    return is_near and step.microbatches == reference.microbatches


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


def _bubble(diagnosis: verdict.Diagnosis) -> RenderableType:
    span, total = diagnosis.mean("recorded"), sum(diagnosis.bubble.values())
    fields: tuple[Field[tuple[str, float]], ...] = (
        Field("part", lambda entry: entry[0]),
        Field("s", lambda entry: entry[1], 0, _seconds),
        Field("of the span", lambda entry: entry[1] / span, 0, percent),
    )
    table = indented(table_of([*diagnosis.bubble.items(), ("in all", total)], *fields))
    return Group(table, indented(Text(BUBBLE_NOTE, "dim")))


BUBBLE_NOTE = (
    "Causes are taken away one by one, from the unexplained up. One that saves nothing by itself "
    "is 0; the one above it then counts for both."
)
