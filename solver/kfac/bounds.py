"""Lower bounds on the iterations of one refresh, and proofs that work can never be placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.dag import Dag
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.kfac.pattern import RefreshPattern
from ppsolve.models.kfac.unrolling import LoweredRefresh, lower_refresh
from ppsolve.solver.kfac.requirements import (
    data_ends,
    fits_one_period,
    iterations_until_steady,
    most_iterations,
)


@dataclass(frozen=True)
class IterationsBound:
    """Fewest iterations that the rules leave possible.

    Parameters
    ----------
    value : int
        The bound, at least 1; one more than the most worth trying where none is possible.
    by : str
        The rule: ``trivial``, ``work`` (more work becomes ready from some moment on than the holes
        from there hold) or ``window`` (an op has no hole left after its data).
    infeasible_reason : str or None
        Why no number of iterations is enough, where that is proved.
    """

    value: int
    by: str
    infeasible_reason: str | None = None


def iterations_bound(pattern: RefreshPattern, devices: Sequence[int]) -> IterationsBound:
    """Prove a lower bound on the iterations of devices that share one number of them.

    At each number of iterations, and from every moment at which work becomes ready, the work that
    starts no earlier is compared with the length of the holes from there on.

    Parameters
    ----------
    pattern : RefreshPattern
        The pinned pipeline and its K-FAC work.
    devices : sequence of int
        Devices coupled by syncs (usually one).

    Returns
    -------
    IterationsBound
        The bound and the rule that proves it.

    Raises
    ------
    InputError
        An op of the pipeline is absurdly far from the first iteration.
    """
    most = most_iterations(pattern, devices)
    # Holes that do not repeat at either end, and one iteration of those that do.
    steady = 2 * iterations_until_steady(pattern) + 1
    value, by, unplaceable = _by_totals(pattern, devices, most), "work", None
    while value <= most:
        counts = [value] * len(pattern.devices)
        lowered = lower_refresh(pattern, counts, devices=devices)
        heads = window_heads(lowered.problem)
        unplaceable = _unplaceable(lowered, heads) if isinstance(heads, int) else None
        refuted = (
            "window" if isinstance(heads, int) else _overfull(pattern, lowered, devices, heads)
        )
        if refuted is None:
            return IterationsBound(value, by if value > 1 else "trivial")
        if unplaceable is not None and not unplaceable.has_windows and value >= steady:
            break
        value, by = value + 1, refuted
    if unplaceable is None:
        counts = [steady] * len(pattern.devices)
        lowered = lower_refresh(pattern, counts, devices=devices)
        heads = window_heads(lowered.problem)
        unplaceable = _unplaceable(lowered, heads) if isinstance(heads, int) else None
    return IterationsBound(most + 1, by, _why(pattern, unplaceable, most))


def _why(pattern: RefreshPattern, unplaceable: _Unplaceable | None, most: int) -> str:
    if unplaceable is None:
        return f"the holes have no room for all work, however many iterations ({most} tried)"
    length = f"{pattern.scale.time(unplaceable.length)} {pattern.scale.unit}"
    return (
        f"{unplaceable.op} takes {length} and fits into no hole after its data, however many "
        f"iterations there are (margin {float(pattern.margin):g})"
    )


@dataclass(frozen=True)
class _Unplaceable:
    """An op without a hole after its data; `has_windows` if it has earlier ones."""

    op: str
    length: int
    has_windows: bool


def _unplaceable(lowered: LoweredRefresh, op: int) -> _Unplaceable:
    problem = lowered.problem
    return _Unplaceable(
        problem.op_name(op), int(problem.duration[op]), len(problem.windows[op]) > 0
    )


def _by_totals(pattern: RefreshPattern, devices: Sequence[int], most: int) -> int:
    """Return a number of iterations below which data is missing, or all holes are too short in sum.

    Holes are added up only where all iterations have the same.
    """
    fewest = max(1, *(_data_ready_by(pattern, device) for device in devices))
    if fits_one_period(pattern, devices):
        for device in devices:
            capacity = sum(end - start for start, end in pattern.holes(device, 1))
            work = sum(
                work.parts * work.length
                for work in pattern.devices[device].work
                if pattern.syncs_in_holes or work.label.kind != "sync"
            )
            if work > 0:
                fewest = max(fewest, -(-work // capacity) if capacity else most + 1)
    return min(fewest, most + 1)


def _data_ready_by(pattern: RefreshPattern, device: int) -> int:
    """Return the iteration by whose end all curvature of a device has its data."""
    own = pattern.devices[device]
    ends = [data[: work.parts] for work, data in zip(own.work, data_ends(own), strict=True)]
    return -(-max((max(data) for data in ends if data), default=0) // pattern.period)


def _overfull(
    pattern: RefreshPattern, lowered: LoweredRefresh, devices: Sequence[int], heads: IntArray
) -> str | None:
    """Return ``work`` if some device has more work than its holes hold, else None."""
    problem = lowered.problem
    for resource, device in zip(problem.span_resources.tolist(), devices, strict=True):
        ops = problem.ops_by_resource[resource]
        ops = ops[[op in problem.windows and problem.duration[op] > 0 for op in ops.tolist()]]
        if len(ops) and _is_overfull(pattern, lowered, device, ops, heads):
            return "work"
    return None


def window_heads(problem: Problem) -> IntArray | int:
    """Return the earliest start of every op inside its windows, int64[n] in ticks.

    Where an op has no window that late, the number of the op is returned instead.
    """
    heads = np.maximum(problem.release, problem.pinned)
    graph = Dag.of(problem)
    for _ in range(problem.num_ops):
        before = heads
        heads = graph.heads(heads)
        for op, windows in problem.windows.items():
            later = windows[windows[:, 1] >= heads[op]]
            if not len(later):
                return op
            heads[op] = max(int(heads[op]), int(later[0, 0]))
        if np.array_equal(heads, before):
            break
    return heads


def _is_overfull(
    pattern: RefreshPattern,
    lowered: LoweredRefresh,
    device: int,
    ops: IntArray,
    heads: IntArray,
) -> bool:
    """Return True if the work ready from some moment on is longer than the holes from there."""
    lengths = lowered.problem.duration[ops]
    shortest = int(lengths.min())
    holes = pattern.holes(device, lowered.iterations[device])
    usable = [(hole[0], pattern.latest_start(hole, shortest) + shortest) for hole in holes]
    spans = np.array([r for r in usable if r[1] - r[0] >= shortest], dtype=np.int64).reshape(-1, 2)
    for moment in np.unique(heads[ops]).tolist():
        work = int(lengths[heads[ops] >= moment].sum())
        left = int(np.maximum(spans[:, 1] - np.maximum(spans[:, 0], moment), 0).sum())
        if work > left:
            return True
    return False
