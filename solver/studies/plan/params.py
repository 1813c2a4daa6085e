"""Options and search budgets of the planner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.run.options import Options


@dataclass(frozen=True)
class WarmUpRule:
    """Priorities of forwards, backwards and weight gradients.

    `patience`: a weight gradient waits for another op that comes soon if the idle time
        is at most `patience` x the delay that it would cause.
    `warm_up`: micro-batches between forward and backward of a stage, at most: a
        multiple of those of 1F1B; None: as many as the memory holds.
    `passes`: pairs of passes of justification that follow: all ops later, then earlier,
        into the gaps.
    """

    patience: int = 1
    warm_up: float | None = 1.0
    passes: int = 0


@dataclass(frozen=True)
class PlanParams:
    """Search budgets of the planner: how much work a configuration gets, and when."""

    # Configurations tried although the time is up, while none of them has a schedule.
    least_tried: int = 64
    # Configurations that cannot win but get a quick schedule for the table, at most.
    scheduled_anyway: int = 2_000
    # Rules by which configurations that may win are scheduled after the first rule.
    rules: tuple[WarmUpRule, ...] = (
        *(
            WarmUpRule(wait, warm_up)
            for warm_up in (0.5, 0.8, 0.9, 1.0, 1.25)
            for wait in (1, 4)
        ),
        WarmUpRule(0, 1.0),
        WarmUpRule(2, 1.0),
        WarmUpRule(16, 0.5),
        WarmUpRule(1, None),
    )
    # Pairs of passes that justify a schedule: each takes the time of one more schedule.
    passes: int = 4
    # Configurations within this factor of the best get more rules: twice what rules may gain.
    promising: float = 1.15
    # Per round: how far behind the best a finalist may be, steps of its `list-sweep`, and splits
    # of its layers that are scheduled.
    rounds: tuple[tuple[float, int, int], ...] = (
        (1.04, 16, 100),
        (1.02, 64, 300),
        (1.01, 256, 1000),
        (1.01, 1024, 3000),
    )
    # The same of those behind by a factor, before all sweeps: splits gain up to 6 %.
    first_splits: tuple[float, int] = (1.06, 40)
    # The same of splits under fixed orders, which gain more; and ops of all of them, at the most.
    first_orders: tuple[float, int, int] = (1.5, 300, 30_000)
    # Splits of each where any order is allowed: sweeps go on from published ones.
    first_published: int = 75
    # Shares of the step by which searches of splits in what is left of the time take worse ones at
    # first, in turn: the larger, the farther they go from the best one.
    heats: tuple[float, ...] = (0.009, 0.03, 0.09, 0.003)
    # Ops that are timed under fixed orders for each split that is scheduled otherwise; and how many
    # times as many in what is left of the time.
    ops_of_split: int = 60_000
    later_effort: int = 4
    # As `heats`, of searches under fixed orders.
    order_heats: tuple[float, ...] = (0.03, 0.06, 0.01, 0.1)
    # Ops placed per split from which fewer splits are scheduled, in inverse proportion.
    most_split_ops: int = 10_000
    # How much longer the sweep of a split may be than the best one for it to have another.
    close_splits: float = 1.015
    # How much longer by rules than the own split of a finalist another one may be to be swept; and
    # schedules of its sweep.
    close_by_rules: float = 1.01
    sweep_of_split: int = 64
    # Splits proved to be worse than the best by this factor get no schedule.
    far_worse: float = 1.02
    # Rounds of the best candidate before those that cannot win are scheduled.
    swept_first: int = 2
    # Index of the round after which finalists get all heuristics and bounds.
    measured_after: int = 1
    # Ops from which finalists are swept: below, the exact solver does more in the same time.
    least_swept: int = 1_000
    # Part of the remaining time that one finalist may take of the exact solver.
    share_of_time: float = 0.2
    # Seconds for which it pays to give a configuration to the exact solver again.
    least_again: float = 1.0
    # Time kept for the winner's document and the table: seconds, and share of the limit.
    reserved_seconds: float = 1.0
    reserved_share: float = 0.1

    def justified(self, rule: WarmUpRule) -> WarmUpRule:
        """Return a rule whose schedule is justified."""
        return replace(rule, passes=self.passes)


@dataclass(frozen=True)
class PlanLimits:
    """The options of `ppsolve.plan`; at most `finalists` go to the exact solver."""

    options: Options
    finalists: int = 12
    exhaustive: bool = False
    params: PlanParams = PlanParams()
    runtime: RuntimeFamily | None = (
        None  # runs few orders, which are all that is allowed
    )

    @property
    def share_time(self) -> bool:
        """Whether the exact searches share the time of the plan; else each has the limit."""
        is_limited = (
            self.options.time_limit is not None and not self.options.deterministic
        )
        return is_limited and not self.exhaustive
