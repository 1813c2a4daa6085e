"""Many pipelines searched in one time limit, each helped by those that differ in memory alone.

A schedule for less memory holds for more, and a bound for more memory holds for less. The same is
true of who decides what is recomputed: what is one mode for all may be one for each stage. A
pipeline between two that have met is closed without a search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

from ppsolve.models.core.result import Figure, Result, Status
from ppsolve.models.documents.base import as_json_number, as_moment
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.text import fingerprint
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import (
    KEEP,
    StageDecisions,
    has_open_modes,
)
from ppsolve.solver.api.api import optimize
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.run.params import SearchParams

TIME_LIMIT = 60.0

LEAST_SECONDS = 0.2
"""With less time left no search begins: reading and lowering alone take a tenth of it."""

GROWTH = 1.5
"""Multiple of its even share of the remaining time that a case may take when visited again."""


@dataclass
class CaseState:
    """What is known of one pipeline."""

    instance: PipelineInstance
    value: Figure | None = None
    bound: Figure | None = None
    best_by: str | None = None
    result: Result | None = None
    is_infeasible: bool = False
    reason: str | None = None
    visits: int = 0
    is_refused: bool = False  # whether the runtime that is asked for runs nothing of it

    @property
    def is_closed(self) -> bool:
        """Whether the optimum, or that there is none, is proved."""
        return (
            self.is_infeasible
            or self.is_refused
            or (self.value is not None and self.value == self.bound)
        )

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None where one of them is unknown."""
        if self.value is None or self.bound is None:
            return None
        return float((self.value - self.bound) / self.value) if self.value else 0.0

    def figures(self) -> dict[str, Any]:
        """Return the fields of a `SolvedPoint`."""
        status = Status.FEASIBLE
        if self.is_infeasible or self.is_refused:
            status = Status.INFEASIBLE
        elif self.value is None:
            status = Status.UNKNOWN
        elif self.is_closed:
            status = Status.OPTIMAL
        peaks = (self.result and self.result.peak_memory) or {}
        count = self.instance.num_microbatches
        return {
            "status": status,
            "value": self.value,
            "bound": None if self.is_infeasible else self.bound,
            "gap": self.gap,
            "microbatch_time": self.value
            and as_json_number(as_moment(self.value) / count),
            "peak_memory": max(peaks.values(), default=None),
            "best_by": self.best_by,
            "reason": self.reason,
        }


@dataclass
class CaseSearch:
    """One search for the optima of some pipelines."""

    instances: Sequence[PipelineInstance]
    time_limit: float
    options: dict[str, Any] = field(default_factory=dict)  # of `optimize`
    tell: Callable[[], None] = lambda: None  # called after each search

    def __post_init__(self) -> None:
        """Start the clock; an `InputError` says that there is no time."""
        if not self.time_limit > 0:
            raise InputError(
                f"expected seconds above 0, got {self.time_limit}",
                field="time_limit",
                code=ErrorCode.RANGE,
            )
        self._clock = Clock(self.time_limit)
        self.states = [CaseState(instance) for instance in self.instances]
        self.interrupted = False
        self._pairs = list(freer_pairs(self.instances))
        self._has_starts = True  # whether a search may begin with a schedule
        if self.options.get("runtime") is not None:
            self._narrow(family_of(self.options["runtime"]))

    def _narrow(self, family: RuntimeFamily) -> None:
        """Refuse what a runtime does not run, and seek nothing else.

        Raises `InputError` where it runs none of the pipelines.
        """
        for state in self.states:
            state.reason = family.obstacle(state.instance)
            state.is_refused = state.reason is not None
        if all(state.is_refused for state in self.states):
            first = self.states[0]
            raise InputError(
                first.reason or "", source=first.instance.name, field="runtime"
            )
        params = self.options.get("params") or {}
        if not isinstance(params, SearchParams):
            params = SearchParams().varied(params)
        params = params.varied({"steps.any_order_share": 0})
        self.options = self.options | {"params": params}
        self._has_starts = not family.is_finite
        self._pairs = [
            pair for pair in self._pairs if self._is_freer_for(family, *pair)
        ]

    def _is_freer_for(self, family: RuntimeFamily, narrow: int, wide: int) -> bool:
        """Whether a runtime runs all of one case in another one that leaves more open.

        Windows of an instance are those of the usual groups, other ones those of each order.
        """
        if self.states[narrow].is_refused or self.states[wide].is_refused:
            return False
        decides = {
            _MemoryOptions.of(self.instances[index]).decide for index in (narrow, wide)
        }
        return not (family.is_finite and decides == {"window", "microbatch"})

    @property
    def wall_seconds(self) -> float:
        """Seconds since the search was made."""
        return round(self._clock.elapsed, 3)

    def run(self, order: Sequence[int]) -> None:
        """Search until all cases are closed, time is over or Ctrl-C.

        `order`: all cases, in the order of their first visits.
        """
        for index in order:
            unvisited = sum(
                not state.is_closed and not state.visits for state in self.states
            )
            self._visit(index, self._clock.left / max(1, unvisited))
        while (widest := self._widest()) is not None and not self._is_over():
            open_cases = sum(not state.is_closed for state in self.states)
            self._visit(widest, GROWTH * self._clock.left / open_cases)

    def _is_over(self) -> bool:
        return self.interrupted or self._clock.left <= LEAST_SECONDS

    def _widest(self) -> int | None:
        # The open case with the widest gap, those with the fewest visits first.
        open_cases = [
            (state.visits, -(state.gap if state.gap is not None else 1.0), index)
            for index, state in enumerate(self.states)
            if not state.is_closed
        ]
        return min(open_cases)[2] if open_cases else None

    def _visit(self, index: int, seconds: float) -> None:
        state = self.states[index]
        is_over = state.visits and self._clock.left <= LEAST_SECONDS
        if self.interrupted or state.is_closed or is_over:
            return
        seconds = max(LEAST_SECONDS, min(seconds, self._clock.left))
        result = optimize(
            state.instance,
            time_limit=seconds,
            start=state.result if self._has_starts else None,
            **self.options,
        )
        self.interrupted = result.stop_reason.is_by_caller
        state.visits += 1
        self._take(state, result)
        self._spread()
        self.tell()

    def _take(self, state: CaseState, result: Result) -> None:
        if result.status is Status.INFEASIBLE:
            state.is_infeasible, state.reason = True, result.reason
            return
        if result.bound is not None and (
            state.bound is None or result.bound > state.bound
        ):
            state.bound = result.bound
        if result.value is not None and (
            state.value is None or result.value < state.value
        ):
            state.value, state.result = result.value, result
            if result.best_by != "start":
                state.best_by = result.best_by

    def _spread(self) -> None:
        """Let values hold for more freedom and bounds for less."""
        pairs = [
            (self.states[narrow], self.states[wide]) for narrow, wide in self._pairs
        ]
        for narrow, wide in pairs:
            if narrow.value is not None and (
                wide.value is None or narrow.value < wide.value
            ):
                wide.value, wide.best_by = narrow.value, narrow.best_by
                wide.result = _claimed(narrow.result, wide.instance)
        for narrow, wide in reversed(pairs):
            if wide.is_infeasible:
                narrow.is_infeasible, narrow.reason = True, wide.reason
            elif wide.bound is not None and (
                narrow.bound is None or wide.bound > narrow.bound
            ):
                narrow.bound = wide.bound


NARROWER: dict[Any, tuple[str, ...]] = {
    "all": ("none",),
    "stage": ("none", "all"),
    "window": ("none", "all"),
    "microbatch": ("none", "all", "stage", "window"),
}
"""Who decides about memory modes, and who else can choose nothing that they cannot."""


@dataclass(frozen=True)
class _MemoryOptions:
    # What a pipeline may do with memory; with more of it all schedules stay valid.

    rest: str  # fingerprint of all else
    modes: tuple[Any, Any]
    decide: str | StageDecisions
    capacities: tuple[Decimal, ...]

    @classmethod
    def of(cls, instance: PipelineInstance) -> Self:
        memory = instance.memory
        assert memory is not None
        capacity, options = memory.capacity, memory.recompute or memory.offload
        bare = {"capacity": Decimal(0), "recompute": None, "offload": None}
        alike = {"decide": "all"}
        return cls(
            fingerprint(
                instance.model_copy(update={"memory": memory.model_copy(update=bare)})
            ),
            (
                memory.recompute and memory.recompute.model_copy(update=alike),
                memory.offload and memory.offload.model_copy(update=alike),
            ),
            "none" if options is None else options.decide,
            capacity
            if isinstance(capacity, tuple)
            else (capacity,) * instance.num_devices,
        )

    @property
    def freedom(self) -> tuple[int, Decimal]:
        return len(NARROWER.get(self.decide, ())), sum(self.capacities, Decimal(0))

    def is_within(self, wider: _MemoryOptions) -> bool:
        is_less = all(
            a <= b for a, b in zip(self.capacities, wider.capacities, strict=True)
        )
        is_narrower = self.decide in (wider.decide, *NARROWER.get(wider.decide, ()))
        return (
            is_less
            and is_narrower
            and (self.decide == "none" or self.modes == wider.modes)
        )


def freer_pairs(instances: Sequence[PipelineInstance]) -> Iterator[tuple[int, int]]:
    """Yield pairs of places where the second pipeline allows all schedules of the first.

    They differ in capacity, or in who decides about memory modes. The least free come first, and
    pairs that others imply are left out.
    """
    by_index = {
        i: _MemoryOptions.of(instance)
        for i, instance in enumerate(instances)
        if instance.memory
    }
    # The last one of less memory stands for all before it.
    seen: dict[Any, dict[Any, int]] = defaultdict(dict)
    for wide in sorted(by_index, key=lambda index: by_index[index].freedom):
        options = by_index[wide]
        alike = seen[options.rest, options.decide, options.modes]
        level = seen[options.rest, options.capacities]
        for narrow in (*alike.values(), *level.values()):
            if by_index[narrow].is_within(options):
                yield narrow, wide
        alike[0] = level[options.decide, options.modes] = wide


def _claimed(result: Result | None, instance: PipelineInstance) -> Result | None:
    """Return a result of less freedom as one of an instance: what it keeps is its choice."""
    if result is None or not has_open_modes(instance) or getattr(result, "modes", None):
        return result
    return result.model_copy(update={"modes": (KEEP,) * instance.num_stages})
