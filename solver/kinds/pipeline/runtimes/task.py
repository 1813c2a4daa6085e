"""Pipelines solved for one runtime: every order of few, or the best of all that it may run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import (
    Bottleneck,
    BrokenRule,
    HeuristicEntry,
    HeuristicStatus,
    Result,
    StopReason,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS, in_chunks
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, lower_split
from ppsolve.models.kinds.pipeline.modes import has_open_modes, modes_of
from ppsolve.models.kinds.pipeline.replicas import RuntimeFigures
from ppsolve.solver.board import Admit, Board, Incumbent
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.kinds.pipeline.claimed import RULE
from ppsolve.solver.kinds.pipeline.layers.bottleneck import bottleneck_of_layers
from ppsolve.solver.kinds.pipeline.layers.ordered import LAYERS, even_counts
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape, shape_of
from ppsolve.solver.kinds.pipeline.programs.waited import waits_of
from ppsolve.solver.kinds.pipeline.runtimes.claims import as_waited, rows_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.splits import (
    NEVER,
    Contender,
    RuntimeSplits,
)
from ppsolve.solver.kinds.pipeline.runtimes.timing import (
    RuntimeSettings,
    keeping_more_is_faster,
    series_of,
    settings_of,
)
from ppsolve.solver.run.schedule_task import START, ScheduleTask
from ppsolve.solver.run.step import Step, Steps, Turn, always, whole
from ppsolve.solver.run.steps import EXACT_SLACK, find_bounds, has_time_to_search
from ppsolve.solver.run.task import Task
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.points import in_sequence, without_crossings

ORDERS_OF_RUNTIME = "runtime orders"
"""Name of this step, and of the bound of all orders, in reports."""


DEFAULT = "default"
"""Name of the way to wait for transfers that no setting says."""

NOT_IN_TURN = (
    "a rule breaks where ranks run one op after the other and wait for transfers"
)
"""Why a schedule of a runtime of free orders is none."""

FEW_WINDOWS = 16
"""Windows of one order that are all timed, each a line of the report."""


SPLITS = "splits"
"""Name of the search over splits in reports."""

FEW_SPLITS = 8
"""Settings with their best splits that reports list."""

UNLIMITED_TURNS = 10
"""Turns of the search over splits where neither time nor effort is limited."""

TURN_UNITS = 2.0
"""Units of a deterministic limit for each turn of the search over splits."""


def has_open_splits(turn: Turn) -> bool:
    """Apply where layers are shared out, unless only bounds were asked for."""
    return turn.task.splits is not None and has_time_to_search(turn)


def search_splits(turn: Turn) -> StopReason | None:
    """Search splits under every order, and bounds on them; return what ends a deterministic run."""
    task, clock = turn.task, turn.clock
    units = turn.options.limits(clock).deterministic
    turns = math.inf if clock.is_limited else UNLIMITED_TURNS
    if units is not None:
        turns = max(1, int(units / TURN_UNITS))
    task.splits.search(clock, turn.options.seed, turns, task.conclude_splits)
    task.conclude_splits()
    return StopReason.DETERMINISTIC if turn.options.deterministic else None


RUNTIME_STEPS: tuple[Step | Steps, ...] = (
    Step(ORDERS_OF_RUNTIME, always, whole, find_bounds),
    Step(SPLITS, has_open_splits, whole, search_splits, EXACT_SLACK),
)
"""The steps of a pipeline for a runtime of few orders: each is timed, with every split it has."""


class RuntimeTask(ScheduleTask):
    """A pipeline for a runtime that runs few orders.

    `kind`: the kind of pipelines.
    `family`: the runtime, which has no obstacle to the pipeline.
    """

    steps = RUNTIME_STEPS

    def __init__(
        self,
        kind: Any,
        instance: PipelineInstance,
        family: RuntimeFamily,
        *,
        exact: bool,
    ) -> None:
        instance = instance.by_rank()
        super().__init__(kind, instance, _problem(kind, instance, exact=exact))
        self.family = family
        self.settings: dict[str, RuntimeSettings] = {}
        self.splits: RuntimeSplits | None = None
        self.unproved = "the runtime runs few orders"
        if instance.layers is not None:
            self.unproved = None
            self.splits = RuntimeSplits(family, instance, self.scale, self._keep)

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times, see `Problem`."""
        if self.splits is None or self.schedule is None:
            return super().tick_error
        return self.schedule.problem.tick_error

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Time every order; the best one is the bound, unless the clock is over before."""
        if self.splits is not None:
            self.conclude_splits()
            self.splits.begin(clock or Clock())
            self.conclude_splits()
            return
        least: tuple[float, str] | None = None
        for each in self._contenders():
            if clock is not None and clock.is_over:
                super().find_bounds(clock)
                return
            self.settings[each.words] = each
            outcome = self._outcome(each)
            self.note(outcome)
            if outcome.reason is not None:
                found = _excess(outcome.schedule), f"{each.words}: {outcome.reason}"
                least = found if least is None else min(least, found)
        if self.board.value is not None:
            self.board.raise_bound(self.board.value, ORDERS_OF_RUNTIME)
        elif least is not None:
            raise MemoryInfeasible(f"{self._among('none')} fits; {least[1]}")

    @property
    def placed(self) -> PipelineInstance:
        """The pipeline with as many stages on each device as the best schedule has."""
        if self.schedule is None or self.splits is None:
            return self.instance
        stages = self.schedule.problem.chosen(CHOSEN_LAYERS).shape[1]
        return in_chunks(self.instance, stages // self.instance.num_devices)

    def conclude_splits(self) -> bool:
        """Raise the bound to that of all settings; return whether a search may end.

        Raises `MemoryInfeasible`: no split fits under any order.
        """
        splits = self.splits
        assert splits is not None
        if splits.bound >= NEVER:
            raise MemoryInfeasible(
                f"memory: no split of the layers fits, {self._among('none')}"
            )
        is_proved = splits.bound >= splits.value
        self.board.raise_bound(splits.bound, ORDERS_OF_RUNTIME if is_proved else LAYERS)
        return self.board.is_good_enough

    def search_below(
        self, analytic: int, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Search splits for a turn, see `ScheduleTask.search_below`."""
        if self.splits is None:
            return super().search_below(analytic, claimed, limits)
        try:
            self.splits.search(Clock(), limits.seed, 1, self.conclude_splits)
        except MemoryInfeasible:
            return ExactAnswer(None, claimed, True, StopReason.INFEASIBLE, True, 0.0)
        board, schedule = self.board, None
        if board.value is not None and (claimed is None or board.value < claimed):
            schedule = board.schedule
        is_proved = claimed is not None and board.bound.value >= claimed
        reason = StopReason.INFEASIBLE if is_proved else StopReason.DETERMINISTIC
        return ExactAnswer(schedule, claimed, is_proved, reason, True, 0.0)

    def _keep(self, contender: Contender) -> None:
        """Propose the best split of a contender, and list it if it is one of the best."""
        settings, layers = contender.settings, contender.layers
        assert layers is not None
        listed = sorted(self.outcomes.values(), key=self._listed_value)[:FEW_SPLITS]
        if len(listed) == FEW_SPLITS and contender.value >= self._listed_value(
            listed[-1]
        ):
            return
        self.settings[settings.words] = settings
        schedule = contender.schedule(contender.counts(layers))
        self.note(HeuristicOutcome(settings.words, HeuristicStatus.FEASIBLE, schedule))
        best = sorted(self.outcomes.values(), key=self._listed_value)[:FEW_SPLITS]
        self.outcomes = {outcome.name: outcome for outcome in best}

    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of settings, with the runtime that runs them where it has splits."""
        entry = super().entry(outcome)
        settings = self.settings.get(outcome.name)
        if self.splits is None or settings is None:
            return entry
        of = RuntimeFigures(
            name=self.family.name, settings=settings.named, order=settings.words
        )
        return entry.model_copy(update={RULE: of})

    def _listed_value(self, outcome: HeuristicOutcome) -> int:
        return NEVER if outcome.schedule is None else outcome.schedule.value

    def _contenders(self) -> Iterator[RuntimeSettings]:
        """Yield settings one of which is the best; the outcome of each is noted before the next.

        Of many windows the one that keeps most and fits is found by bisection: others that fit take
        as long or longer.
        """
        for series in series_of(settings_of(self.family, self.instance)):
            is_short = len(series) <= FEW_WINDOWS
            if is_short or not keeping_more_is_faster(self.instance, self.problem):
                yield from series
                continue
            low, high = 0, len(series)
            while low < high:
                middle = (low + high) // 2
                yield series[middle]
                fits = (
                    self.outcomes[series[middle].words].status
                    is HeuristicStatus.FEASIBLE
                )
                low, high = (middle + 1, high) if fits else (low, middle)

    def _outcome(self, each: RuntimeSettings) -> HeuristicOutcome:
        try:
            schedule = each.timed(self.instance, self.problem)
        except DeadlockError as error:
            return HeuristicOutcome(
                each.words, HeuristicStatus.FAILED, reason=str(error)
            )
        broken = check_schedule(schedule.problem, schedule)
        status = HeuristicStatus.INFEASIBLE if broken else HeuristicStatus.FEASIBLE
        reason, rule = str(broken[0]) if broken else None, BrokenRule.first_of(broken)
        return HeuristicOutcome(each.words, status, schedule, reason, broken=rule)

    @property
    def num_settings(self) -> int:
        """Number of settings that were timed, or shown not to be the best ones."""
        splits = self.splits
        return len(self.settings) if splits is None else splits.num_settings

    def _among(self, which: str) -> str:
        return f"{which} of the orders that {self.family.title} runs ({self.num_settings} timed)"

    def begin_from(self, given: Any) -> None:
        """Refuse: every order is tried."""
        raise InputError(
            f"expected none: {self.family.title} runs few orders",
            field="start",
            code=ErrorCode.CONFLICT,
        )

    def refuse_robust(self) -> None:
        """Refuse: every order is tried."""
        raise InputError(
            f"expected none: {self.family.title} runs few orders",
            field="robust",
            code=ErrorCode.CONFLICT,
        )

    def bottleneck(self) -> Bottleneck | None:
        """Return that all orders were timed, of a run that timed them all."""
        if self.board.bound.name != ORDERS_OF_RUNTIME:
            return bottleneck_of_layers(self, super().bottleneck())
        return Bottleneck(
            rule=ORDERS_OF_RUNTIME,
            value=self.shown(self.board.bound.value),
            why=f"{self._among('none')} is shorter",
            lowered_by="a runtime that runs other orders",
        )

    def runtime_figures(self, free: Result | None) -> RuntimeFigures:
        """Return the settings that were found, and what they cost.

        `free`: the best of all schedules, where it was searched.
        """
        best = self.board.incumbent
        value, bound = (None, None) if free is None else (free.value, free.bound)
        price = None
        if best is not None and value:
            price = float(self.shown(best.value)) / float(value) - 1
        return RuntimeFigures(
            name=self.family.name,
            settings={} if best is None else self.settings[best.by].named,
            order=None if best is None else best.by,
            orders=self.num_settings,
            free_value=value,
            free_bound=bound,
            free_seconds=None if free is None else free.wall_seconds,
            price=price,
            transfers=self._best_by_waits(),
            virtual_stages=self._bounds_by_chunks(),
            waits=None if best is None else self._waits(self.settings[best.by]),
        )

    def _waits(self, settings: RuntimeSettings) -> dict[str, Any] | None:
        """Return for how long ranks wait in the best schedule, None where none waits."""
        if settings.programs is None or self.schedule is None:
            return None
        return shown_waits(self, waits_of(self.schedule, is_whole=True))

    def _bounds_by_chunks(self) -> dict[int, Any] | None:
        """Return a bound for each number of virtual stages, None where a split is given."""
        if self.splits is None:
            return None
        return {
            stages // self.instance.num_devices: (
                None if bound >= NEVER else self.shown(bound)
            )
            for stages, bound in self.splits.bounds_by_stages.items()
        }

    def _best_by_waits(self) -> dict[str, Any] | None:
        """Return the best value of each way to wait for transfers, None where there is one."""
        values: dict[str, int] = {}
        for name, outcome in self.outcomes.items():
            value = self.value_of(outcome)
            if value is not None:
                words = self.settings[name].waits or DEFAULT
                values[words] = min(value, values.get(words, value))
        if len(values) < 2:
            return None
        return {words: self.shown(value) for words, value in values.items()}


def shown_waits(task: Task, waits: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return waits of ranks in the unit of results."""
    return {name: [*map(task.shown, ticks)] for name, ticks in waits.items()}


def _problem(kind: Any, instance: PipelineInstance, *, exact: bool) -> Problem:
    modes = modes_of(instance)
    if modes is not None and has_open_modes(instance):
        return lower_pipeline(instance, exact=exact, choice=modes.relaxed)
    if instance.layers is not None:
        return lower_split(instance, even_counts(instance), exact=exact)
    return kind.lower(instance, exact=exact)


def _excess(schedule: Schedule | None) -> float:
    """Return the largest peak of a schedule as a share of the capacity."""
    if schedule is None:
        return np.inf
    pairs = zip(measure(schedule).peak_memory, schedule.problem.pools, strict=True)
    return max(
        (float(peak) / float(pool.limit or 1) for peak, pool in pairs), default=0.0
    )


def task_for(
    kind: Any, instance: PipelineInstance, family: RuntimeFamily, *, exact: bool
) -> Task:
    """Return the task of a pipeline for a runtime: of few orders, or of what it admits."""
    if family.is_finite:
        return RuntimeTask(kind, instance, family, exact=exact)
    refusal = _Refusal(family, shape_of(instance))
    waits = partial(as_waited, family=family, instance=instance)
    return _by_rank(kind, family.narrowed(instance), refusal, waits, exact=exact)


def any_order(kind: Any, instance: PipelineInstance, *, exact: bool) -> Task:
    """Return the task of any order of ops on each rank, which runs them one after the other."""
    return _by_rank(kind, instance, lambda _: None, lambda run: run, exact=exact)


def _by_rank(
    kind: Any,
    instance: PipelineInstance,
    refusal: Callable[[Schedule], str | None],
    waits: Callable[[Schedule], Schedule],
    *,
    exact: bool,
) -> Task:
    task: Task = kind.task(instance.by_rank(), exact=exact)
    ranks = _Ranks(refusal, task.admit, waits, instance.collectives is not None)
    task.judged, task.board = ranks.judged, Board(ranks)
    return task


@dataclass(frozen=True)
class _Refusal:
    """Says why a runtime does not run a schedule, micro-batches that are alike in index order."""

    family: RuntimeFamily
    shape: PipelineShape

    def __call__(self, schedule: Schedule) -> str | None:
        rows = rows_of(by_index(schedule))
        if rows is None:
            return "an op runs in pieces, with others between them"
        try:
            self.family.order_of(rows, self.shape)
        except InputError as error:
            return error.message
        return None


@dataclass(frozen=True)
class _Ranks:
    """Admits schedules that are not refused, timed as ranks run them: one op after the other.

    So a value is what the exported orders take. Some searches let ops of no time lie inside others,
    and an order of transfers may be another one than that of their senders.
    """

    refusal: Callable[[Schedule], str | None]
    admit: Admit
    waits: Callable[[Schedule], Schedule]  # for transfers
    has_collectives: (
        bool  # whether more than the orders of ranks decides when ops start
    )

    def __call__(
        self, schedule: Schedule, by: str, best: int | None, order: list[int] | None
    ) -> Incumbent | None:
        schedule = by_index(schedule.normalised())
        if best is not None and schedule.value >= best:
            return None
        reason = self.refusal(schedule)
        if reason is not None and by == START:
            raise InputError(reason, field=START, code=ErrorCode.SCHEDULE)
        run = None if reason is not None else self._as_run(schedule)
        return None if run is None else self.admit(run, by, best, order)

    def judged(self, outcome: HeuristicOutcome) -> HeuristicOutcome:
        """Return an outcome with its schedule as ranks run it, or with why they do not."""
        schedule = outcome.schedule
        if schedule is None or outcome.status is not HeuristicStatus.FEASIBLE:
            return outcome
        reason = self.refusal(schedule)
        if reason is not None:
            return replace(outcome, status=HeuristicStatus.INFEASIBLE, reason=reason)
        run = self._as_run(schedule)
        if run is not None:
            return replace(outcome, schedule=run)
        return replace(outcome, status=HeuristicStatus.INFEASIBLE, reason=NOT_IN_TURN)

    def _as_run(self, schedule: Schedule) -> Schedule | None:
        run = self._in_sequence(schedule)
        if run is None:
            return None
        try:
            waited = self.waits(run)
        except (InputError, DeadlockError):
            return None
        is_broken = waited is not run and check_schedule(schedule.problem, waited)
        return None if is_broken else waited

    def _in_sequence(self, schedule: Schedule) -> Schedule | None:
        problem = schedule.problem
        if problem.objective is Objective.MAKESPAN and not self.has_collectives:
            run = in_sequence(schedule, problem.span_resources).normalised()
            if not check_schedule(problem, run):
                return run
        run = without_crossings(schedule)
        return None if run is not schedule and check_schedule(problem, run) else run


def by_index(schedule: Schedule) -> Schedule:
    """Return a schedule in which alike ops run in the order of their micro-batches."""
    start = schedule.start.copy()
    for family in schedule.problem.families:
        for column in family.T:
            start[column] = np.sort(start[column])
    return Schedule(schedule.problem, start)
