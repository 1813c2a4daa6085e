"""Plans on the terminal: the winner in words, its figures, why the others lost, and a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.plan.result import Configuration, Plan, PlanRow, Range, Rule, Verdict
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, seconds
from ppsolve.solver.render.line_chart import MOST_SERIES, LineChart, Point, Series
from ppsolve.solver.render.plan.progress import PER_SECOND
from ppsolve.solver.render.tables import Column, FittingTable, facts, indented
from ppsolve.solver.render.wording import STATUS_STYLE

ROWS = 10
"""Rows of the ranked table, unless asked for more."""

LONG_RUN = 3
"""Stages with equally many layers that are written as one figure from so many on."""

LOST_BY = {
    Rule.MEASURED: "measured",
    Rule.SOLVED: "solved",
    Rule.BOUND: "bound",
    Rule.ALLOWED: "schedules",
    Rule.NOT_APPLICABLE: "not applicable",
    Rule.NO_SCHEDULE: "no schedule",
    Rule.LIMIT: "undecided",
    Rule.MEMORY: "memory",
}
"""What decided, as it is called in the table."""

LEFT_OUT = {
    Rule.MEASURED: "decided by heuristics",
    Rule.SOLVED: "decided by the exact solver",
    Rule.BOUND: "ruled out by bounds",
    Rule.ALLOWED: "not better with the schedules that the request allows",
    Rule.NOT_APPLICABLE: "without any schedule that the request allows",
    Rule.NO_SCHEDULE: "no schedule",
    Rule.LIMIT: "undecided when the limits ended",
    Rule.MEMORY: "do not fit the memory",
}

COUNTED = (
    ("measured", "decided by heuristics"),
    ("solved", "decided by the exact solver"),
    ("pruned_by_bound", "ruled out by bounds"),
    ("pruned_by_memory", "proved not to fit the memory"),
    ("not_applicable", "without a schedule that the request allows"),
    ("undecided", "left undecided"),
)


def plan_line(plan: Plan) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    line = Text.assemble(_title(plan), overflow="fold")
    if plan.winner is not None and plan.goodput is not None:
        line.append(f" {goodput_range(plan.goodput)}, gap {percent(plan.gap)}")
        line.append(f", {in_words(plan.winner.configuration)}")
    else:
        line.append(f", {_nothing(plan)}")
    line.append(f", {seconds(plan.wall_seconds)}")
    return line


def plan_report(plan: Plan, *, top: int | None = None, verbose: bool = False) -> RenderableType:
    """Return a plan: the winner, its figures, what became of the others, and a chart.

    Parameters
    ----------
    plan : Plan
        What to show.
    top : int or None
        Rows of the ranked table; by default ten, or all if `verbose`.
    verbose : bool
        Show each row with its reason.
    """
    parts: list[RenderableType] = [_title(plan), facts(_facts(plan, verbose=verbose))]
    fitting = [row for row in plan.table if row.lost_by is not Rule.MEMORY]
    shown = list(plan.table) if verbose and top is None else fitting[: ROWS if top is None else top]
    if shown:
        parts += [Text(), indented(_ranking(shown, verbose=verbose))]
    else:
        parts.append(Text())
    if verbose:
        parts += [Text(), facts((f"rank {row.rank}", row.reason) for row in shown)]
    else:
        parts += [indented(Text(line, "dim")) for line in _left_out(plan, fitting[len(shown) :])]
    chart = plan_chart(plan)
    if chart is not None:
        parts += [Text(), indented(chart)]
    return Group(*parts)


def _title(plan: Plan) -> Text:
    return Text.assemble(f"{plan.request}: ", (plan.status.value, STATUS_STYLE[plan.status]))


def _nothing(plan: Plan) -> str:
    if _all_lack(plan):
        return "no configuration fits the memory (proved)"
    failed = {Rule.NO_SCHEDULE, Rule.NOT_APPLICABLE}
    reasons = (row.reason for row in plan.table if row.lost_by in failed)
    return f"no schedule found; e.g. {next(reasons, 'none was tried')}"


def _all_lack(plan: Plan) -> bool:
    return plan.counts.pruned_by_memory == plan.counts.enumerated


def in_words(configuration: Configuration) -> str:
    """Return a configuration as a sentence would name it."""
    c = configuration
    device = "one device" if c.pipeline_depth == 1 else f"pipeline of {c.pipeline_depth} devices"
    parts = [
        device + (f" x {c.replicas} replicas" if c.replicas > 1 else ""),
        _stages(c),
        f"micro-batch {c.microbatch_size}",
        _counted(c.microbatches, "micro-batch", "micro-batches"),
        f"batch {c.batch_size}",
        _words(c.rank_order) if _has_ranks(c) else "",
        f"{c.backward} backward",
    ]
    return ", ".join(part for part in parts if part)


def _has_ranks(c: Configuration) -> bool:
    """Whether stages and replicas compete for the devices of a node."""
    return c.pipeline_depth > 1 and c.replicas > 1


def _stages(c: Configuration) -> str:
    if c.pipeline_depth == 1:
        return ""
    if c.placement == "linear":
        return "one stage per device"
    return f"{c.virtual_stages} {c.placement} stages per device"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _counted(number: int, word: str, several: str = "") -> str:
    return f"{number:,} {word if number == 1 else several or word + 's'}"


def goodput_range(goodput: Range) -> str:
    """Return a goodput with its unit: one figure, or from what is reached to what is proved."""
    return f"{_span(goodput)} {PER_SECOND}"


def _span(spanned: Range) -> str:
    if spanned.low >= spanned.high:
        return figure(spanned.high)
    low, high = figures(spanned.low, spanned.high)
    return f"{low} to {high}" if spanned.low > 0 else f"at most {high}"


def _facts(plan: Plan, *, verbose: bool) -> Iterator[tuple[str, str]]:
    if plan.winner is not None:
        yield from _winner_facts(plan, plan.winner)
    else:
        yield "winner", f"none: {_nothing(plan)}"
    counts = plan.counts
    parts = [f"{number:,} {words}" for name, words in COUNTED if (number := getattr(counts, name))]
    enumerated = _counted(counts.enumerated, "configuration")
    yield (
        "considered",
        f"{enumerated}: {', '.join(parts)}"
        + (" (exhaustive: nothing was pruned by bounds)" if plan.exhaustive else ""),
    )
    if counts.not_formed:
        reasons = (f"{reason} ({number:,})" for reason, number in counts.not_formed.items())
        yield "not formed", ", ".join(reasons)
    ended = "interrupted" if plan.interrupted else "finished"
    yield "stopped", f"{ended} after {seconds(plan.wall_seconds)}"
    if verbose:
        yield "deterministic", "yes" if plan.deterministic else "no"
        yield "versions", ", ".join(f"{k} {v}" for k, v in plan.versions if v)


def _winner_facts(plan: Plan, winner: PlanRow) -> Iterator[tuple[str, str]]:
    yield "winner", in_words(winner.configuration)
    if winner.layers_per_stage:
        layers = run_lengths(winner.layers_per_stage)
        note = " (not proved to be the most balanced)" if winner.split_proved is False else ""
        yield "layers", f"{layers} on {_counted(len(winner.layers_per_stage), 'stage')}{note}"
    if plan.goodput is not None:
        is_proved = plan.goodput.low >= plan.goodput.high
        proof = "; proved: no other of the request has more" if is_proved else ""
        yield "goodput", f"{goodput_range(plan.goodput)}, gap {percent(plan.gap)}{proof}"
    if plan.goodput is not None and winner.goodput is not None:
        may_reach = winner.goodput.high
        if may_reach > plan.goodput.high:
            most = f"{figure(may_reach)} {PER_SECOND}"
            yield "besides", f"with any schedule at most {most}"
    if winner.throughput is not None and winner.efficiency is not None:
        throughput = figure(winner.throughput.low)
        yield "throughput", f"{throughput} {PER_SECOND}, efficiency {percent(winner.efficiency)}"
    if winner.step_time is not None:
        yield "step time", _step_time(winner.step_time, plan.time_unit)
    if winner.schedule_by:
        yield "schedule", f"by {winner.schedule_by}, checked"
    if plan.status.value != "OPTIMAL":
        yield "reason", winner.reason


def _step_time(step: Range, unit: str) -> str:
    text = f"{figure(step.high)} {unit}"
    if unit != "s":
        text += f" ({figure(step.high / UNITS_PER_SECOND[unit])} s)"
    return text if step.low >= step.high else f"{text}, proved: at least {figure(step.low)} {unit}"


def run_lengths(layers: Iterable[int]) -> str:
    """Return layers per stage: ``13 12 12 13``, long runs as ``4 3 (14 times) 4``."""
    parts: list[str] = []
    for number, run in groupby(layers):
        length = len(list(run))
        parts += [f"{number} ({length} times)"] if length >= LONG_RUN else [str(number)] * length
    return " ".join(parts)


def _ranking(rows: Sequence[PlanRow], *, verbose: bool) -> RenderableType:
    """Return the ranked table; what is the same in all rows has no column."""
    said_once = _shared(rows)
    features = [name for name in _FEATURES if name not in said_once]
    table = FittingTable(
        Column("rank", expendable=0 if verbose else 3),
        *(_FEATURES[name] for name in features),
        Column("goodput\nreached"),
        Column("goodput\nat most", expendable=1),
        Column("lost by", is_text=True, expendable=2),
    )
    for row in rows:
        cells = (_cell(name, row.configuration) for name in features)
        reached, most = _goodputs(row.goodput)
        style = "bold green" if row.verdict is Verdict.WINNER else ""
        table.add_row(str(row.rank), *cells, reached, most, _lost_by(row), style=style)
    if not said_once:
        return table
    said = ", ".join(
        _ONCE[name].format(value) for name, value in said_once.items() if value != ABSENT
    )
    return Group(table, Text(f"in all these rows: {said}", "dim"))


_FEATURES = {
    "pipeline": Column("devices x\nreplicas"),
    "placement": Column("stages per\ndevice", is_text=True),
    "microbatches": Column("micro-\nbatches"),
    "batch": Column("batch", expendable=4),
    "ranks": Column("rank\norder", is_text=True),
    "backward": Column("backward", is_text=True),
    "split": Column("layer\nsplit", is_text=True),
}
"""Columns that say what a configuration is."""

_ONCE = {
    "batch": "batch {}",
    "ranks": "{} first",
    "backward": "{} backward",
    "split": "{} layer split",
}
"""What is said below the table where it is the same in all rows."""


def _cell(feature: str, c: Configuration) -> str:
    cells = {
        "pipeline": f"{c.pipeline_depth} x {c.replicas}",
        "placement": "1" if c.placement == "linear" else f"{c.virtual_stages} {c.placement}",
        "microbatches": f"{c.microbatches} of {c.microbatch_size}",
        "batch": str(c.batch_size),
        "ranks": c.rank_order.value.removesuffix("_first") if _has_ranks(c) else ABSENT,
        "backward": c.backward,
        "split": c.layer_split,
    }
    return cells[feature]


def _shared(rows: Sequence[PlanRow]) -> dict[str, str]:
    """Return the features that all rows have in common; none for a single row."""
    values = {name: {_cell(name, row.configuration) for row in rows} for name in _ONCE}
    return {name: min(found) for name, found in values.items() if len(found) == 1}


def _goodputs(goodput: Range | None) -> tuple[str, str]:
    if goodput is None:
        return ABSENT, ABSENT
    low, high = figures(goodput.low, goodput.high)
    return (low if goodput.low > 0 else ABSENT), high


def _lost_by(row: PlanRow) -> str:
    return row.verdict.value if row.lost_by is None else LOST_BY[row.lost_by]


def _left_out(plan: Plan, rest: Sequence[PlanRow]) -> Iterator[str]:
    """Yield a line for each rule about the rows that are not in the table."""
    for rule in LOST_BY:
        high = [row.goodput.high for row in rest if row.lost_by is rule and row.goodput]
        if high:
            yield f"{len(high):,} more: {LEFT_OUT[rule]}, at most {figure(max(high))} {PER_SECOND}"
    lacking = [row for row in plan.table if row.lost_by is Rule.MEMORY]
    if lacking:
        yield f"{len(lacking):,} do not fit the memory: {_by_depth(plan.table, lacking)}"
        yield f"e.g. rank {lacking[0].rank}: {lacking[0].reason}"


def _by_depth(rows: Sequence[PlanRow], lacking: Sequence[PlanRow]) -> str:
    """Return how many rows of each pipeline depth do not fit."""
    total = Counter(row.configuration.pipeline_depth for row in rows)
    found = Counter(row.configuration.pipeline_depth for row in lacking)
    return ", ".join(
        f"{'all' if found[depth] == total[depth] else f'{found[depth]:,} of'} {total[depth]:,} "
        f"with {_counted(depth, 'device')}"
        for depth in sorted(found)
    )


def plan_chart(plan: Plan) -> LineChart | None:
    """Return the best goodput of each pipeline depth over batch sizes, if there is any.

    With one batch size: over pipeline depths. A point is reached by the best schedule found at
    that place, and proved to be at most the highest bound there.
    """
    rows = [row for row in plan.table if row.goodput is not None]
    if not rows:
        return None
    if len({row.configuration.batch_size for row in rows}) > 1:
        over, depths = "batch size", sorted({row.configuration.pipeline_depth for row in rows})
        found = [
            _series(
                f"depth {depth}",
                [(r.configuration.batch_size, r) for r in rows if _depth(r) == depth],
            )
            for depth in depths
        ]
        title = f"goodput ({PER_SECOND}) over batch size, best of each pipeline depth"
    else:
        over = "devices of a pipeline"
        found = [_series("best of each depth", [(_depth(row), row) for row in rows])]
        title = f"goodput ({PER_SECOND}) over pipeline depth"
    best = sorted(found, key=lambda series: -series.most)[:MOST_SERIES]
    kept = [series for series in found if series in best]
    chart = LineChart(title, over, kept, is_shifted=True)
    return chart if len(chart.xs) > 1 else None


def _depth(row: PlanRow) -> int:
    return row.configuration.pipeline_depth


def _series(name: str, placed: Iterable[tuple[int, PlanRow]]) -> Series:
    """Return the best that is reached and that is possible at each place."""
    reached: dict[int, float] = {}
    most: dict[int, float] = {}
    for x, row in placed:
        if row.goodput is not None:
            reached[x] = max(reached.get(x, 0.0), row.goodput.low)
            most[x] = max(most.get(x, 0.0), row.goodput.high)
    points = [Point(x, most[x], reached[x] or None) for x in sorted(most)]
    is_known = all(point.low == point.high for point in points)
    return Series(name, [(p.x, p.high) for p in points] if is_known else [], points)
