"""Budgets of the heuristics that search; effort is counted in ops placed, the same anywhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SweepParams:
    """The sweep of list rules."""

    least_effort: int = (
        70_000  # ops placed: more improves the mean gap by hundredths of a percent
    )
    effort_per_op: int = 110  # the same for each op
    most_effort: int = 800_000  # the same at most, so that large problems end soon
    most_passes: int = 700  # over all ops, so that tiny problems end soon
    rules_share: float = 0.6  # of the effort for rules, the rest for local search
    least_rules: int = 6  # rules that are tried however large the problem is
    kept: int = 3  # best schedules that are justified further
    restart_after: int = (
        60  # shakes in vain before another of the kept schedules is shaken
    )
    sharing_seconds: float = (
        0.25  # between two looks at the board: a check of many ops takes 0.1 s
    )


@dataclass(frozen=True)
class OrderSearchBudget:
    """Simulated annealing over the orders of resources; temperatures in mean durations."""

    hot: float = 0.3  # temperature at which a round begins
    cold: float = 0.02  # temperature at which a round ends
    levels: int = 50  # temperatures of one round: neighbours differ by 5 %
    reach: int = 16  # most ops that are passed in one move
    passed: int = 4  # most vectors that one passes when it moves in their order
    trades: int = 2  # of 16 steps, those in which micro-batches trade places
    steps: int = 500  # between two looks at the clock
    steps_times_ops: int = 500_000  # the same times the ops, at most
    patience: int = (
        400_000  # steps without a better schedule before the search gives up, at most
    )
    patience_per_op: int = 1_000  # the same for each op
    patience_times_ops: int = 100_000_000  # the same times the ops, at most
    large_ops: int = (
        2_000  # beyond, a search without a clock ends after its patience in any case
    )
    most_ops: int = 15_000  # beyond, a step takes too long to gain anything


@dataclass(frozen=True)
class FrontierBeamParams:
    """Schedules of alike micro-batches grown op by op, from frontier to frontier."""

    first_width: int = 16  # labels that stay of a level in the first round
    widening: int = 4  # factor of the next one, at most
    most_width: int = 16_384  # labels that stay of a level, at most
    labels: int = 2_000_000  # no round begins that is expected to make more in all
    labels_per_op: int = 2_500  # the same for each op
    clock_factor: int = 4  # times as many where a clock ends the search too
    ahead_rows: int = 4  # rows that say what a device alone still takes from a state
    ahead_states: int = 20_000  # of a device alone up to which that is looked up
    call: int = 65_536  # labels made between two looks at the clock
    words: int = 2**25  # most numbers in the labels of two levels, 8 bytes each


@dataclass(frozen=True)
class TurnParams:
    """Turns of searches on one thread."""

    share: float = 0.15  # of the time that is left for one turn
    least_seconds: float = 0.5  # of a turn
    endless_seconds: float = 5.0  # of a turn where there is no limit
    sweep_workers: int = 4  # from which one worker sweeps though there are no windows
    sweep_ops: int = (
        400  # the same: smaller problems are proved before the sweep finds more
    )


@dataclass(frozen=True)
class RuleParams:
    """Random list rules and their costs, see ``docs/making/experiments.md``."""

    patience: tuple[float, ...] = (
        0.0,
        0.5,
        1.0,
        3.0,
    )  # that rules draw from: never wait to much
    ceiling: float = 0.999  # offset that rounds a limit up instead of down
    first_bursts: int = 6  # rules with a burst among the first ones
    shaken_shares: tuple[float, ...] = (
        0.005,
        0.02,
        0.05,
    )  # of the ops that one shake delays
    generation_cost: int = 2  # effort per op of a list schedule
    round_cost: int = 2  # effort per op of a round of justification, two passes


RULES = RuleParams()


@dataclass(frozen=True)
class CompactionParams:
    """The search for smaller device spans."""

    most_ops: int = (
        50_000  # beyond, right shift alone answers, which is about as good there
    )
    effort: int = 60_000  # ops times steps of one search
    least_steps: int = 6  # of a search; each step halves the interval of spans
    most_steps: int = 24  # of a search
    ops_per_step: int = 25  # of all rounds that cost as much as one op that is placed
    share: float = (
        0.5  # of the time that is left; then the schedule must be checked and kept
    )


COMPACTION = CompactionParams()


@dataclass(frozen=True)
class AdaptiveVParams:
    """The search over building blocks of V placements."""

    effort: int = 300_000  # ops of all blocks that are tried, one at least


@dataclass(frozen=True)
class HeuristicParams:
    """The heuristics that search."""

    sweep: SweepParams = SweepParams()
    orders: OrderSearchBudget = OrderSearchBudget()
    beam: FrontierBeamParams = FrontierBeamParams()
    turns: TurnParams = TurnParams()
    adaptive_v: AdaptiveVParams = AdaptiveVParams()
