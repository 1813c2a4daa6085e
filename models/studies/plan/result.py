"""Plans as they leave the program: the winner, its schedule, and why every other one lost."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from ppsolve.models.core.result import Reported, ReportedFile, Status, Versions
from ppsolve.models.documents.display import Pairs, ShownInNotebooks, display, some_of
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.origin import LayerRecompute
from ppsolve.models.kinds.pipeline.replicas import PipelineResult
from ppsolve.models.studies.plan.request import RankOrder


class Range(Reported):
    """Proven limits of a figure."""

    low: float
    high: float


class Configuration(Reported):
    """One way to run the model.

    `pipeline_depth` devices hold one pipeline of `pipeline_depth` x `virtual_stages` stages;
    each of `replicas` copies runs `microbatches` micro-batches of `microbatch_size` samples. Each
    of these devices is a group of `tensor_parallel` that share layers; `recompute` says what
    backwards run again.
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
    layer_split: Literal["searched", "balanced", "even"]
    tensor_parallel: int = 1
    recompute: LayerRecompute = "none"

    @property
    def variant(self) -> tuple[int, str]:
        """Tensor parallelism and recomputation, as of its `ModelProfile`."""
        return self.tensor_parallel, self.recompute

    @property
    def num_ops(self) -> int:
        """Ops of micro-batches in one pipeline."""
        kinds = 2 if self.backward == "fused" else 3
        return self.pipeline_depth * self.virtual_stages * self.microbatches * kinds


class Verdict(StrEnum):
    """Fate of a configuration."""

    WINNER = "winner"
    LOST = "lost"
    OPEN = "open"


class Rule(StrEnum):
    """Reason for the fate of a configuration.

    MEMORY
        Proved: no schedule (no split of the layers, no order of a runtime) fits the memory.
    SCHEDULES_MEMORY
        None of the schedules that the request allows and that apply fits the memory.
    BOUND
        Its goodput is proved to be at most that of the winner, whatever its schedule.
    MEASURED
        The same, by bounds and heuristics of this configuration.
    SOLVED
        The same, by the exact solver.
    ALLOWED
        The schedules that the request allows reach no more than the winner.
    NOT_APPLICABLE
        None of the schedules that the request allows applies.
    NO_SCHEDULE
        No schedule was found that fits; nothing is proved.
    LIMIT
        The limits of the plan ended before it was decided.
    """

    MEMORY = "memory"
    SCHEDULES_MEMORY = "memory_of_schedules"
    BOUND = "bound"
    MEASURED = "measured"
    SOLVED = "solved"
    ALLOWED = "allowed_schedules"
    NOT_APPLICABLE = "not_applicable"
    NO_SCHEDULE = "no_schedule"
    LIMIT = "limit"


class MemoryShortage(Reported):
    """Memory that a device lacks, in bytes.

    Parameters
    ----------
    device : int
        Of the pipeline: the one that needs most.
    needed : float or None
        What it needs at the least for its states and one micro-batch, for the orders of a runtime,
        or for `schedule`. None where that is proved to be too much, but not how much it is.
    available : float
        Memory of the device.
    schedule : str or None
        The allowed schedule that comes closest; None where no schedule fits.
    may_help : tuple of str
        Changes after which there may be room, each alone.
    """

    device: int
    needed: float | None
    available: float
    schedule: str | None = None
    may_help: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, str]:
        """What the device needs and what it has, in words."""
        if self.needed is None:
            return "more", bytes_text(self.available)
        amounts = (self.needed, self.available)
        texts = [
            [bytes_text(amount, digits) for amount in amounts] for digits in (4, 7, 12)
        ]
        needed, available = next(
            (pair for pair in texts if pair[0] != pair[1]), texts[-1]
        )
        return needed + ("" if self.schedule else " or more"), available

    def __str__(self) -> str:
        """Return the shortage as a clause."""
        needed, available = self.needs
        helps = f"; may help: {', '.join(self.may_help)}" if self.may_help else ""
        return f"device {self.device} needs {needed}, available {available}{helps}"


def bytes_text(amount: float, digits: int = 4) -> str:
    """Return bytes in the largest unit of which there is one: ``13.26 GB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= size:
            return f"{amount / size:,.{digits}g} {unit}"
    return f"{amount:,.{digits}g} bytes"


class PlanRow(Reported):
    """One configuration of the ranked table.

    Goodput and throughput are in samples per second, `step_time` in the plan's time unit. `low` of
    the goodput is that of the best schedule found (0 without one), `high` a bound for this
    configuration with any split that its `layer_split` allows. `lost_by` is None for the winner;
    for an open one it says why it is open. `memory` says what is lacking where memory is the reason
    that there is no schedule.
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
    memory: MemoryShortage | None = None


class PlanCounts(Reported):
    """Numbers of configurations by the rule that decided them.

    The seven from `pruned_by_memory` to `undecided` add up to `enumerated`. `heuristic_runs` and
    `exact_runs` count configurations that were scheduled and that the exact solver ran on, decided
    or not; `not_formed` counts combinations of the lists that are no configuration, by reason.
    """

    enumerated: int
    not_formed: dict[str, int]
    pruned_by_memory: int
    schedules_memory: int = 0
    pruned_by_bound: int
    measured: int
    solved: int
    not_applicable: int
    undecided: int
    heuristic_runs: int
    exact_runs: int


class Plan(ShownInNotebooks, ReportedFile):
    """Outcome of planning.

    `status` is OPTIMAL if no configuration, with any split that it allows, can have a higher
    goodput than the winner, INFEASIBLE if none fits the memory. `goodput` is that of the winner,
    and a bound for all; if the request allows only certain schedules, both consider only these.
    `instance` and `result` are the winner's pipeline and its checked schedule. `split_proved` of a
    row says, for a searched split, whether no other split can be better, and for a balanced split,
    whether it is proved to be balanced.
    """

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
