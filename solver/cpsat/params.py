"""Budgets of the exact searches: shares of time, sizes and efforts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BisectionParams:
    """Questions whether any schedule is as good as a target; effort in deterministic time."""

    units: float = 1.0  # effort of one question in the first round, doubled by each round
    longer: float = 4.0  # times as much to minimise, or to ask for the analytic bound
    share: float = 0.8  # of the time for all rounds; the rest minimises to the end
    question_share: float = 0.15  # of the time that is left for one question
    proof_share: float = 0.4  # the same where the answer may be the last proof
    paired_share: float = 0.6  # the same where halves are asked for on another thread
    few_workers: int = 2  # workers up to which a question gets one
    paired_ops: int = 2_000  # ops up to which halves get a thread: building more models takes long
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
    base_units: float = 0.003  # what any window counts as, so that a limited search ends
    overlap: int = 4  # windows of a pass that each op is in
    held_gain: float = 0.25  # of the gap: how far paths from devices with room are shortened
    least_gain: float = 0.12  # of the gap that a window must be able to gain to be asked directly
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
    steps: int = 100_000  # of the search for a short schedule of a part, for each device
    finest: int = 8  # questions about a part end within this part of the gap
    base_units: float = 0.01  # what any part counts as, so that a limited search ends


@dataclass(frozen=True)
class ExactParams:
    """The exact search and what runs with it."""

    most_ops: int = 50_000  # no model is built beyond: building 49,152 ops takes 9 s
    quick_ops: int = 500  # ops below which CP-SAT searches before heuristics that search
    quick_units: float = 1.0  # deterministic time of that
    quick_share: float = 0.5  # of the time that is left for that, at most
    bisection: BisectionParams = BisectionParams()
    windows: WindowParams = WindowParams()
    devices: DeviceParams = DeviceParams()
