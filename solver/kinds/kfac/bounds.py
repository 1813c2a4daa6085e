"""Lower bounds on the iterations of one refresh, and proofs that work can never be placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.unrolling import (
    MAX_UNROLLED,
    LoweredRefresh,
    lower_refresh,
    unrolled_ops,
)
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.kfac.requirements import (
    fits_one_period,
    most_iterations,
    steady_iterations,
)
from ppsolve.solver.structure.dag import Dag

Unplaceable = tuple[Problem, int]
"""A problem and an op of it that no hole after its data has room for."""


@dataclass(frozen=True)
class IterationsBound:
    """Fewest iterations that the rules leave possible."""

    value: int  # the bound, at least 1; one more than the most worth trying where none is possible
    # The rule: ``trivial``, ``work`` (more work becomes ready from some moment on than the holes
    # from there hold) or ``window`` (an op has no hole left after its data).
    by: str
    # Why no number of iterations is enough, where that is proved.
    infeasible_reason: str | None = None


def iterations_bound(
    pattern: RefreshPattern,
    devices: Sequence[int],
    clock: Clock | None = None,
    most_tried: int = 150_000,
) -> IterationsBound:
    """Prove a lower bound on the iterations of devices that share one number of them.

    At each number of iterations, and from every moment at which work becomes ready, the work that
    starts no earlier is compared with the length of the holes from there on. Raises `InputError`
    where an op of the pipeline is absurdly far from the first iteration.
    """
    limit = most_iterations(pattern, devices)
    value = _by_totals(pattern, devices, limit)
    if value > limit:
        unplaceable = _unplaceable_when_steady(pattern, devices)
        return IterationsBound(value, "work", _why(pattern, unplaceable, limit))
    tries = most_tried * len(devices) // len(pattern.devices)
    return _Climb(pattern, devices, limit, clock or Clock(), tries).run(value)


@dataclass
class _Climb:
    pattern: RefreshPattern
    devices: Sequence[int]
    most: int
    clock: Clock
    left: int  # ops that may still be unrolled

    def run(self, value: int) -> IterationsBound:
        """Return the first number of iterations that is not refuted, or is too large to try.

        The search begins at `value`; all below it are refuted. Where all iterations have the same
        holes, the proof against a number is one against every smaller number: steps double there,
        and the last one is halved.
        """
        by, step, end = "work", 1, self.most + 1
        leaps, steady = (
            fits_one_period(self.pattern, self.devices),
            steady_iterations(self.pattern),
        )
        is_bracketed = False
        while value < end:
            tried = (
                (value + end) // 2 if is_bracketed else min(value + step - 1, self.most)
            )
            if not self._afford(tried):
                break
            refuted, unplaceable = self._refuted(tried)
            if refuted is None:
                end, is_bracketed = tried, True
                continue
            value, by = tried + 1, refuted
            never = unplaceable and not len(unplaceable[0].windows[unplaceable[1]])
            if tried == self.most or (never and tried >= steady):
                op = unplaceable or _unplaceable_when_steady(self.pattern, self.devices)
                return IterationsBound(
                    self.most + 1, by, _why(self.pattern, op, self.most)
                )
            step = 2 * step if leaps else 1
        return IterationsBound(value, by if value > 1 else "trivial")

    def _afford(self, tried: int) -> bool:
        ops = unrolled_ops(self.pattern, tried, self.devices)
        self.left -= ops
        return self.left >= 0 and ops <= MAX_UNROLLED and not self.clock.is_over

    def _refuted(self, tried: int) -> tuple[str | None, Unplaceable | None]:
        lowered = lower_refresh(self.pattern, tried, devices=self.devices)
        heads = _window_heads(lowered.problem)
        if isinstance(heads, int):
            return "window", (lowered.problem, heads)
        is_overfull = any(
            _is_overfull(self.pattern, lowered, device, int(resource), heads)
            for resource, device in zip(
                lowered.problem.span_resources, self.devices, strict=True
            )
        )
        return "work" if is_overfull else None, None


def _unplaceable_when_steady(
    pattern: RefreshPattern, devices: Sequence[int]
) -> Unplaceable | None:
    problem = lower_refresh(
        pattern, steady_iterations(pattern), devices=devices
    ).problem
    heads = _window_heads(problem)
    return (problem, heads) if isinstance(heads, int) else None


def _why(pattern: RefreshPattern, unplaceable: Unplaceable | None, limit: int) -> str:
    if unplaceable is None:
        return f"the holes have no room for all work, however many iterations ({limit} tried)"
    problem, op = unplaceable
    length = f"{pattern.scale.time(int(problem.duration[op]))} {pattern.scale.unit}"
    return (
        f"{problem.op_name(op)} takes {length} and fits into no hole after its data, however many "
        f"iterations there are (margin {float(pattern.margin):g})"
    )


def _by_totals(pattern: RefreshPattern, devices: Sequence[int], limit: int) -> int:
    # Holes are added up only where all iterations have the same.
    fewest = max(1, *(_data_ready_by(pattern, device) for device in devices))
    if fits_one_period(pattern, devices):
        for device in devices:
            capacity = sum(end - start for start, end in pattern.holes(device, 1))
            work = pattern.work_in_holes(device)
            if work > 0:
                fewest = max(fewest, -(-work // capacity) if capacity else limit + 1)
    return min(fewest, limit + 1)


def _data_ready_by(pattern: RefreshPattern, device: int) -> int:
    entries = pattern.devices[device]
    data_ends = [
        data[: work.parts]
        for work, data in zip(entries.work, entries.data_ends, strict=True)
    ]
    last = max((max(data) for data in data_ends if data), default=0)
    return -(-last // pattern.period)


def _window_heads(problem: Problem) -> IntArray | int:
    # The earliest start of every op inside its windows, int64[n]; or an op without one that late.
    heads = np.maximum(problem.release, problem.pinned)
    graph = Dag.of(problem)
    groups = _alike_windows(problem)
    for _ in range(problem.num_ops):
        before = heads
        heads = graph.heads(heads)
        unplaceable = [
            op for group in groups if (op := _into_windows(heads, *group)) is not None
        ]
        if unplaceable:
            return min(unplaceable)
        if np.array_equal(heads, before):
            break
    return heads


def _alike_windows(problem: Problem) -> list[tuple[IntArray, IntArray]]:
    alike: dict[int, tuple[list[int], IntArray]] = {}
    for op, windows in problem.windows.items():
        alike.setdefault(id(windows), ([], windows))[0].append(op)
    return [(np.array(ops, dtype=np.int64), windows) for ops, windows in alike.values()]


def _into_windows(heads: IntArray, ops: IntArray, windows: IntArray) -> int | None:
    index = np.searchsorted(windows[:, 1], heads[ops])
    late = index == len(windows)
    if np.any(late):
        return int(ops[late].min())
    heads[ops] = np.maximum(heads[ops], windows[index, 0])
    return None


def _is_overfull(
    pattern: RefreshPattern,
    lowered: LoweredRefresh,
    device: int,
    resource: int,
    heads: IntArray,
) -> bool:
    problem = lowered.problem
    ops = problem.ops_by_resource[resource]
    ops = ops[
        [op in problem.windows and problem.duration[op] > 0 for op in ops.tolist()]
    ]
    if not len(ops):
        return False
    lengths = problem.duration[ops]
    shortest = int(lengths.min())
    holes = pattern.holes(device, lowered.iterations[device])
    spare = pattern.room_for(shortest) - shortest
    usable = [(start, end - spare) for start, end in holes]
    spans = np.array(
        [r for r in usable if r[1] - r[0] >= shortest], dtype=np.int64
    ).reshape(-1, 2)
    order = np.argsort(heads[ops], kind="stable")
    moments = heads[ops][order]
    work = np.cumsum(lengths[order][::-1])[::-1]
    # Work of the same moment counts in full at the first op of that moment, less at the others.
    index = np.searchsorted(spans[:, 1], moments, side="right")
    after = np.append(np.cumsum((spans[:, 1] - spans[:, 0])[::-1])[::-1], 0)
    begin = np.append(spans[:, 0], np.iinfo(np.int64).max)[index]
    room = after[index] - np.maximum(moments - begin, 0)
    return bool(np.any(work > room))
