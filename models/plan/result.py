"""Plans as they leave the program: the winner, its schedule, and why every other one lost."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from ppsolve.models.core.result import Reported, Status, Versions
from ppsolve.models.documents.display import Pairs, ShownInNotebooks, display, some_of
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.result import PipelineResult
from ppsolve.models.plan.cluster import RankOrder


class Range(Reported):
    """What is proven of a figure: it is at least `low` and at most `high`."""

    low: float
    high: float


class Configuration(Reported):
    """One way to run the model.

    `pipeline_depth` devices hold one pipeline of `pipeline_depth` x `virtual_stages` stages;
    each of `replicas` copies runs `microbatches` micro-batches of `microbatch_size` samples.
    """

    pipeline_depth: int
    replicas: int
    placement: Literal["linear", "interleaved", "vshape", "wave"]
    virtual_stages: int
    microbatch_size: int
    microbatches: int
    batch_size: int
    rank_order: RankOrder
    backward: Literal["fused", "split"]
    layer_split: Literal["balanced", "even"]


class Verdict(StrEnum):
    """What became of a configuration."""

    WINNER = "winner"
    LOST = "lost"
    OPEN = "open"


class Rule(StrEnum):
    """What decided about a configuration.

    MEMORY
        Proved: no schedule (no split of the layers) fits the memory.
    BOUND
        Its goodput is proved to be at most that of the winner, whatever its schedule.
    MEASURED
        Its goodput is proved to be at most that of the winner, given bounds and heuristics.
    SOLVED
        The same, after the exact solver.
    ALLOWED
        The schedules that the request allows reach no more than the winner.
    NOT_APPLICABLE
        None of the schedules that the request allows applies, or fits the memory.
    NO_SCHEDULE
        No schedule was found that fits; nothing is proved.
    LIMIT
        The limits of the plan ended before it was decided.
    """

    MEMORY = "memory"
    BOUND = "bound"
    MEASURED = "measured"
    SOLVED = "solved"
    ALLOWED = "allowed_schedules"
    NOT_APPLICABLE = "not_applicable"
    NO_SCHEDULE = "no_schedule"
    LIMIT = "limit"


class PlanRow(Reported):
    """One configuration of the ranked table.

    Goodput and throughput are in samples per second, `step_time` in the plan's time unit. `low`
    of the goodput is what the best schedule found reaches (0 without one), `high` what no
    schedule of this configuration with this split exceeds. `lost_by` is None for the winner, and
    says why an open one is open.
    """

    rank: int
    configuration: Configuration
    verdict: Verdict
    lost_by: Rule | None = None
    reason: str
    goodput: Range | None = None
    throughput: Range | None = None
    step_time: Range | None = None
    efficiency: float | None = None
    schedule_by: str | None = None
    split_proved: bool | None = None
    layers_per_stage: tuple[int, ...] | None = None


class PlanCounts(Reported):
    """How the configurations were decided.

    By memory, by a bound, by their own heuristics (`measured`), by the exact solver (`solved`), as
    `not_applicable`, or `undecided`: these six sum up to `enumerated`. `heuristic_runs` and
    `exact_runs` say how many were scheduled and how many given to the exact solver, decided or not;
    `not_formed` counts combinations of the lists that are no configuration, by reason.
    """

    enumerated: int
    not_formed: dict[str, int]
    pruned_by_memory: int
    pruned_by_bound: int
    measured: int
    solved: int
    not_applicable: int
    undecided: int
    heuristic_runs: int
    exact_runs: int


class Plan(ShownInNotebooks, Reported):
    """Outcome of planning.

    `status` is OPTIMAL where no configuration, with its split, can have a higher goodput than the
    winner, INFEASIBLE where none fits the memory. `goodput` is from what the winner reaches to
    what is proved of all. Where the request allows certain schedules only, both are about these.
    `instance` and `result` are the winner's pipeline and its checked schedule. `split_proved` of a
    row says whether its balanced split is proved to be one.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["plan-result"] = "plan-result"
    request: str
    status: Status
    time_unit: str
    goodput: Range | None = None
    gap: float | None = None
    winner: PlanRow | None = None
    counts: PlanCounts
    exhaustive: bool
    interrupted: bool = False
    wall_seconds: float
    deterministic: bool = False
    versions: Versions
    table: tuple[PlanRow, ...] = ()
    instance: PipelineInstance | None = None
    result: PipelineResult | None = None

    def gantt(self, *, title: str | None = None, inches: float = 7.0) -> Any:
        """Return the chart of the winner's schedule as a figure, as `Result.gantt` does.

        Parameters
        ----------
        title : str, optional
            First line; empty for no lines above the chart.
        inches : float
            Width of the figure.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        InputError
            The plan has no winner, or matplotlib is not installed.
        """
        return display("gantt", self, title=title, inches=inches)

    def __repr_args__(self) -> Pairs:
        """Yield what `repr` shows: the request, its status, and the goodput."""
        yield from some_of(self, "request", "status", "gap")
        if self.goodput is not None:
            yield "goodput", (self.goodput.low, self.goodput.high)
        yield "configurations", self.counts.enumerated
