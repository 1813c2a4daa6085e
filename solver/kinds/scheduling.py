"""An instance that is solved as one `Problem`; every schedule is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import (
    Bottleneck,
    HeuristicEntry,
    HeuristicStatus,
    ScheduleDocument,
    StopReason,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.bounds import Bound, best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.answer import IncumbentSource
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.companion import ParallelSearch
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.heuristics.list_rules import settled
from ppsolve.solver.kinds.bottleneck import bottleneck
from ppsolve.solver.kinds.entries import figures, is_lost
from ppsolve.solver.kinds.few_devices import FEW_DEVICES, DeviceBound, takes_devices
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.parts import is_in_turn, is_raced, race, search_in_turn
from ppsolve.solver.kinds.portfolio import (
    NEIGHBOURHOODS,
    companion,
    searches_beside,
    takes_parts,
)
from ppsolve.solver.kinds.second_proof import search_below
from ppsolve.solver.kinds.start import START, known_schedule
from ppsolve.solver.kinds.task import (
    EXACT,
    Control,
    Strategy,
    Task,
    WrongScheduleError,
    load_exact_solver,
)
from ppsolve.solver.kinds.watch import ProgressRelay
from ppsolve.solver.stress.replay import ALL_KINDS, Jitter, refuse_unfit
from ppsolve.solver.stress.robust import make_robust
from ppsolve.solver.structure.implied import ImpliedOrder

MAX_EXACT_OPS = 50_000
"""Beyond this many ops no exact model is built; heuristics and analytic bounds remain.

Building and loading the model of 49,152 ops (32 devices, 512 micro-batches, a cap) took 8.9 s of
processor time and the process 389 MB; of 6,144 ops 2.7 s and 145 MB.
"""

GLANCE_OPS, GLANCE_UNITS = 500, 1.0
"""Ops below which CP-SAT searches before the sweep, and the deterministic time that it gets. The
sweep of so few ops is run by Python and takes 0.5 s, within which linear pipelines of 96 and 216
ops are met at their bound (0.01 and 0.03 s) and uneven ones are proved (0.02 and 0.2 s). Uneven
ones of 216 and 384 ops took 6.0, 0.9, 0.9 and over 20 s with 0.4 units, 4.5, 0.7, 1.4 and 8.8 s
with 1, and 4.4, 1.0, 1.4 and 5.9 s with 3, which a V placement spent on schedules that the sweep
beat."""

GLANCE_SHARE = 0.5
"""Share of the time that is left which it gets at most: one unit takes up to two seconds, which is
all of a short limit, and the sweep a tenth of one where kernels are loaded. Of the 45 shipped
pipelines of fewer than 500 ops that list rules leave open 34 were proved with two seconds of
processor time each, with no such share 30; the mean gap was 0.54 %, with no share 1.27 %."""

CHECKED_ONCE = 20_000
"""Ops from which the schedule of a heuristic is not checked again when it becomes the best one:
that takes 0.04 s of 196,608 ops, for each of twenty heuristics, and nothing to speak of below."""


class ScheduleTask(Task):
    """An instance that lowers to one problem.

    Parameters
    ----------
    kind : Kind
        Its kind.
    instance : Instance
        The instance.
    problem : Problem
        What it lowers to.
    """

    is_one_free_problem = True
    """Whether searches may take all of it as one problem whose ops are free to move."""

    is_whole = True
    """Whether what is proved of its problem is proved of the instance."""

    orders_are_all = True

    def __init__(self, kind: Any, instance: Instance, problem: Problem) -> None:
        super().__init__(kind, instance, problem.scale, problem.objective)
        self.problem = problem
        self.implied = ImpliedOrder(problem)
        self.best: HeuristicOutcome | None = None
        self._units = 0.0
        self._devices = DeviceBound(self.implied)

    @property
    def schedule(self) -> Schedule | None:
        """The best schedule, None while there is none."""
        return None if self.best is None else self.best.schedule

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times, see `Problem`."""
        return self.problem.tick_error

    @property
    def best_schedule(self) -> Schedule | None:
        """The best schedule, None while there is none."""
        return self.schedule

    @property
    def value(self) -> int | None:
        """Value of the best schedule in ticks."""
        return None if self.schedule is None else self.schedule.value

    @property
    def best_by(self) -> str | None:
        """What found the best schedule."""
        return None if self.best is None else self.best.name

    @property
    def size(self) -> int:
        """Number of ops."""
        return self.problem.num_ops

    @property
    def is_too_large(self) -> bool:
        """Whether no exact model is built."""
        return self.problem.num_ops > MAX_EXACT_OPS

    @property
    def has_parts(self) -> bool:
        """Whether parts of its best schedule are solved anew after all heuristics."""
        return self.is_one_free_problem and not self.is_too_large and takes_parts(self.problem)

    def searches_beside(self, options: Options) -> bool:
        """Whether a search goes on beside the exact one, so that it ends its own turn early."""
        return self.has_parts and searches_beside(self.problem, options)

    def begin_from(self, given: Any) -> None:
        """Check a known schedule and keep it, see `Task.begin_from`."""
        if not self.orders_are_all:
            super().begin_from(given)
        self.offer(known_schedule(self.kind, self.instance, self.problem_of, given), START)

    def problem_of(self, given: Any) -> Problem:
        """Return the problem that a document, or a `Schedule`, is a schedule of."""
        return self.problem

    def refuse_robust(self) -> None:
        """Refuse where orders do not say all, or the makespan is not what is minimised."""
        if not self.orders_are_all:
            super().refuse_robust()
        if self.objective is not Objective.MAKESPAN:
            raise InputError("expected the objective makespan", field="robust")
        refuse_unfit(self.problem)

    def steady(self, variation: float, clock: Clock, seed: int) -> None:
        """Replace the best schedule, as `Task.steady`."""
        if self.best is None or self.best.schedule is None:
            return
        jitter = Jitter({ALL_KINDS: variation})
        found = make_robust(self.best.schedule, jitter, clock, seed)
        self.refuse_wrong(found, "make_robust")
        self.best = replace(self.best, schedule=found)

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find every analytic lower bound of the problem, or those that the time allows."""
        self._note_bounds(lower_bounds(self.implied, clock))

    def _note_bounds(self, bounds: list[Bound]) -> None:
        self.bounds = bounds
        self.bound = best_bound(self.bounds)

    def bottleneck(self) -> Bottleneck | None:
        """Return the bottleneck by the strongest analytic bound, None where no rule names one."""
        return bottleneck(self.problem, self.bounds, self.bound)

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> HeuristicOutcome:
        """Run one heuristic, check its schedule and keep it if it is the best."""
        outcome: HeuristicOutcome = self.kind.run_heuristic(
            heuristic, self.instance, self.problem, None, effort
        )
        self.add(outcome)
        return outcome

    def add(self, outcome: HeuristicOutcome) -> None:
        """Put a heuristic's outcome into the report, and keep its schedule if it is the best."""
        # The schedule first: a report that is cut short must not list a better one than its best.
        if outcome.status is HeuristicStatus.FEASIBLE and outcome.schedule is not None:
            schedule = outcome.schedule
            checked = schedule if self.size >= CHECKED_ONCE else None
            self.offer(schedule, outcome.name, outcome.order, checked=checked)
        self.outcomes.append(outcome)

    def offer(
        self,
        schedule: Schedule,
        by: str,
        order: list[int] | None = None,
        *,
        checked: Schedule | None = None,
    ) -> bool:
        """Keep a schedule if it is the best one.

        Parameters
        ----------
        schedule : Schedule
            A schedule of the problem.
        by : str
            What found it.
        order : list of int, optional
            Its program order.
        checked : Schedule, optional
            A schedule that the checker has accepted for this problem: of 196,608 ops a check takes
            0.05 s. A schedule that is moved to begin at 0 is another one.

        Returns
        -------
        bool
            Whether it is better than what was known.

        Raises
        ------
        WrongScheduleError
            It breaks a rule, or is below the bound.
        """
        schedule = schedule.normalised()
        if schedule is not checked:
            self.refuse_wrong(schedule, by)
        if schedule.value < self.bound.value:
            raise WrongScheduleError(
                f"{by} found {schedule.value} below the bound {self.bound.value} "
                f"of {self.bound.name}"
            )
        if self.value is not None and schedule.value >= self.value:
            return False
        self.best = HeuristicOutcome(by, HeuristicStatus.FEASIBLE, schedule, order=order)
        return True

    def hear(self, schedule: Schedule, by: str) -> bool:
        """Keep a schedule that a search tells of, if it is valid and the best one."""
        schedule = schedule.normalised()
        if check_schedule(self.problem, schedule):
            return False
        return self.offer(schedule, by, checked=schedule)

    def refuse_wrong(self, schedule: Schedule, by: str) -> None:
        """Raise an error if a schedule breaks a rule.

        Parameters
        ----------
        schedule : Schedule
            A schedule of the problem.
        by : str
            What found it.

        Raises
        ------
        WrongScheduleError
            Names the first broken rule.
        """
        violations = check_schedule(self.problem, schedule)
        if violations:
            raise WrongScheduleError(f"{by}: {violations[0]} ({len(violations)} in all)")

    def strategies(self, options: Options) -> Iterator[Strategy]:
        """Yield neighbourhoods by themselves, where they are searched so, then the exact search."""
        if self.is_one_free_problem:
            yield self.solve_parts
        yield self.solve_exactly

    def solve_parts(self, control: Control) -> StopReason:
        """Solve stretches of schedules: all workers, or one for a share of the time."""
        if self.schedule is None:
            return StopReason.TIME
        if is_raced(self.problem, control):
            hear = partial(self._hear_of, control=control)
            race(self.implied, self.schedule, self.bound.value, control, hear)
        elif is_in_turn(self.problem, control.options):
            search = search_in_turn(self.implied, self.schedule, self.bound.value, control)
            self._hear_of(search.best, NEIGHBOURHOODS, control)
            self._units += search.spent
            if search.is_interrupted:
                return StopReason.INTERRUPTED
        return StopReason.PROVED if self.is_closed else StopReason.TIME

    def glance(self, control: Control) -> StopReason | None:
        """Search with CP-SAT for a moment where the problem is small and has a schedule."""
        limits = control.limits()
        if self.size >= GLANCE_OPS or self.value is None or limits.deterministic is not None:
            return None
        load_exact_solver()
        limits = control.limits().scaled(GLANCE_SHARE)
        return self._solve(control, replace(limits, deterministic=GLANCE_UNITS))

    def solve_exactly(self, control: Control) -> StopReason:
        """Search with CP-SAT from the best schedule and bound."""
        if control.clock.is_over:
            return StopReason.TIME
        limits = control.limits().less(0.0, self._units)
        return self._solve(control, limits, is_searched=True)

    def _solve(
        self, control: Control, limits: SearchLimits, *, is_searched: bool = False
    ) -> StopReason:
        from ppsolve.solver.cpsat.exact import solve_exactly

        relay = ProgressRelay(control.tell, self.value, self.bound.value)
        beside = companion(
            self.implied, control.options, control.clock, self.schedule, self.bound.value
        )

        def feed() -> Schedule | None:
            return None if beside is None else self._hear_companion(beside, control)

        on_incumbent, on_schedule = self._listeners(relay, None if beside is None else beside.learn)
        with nullcontext() if beside is None else beside.at_work():
            if is_searched:
                limits = self._raise_bound(control, limits, feed)
            if self._devices.is_interrupted:
                return StopReason.INTERRUPTED
            answer = solve_exactly(
                self.implied,
                lower=self.bound.value,
                incumbent=self.schedule,
                limits=limits if beside is None else replace(limits, workers=limits.workers - 1),
                on_incumbent=on_incumbent,
                on_bound=relay.bound,
                feed=None if beside is None else feed,
                on_schedule=on_schedule,
                is_searched=is_searched,
            )
        feed()
        if answer.infeasible:
            if self.schedule is not None:
                raise WrongScheduleError("cp-sat calls an instance infeasible that has a schedule")
            return answer.stop_reason
        if answer.bound is not None and answer.bound > self.bound.value:
            self.bound = Bound(EXACT, answer.bound)
        stop = answer.stop_reason
        if answer.schedule is not None:
            stop = self.offer_exact(answer.schedule, control) or stop
        return StopReason.PROVED if self.is_closed else stop

    def verify(self, control: Control, limits: SearchLimits) -> bool | None:
        """Search for any schedule below the bound, or for any at all, with CP-SAT's defaults."""
        if self.value is not None and self.bound.name not in {EXACT, FEW_DEVICES}:
            return None
        claimed = None if self.value is None else self.bound.value
        plain = replace(limits, is_plain=True)
        answer = search_below(self.implied, self.bounds, claimed, plain)
        if answer.infeasible:
            return True
        if answer.schedule is None:
            return None
        self.bound = best_bound(self.bounds)
        self.offer_exact(answer.schedule, control)
        return False

    def _listeners(
        self, relay: ProgressRelay, learn: Callable[[Schedule], None] | None
    ) -> tuple[Callable[[int], None] | None, Callable[[Schedule], None] | None]:
        """Return who takes each better value and schedule of CP-SAT, on its threads."""
        return relay.incumbent, learn

    def _raise_bound(
        self, control: Control, limits: SearchLimits, feed: IncumbentSource
    ) -> SearchLimits:
        """Bound the makespan by that of few devices; return the limits of what is left."""
        if self.schedule is None or not (self.is_one_free_problem and takes_devices(self.problem)):
            return limits
        load_exact_solver()

        def raised(bound: int, is_whole: bool) -> None:
            self.bound = Bound(EXACT if is_whole else FEW_DEVICES, bound)
            control.tell("bound", self.bound.name)

        def found(schedule: Schedule) -> bool:
            return self._hear_of(schedule, EXACT, control)

        return self._devices.seek(self.bound.value, self.schedule, limits, raised, found, feed)

    def _hear_of(self, schedule: Schedule, by: str, control: Control) -> bool:
        """Keep a schedule if it is valid and the best one, and tell of it."""
        is_better = self.hear(schedule, by)
        if is_better:
            control.tell("incumbent", by)
        return is_better

    def _hear_companion(self, beside: ParallelSearch, control: Control) -> Schedule | None:
        """Return the best schedule of a companion; keep it where schedules are all that counts."""
        told = beside.found()
        if told is None:
            return None
        name, found = told
        if not self.is_one_free_problem:
            return found
        if self.value is None or found.value < self.value:
            self._hear_of(found, name, control)
        return found

    def offer_exact(self, schedule: Schedule, control: Control) -> StopReason | None:
        """Keep a schedule of CP-SAT if it is the best one.

        Parameters
        ----------
        schedule : Schedule
            A schedule of the problem.
        control : Control
            The run, told about a better schedule.

        Returns
        -------
        StopReason or None
            Why it could not be kept, of kinds that ask for more than a schedule.
        """
        if self.offer(settled(schedule), EXACT):
            control.tell("incumbent", EXACT)
        return None

    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic, without its distance over the best value."""
        entry: HeuristicEntry = self.kind.entry_of(
            self.instance,
            self.problem,
            outcome,
            with_schedule=is_lost(self.kind, self.instance, self.problem, outcome),
        )
        return entry

    def value_of(self, outcome: HeuristicOutcome) -> int | None:
        """Return the value that a heuristic reached in ticks, None where it broke a rule."""
        is_valid = outcome.status is HeuristicStatus.FEASIBLE and outcome.schedule is not None
        return outcome.schedule.value if is_valid and outcome.schedule else None

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has."""
        if self.schedule is None:
            return {}
        return {
            **figures(self.schedule),
            "bubble_over_compute": measure(self.schedule).bubble_over_compute,
            "schedule": ScheduleDocument.of(self.schedule),
        }
