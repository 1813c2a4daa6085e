"""Charts of goodput: over batch sizes for several allocations, and over replicas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsolve.models.core.arrays import Floats
from ppsolve.models.goodput.result import GoodputRow
from ppsolve.solver.goodput.model import GoodputModel
from ppsolve.solver.goodput.search import BatchLimits, accumulation_steps
from ppsolve.solver.render.charts import MOST_SERIES, LineChart, Point, Series

STEPS = 160
"""Batch sizes along a line, in geometric steps: enough that a picture shows no corners."""

LEAST_PLACES = 3
"""Fewer numbers of replicas are told by the table well enough."""

MOST_MARKS = 8
"""A line with more points has no marks: they would hide it."""

GOODPUT = "goodput (samples/s)"


def goodput_charts(
    model: GoodputModel, rows: Sequence[GoodputRow], limits: BatchLimits
) -> list[LineChart]:
    """Return the charts that show something: over batch sizes, over replicas.

    Parameters
    ----------
    model : GoodputModel
        The job.
    rows : sequence of GoodputRow
        The best configuration of each allocation.
    limits : BatchLimits
        The limits that these were chosen within.

    Returns
    -------
    list of LineChart
        None, one or both.
    """
    allowed = [row for row in rows if row.is_allowed]
    charts = [_over_batches(model, allowed, limits)] if allowed else []
    if len({row.num_replicas for row in allowed}) >= LEAST_PLACES:
        charts.append(_over_replicas(allowed))
    return [chart for chart in charts if len(chart.xs) > 1]


def allocation_text(nodes: int, replicas: int) -> str:
    """Return ``16 replicas on 4 nodes``.

    Parameters
    ----------
    nodes, replicas : int
        Their numbers.

    Returns
    -------
    str
        Both numbers in words.
    """
    return f"{_several(replicas, 'replica')} on {_several(nodes, 'node')}"


def _several(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _over_batches(
    model: GoodputModel, rows: Sequence[GoodputRow], limits: BatchLimits
) -> LineChart:
    places = {(row.num_replicas, row.num_nodes): row for row in rows}
    chosen = _spread([places[place] for place in sorted(places)])
    shown = "" if len(chosen) == len(places) else f", {len(chosen)} of {len(places)} allocations"
    choice = "published choice" if limits.compat else "best"
    series = [_line(model, row, limits) for row in chosen]
    return LineChart(f"{GOODPUT} over batch size, {choice} marked{shown}", "batch size", series)


def _spread(rows: Sequence[GoodputRow]) -> list[GoodputRow]:
    """Return as many rows as a chart can show, the first and the last among them."""
    count = min(len(rows), MOST_SERIES)
    places = np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))
    return [rows[place] for place in places.tolist()]


def _line(model: GoodputModel, row: GoodputRow, limits: BatchLimits) -> Series:
    """Return the goodput at each batch size, with as few accumulation steps as it takes."""
    atomic, accum = _configurations(row.num_replicas, limits)
    batch = row.num_replicas * atomic * (accum + 1)
    goodput = model.evaluate(row.num_nodes, row.num_replicas, atomic, accum)
    best = row.goodput or 0.0
    line = dict(zip(batch.tolist(), np.asarray(goodput).tolist(), strict=True))
    line[row.batch_size] = best
    name = allocation_text(row.num_nodes, row.num_replicas)
    return Series(name, sorted(line.items()), [Point(row.batch_size, best, best)])


def _configurations(replicas: int, limits: BatchLimits) -> tuple[Floats, Floats]:
    """Return micro-batch sizes and accumulation steps, one of each per batch size in a line."""
    first = max(limits.least, limits.low * replicas)
    last = limits.most if limits.accumulation else min(limits.most, limits.high * replicas)
    local = np.geomspace(first, max(first, last), STEPS) / replicas
    accum = accumulation_steps(local, np.full_like(local, replicas), limits)
    atomic = np.round(local / (accum + 1))
    allowed = limits.allow(np.array(replicas), atomic, accum)
    return atomic[allowed], accum[allowed]


def _over_replicas(rows: Sequence[GoodputRow]) -> LineChart:
    """Return the best goodput over replicas: on one node, and on several, which are all alike."""
    alone = [row for row in rows if row.num_nodes == 1]
    spread = [row for row in rows if row.num_nodes > 1]
    named = (("on one node", alone), ("on several nodes", spread))
    series = [_best_of_each(name, found) for name, found in named if found]
    return LineChart(f"{GOODPUT} over replicas, best batch size of each", "replicas", series)


def _best_of_each(name: str, rows: Sequence[GoodputRow]) -> Series:
    best = {row.num_replicas: row.goodput or 0.0 for row in rows}
    line = sorted(best.items())
    marked = [Point(x, y, y) for x, y in line] if len(line) <= MOST_MARKS else []
    return Series(name, line, marked)
