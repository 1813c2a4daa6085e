"""Plans on the terminal: the winner in words, its figures, why the others lost, and a chart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.studies.plan.result import (
    Configuration,
    Plan,
    PlanRow,
    Range,
    Rule,
    Verdict,
)
from ppsolve.solver.views.figures import (
    ABSENT,
    counted,
    figure,
    figures,
    percent,
    seconds,
)
from ppsolve.solver.views.line_chart import MOST_SERIES, LineChart, Point, Series
from ppsolve.solver.views.progress import PER_SECOND
from ppsolve.solver.views.tables import (
    FactList,
    Field,
    FittingTable,
    TableColumn,
    indented,
)
from ppsolve.solver.views.wording import STATUS_STYLE

# What decided: as it is called in the table, in words, and the count of a plan that is about it.
RULES = {
    Rule.MEASURED: ("measured", "decided by heuristics", "measured"),
    Rule.SOLVED: ("solved", "decided by the exact solver", "solved"),
    Rule.BOUND: ("bound", "ruled out by bounds", "pruned_by_bound"),
    Rule.ALLOWED: (
        "schedules",
        "not better with the schedules that the request allows",
        None,
    ),
    Rule.NOT_APPLICABLE: (
        "not applicable",
        "without a schedule that the request allows",
        "not_applicable",
    ),
    Rule.SCHEDULES_MEMORY: (
        "memory",
        "with schedules beyond the memory",
        "schedules_memory",
    ),
    Rule.NO_SCHEDULE: ("no schedule", "no schedule", None),
    Rule.LIMIT: ("undecided", "undecided when the limits ended", "undecided"),
    Rule.MEMORY: ("memory", "proved not to fit the memory", "pruned_by_memory"),
}


BEYOND_MEMORY = frozenset({Rule.MEMORY, Rule.SCHEDULES_MEMORY})


def plan_line(plan: Plan) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    line = Text.assemble(_title(plan), overflow="fold")
    if plan.winner is not None and plan.goodput is not None:
        line.append(f" {goodput_text(plan.goodput)}, gap {percent(plan.gap)}")
        line.append(f", {in_words(plan.winner.configuration)}")
    else:
        line.append(f", {_nothing(plan)}")
    line.append(f", {seconds(plan.wall_seconds)}")
    return line


def plan_report(plan: Plan, *, top: int | None = None, verbose: bool = False) -> Group:
    """Return a plan: the winner, its figures, what became of the others, and a chart.

    The ranked table has `top` rows, by default ten, or all if `verbose`, which adds their reasons.
    """
    content: list[RenderableType] = [
        _title(plan),
        FactList(_facts(plan, verbose=verbose)),
        Text(),
    ]
    fitting = [row for row in plan.table if row.lost_by not in BEYOND_MEMORY]
    listed = (
        list(plan.table)
        if verbose and top is None
        else fitting[: 10 if top is None else top]
    )
    if listed:
        content.append(indented(_ranking(listed, verbose=verbose)))
    if verbose:
        content += [
            Text(),
            FactList((f"rank {row.rank}", row.reason) for row in listed),
        ]
    else:
        content += [
            indented(Text(line, "dim")) for line in _left_out(fitting[len(listed) :])
        ]
    lacking = [row for row in plan.table if row.lost_by in BEYOND_MEMORY]
    if lacking:
        refusals = _refusals(lacking, None if verbose else 4)
        content += [Text(), *(indented(Text(line)) for line in refusals)]
    chart = plan_chart(plan)
    if chart is not None:
        content += [Text(), indented(chart)]
    return Group(*content)


def _title(plan: Plan) -> Text:
    return Text.assemble(
        f"{plan.request}: ", (plan.status.value, STATUS_STYLE[plan.status])
    )


def _nothing(plan: Plan) -> str:
    if plan.counts.pruned_by_memory == plan.counts.enumerated:
        return "no configuration fits the memory (proved)"
    failed = {Rule.NO_SCHEDULE, Rule.NOT_APPLICABLE, Rule.SCHEDULES_MEMORY}
    reasons = (row.reason for row in plan.table if row.lost_by in failed)
    return f"no schedule found; e.g. {next(reasons, 'none was tried')}"


def in_words(configuration: Configuration) -> str:
    """Return a configuration as a sentence would name it."""
    c = configuration
    device = (
        "one device"
        if c.pipeline_depth == 1
        else f"pipeline of {c.pipeline_depth} devices"
    )
    many = f"{c.virtual_stages} {c.placement} stages per device"
    stages = "one stage per device" if c.placement == "linear" else many
    phrases = [
        device + (f" x {c.replicas} replicas" if c.replicas > 1 else ""),
        stages if c.pipeline_depth > 1 else "",
        f"tensor parallelism {c.tensor_parallel}" if c.tensor_parallel > 1 else "",
        f"{c.recompute} recomputation" if c.recompute != "none" else "",
        f"micro-batch {c.microbatch_size}",
        counted(c.microbatches, "micro-batch"),
        f"batch {c.batch_size}",
        c.rank_order.replace("_", " ") if _has_ranks(c) else "",
        f"{c.backward} backward",
    ]
    return ", ".join(phrase for phrase in phrases if phrase)


def _has_ranks(c: Configuration) -> bool:
    """Whether stages and replicas compete for the devices of a node."""
    return c.pipeline_depth > 1 and c.replicas > 1


def goodput_text(goodput: Range | None) -> str:
    """Return a goodput with its unit: one figure, or from what is reached to what is proved."""
    return ABSENT if goodput is None else f"{range_text(goodput)} {PER_SECOND}"


def range_text(spanned: Range) -> str:
    """Return one figure, or from what is reached to what is proved."""
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
    numbers = (
        (getattr(counts, name), words) for _, words, name in RULES.values() if name
    )
    tallies = [f"{number:,} {words}" for number, words in numbers if number]
    enumerated = counted(counts.enumerated, "configuration")
    note = " (exhaustive: nothing was pruned by bounds)" if plan.exhaustive else ""
    yield "considered", f"{enumerated}: {', '.join(tallies)}{note}"
    if counts.not_formed:
        reasons = (
            f"{reason} ({number:,})" for reason, number in counts.not_formed.items()
        )
        yield "not formed", ", ".join(reasons)
    ended = "interrupted" if plan.interrupted else "finished"
    yield "stopped", f"{ended} after {seconds(plan.wall_seconds)}"
    if verbose:
        yield "deterministic", "yes" if plan.deterministic else "no"
        yield "versions", ", ".join(f"{k} {v}" for k, v in plan.versions if v)


def _winner_facts(plan: Plan, winner: PlanRow) -> Iterator[tuple[str, str]]:
    yield "winner", in_words(winner.configuration)
    if winner.layers_per_stage:
        layers, ends = _layers_text(plan, winner.layers_per_stage)
        is_searched = winner.configuration.layer_split == "searched"
        doubt = (
            "another split may be better"
            if is_searched
            else "not proved to be most balanced"
        )
        note = f" ({doubt})" if winner.split_proved is False else ""
        yield (
            "layers",
            f"{layers} on {counted(len(winner.layers_per_stage), 'stage')}{ends}{note}",
        )
    if plan.goodput is not None:
        is_proved = plan.goodput.low >= plan.goodput.high
        proof = "; proved: no other of the request has more" if is_proved else ""
        yield "goodput", f"{goodput_text(plan.goodput)}, gap {percent(plan.gap)}{proof}"
        if winner.goodput is not None and winner.goodput.high > plan.goodput.high:
            highest = f"{figure(winner.goodput.high)} {PER_SECOND}"
            yield "besides", f"with any schedule at most {highest}"
    if winner.throughput is not None and winner.efficiency is not None:
        throughput = figure(winner.throughput.low)
        yield (
            "throughput",
            f"{throughput} {PER_SECOND}, efficiency {percent(winner.efficiency)}",
        )
    if winner.step_time is not None:
        yield "step time", _step_time(winner.step_time, plan.time_unit)
    if winner.schedule_by:
        yield "schedule", f"by {winner.schedule_by}, checked"
    if plan.status.value != "OPTIMAL":
        yield "reason", winner.reason


def _layers_text(plan: Plan, counts: tuple[int, ...]) -> tuple[str, str]:
    """Say the layers of stages; those of a decoder without its ends, which are said apart."""
    plan_origin = None if plan.instance is None else plan.instance.plan
    if plan_origin is None or plan_origin.model is None:
        return run_lengths(counts), ""
    decoders = [*counts]
    decoders[0] -= 1
    decoders[-1] -= 1
    text = ", with the embedding on the first and the head on the last"
    return f"{run_lengths(decoders)} decoder layers", text


def _step_time(step: Range, unit: str) -> str:
    text = f"{figure(step.high)} {unit}"
    if unit != "s":
        text += f" ({figure(step.high / UNITS_PER_SECOND[unit])} s)"
    return (
        text
        if step.low >= step.high
        else f"{text}, proved: at least {figure(step.low)} {unit}"
    )


def run_lengths(layers: Iterable[int]) -> str:
    """Return layers per stage: ``13 12 12 13``, long runs as ``4 3 (14 times) 4``."""
    runs: list[str] = []
    for number, run in groupby(layers):
        length = len(list(run))
        runs += (
            [f"{number} ({length} times)"] if length >= 3 else [str(number)] * length
        )
    return " ".join(runs)


def _ranking(rows: Sequence[PlanRow], *, verbose: bool) -> RenderableType:
    columns = [
        feature.column([row.configuration for row in rows]) for feature in FEATURES
    ]
    shared = {
        c.header: c.cells[0] for c in columns if c.cells and len(set(c.cells)) == 1
    }
    once = {head: words for head, words in SAID_ONCE.items() if head in shared}
    lost = [RULES[row.lost_by][0] if row.lost_by else row.verdict.value for row in rows]
    table = FittingTable(
        TableColumn(
            "rank", [str(row.rank) for row in rows], expendable=0 if verbose else 4
        ),
        *(column for column in columns if column.header not in once),
        TableColumn("goodput\nreached", [_goodputs(row.goodput)[0] for row in rows]),
        TableColumn(
            "goodput\nat most",
            [_goodputs(row.goodput)[1] for row in rows],
            expendable=2,
        ),
        TableColumn("lost by", lost, is_text=True, expendable=3),
        styles=["bold green" if row.verdict is Verdict.WINNER else "" for row in rows],
        caption="Configurations",
    )
    usual = {ABSENT, "1", "none"}
    said = ", ".join(
        w.format(shared[h]) for h, w in once.items() if shared[h] not in usual
    )
    return Group(table, Text(f"in all these rows: {said}", "dim")) if said else table


FEATURES: tuple[Field[Configuration], ...] = (
    Field("devices x\nreplicas", lambda c: f"{c.pipeline_depth} x {c.replicas}"),
    Field(
        "stages per\ndevice",
        lambda c: (
            "1" if c.placement == "linear" else f"{c.virtual_stages} {c.placement}"
        ),
    ),
    Field("micro-\nbatches", lambda c: f"{c.microbatches} of {c.microbatch_size}"),
    Field("TP", lambda c: str(c.tensor_parallel)),
    Field("recom-\npute", lambda c: c.recompute),
    Field("batch", lambda c: c.batch_size, 5, str),
    Field(
        "rank\norder",
        lambda c: c.rank_order.removesuffix("_first") if _has_ranks(c) else ABSENT,
    ),
    Field("back-\nward", lambda c: c.backward),
    Field("layer\nsplit", lambda c: c.layer_split, 1),
)
# What is said below the table where it is the same in all rows.
SAID_ONCE = {
    "TP": "tensor parallelism (TP) {}",
    "recom-\npute": "{} recomputation",
    "batch": "batch {}",
    "rank\norder": "{} first",
    "back-\nward": "{} backward",
    "layer\nsplit": "{} layer split",
}


def _goodputs(goodput: Range | None) -> tuple[str, str]:
    if goodput is None:
        return ABSENT, ABSENT
    low, high = figures(goodput.low, goodput.high)
    return (low if goodput.low > 0 else ABSENT), high


def _left_out(rows: Sequence[PlanRow]) -> Iterator[str]:
    for rule, (_, words, _) in RULES.items():
        high = [row.goodput.high for row in rows if row.lost_by is rule and row.goodput]
        if high:
            yield f"{len(high):,} more: {words}, at most {figure(max(high))} {PER_SECOND}"


def _refusals(rows: Sequence[PlanRow], limit: int | None) -> Iterator[str]:
    """Yield what does not fit the memory, alike rows together, those that lack least first."""
    alike: dict[str, list[PlanRow]] = defaultdict(list)
    for row in sorted(
        rows, key=lambda row: (row.memory and row.memory.needed) or math.inf
    ):
        schedule = (
            f", {row.memory.schedule}" if row.memory and row.memory.schedule else ""
        )
        alike[f"{_held_by(row.configuration)}{schedule}"].append(row)
    yield f"{len(rows):,} do not fit the memory:"
    for words, group in islice(alike.items(), limit):
        lack = str(group[0].memory or group[0].reason)
        yield f"{len(group):,} with {words}: {lack}"
    unlisted = (
        0 if limit is None else sum(map(len, islice(alike.values(), limit, None)))
    )
    if unlisted:
        yield f"{unlisted:,} more, which lack more (--verbose and JSON have all)"


def _held_by(c: Configuration) -> str:
    shared = f", TP {c.tensor_parallel}" if c.tensor_parallel > 1 else ""
    again = f", {c.recompute} recomputation" if c.recompute != "none" else ""
    return f"{counted(c.pipeline_depth, 'device')}{shared}, micro-batch {c.microbatch_size}{again}"


def plan_chart(plan: Plan) -> LineChart | None:
    """Return the best goodput of each pipeline depth over batch sizes, if there is any.

    With one batch size: over pipeline depths. A point is reached by the best schedule found at
    that place, and proved to be at most the highest bound there.
    """
    rows = [row for row in plan.table if row.goodput is not None]
    by_batch = len({row.configuration.batch_size for row in rows}) > 1
    series: dict[str, list[tuple[int, Range]]] = {}
    for row in sorted(rows, key=lambda row: row.configuration.pipeline_depth):
        batch, depth = row.configuration.batch_size, row.configuration.pipeline_depth
        name, x = (
            (f"depth {depth}", batch) if by_batch else ("best of each depth", depth)
        )
        assert row.goodput is not None
        series.setdefault(name, []).append((x, row.goodput))
    all_series = [_series(name, placed) for name, placed in series.items()]
    best = sorted(all_series, key=lambda series: -series.most)[:MOST_SERIES]
    over = "batch size" if by_batch else "devices of a pipeline"
    subject = (
        "batch size, best of each pipeline depth" if by_batch else "pipeline depth"
    )
    kept = [series for series in all_series if series in best]
    chart = LineChart(f"goodput ({PER_SECOND}) over {subject}", over, kept)
    return chart if len(chart.xs) > 1 else None


def _series(name: str, placed: Iterable[tuple[int, Range]]) -> Series:
    reached, highest = defaultdict[int, float](float), defaultdict[int, float](float)
    for x, goodput in placed:
        reached[x] = max(reached[x], goodput.low)
        highest[x] = max(highest[x], goodput.high)
    points = [Point(x, highest[x], reached[x] or None) for x in sorted(highest)]
    is_known = all(point.low == point.high for point in points)
    return Series(name, [(p.x, p.high) for p in points] if is_known else [], points)
