"""Every budget of a run that a caller may set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.bounds.params import FrontierParams
from ppsolve.solver.exact.params import ExactParams
from ppsolve.solver.heuristics.params import HeuristicParams


@dataclass(frozen=True)
class StepParams:
    """Shares of the time that is left for each step of a run."""

    bounds_share: float = (
        0.15  # then no further bound begins; the one that runs gets as much again
    )
    greedy_share: float = 0.5  # for heuristics that do not search
    search_share: float = 0.3  # for each heuristic that searches
    large_search_share: float = (
        0.6  # the same of large problems, which CP-SAT hardly improves
    )
    large_search_ops: int = 4_000  # ops from which a problem is large in this sense
    window_search_share: float = (
        0.4  # the most where windows of the best schedule follow
    )
    last_search_share: float = 0.8  # the same where no exact search follows
    endless_ops: int = 1_000  # ops from which such a heuristic uses all of its time
    safe_first_ops: int = (
        20_000  # ops from which list rules, which keep memory limits, come first
    )
    robust_share: float = (
        0.2  # for a schedule that jitter delays less, where that is asked for
    )
    own_bounds_share: float = 0.1  # for bounds of the user, before anything else
    any_order_share: float = (
        1.0  # for the best of all schedules beside those of a runtime; 0: not sought
    )
    verified_ops: int = 200  # ops below which a proof is repeated unasked
    verified_share: float = 0.1  # of the time so far for that
    verified_seconds: float = 0.003  # below which that is not begun
    verified_units: float = 0.02  # deterministic time for it where no clock runs
    reserved_seconds: float = 0.05  # kept for the result
    reserved_per_op: float = 2e-6  # the same for each op
    reserved_share: float = 0.25  # the same at most, of the limit
    loading_seconds: float = 2.0  # that must be left to load compiled code
    greedy_steps: int = (
        15  # of kernels for each op: what bounds and heuristics are announced as
    )
    search_steps: int = 300  # the same of a heuristic that searches


@dataclass(frozen=True)
class ModesParams:
    """Modes of activations, which are searched together with orders."""

    quick_cells: int = 24  # stages x micro-batches that one model proves at once
    quick_share: float = 0.5  # of the time for that, at most
    joint_cells: int = (
        150  # stages x micro-batches up to which one model proves more than choices
    )
    choice_share: float = 0.3  # for local search over choices, rated by list schedules
    split_ops: int = (
        40_000  # of all splits that it tries, for each unit of a deterministic limit
    )
    beamed_share: float = 0.1  # for that search where beams follow
    beam_share: float = 0.5  # for beams over choices of least bound
    beams: int = 32  # choices that get the narrowest one
    beam_width: int = 16  # labels of each level of the narrowest one
    beam_slack: float = 1.05  # of the best makespan, up to which a beam rates choices
    beam_rounds: int = 3  # beams of which each is wider than the one before
    beam_factor: int = 4  # that wider, for one of so many choices
    order_share: float = 0.4  # for the orders of the best choice
    near_share: float = (
        0.5  # for other modes of single stages, each with orders of its own
    )
    variant_share: float = (
        0.5  # for proofs choice by choice, where one model of all follows
    )
    price_share: float = (
        0.15  # of the time of the last search: to try other modes of single stages
    )
    question_units: float = (
        0.5  # deterministic time of the first question about a choice
    )
    bound_units: float = 3e-5  # deterministic time of an analytic bound, for each op
    device_units: float = 5e-4  # the same of single devices in any part of a choice
    joint_steps: float = 4e6  # labels of several devices together, for each unit
    grouped_modes: int = (
        9  # modes of the stages of one device up to which they are one decision
    )
    grouping_share: float = (
        0.5  # of the time of proofs to rule out modes of single devices
    )
    asked_groups: int = 2  # open devices up to which CP-SAT is asked about a choice
    rated: int = 300  # choices that are rated where no clock runs


@dataclass(frozen=True)
class OptionsParams:
    """Ops that may run as one, which are chosen together with orders."""

    quick_options: int = 150  # options up to which one model proves all at once
    order_share: float = (
        0.5  # for local search over lists of ops, of which neighbours are fused
    )
    steps_per_option: int = (
        100  # of that search for few options, or where no clock runs
    )
    cold: float = 0.005  # temperature at which a round of it ends, in mean durations
    part_share: float = 0.7  # of what is left, for bounds by parts of few devices
    most_options: int = 20_000  # options up to which one model has all


@dataclass(frozen=True)
class ProgramParams:
    """Programs of kernels and collectives whose caps count along the order."""

    order_nodes: int = 64  # nodes up to which all program orders are tried
    orders: int = 200_000  # beginnings of orders to look at
    moves: int = 1_000_000  # of single nodes to try, where kernels and collectives slow each other


@dataclass(frozen=True)
class SearchParams:
    """Budgets of all steps, by subject; `docs/data/budgets.md` lists them."""

    steps: StepParams = StepParams()
    heuristics: HeuristicParams = HeuristicParams()
    frontier: FrontierParams = FrontierParams()
    exact: ExactParams = ExactParams()
    options: OptionsParams = OptionsParams()
    modes: ModesParams = ModesParams()
    programs: ProgramParams = ProgramParams()

    def varied(self, values: Mapping[str, float]) -> Self:
        """Return budgets with other values by path, such as ``exact.windows.growth``.

        An `InputError` names a path that there is not, and the nearest one; or a number below 0.
        """
        varied = self
        budgets = dict(paths(self))
        for path, value in values.items():
            if path not in budgets:
                raise InputError.unknown(
                    "unknown budget",
                    path,
                    budgets,
                )
            if not (math.isfinite(value) and value >= 0):
                raise InputError(
                    f"expected a number of at least 0 for {path}, got {value}",
                    code=ErrorCode.TYPE,
                )
            varied = _with(varied, path.split("."), type(budgets[path])(value))
        return varied


def budgets_of(texts: Iterable[str]) -> dict[str, float]:
    """Return budgets written as ``path=number``; an `InputError` names a text that is none."""
    budgets: dict[str, float] = {}
    for text in texts:
        path, is_given, number = text.partition("=")
        try:
            budgets[path.strip()] = float(number)
        except ValueError:
            is_given = ""
        if not is_given:
            raise InputError(
                f'expected PATH=NUMBER, got "{text[:60]}"', code=ErrorCode.SYNTAX
            )
    return budgets


def paths(params: Any, prefix: str = "") -> list[tuple[str, float]]:
    """Return the path and the value of each budget, in the order of the classes."""
    rows: list[tuple[str, float]] = []
    for field in fields(params):
        value = getattr(params, field.name)
        name = f"{prefix}{field.name}"
        rows += paths(value, f"{name}.") if is_dataclass(value) else [(name, value)]
    return rows


def _with(params: Any, path: list[str], value: float) -> Any:
    name, *inner = path
    return replace(
        params, **{name: _with(getattr(params, name), inner, value) if inner else value}
    )
