"""The chart of a schedule that every output draws: rows of bars, a legend, amounts over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from rich.console import Console, ConsoleOptions, RenderResult

from ppsolve.models.core.metrics import usage
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, ScheduleDocument, ScheduledOp
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import as_json_number
from ppsolve.models.kinds.kfac.labels import KIND_OF, UP_PIPE
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.pipeline.labels import STEP_KIND
from ppsolve.solver.structure.owners import pool_owners
from ppsolve.solver.views import colours

Window = tuple[float, float]

SYNC_KINDS = (KIND_OF["sync", "A"], KIND_OF["sync", "B"])
COMPUTE_KINDS = (
    *colours.PIPELINE,
    *(kind for kind in colours.KFAC if kind not in SYNC_KINDS),
)
COMMUNICATION_KINDS = frozenset(
    {
        SHOWN_TRANSFER,
        *colours.COLLECTIVES,
        *SYNC_KINDS,
        NodeKind.COMM.value,
        NodeKind.WAIT.value,
    }
)


@dataclass(frozen=True)
class Bar:
    """One op in a row, times in the schedule's unit."""

    start: float
    end: float
    kind: str  # decides the colour
    letter: str  # fits into one cell
    label: str  # written where there is room
    shade: int = 0  # tells virtual stages of one device, or neighbours, apart
    short: str = ""  # written where there is room for it, but not for the label

    def text(self, width: int) -> str:
        """Return the longest of its names that fits into `width` cells, else its letter."""
        names = (self.label, self.short)
        return next(
            (name for name in names if name and len(name) <= width), self.letter
        )

    @property
    def fill(self) -> str:
        """Its colour on pages and pictures."""
        return colours.look_of(self.kind).fill(self.shade)


@dataclass
class Row:
    """A named row; `is_device` rows come first and count for bubbles.

    From `end` on nothing is known of the row, and what is idle there is no bubble.
    """

    name: str
    is_device: bool
    bars: list[Bar] = field(default_factory=list)
    end: float | None = None
    device: int | None = None

    @property
    def busy(self) -> float:
        """Sum of the lengths of the bars, without waits."""
        return sum(
            bar.end - bar.start for bar in self.bars if bar.kind != colours.WAIT_KIND
        )


@dataclass(frozen=True)
class AmountCurve:
    """An amount over time."""

    name: str
    points: Sequence[
        tuple[float, float]
    ]  # amount from each time on, ascending; 0 before
    cap: float | None = None  # the most that is allowed
    device: int = 0  # below whose lanes pages draw it

    @property
    def most(self) -> float:
        """The largest amount."""
        return max((amount for _, amount in self.points), default=0)

    def scaled(self, factor: float) -> AmountCurve:
        """Return the curve with times multiplied by a factor."""
        return replace(
            self, points=[(time * factor, amount) for time, amount in self.points]
        )

    def columns(self, window: Window, width: int) -> list[float]:
        """Return the largest amount in each column of a window of time."""
        first, last = window
        amounts = [0.0] * width
        scale = width / (last - first) if last > first else 0.0
        rounding = 1e-9  # of a column
        for (start, amount), (end, _) in pairwise([*self.points, (last, 0)]):
            begin = max(math.floor((start - first) * scale + rounding), 0)
            right = min(math.ceil((end - first) * scale - rounding), width)
            for column in range(begin, right):
                amounts[column] = max(amounts[column], amount)
        return amounts


def pool_curves(schedule: Schedule) -> list[AmountCurve]:
    """Return the use of every memory pool over time, in ticks."""
    problem = schedule.problem
    return [
        AmountCurve(
            pool.name,
            [(tick, as_json_number(amount)) for tick, amount in usage(schedule, pool)],
            float(pool.capacity),
            device,
        )
        for pool, device in zip(problem.pools, pool_owners(problem), strict=True)
        if len(pool.acquire_op) + len(pool.release_op)
    ]


@dataclass(frozen=True)
class Chart:
    """The rows of a schedule, and what is drawn with them; devices have their busy share."""

    rows: list[Row]
    end: float  # right end of the time axis (the makespan), in the schedule's unit
    unit: str
    part: tuple[float, float | None] = (0, None)  # of the axis; None is its end
    iterations: Sequence[
        float
    ] = ()  # when those of the pipeline begin, the first of them 0
    small_letters: str = "2nd, 4th ... stage of a device"  # what they stand for
    curves: Sequence[AmountCurve] = ()  # drawn below the rows
    idle: str = "bubble"  # what it is called that nothing runs in a row

    @property
    def window(self) -> Window:
        """The part of the axis that is drawn."""
        first, last = self.part
        return first, self.end if last is None else last

    @property
    def legend(self) -> dict[str, colours.Look]:
        """The words of the legend and the looks that they name."""
        looks: dict[str, colours.Look] = {}
        for look in map(colours.look_of, kinds_of(self.rows)):
            if look.words:
                looks.setdefault(look.words, look)
        return looks

    def busy_share(self, row: Row) -> str:
        """Return the busy share of a device as a text; an empty one for links."""
        end = row.end or self.end
        return f"{row.busy / end if end else 0:.0%}" if row.is_device else ""

    def known_end(self, row: Row) -> float:
        """Return the time within the window up to which a row is known."""
        first, last = self.window
        return last if row.end is None else min(max(row.end, first), last)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Yield the chart's lines on a terminal, none wider than the console."""
        from ppsolve.solver.views.terminal_chart import chart_lines

        yield from chart_lines(self, options)


def chart_rows(
    document: ScheduleDocument, problem: Problem | None = None, *, links: bool = False
) -> list[Row]:
    """Return the rows of a chart, devices first, in the order of their numbers.

    A problem gives every resource its row and name; without it rows follow the labels of ops. With
    `links` there are also links, NICs and communication streams.
    """
    if problem is not None:
        rows = _rows_of_resources(document, problem)
    else:
        rows = _rows_of_labels(document)
    return [row for row in rows if row.is_device or (links and row.bars)]


def _rows_of_resources(document: ScheduleDocument, problem: Problem) -> list[Row]:
    devices = set(problem.span_resources.tolist())
    rows = [
        Row(str(key), number in devices, device=key.device)
        for number, key in enumerate(problem.resources)
    ]
    names = problem.op_names(range(problem.num_ops))
    number_of = {name: op for op, name in enumerate(names)}
    chunks = _chunks(document)
    for position, op in enumerate(document.ops):
        bar = _bar(op, position, chunks)
        if op.id in number_of:
            for resource in problem.resources_of(number_of[op.id]).tolist():
                rows[resource].bars.append(bar)
    return sorted(rows, key=lambda row: not row.is_device)


def _rows_of_labels(document: ScheduleDocument) -> list[Row]:
    rows: dict[tuple[bool, int], Row] = {}
    chunks = _chunks(document)
    for position, op in enumerate(document.ops):
        if op.device is None or op.kind == STEP_KIND:
            continue
        is_device = op.kind not in COMMUNICATION_KINDS
        name = f"device {op.device}" if is_device else f"comm {op.device}"
        row = rows.setdefault(
            (not is_device, op.device), Row(name, is_device, device=op.device)
        )
        row.bars.append(_bar(op, position, chunks))
    return [rows[key] for key in sorted(rows)]


_Chunks = dict[tuple[int | None, int | None], int]


def _chunks(document: ScheduleDocument) -> _Chunks:
    held: dict[int, set[int]] = {}
    for op in document.ops:
        if op.device is not None and op.stage is not None and op.kind in COMPUTE_KINDS:
            held.setdefault(op.device, set()).add(op.stage)
    return {
        (device, stage): chunk
        for device, stages in held.items()
        for chunk, stage in enumerate(sorted(stages))
    }


def _bar(op: ScheduledOp, position: int, chunks: _Chunks) -> Bar:
    kind = op.kind or colours.GENERIC_KIND
    if kind == colours.GENERIC_KIND:
        return Bar(op.start, op.end, kind, op.id[:1], op.id, position)
    chunk = chunks.get((op.device, op.stage), 0) or int(UP_PIPE in op.id)
    if kind == SHOWN_TRANSFER:
        letter = "<" if op.id.startswith("TB") else ">"
    else:
        letter = colours.letter_of(kind)
        letter = letter.lower() if chunk % 2 else letter
    if "+" in kind:
        pieces = [(name[:1], *name[1:].split(".")) for name in op.id.split("+")]
        chunk_of = {
            stage: chunks.get((op.device, int(stage)), 0) for _, stage, _ in pieces
        }
        names = (
            f"{k.lower() if chunk_of[s] % 2 else k}{number}" for k, s, number in pieces
        )
        return Bar(op.start, op.end, kind, letter, "+".join(names), chunk)
    # Names of ops of a refresh begin with their device, which is their stage.
    number = op.stage if op.microbatch is None and "/" not in op.id else op.microbatch
    label = ".".join(str(index) for index in (number, op.slice) if index is not None)
    return Bar(op.start, op.end, kind, letter, f"{letter}{label}", chunk)


def kinds_of(rows: list[Row]) -> list[str]:
    """Return the kinds that are seen, compute kinds first, in their usual order.

    Backwards that take no time, as those of inference, are not.
    """
    present = dict.fromkeys(
        bar.kind
        for row in rows
        for bar in row.bars
        if bar.end > bar.start or bar.kind not in COMPUTE_KINDS
    )
    usual = [
        *COMPUTE_KINDS,
        *SYNC_KINDS,
        *sorted({SHOWN_TRANSFER, *colours.COLLECTIVES}),
    ]
    return [kind for kind in usual if kind in present] + [
        k for k in present if k not in usual
    ]


def has_chunks(rows: list[Row]) -> bool:
    """Whether a device holds more than one stage."""
    bars = (bar for row in rows for bar in row.bars)
    return any(bar.shade > 0 for bar in bars if bar.kind in COMPUTE_KINDS)


@dataclass(frozen=True)
class ColumnRun:
    """A run of columns that belong to one bar, or to nothing (a bubble)."""

    bar: Bar | None
    width: int


_Shares = list[dict[str | None, float]]
_Longest = list[dict[str | None, tuple[float, Bar]]]


def columns(bars: list[Bar], first: float, last: float, width: int) -> list[ColumnRun]:
    """Divide the time from `first` to `last` into columns and say what each shows.

    A column shows the kind that fills most of it, or a bubble if idle time does; an op that would
    vanish inside a bubble keeps one column. Where ops are shorter than columns, kinds and bubbles
    take turns so that each gets columns in proportion to its time.

    The runs of columns go from left to right, `width` columns in all.
    """
    scale = width / (last - first) if last > first else 0.0
    shares: _Shares = [{} for _ in range(width)]
    longest: _Longest = [{} for _ in range(width)]
    pieces = 0
    for bar in bars:
        for column, share in _shares(
            (bar.start - first) * scale, (bar.end - first) * scale, width
        ):
            pieces += 1
            shares[column][bar.kind] = shares[column].get(bar.kind, 0.0) + share
            if share > longest[column].get(bar.kind, (0.0,))[0]:
                longest[column][bar.kind] = (share, bar)
    for column_shares in shares:
        column_shares[None] = max(1.0 - sum(column_shares.values()), 0.0)
    # With more ops per column, columns stand for shares of time rather than for ops.
    crowded = pieces > 2.5 * width
    largest = (max(reversed(column), key=column.__getitem__) for column in shares)
    kinds = _in_turns(shares) if crowded else list(largest)
    owners = [
        best[kind][1] if kind in best else None
        for kind, best in zip(kinds, longest, strict=True)
    ]
    if not crowded:
        _keep_short_ops(longest, owners)
    return [
        ColumnRun(run[0], len(run))
        for run in (list(g) for _, g in groupby(owners, key=id))
    ]


def _in_turns(shares: _Shares) -> list[str | None]:
    # What a column hides is owed to the next ones.
    kinds: list[str | None] = []
    owed: dict[str | None, float] = {}
    for column in shares:
        for kind, share in column.items():
            owed[kind] = owed.get(kind, 0.0) + share
        present = [kind for kind, share in column.items() if share > 0]
        kind = max(present, key=lambda kind: owed[kind])
        owed[kind] -= 1.0
        kinds.append(kind)
    return kinds


def _shares(start: float, end: float, width: int) -> Iterator[tuple[int, float]]:
    start, end = max(start, 0.0), min(end, float(width))
    column = int(start)
    while column < end:
        yield column, min(end, column + 1) - max(start, column)
        column += 1


def _keep_short_ops(longest: _Longest, owners: list[Bar | None]) -> None:
    visible = {id(owner) for owner in owners}
    for column, best in enumerate(longest):
        if owners[column] is None and best:
            bar = max(best.values(), key=lambda item: item[0])[1]
            if id(bar) not in visible:
                owners[column] = bar
                visible.add(id(bar))
