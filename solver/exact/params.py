"""Budgets of the exact searches: shares of time, sizes and efforts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BisectionParams:
    """Questions whether any schedule is as good as a target; effort in deterministic time."""

    units: float = (
        1.0  # effort of one question in the first round, doubled by each round
    )
    longer: float = 4.0  # times as much to minimise, or to ask for the analytic bound
    share: float = 0.8  # of the time for all rounds; the rest minimises to the end
    question_share: float = 0.15  # of the time that is left for one question
    proof_share: float = 0.4  # the same where the answer may be the last proof
    paired_share: float = 0.6  # the same where halves are asked for on another thread
    few_workers: int = 2  # workers up to which a question gets one
    paired_ops: int = (
        2_000  # ops up to which halves get a thread: building more models takes long
    )
    finest: int = 8  # a round ends within this part of the gap
    wide_gap: float = 0.02  # of the value: no analytic bound is met across a wider gap
    patience: float = 1.0  # seconds to wait for a question on another thread


@dataclass(frozen=True)
class WindowParams:
    """Neighbourhoods of a schedule: windows of its sequence of starts, solved anew."""

    least_ops: int = 500  # smaller problems are mostly proved as a whole
    first_ops: int = 100  # ops of the first windows, at least
    first_share: float = 0.04  # the same as a share of all ops
    growth: float = 1.25  # smaller: more passes with windows of similar size
    most_share: float = 0.75  # of all ops in a window; more is the whole problem
    units: float = 0.3  # deterministic time of one window
    base_units: float = (
        0.003  # what any window counts as, so that a limited search ends
    )
    overlap: int = 4  # windows of a pass that each op is in
    held_gain: float = (
        0.25  # of the gap: how far paths from devices with room are shortened
    )
    least_gain: float = (
        0.12  # of the gap that a window must be able to gain to be asked directly
    )
    least_step: float = 0.04  # of the gap that a shortened path must gain
    in_turn_share: float = 0.5  # of the time before CP-SAT where one worker does both


@dataclass(frozen=True)
class DeviceParams:
    """The bound by few devices; effort in deterministic time."""

    least_ops: int = 500  # smaller problems are mostly proved as a whole
    share: float = 0.6  # of the time of the exact search
    unlimited_units: float = 30.0  # in all where nothing is limited
    units: float = 3.0  # of one question in the first round, doubled by each round
    quick: float = 0.1  # share of it for each device that is tried as the next one
    candidates: int = 3  # devices that are tried at a time
    steps: int = (
        100_000  # of the search for a short schedule of a part, for each device
    )
    finest: int = 8  # questions about a part end within this part of the gap
    base_units: float = 0.01  # what any part counts as, so that a limited search ends


@dataclass(frozen=True)
class ExactParams:
    """The exact search and what runs with it."""

    most_ops: int = 50_000  # no model is built beyond: building 49,152 ops takes 9 s
    quick_ops: int = (
        500  # ops below which CP-SAT searches before heuristics that search
    )
    quick_units: float = 1.0  # deterministic time of that
    quick_share: float = 0.5  # of the time that is left for that, at most
    bisection: BisectionParams = BisectionParams()
    windows: WindowParams = WindowParams()
    devices: DeviceParams = DeviceParams()


@dataclass(frozen=True)
class ModelParams:
    """Forms of the CP-SAT model, see ``docs/making/experiments.md``."""

    reservoir_events: int = (
        256  # of all pools up to which they are reservoirs, which prove more
    )
    reservoir_level: int = (
        2**24
    )  # the most: beyond, CP-SAT 9.15 calls feasible models infeasible
    order_literals: int = 4_000  # up to which levels of pools follow from orders of ops
    complete_pairs: int = (
        4_000  # open pairs up to which each gets a literal where levels need some
    )
    floating_pairs: int = (
        1_000  # the same where none does, but device spans are minimised
    )
    edges_at_once: int = (
        1_000  # precedences between two looks at the clock: about 15 ms
    )
    small_span_literals: int = (
        30  # up to which device spans get all rules as linear relaxation
    )
    device_paths: int = (
        200_000  # from left-out to kept ops up to which few devices are a problem
    )


MODEL = ModelParams()


@dataclass(frozen=True)
class AmountParams:
    """Amounts of memory as integers."""

    finest: int = (
        2**40
    )  # largest capacity: 1,000 holds then err by less than the 1e-9 allowed
    coarsest: int = 2**6  # capacity that is allowed however long the horizon is
    combinations: int = 1_000_000  # of counts that are compared to prove a scale exact
    kept_scales: int = (
        4096  # sets of few amounts whose integers are kept: windows repeat them
    )
    few_amounts: int = 8  # amounts of such a set, at most


AMOUNTS = AmountParams()


@dataclass(frozen=True)
class WaitParams:
    """Seconds of waiting for CP-SAT."""

    poll: float = 0.05  # between two looks at the clock and the board
    head_start: float = (
        0.1  # before the deadline CP-SAT is told to end, 1/20 of shorter limits
    )
    ask: float = (
        0.02  # between two requests to stop: one before the search begins is lost
    )
    grace: float = 0.2  # to end after such a request; then the run is abandoned
    exit: float = 10.0  # that a process waits at its end for abandoned runs


WAIT = WaitParams()
