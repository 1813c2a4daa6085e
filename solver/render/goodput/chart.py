"""Charts of goodput: over batch sizes for several allocations, and over replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ppsolve.models.goodput.files import GoodputRow
from ppsolve.solver.goodput.model import GoodputModel
from ppsolve.solver.goodput.search import BatchLimits, accumulation_steps
from ppsolve.solver.render.charts import MOST_SERIES, LineChart, Point, Series

STEPS = 160
"""Batch sizes along a line, in geometric steps: enough that a picture shows no corners."""

MOST_SAMPLES = 2**34
"""Samples of a replica in a step beyond which no line is drawn: finding the divisors of a thousand
larger numbers would take more than a second."""

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
    listed = [row.batch_size for row in chosen]
    series = [_line(model, row, listed, limits) for row in chosen]
    return LineChart(f"{GOODPUT} over batch size, {choice} marked{shown}", "batch size", series)


def _spread(rows: Sequence[GoodputRow]) -> list[GoodputRow]:
    """Return as many rows as a chart can show, the first and the last among them."""
    count = min(len(rows), MOST_SERIES)
    places = np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))
    return [rows[place] for place in places.tolist()]


def _line(
    model: GoodputModel, row: GoodputRow, listed: Sequence[int], limits: BatchLimits
) -> Series:
    """Return the best goodput at each batch size of a line, and at those that are listed."""
    replicas, best = row.num_replicas, row.goodput or 0.0
    batches = sorted({*_grid(replicas, limits), *_powers(limits), *listed})
    steps = np.array([_steps(batch, replicas, limits) for batch in batches], dtype=np.float64)
    batch = np.array(batches, dtype=np.float64)
    atomic = batch / (replicas * np.maximum(steps, 1.0))
    allowed = (steps > 0) & limits.allow(np.array(replicas), atomic, steps - 1)
    allowed &= batch <= max(limits.most, limits.low * replicas)
    chosen = batch[allowed], atomic[allowed], steps[allowed] - 1
    goodput = np.asarray(model.evaluate(row.num_nodes, replicas, *chosen[1:]))
    line = dict(zip(chosen[0].tolist(), goodput.tolist(), strict=True)) | {row.batch_size: best}
    name = allocation_text(row.num_nodes, replicas)
    return Series(name, sorted(line.items()), [Point(row.batch_size, best, best)])


def _grid(replicas: int, limits: BatchLimits) -> list[int]:
    """Return batch sizes in geometric steps that take few accumulation steps."""
    first = max(limits.least, limits.low * replicas)
    last = limits.most if limits.accumulation else min(limits.most, limits.high * replicas)
    local = np.geomspace(first, max(first, last), STEPS) / replicas
    steps = accumulation_steps(local, np.full_like(local, replicas), limits) + 1
    return [int(batch) for batch in (replicas * steps * np.round(local / steps)).tolist()]


def _powers(limits: BatchLimits) -> list[int]:
    """Return the powers of two within the limits, which tables list."""
    first, last = math.ceil(limits.least), math.floor(limits.most)
    return [1 << power for power in range((first - 1).bit_length(), last.bit_length())]


def _steps(batch: int, replicas: int, limits: BatchLimits) -> int:
    """Return the fewest micro-batches of a replica that make up just this batch, 0 where none do.

    Of configurations of one batch size the one with the fewest is the best, see `BatchSizeSearch`.
    """
    local, rest = divmod(batch, replicas)
    if rest or not 0 < local <= MOST_SAMPLES:
        return 0
    samples = np.array(local, dtype=np.float64)
    least = accumulation_steps(samples, np.array(replicas), limits) + 1
    small = np.arange(1, math.isqrt(local) + 1)
    small = small[local % small == 0]
    divisors = np.concatenate([small, local // small[::-1]])
    return int(divisors[divisors >= least].min(initial=local))


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
