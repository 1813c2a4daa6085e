"""One instance that is being solved: what is known of it, and what its steps ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import (
    Bottleneck,
    Figure,
    HeuristicEntry,
    HeuristicStatus,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.board import (
    Board,
    Bound,
    Incumbent,
    WrongScheduleError,
    admit_checked,
)
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.run.step import Step, Steps


class Task:
    """An instance that is being solved. Values and bounds are whole numbers of one unit.

    By itself it knows nothing: no bound, no heuristic, no figures.

    `scale`: ticks and time unit of its schedules.
    `board`: the best schedule and bound.
    `outcomes`: what became of each heuristic, by name.
    `entries`: the same as results show it, without a gap.
    `is_verified`: whether a second proof confirmed the first; None where none ended.
    """

    steps: tuple[Step | Steps, ...] = ()
    """The table of its steps."""

    def __init__(
        self, kind: Any, instance: Instance, scale: TimeScale, objective: Objective
    ) -> None:
        self.kind: Any = kind  # a `Kind`, which is a row above
        self.instance: Any = instance
        self.scale, self.objective = scale, objective
        self.board = Board(self.admit)
        self.outcomes: dict[str, HeuristicOutcome] = {}
        self.entries: dict[str, HeuristicEntry] = {}
        self.is_verified: bool | None = None
        # What becomes of the outcome of a heuristic where more than the problem decides.
        self.judged: Callable[[HeuristicOutcome], HeuristicOutcome] = lambda outcome: (
            outcome
        )

    def admit(
        self, schedule: Schedule, by: str, best: int | None, order: list[int] | None
    ) -> Incumbent | None:
        """Check a proposed schedule and turn it into what is kept; None if it is not better."""
        wrong = self.wrong_choice(schedule)
        if wrong:
            raise WrongScheduleError(f"{by}: {wrong}")
        return admit_checked(schedule, by, best, order)

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return why the choice that a schedule makes is none; None where it may be made."""
        return None

    @property
    def schedule(self) -> Schedule | None:
        """The best schedule, None while there is none."""
        return self.board.schedule

    @property
    def best_by(self) -> str | None:
        """What found the best schedule."""
        return None if self.board.incumbent is None else self.board.incumbent.by

    @property
    def bounds(self) -> list[Bound]:
        """The bounds that reports list."""
        return self.board.bounds

    def begin_from(self, given: Any) -> None:
        """Begin with a known schedule of the instance, or a document that holds one.

        An `InputError` says that it is no valid schedule, or that the instance has more to it than
        the starts of its ops.
        """
        raise self._more_than("the starts of their ops", field="start")

    def refuse_robust(self) -> None:
        """Refuse to search a schedule that jitter delays less, where that makes no sense.

        Tasks that are not one problem of free orders always raise an `InputError`.
        """
        raise self._more_than("the orders of their resources", field="robust")

    def _more_than(self, content: str, *, field: str) -> InputError:
        text = (
            f"schedules of {self.kind.schedules_of} are more than {content}; expected a "
            "pipeline or a graph"
        )
        return InputError(
            text, source=self.instance.name, field=field, code=ErrorCode.UNSUPPORTED
        )

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times, see `Problem`."""
        return 0

    @property
    def infeasible(self) -> str | None:
        """Why there can be no schedule, as far as that is proved."""
        return None

    @property
    def size(self) -> int:
        """Number of ops, by which searches are left out that would take too long."""
        return 0

    def bottleneck(self) -> Bottleneck | None:
        """Return the bottleneck of the best bound, None where that is not known."""
        return None

    def shown(self, value: int) -> Figure:
        """Return a value or bound in the unit of results."""
        return self.scale.time(value)

    def note(self, outcome: HeuristicOutcome) -> None:
        """Keep what became of a heuristic for the report."""
        self.outcomes[outcome.name] = outcome
        self.entries[outcome.name] = self.entry(outcome)

    def was_applied(self, name: str) -> bool:
        """Whether a heuristic ran, rather than being refused."""
        outcome = self.outcomes.get(name)
        return (
            outcome is not None and outcome.status is not HeuristicStatus.NOT_APPLICABLE
        )

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by every analytic rule, or by those that the clock allows.

        A `MemoryInfeasible` says that no schedule keeps the capacity of a pool.
        """

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> None:
        """Run one heuristic, propose its schedule and note its outcome."""
        raise AssertionError("no heuristic runs before there is a problem")

    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic, without its distance over the best value."""
        _, entry = self.kind.documents(self.kind.value_unit(self.instance))
        return entry(
            name=outcome.name,
            status=outcome.status,
            reason=outcome.reason,
            broken=outcome.broken,
        )

    def value_of(self, outcome: HeuristicOutcome) -> int | None:
        """Return the value that a heuristic reached, None where its schedule breaks a rule."""
        return None

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has; none without a schedule."""
        return {}
