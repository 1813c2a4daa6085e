"""Fits, predictions and best configurations of data-parallel jobs on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.goodput.files import GoodputRow
from ppsolve.models.goodput.params import Fit
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.goodput.chart import allocation_text
from ppsolve.solver.render.tables import FittingTable, TableColumn, facts, indented

MEANING = {
    "alpha_c": "start of a micro-batch",
    "beta_c": "each sample of it",
    "alpha_n": "exchange over several nodes",
    "beta_n": "each replica beyond 2 there",
    "alpha_r": "exchange within one node",
    "beta_r": "each replica beyond 2 there",
    "gamma": "overlap, 1: none",
}
"""What the parameters of a step time stand for."""


def fit_report(title: str, fit: Fit) -> RenderableType:
    """Return a fit: its parameters, how well they predict, and what the data leave open.

    Parameters
    ----------
    title : str
        The first line.
    fit : Fit
        The fit.

    Returns
    -------
    RenderableType
        Facts, a table and warnings.
    """
    table = FittingTable(
        TableColumn("parameter", is_text=True),
        TableColumn("value"),
        TableColumn("what it is the time of", is_text=True, expendable=1),
        *([TableColumn("not fitted: why", is_text=True, wraps=True)] if fit.fixed else []),
    )
    for name, value in zip(MEANING, fit.params, strict=True):
        why = [fit.fixed.get(name, "")] if fit.fixed else []
        table.add_row(name, number(value), MEANING[name], *why)
    parts: list[RenderableType] = [Text(title), facts(_fit_facts(fit)), Text(), indented(table)]
    parts += [indented(Text(f"warning: {text}", "yellow")) for text in fit.warnings]
    return Group(*parts)


def fit_line(title: str, fit: Fit) -> Text:
    """Return a fit in one line, for `--quiet`.

    Parameters
    ----------
    title : str
        Beginning of the line.
    fit : Fit
        The fit.

    Returns
    -------
    Text
        Its objective, and its errors in percent.
    """
    errors = ", ".join(f"{name} off by {text}" for name, text in _errors(fit))
    return Text(f"{title}: objective {fit.objective:.6g}, {errors}", overflow="fold")


def _fit_facts(fit: Fit) -> Iterator[tuple[str, str]]:
    starts = f"best of {fit.starts} starts" if fit.starts > 1 else "one start"
    rest = "" if fit.converged else ", stopped before it came to rest"
    yield "objective", f"{fit.objective:.6g}  ({starts}{rest})"
    yield from _errors(fit)
    raised = [
        name
        for name, value, raw in zip(MEANING, fit.params, fit.raw_params, strict=True)
        if value != raw
    ]
    if raised:
        yield "raised", f"{', '.join(raised)}: several nodes are taken to be no faster than one"


def _errors(fit: Fit) -> Iterator[tuple[str, str]]:
    """Yield by how much the predictions are off: half of them, and the worst."""
    off = np.abs(np.expm1(fit.residuals))
    for name, errors in zip(("accumulation step", "optimizer step"), off.T, strict=True):
        half, worst = float(np.median(errors)), float(np.max(errors))
        yield name, f"{percent(half)} (median), {percent(worst)} (worst)"


def number(value: float) -> str:
    """Return a parameter, of any size, with six digits."""
    return figure(value) if 1e-4 <= value < 1e6 or not value else f"{value:.5e}"


def rows_table(rows: Sequence[GoodputRow]) -> RenderableType:
    """Return configurations, one a row; columns that no row has are left out."""
    has_efficiency = any(row.goodput is not None for row in rows)
    table = FittingTable(
        TableColumn("nodes"),
        TableColumn("repli-\ncas"),
        TableColumn("per\nreplica"),
        TableColumn("accum.\nsteps"),
        TableColumn("batch", expendable=1),
        TableColumn("step\ntime (s)", expendable=2),
        TableColumn("samples\n/s", expendable=3),
        *((TableColumn("effi-\nciency"), TableColumn("goodput\n/s")) if has_efficiency else ()),
    )
    for row in rows:
        table.add_row(*_cells(row, has_efficiency), style="" if row.is_allowed else "dim")
    return table


def _cells(row: GoodputRow, has_efficiency: bool) -> Iterator[str]:
    yield from (figure(row.num_nodes), figure(row.num_replicas))
    if not row.is_allowed:
        yield from [ABSENT] * (5 + has_efficiency)
        yield from ["none allowed"] * has_efficiency
        return
    yield from (figure(row.atomic_bsz), figure(row.accum_steps), figure(row.batch_size))
    yield figure(row.step_time)
    yield figure(row.throughput)
    if has_efficiency:
        yield from (percent(row.efficiency), figure(row.goodput))


def row_line(row: GoodputRow) -> Text:
    """Return the best configuration of an allocation in one line, for `--quiet`."""
    line = f"{allocation_text(row.num_nodes, row.num_replicas)}: "
    if not row.is_allowed:
        return Text(f"{line}none allowed")
    per_replica = f"{figure(row.atomic_bsz)} a replica"
    if row.accum_steps:
        per_replica += f", {row.accum_steps + 1} times"
    line += f"goodput {figure(row.goodput)} samples/s, batch {figure(row.batch_size)}"
    return Text(f"{line} ({per_replica})", overflow="fold")


def grid_table(rows: Sequence[GoodputRow]) -> RenderableType:
    """Return the goodput of each number of replicas (down) and nodes (across), batches beside."""
    nodes = sorted({row.num_nodes for row in rows})
    table = FittingTable(
        TableColumn("replicas"),
        *(TableColumn(_nodes(n), expendable=place) for place, n in enumerate(nodes)),
    )
    found = {(row.num_replicas, row.num_nodes): row for row in rows}
    for replicas in sorted({row.num_replicas for row in rows}):
        cells = (_grid_cell(found.get((replicas, n))) for n in nodes)
        table.add_row(figure(replicas), *cells)
    return Group(table, Text("goodput (samples/s) and batch size", "dim"))


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number:,} nodes"


def _grid_cell(row: GoodputRow | None) -> str:
    if row is None or not row.is_allowed:
        return ABSENT
    return f"{figure(row.goodput)} ({figure(row.batch_size)})"
