"""Results as they leave the program: statuses, heuristic entries, schedules."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ppsolve.models.core.deferred import Deferred, MayBeDeferred, unfolds
from ppsolve.models.core.problem import FREE, Objective
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import MAX_MOMENT
from ppsolve.models.documents.display import Pairs, ShownInNotebooks, display, some_of
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import document_text

Figure = Annotated[int | float, "time"]
"""A time in the instance's unit: an int where whole, else the nearest double.

Pages tell fields of this type in units with few digits.
"""

LARGEST = float(MAX_MOMENT)
Moment = Annotated[Figure, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]

TRANSFER_KINDS = frozenset({"TF", "TB"})
SHOWN_TRANSFER = "P2P"
ACTION_KINDS = frozenset("FBIW")
"""Kinds of ops that action strings have, by PyTorch's letters."""


class Status(StrEnum):
    """State of knowledge about an instance after solving."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


class HeuristicStatus(StrEnum):
    """Outcome of one heuristic on one instance."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"


class StopReason(StrEnum):
    """Why the search ended."""

    PROVED = "proved"
    GAP = "gap_reached"
    TIME = "time_limit"
    DETERMINISTIC = "deterministic_limit"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    ROUNDING = "memory_rounding"
    NO_PROGRAM = "no_program_order"
    TOO_LARGE = "too_large_for_exact_model"
    INFEASIBLE = "proved_infeasible"
    RECORDED = "recorded"
    DISAGREEMENT = "proofs_disagree"

    @property
    def is_by_caller(self) -> bool:
        """Whether the caller ended the search before its limits did."""
        return self in {StopReason.INTERRUPTED, StopReason.CANCELLED}


class Reported(BaseModel):
    """Base of all reported models: immutable, unknown fields of newer versions are ignored."""

    model_config = ConfigDict(
        defer_build=True, frozen=True, populate_by_name=True, serialize_by_alias=True
    )

    def save(self, path: str | Path) -> None:
        """Write the document as JSON, whole or not at all, as ``--output`` does.

        An `InputError` says why it cannot be written.
        """
        write_text(path, document_text(self))


class ReportedFile(Reported):
    """Base of what stands alone in a file."""

    schema_version: Literal[1] = Field(default=1, alias="schema")


class ScheduledOp(Reported):
    """One op of a schedule; times in the schedule's unit."""

    id: str
    kind: str | None = None
    stage: int | None = None
    device: int | None = None
    microbatch: int | None = None
    slice: int | None = None
    replica: int | None = None
    start: Moment
    end: Moment


class HasOps:
    """Base of documents whose ops are rows."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the scheduled ops as plain data, sorted by start; none without a schedule."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the rows of `to_dicts` as a data frame of pandas.

        An `InputError` says that pandas is not installed; it comes with OR-tools.
        """
        return display("frame", self.to_dicts(), list(ScheduledOp.model_fields))


@unfolds("ops")
class ScheduleDocument(HasOps, Reported):
    """A schedule as it is written to files: every op with its start and end."""

    time_unit: str
    ops: Annotated[tuple[ScheduledOp, ...], MayBeDeferred()]

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleDocument:
        """Return the document of a schedule, ops sorted by start, then by op number."""

        def ops() -> tuple[ScheduledOp, ...]:
            return tuple(ScheduledOp.model_construct(**row) for row in _rows(schedule))

        deferred: Deferred[ScheduledOp] = Deferred(ops, lambda: _rows(schedule))
        return cls.model_construct(time_unit=schedule.problem.scale.unit, ops=deferred)

    def orders(self) -> list[list[str]]:
        """Return the ops of each device in order of start, transfers left out.

        Where all ops of micro-batches are whole forwards and backwards, and all others belong to a
        stage, they are PyTorch's action strings (``0F3``), without optimizer steps; else names.
        """
        placed = [
            op for op in self.ops if op.device is not None and op.kind != SHOWN_TRANSFER
        ]
        actions = [op for op in placed if op.microbatch is not None]
        names = [f"{op.stage}{op.kind}{op.microbatch}" for op in actions]
        is_whole = all(op.kind in ACTION_KINDS for op in actions)
        is_whole &= all(op.stage is not None for op in placed)
        if actions and is_whole and len(set(names)) == len(names):
            return _by_device(actions, names)
        return _by_device(placed, [op.id for op in placed])

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the ops as plain data, a dict per op, sorted by start."""
        rows = self.__dict__["ops"]
        return (
            rows.written()
            if isinstance(rows, Deferred)
            else [op.model_dump() for op in rows]
        )

    def __repr_args__(self) -> Pairs:
        """Yield what `repr` shows: the unit and the number of ops."""
        return iter([("time_unit", self.time_unit), ("ops", len(self.ops))])


def _by_device(ops: Sequence[ScheduledOp], names: Sequence[str]) -> list[list[str]]:
    """Return the names of ops by device, those of one moment by their ends."""
    last = max((op.device or 0 for op in ops), default=-1)
    orders: list[list[str]] = [[] for _ in range(last + 1)]
    pairs = sorted(
        zip(ops, names, strict=True), key=lambda pair: (pair[0].start, pair[0].end)
    )
    for op, name in pairs:
        orders[op.device or 0].append(name)
    return orders


def _rows(schedule: Schedule) -> list[dict[str, Any]]:
    problem, times = schedule.problem, schedule.problem.scale.times
    ops = np.argsort(schedule.start, kind="stable")
    labels = [
        SHOWN_TRANSFER if kind in TRANSFER_KINDS else kind for kind in problem.kinds
    ]
    columns: dict[str, Sequence[Any]] = {
        "id": problem.op_names(ops),
        "kind": [labels[kind] for kind in problem.kind[ops].tolist()],
    }
    for name, numbers in problem.numbers.items():
        columns[name] = [
            None if number == FREE else number for number in numbers[ops].tolist()
        ]
    columns |= {"start": times(schedule.start[ops]), "end": times(schedule.end[ops])}
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


class HasSchedule(ShownInNotebooks, HasOps):
    """Base of documents with a schedule: its ops as rows, and as a chart."""

    schedule: ScheduleDocument | None

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the ops of the schedule as plain data, a dict per op; none without a schedule."""
        return [] if self.schedule is None else self.schedule.to_dicts()

    def gantt(
        self, instance: Any = None, *, title: str | None = None, inches: float = 7.0
    ) -> Any:
        """Return the chart of the schedule, with memory below it, as a figure.

        By default it is that of the instance that a result carries. An empty title leaves out the
        lines above the chart; `inches` is its width. ``figure.savefig("schedule.pdf")`` writes the
        figure. An `InputError` says that there is no schedule, or that matplotlib is not installed.
        """
        return display("gantt", self, instance, title=title, inches=inches)


class BrokenRule(Reported):
    """The rule that a heuristic breaks, as of violations, and in short by how much it does."""

    rule: str
    short: str | None = None

    @classmethod
    def first_of(cls, violations: Sequence[Violation]) -> Self | None:
        """Return the rule of the first violation, if there is one."""
        return (
            cls(rule=violations[0].rule, short=violations[0].short)
            if violations
            else None
        )


@unfolds("orders")
class HeuristicEntry(HasSchedule, Reported):
    """Result of one heuristic. Figures are absent if it produced no schedule.

    `broken` names the rule of `check` that its schedule breaks. `pattern` names the published
    schedule that it uses, if it tries several. `tick_error` is as in `Result`; it is absent in
    entries of a result, and if nothing was rounded.
    """

    name: str
    kind: str | None = None
    value_unit: str | None = None
    status: HeuristicStatus
    reason: str | None = None
    broken: BrokenRule | None = None
    pattern: str | None = None
    value: Figure | None = None
    makespan: Figure | None = None
    device_span: Figure | None = None
    gap: float | None = None
    bubble_ratio: float | None = None
    peak_memory: dict[str, float] | None = None
    tick_error: Figure | None = None
    orders: Annotated[list[list[str]], MayBeDeferred()] | None = None
    schedule: ScheduleDocument | None = None

    def __repr_args__(self) -> Pairs:
        """Yield what `repr` shows: the name, what came of it, and its value."""
        return some_of(self, "name", "status", "value", "gap", "reason")


class BoundEntry(Reported):
    """One lower bound by name."""

    name: str
    value: Figure


class OwnBoundStatus(StrEnum):
    """What became of a user's bound."""

    NOT_REFUTED = "not_refuted"
    REFUTED = "refuted"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"


class OwnBound(Reported):
    """A user's lower bound. It proves nothing; a schedule below it refutes it."""

    name: str
    status: OwnBoundStatus
    value: Figure | None = None
    reason: str | None = None


class Bottleneck(Reported):
    """The strongest analytic bound of a result, in words and figures; times in the result's unit.

    `rule` names the bound, `about` the resource whose ops prove it, `work` the time for which that
    is busy. `without_memory` is the strongest bound that counts no memory, where memory makes this
    one; `raised_by` a stronger proof, such as ``cp-sat``. `why` says what keeps schedules from
    being shorter, `lowered_by` what would let them be.
    """

    rule: str
    about: str | None = None
    value: Figure
    work: Figure | None = None
    without_memory: Figure | None = None
    raised_by: str | None = None
    why: str
    lowered_by: str


class Versions(Reported):
    """Versions of the software that produced a result."""

    ppsolve: str
    ortools: str | None = None
    python: str


class StepEntry(Reported):
    """A step of a run: how long it took, and the best value and bound after it, in `value_unit`."""

    name: str
    seconds: float
    value: Figure | None = None
    bound: Figure | None = None


@unfolds("instance_document")
class Result(HasSchedule, ReportedFile):
    """Outcome of `optimize`: the best schedule, the proven bound, and the entry of every heuristic.

    Times are in `time_unit`; `value` and `bound` count `value_unit`. `kind` is that of the
    instance. `gap` is (value - bound) / value; a heuristic's gap is (its value - value) / value.
    Times without a common tick are rounded up to a fine one: the schedule is valid for the given
    times, value and bound are of the rounded ones, and the optimum of the given times is at most
    `tick_error` below that of the rounded ones, never above it. It is 0 where nothing was rounded.
    `bound_verified` says that a second run of CP-SAT, with other parameters and another seed,
    repeated a proof that only CP-SAT had found; it is null if no second run was made, or none ended
    in time. `robust` is the jitter against which the best schedule was improved, if that was asked
    for. `steps` lists the steps that ran, in order, with their times and the best value and bound
    after each. `instance_document` is the instance as plain JSON data, so that a result file stands
    alone. `own_bounds` are users' bounds beside ours; they prove nothing.
    """

    instance: str
    kind: str | None = None
    status: Status
    objective: Objective
    time_unit: str
    value_unit: str | None = None
    value: Figure | None = None
    makespan: Figure | None = None
    device_span: Figure | None = None
    bound: Figure | None = None
    bound_by: str | None = None
    bound_verified: bool | None = None
    gap: float | None = None
    bubble_ratio: float | None = None
    bubble_over_compute: float | None = None
    peak_memory: dict[str, float] | None = None
    best_by: str | None = None
    stop_reason: StopReason
    reason: str | None = None
    wall_seconds: float
    seed: int = 0
    workers: int | None = None
    deterministic: bool = False
    robust: float | None = None
    tick_error: Figure = 0
    versions: Versions
    bounds: tuple[BoundEntry, ...] = ()
    own_bounds: tuple[OwnBound, ...] = ()
    bottleneck: Bottleneck | None = None
    heuristics: tuple[HeuristicEntry, ...] = ()
    steps: tuple[StepEntry, ...] = ()
    schedule: ScheduleDocument | None = None
    instance_document: Annotated[dict[str, Any] | None, MayBeDeferred()] = Field(
        default=None, repr=False
    )

    @property
    def orders(self) -> list[list[str]] | None:
        """Ops of the best schedule by device, see `ScheduleDocument.orders`; None without one."""
        return None if self.schedule is None else self.schedule.orders()

    def __repr_args__(self) -> Pairs:
        """Yield what `repr` shows: the instance, the status, value, bound and gap."""
        return some_of(
            self, "instance", "status", "value", "value_unit", "bound", "gap", "best_by"
        )
