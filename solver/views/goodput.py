"""Charts of goodput: over batch sizes for several allocations, and over replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.studies.goodput.files import GoodputRow
from ppsolve.models.studies.goodput.params import Fit
from ppsolve.solver.studies.goodput.model import GoodputModel
from ppsolve.solver.studies.goodput.search import BatchLimits, accumulation_steps
from ppsolve.solver.views.figures import counted, figure, percent
from ppsolve.solver.views.line_chart import (
    LAYOUT,
    MOST_SERIES,
    LineChart,
    Point,
    Series,
)
from ppsolve.solver.views.tables import (
    FactList,
    Field,
    FittingTable,
    TableColumn,
    indented,
)

# What the parameters of a step time stand for.
MEANING = {
    "alpha_c": "start of a micro-batch",
    "beta_c": "each sample of it",
    "alpha_n": "exchange over several nodes",
    "beta_n": "each replica beyond 2 there",
    "alpha_r": "exchange within one node",
    "beta_r": "each replica beyond 2 there",
    "gamma": "overlap, 1: none",
}


def fit_report(title: str, fit: Fit) -> RenderableType:
    """Return a fit: its parameters, how well they predict, and what the data leave open."""
    why = [fit.fixed.get(name, "") for name in MEANING] if fit.fixed else None
    table = FittingTable(
        TableColumn("parameter", list(MEANING), is_text=True),
        TableColumn("value", [number(value) for value in fit.params]),
        TableColumn(
            "what it is the time of", [*MEANING.values()], is_text=True, expendable=1
        ),
        TableColumn("not fitted: why", why, is_text=True, wraps=True),
    )
    content: list[RenderableType] = [
        Text(title),
        FactList(_fit_facts(fit)),
        Text(),
        indented(table),
    ]
    content += [indented(Text(f"warning: {text}", "yellow")) for text in fit.warnings]
    return Group(*content)


def _fit_facts(fit: Fit) -> Iterator[tuple[str, str]]:
    suffix = "" if fit.converged else "  (stopped before it came to rest)"
    yield "objective", f"{fit.objective:.6g}{suffix}"
    off = np.abs(np.expm1(fit.residuals))
    for name, errors in zip(
        ("accumulation step", "optimizer step"), off.T, strict=True
    ):
        half, worst = float(np.median(errors)), float(np.max(errors))
        yield name, f"{percent(half)} (median), {percent(worst)} (worst)"
    pairs = zip(MEANING, fit.params, fit.raw_params, strict=True)
    raised = [name for name, value, raw in pairs if value != raw]
    if raised:
        yield (
            "raised",
            f"{', '.join(raised)}: several nodes are taken to be no faster than one",
        )


def number(value: float) -> str:
    """Return a parameter, of any size, with six digits."""
    return figure(value) if 1e-4 <= value < 1e6 or not value else f"{value:.5e}"


def rows_table(rows: Sequence[GoodputRow]) -> RenderableType:
    """Return configurations, one a row."""
    best = [figure(row.goodput) if row.is_allowed else "none allowed" for row in rows]
    return FittingTable(
        *(field.column(rows) for field in ROW_FIELDS),
        TableColumn("goodput\n/s", best),
        styles=["" if row.is_allowed else "dim" for row in rows],
    )


def _allowed(
    get: Callable[[GoodputRow], float | None],
) -> Callable[[GoodputRow], float | None]:
    return lambda row: get(row) if row.is_allowed else None


ROW_FIELDS: tuple[Field[GoodputRow], ...] = (
    Field("nodes", lambda row: row.num_nodes, 0, figure),
    Field("repli-\ncas", lambda row: row.num_replicas, 0, figure),
    Field("per\nreplica", _allowed(lambda row: row.atomic_bsz), 0, figure),
    Field("accum.\nsteps", _allowed(lambda row: row.accum_steps), 0, figure),
    Field("batch", _allowed(lambda row: row.batch_size), 1, figure),
    Field("step\ntime (s)", _allowed(lambda row: row.step_time), 2, figure),
    Field("samples\n/s", _allowed(lambda row: row.throughput), 3, figure),
    Field("effi-\nciency", _allowed(lambda row: row.efficiency), 0, percent),
)


def goodput_chart(
    model: GoodputModel, rows: Sequence[GoodputRow], limits: BatchLimits
) -> LineChart | None:
    """Return the chart of goodput over batch sizes, None where there is nothing to draw.

    It has lines for up to six allocations of the best configurations in `rows`.
    """
    allowed = {(row.num_replicas, row.num_nodes): row for row in rows if row.is_allowed}
    charted = _spread([allowed[key] for key in sorted(allowed)])
    note = (
        "" if len(charted) == len(allowed) else f" ({len(charted)} of {len(allowed)})"
    )
    choice = "published choice" if limits.compat else "best"
    series = [_line(model, row, limits) for row in charted]
    title = f"goodput (samples/s) over batch size, {choice} marked{note}"
    chart = LineChart(title, "batch size", series)
    return chart if len(chart.xs) > 1 else None


def _spread(rows: Sequence[GoodputRow]) -> list[GoodputRow]:
    count = min(len(rows), MOST_SERIES)
    indices = np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))
    return [rows[index] for index in indices.tolist()]


def _line(model: GoodputModel, row: GoodputRow, limits: BatchLimits) -> Series:
    replicas, best = row.num_replicas, row.goodput
    first = max(limits.least, limits.low * replicas)
    last = (
        limits.most if limits.accumulation else min(limits.most, limits.high * replicas)
    )
    local = np.geomspace(first, max(first, last), LAYOUT.steps) / replicas
    steps = accumulation_steps(local, np.full_like(local, replicas), limits)
    atomic = np.round(local / (steps + 1))
    batch = replicas * (steps + 1) * atomic
    allowed = limits.allow(np.array(replicas), atomic, steps)
    allowed &= (limits.least <= batch) & (
        batch <= max(limits.most, limits.low * replicas)
    )
    goodput = model.evaluate(row.num_nodes, replicas, atomic[allowed], steps[allowed])
    points = zip(batch[allowed].tolist(), np.asarray(goodput).tolist(), strict=True)
    line = dict(points) | {row.batch_size: best}
    name = f"{counted(replicas, 'replica')} on {counted(row.num_nodes, 'node')}"
    return Series(name, sorted(line.items()), [Point(row.batch_size, best, best)])
