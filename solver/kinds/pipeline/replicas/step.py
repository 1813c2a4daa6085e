"""An order and an assignment for every training step, within milliseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.result import Figure, Status
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.entries import TIME_FIELDS
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.replicas import fault
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.microbatch_exchange import TOO_LONG
from ppsolve.solver.kinds.pipeline.replicas.search import ReplicaSearch
from ppsolve.solver.kinds.pipeline.replicas.shape import ReplicaShape, action_orders
from ppsolve.solver.run.entries import relative_gap

_ACTION = re.compile(r"(\d+[A-Z])(\d+)")


@dataclass(frozen=True, eq=False)
class StepAnswer:
    """What the replicas run in one step.

    Parameters
    ----------
    orders : list of list of list of str
        Actions of each device of each replica, e.g. ``0F3``: stage, kind, micro-batch.
    assignment : list of list of int
        Micro-batches of each replica, in the order in which it starts them.
    makespan, bound : number
        End of the slowest replica, and the least that it can be, in the unit of the pipeline.
    gap : float
        (makespan - bound) / makespan.
    status : Status
        OPTIMAL where both are equal, else FEASIBLE.
    seconds : float
        Wall time of the answer.
    schedule : Schedule
        The checked schedule of all replicas.
    """

    orders: list[list[list[str]]]
    assignment: list[list[int]]
    makespan: Figure
    bound: Figure
    gap: float
    status: Status
    seconds: float
    schedule: Schedule = field(repr=False)

    def renumbered(self) -> StepAnswer:
        """Return the answer for runtimes that run forwards on the last stage in order of number.

        In each replica micro-batches are numbered from 0 in that order: number k of replica r is
        ``assignment[r][k]``, and orders name it k. The schedule keeps the numbers of the step.
        """
        last = int(self.schedule.problem.stage.max())
        pairs = [_by_last_stage(devices, f"{last}F") for devices in self.orders]
        return replace(
            self,
            orders=[orders for orders, _ in pairs],
            assignment=[microbatches for _, microbatches in pairs],
        )


def _by_last_stage(
    orders: list[list[str]], forward: str
) -> tuple[list[list[str]], list[int]]:
    matches = [_ACTION.fullmatch(text) for row in orders for text in row]
    actions = [(match[1], int(match[2])) for match in matches if match]
    old = [number for text, number in actions if text == forward]
    new = {number: index for index, number in enumerate(old)}
    texts = iter([f"{text}{new[number]}" for text, number in actions])
    return [[next(texts) for _ in row] for row in orders], old


class StepScheduler:
    """Orders and assignments of the micro-batches of a pipeline, step after step.

    What does not change between steps is worked out once, here: it takes a second or two, and
    compiles kernels where no cache holds them. A scheduler may be used by several threads.

    Parameters
    ----------
    pipeline : PipelineInstance
        The pipeline, with `replicas` where there are several. Its times and lengths are an example
        of a step; its memory must suffice for the largest micro-batch.
    digits : int
        Decimal digits of the time unit that are kept.

    Raises
    ------
    InputError
        The pipeline has two-way pipes, collectives, or NICs that are shared both ways; or there is
        no room for a micro-batch.
    """

    def __init__(self, pipeline: PipelineInstance, *, digits: int = 6) -> None:
        if not isinstance(pipeline, PipelineInstance):
            raise InputError(
                f"expected a pipeline, got {describe(pipeline)}", code=ErrorCode.TYPE
            )
        if pipeline.collectives is not None:
            raise InputError(
                "expected none, as orders name whole ops",
                field="collectives",
                code=ErrorCode.CONFLICT,
            )
        scale = TimeScale(Fraction(1, 10**digits), pipeline.time_unit)
        expect(float("inf"))
        self._shape = ReplicaShape(pipeline, scale)
        ReplicaSearch(self._shape, self._shape.flow, 1).warm_up()
        # The second answer measures how long the end of one takes: the first may compile for it.
        for _ in range(2):
            self._finishing = 0.0
            self.schedule(deadline=1.0)

    def schedule(
        self,
        lengths: Sequence[int | Sequence[int]] | None = None,
        times: Mapping[str, Any] | None = None,
        *,
        deadline: float = 0.5,
        patience: float = 0.004,
        seed: int = 1,
    ) -> StepAnswer:
        """Answer for the micro-batches of one step.

        Parameters
        ----------
        lengths : sequence, optional
            Length of the sequence of each of m micro-batches, or those of its packed sequences, for
            pipelines whose entries are costs over lengths.
        times : mapping of str to array, optional
            By field of the pipeline's times (``forward``, ``backward``, ...): a number, float[S],
            or float[S, m] by stage and micro-batch, in the pipeline's unit. Others stay as they
            are, or as the lengths make them.
        deadline : float
            Wall seconds for the answer.
        patience : float
            Seconds without a better answer after which not to go on.
        seed : int
            Seed of the search, from 1.

        Returns
        -------
        StepAnswer

        Raises
        ------
        InputError
            Numbers do not belong to the pipeline, or no order has room for the micro-batches.
        """
        for name, seconds in (("deadline", deadline), ("patience", patience)):
            if not seconds >= 0:
                raise InputError(
                    f"expected seconds of at least 0, got {seconds}",
                    field=name,
                    code=ErrorCode.RANGE,
                )
        clock = Clock(deadline)
        shape = self._shape if lengths is None else self._shape.with_lengths(lengths)
        flow = shape.flow if times is None else _with_times(shape, times)
        search = ReplicaSearch(shape, flow, seed, clock)
        search.run(clock.before(2 * self._finishing), patience)
        return self._answer(search, clock)

    def _answer(self, search: ReplicaSearch, clock: Clock) -> StepAnswer:
        began, shape = clock.elapsed, search.shape
        members = search.members
        if search.value >= TOO_LONG:
            raise InputError(
                "expected room for these micro-batches in some order; give the pipeline the "
                "largest micro-batches as its example",
                field="memory.capacity",
            )
        schedule = search.schedule
        _refuse_wrong(search, schedule, members)
        time_of = shape.scale.time
        answer = StepAnswer(
            action_orders(shape, search.choices, members),
            members,
            time_of(search.value),
            time_of(search.bound),
            relative_gap(search.value, search.bound, search.value),
            Status.OPTIMAL if search.value == search.bound else Status.FEASIBLE,
            clock.elapsed,
            schedule,
        )
        self._finishing = max(0.9 * self._finishing, clock.elapsed - began)
        return answer


def _with_times(shape: ReplicaShape, times: Mapping[str, Any]) -> Flow:
    if not isinstance(times, Mapping):
        raise InputError(
            f"expected times by field, such as forward, got {describe(times)}",
            field="times",
            code=ErrorCode.TYPE,
        )
    flow, problem = shape.flow, shape.whole
    duration = flow.duration.copy()
    size = shape.instance.num_stages, flow.num_microbatches
    kinds = {TIME_FIELDS[kind]: kind for kind in shape.instance.times.by_kind()}
    for name, entry in times.items():
        if name not in kinds:
            raise InputError(
                f"expected {' or '.join(kinds)}",
                field=f"times.{name}",
                code=ErrorCode.CONFLICT,
            )
        ticks = _ticks(shape, f"times.{name}", entry, size)
        columns = np.flatnonzero(flow.kind == problem.kinds.index(kinds[name]))
        duration[:, columns] = ticks[flow.stage[columns]].T
    return replace(flow, duration=duration)


def _ticks(
    shape: ReplicaShape, field: str, entry: Any, size: tuple[int, int]
) -> IntArray:
    try:
        table = np.asarray(entry, dtype=np.float64)
    except (ValueError, TypeError):
        table = np.zeros(0)
    if table.shape not in {(), size[:1], size}:
        raise InputError(
            f"expected a number, {size[0]} numbers (one per stage), or {size[0]} x {size[1]} (by "
            "stage and micro-batch)",
            field=field,
            code=ErrorCode.LENGTH,
        )
    table = np.broadcast_to(table[:, None] if table.ndim == 1 else table, size)
    ticks, longest = (
        np.rint(table / float(shape.scale.tick)),
        2**40,
    )  # sums stay within int64
    if not ((ticks >= 0) & (ticks <= longest)).all():
        limit = shape.scale.time(longest)
        raise InputError(
            f"expected times from 0 to {limit} {shape.scale.unit}",
            field=field,
            code=ErrorCode.RANGE,
        )
    return ticks.astype(np.int64)


def _refuse_wrong(
    search: ReplicaSearch, schedule: Schedule, members: Sequence[Sequence[int]]
) -> None:
    shape, value = search.shape, search.value
    wrong = fault(shape.replicas, members, shape.instance.num_microbatches)
    if wrong is None:
        wrong = next(map(str, check_schedule(schedule.problem, schedule)), None)
    if wrong is None and not search.bound <= value == schedule.makespan:
        wrong = f"bound {search.bound}, value {value}, makespan {schedule.makespan}"
    if wrong is not None:
        raise WrongScheduleError(f"step: {wrong}")
