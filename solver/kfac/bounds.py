"""Lower bounds on the iterations that one refresh takes, and what can never be placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.dag import Dag
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.kfac.pattern import RefreshPattern
from ppsolve.models.kfac.unrolling import (
    MAX_UNROLLED,
    LoweredRefresh,
    lower_refresh,
    unrolled_ops,
)
from ppsolve.solver.kfac.requirements import data_ends, is_tidy, most_iterations, settled_after

MAX_TRIED = 150_000
"""Ops that are lowered for the bounds of all devices, shared out among them. Numbers of iterations
left untried leave a bound true, and smaller."""


@dataclass(frozen=True)
class IterationsBound:
    """Fewest iterations that the rules leave possible.

    Parameters
    ----------
    value : int
        The bound, at least 1; one more than the most worth trying where none is possible.
    by : str
        The rule: ``trivial``, ``work`` (work that becomes ready from some moment on is more than
        the holes from there hold) or ``window`` (an op has no hole left after its data).
    hopeless : str or None
        Why no number of iterations is enough, if that is so.
    """

    value: int
    by: str
    hopeless: str | None = None


def iterations_bound(pattern: RefreshPattern, devices: Sequence[int]) -> IterationsBound:
    """Return a lower bound on the iterations of `devices`, all of which have the same number.

    At each number of iterations, from every moment at which work becomes ready, the work that
    starts no earlier is compared with the room of the holes from there on.

    Raises
    ------
    InputError
        An op of the pipeline is absurdly far from the first iteration.
    """
    most = most_iterations(pattern, devices)
    value = _by_sums(pattern, devices, most)
    if value > most:
        return IterationsBound(value, "work", _why(pattern, _settled(pattern, devices), most))
    return _Climb(pattern, devices, most).run(value)


class _Climb:
    """Refutes numbers of iterations from the smallest one on.

    Parameters
    ----------
    pattern : RefreshPattern
        The pinned pipeline and the work.
    devices : sequence of int
        Devices that have the same number of iterations.
    most : int
        The largest number worth trying.
    """

    def __init__(self, pattern: RefreshPattern, devices: Sequence[int], most: int) -> None:
        self.pattern = pattern
        self.devices = devices
        self.most = most
        self.settled = 2 * settled_after(pattern) + 1
        self.left = MAX_TRIED * len(devices) // len(pattern.devices)

    def run(self, value: int) -> IterationsBound:
        """Return the first number from `value` on that is not refuted, or is too large to try.

        Where all iterations have the same holes, what refutes a number refutes every smaller
        one: steps double there, and the last one is halved.
        """
        by, step, end = "work", 1, self.most + 1
        leaps = is_tidy(self.pattern, self.devices)
        is_bracketed = False
        while value < end:
            tried = (value + end) // 2 if is_bracketed else min(value + step - 1, self.most)
            if not self._afford(tried):
                break
            refuted, stuck = self._refuted(tried)
            if refuted is None:
                end, is_bracketed = tried, True
                continue
            value, by = tried + 1, refuted
            if tried == self.most or (stuck and not stuck.has_windows and tried >= self.settled):
                stuck = stuck or _settled(self.pattern, self.devices)
                return IterationsBound(self.most + 1, by, _why(self.pattern, stuck, self.most))
            step = 2 * step if leaps else 1
        return IterationsBound(value, by if value > 1 else "trivial")

    def _afford(self, tried: int) -> bool:
        """Whether a number may still be tried; counts its ops."""
        ops = unrolled_ops(self.pattern, [tried] * len(self.pattern.devices), self.devices)
        self.left -= ops
        return self.left >= 0 and ops <= MAX_UNROLLED

    def _refuted(self, tried: int) -> tuple[str | None, _Stuck | None]:
        """Return the rule that refutes a number of iterations, and the op that is stuck."""
        counts = [tried] * len(self.pattern.devices)
        lowered = lower_refresh(self.pattern, counts, devices=self.devices)
        heads = window_heads(lowered.problem)
        if isinstance(heads, int):
            return "window", _stuck(lowered, heads)
        return _overfull(self.pattern, lowered, self.devices, heads), None


def _settled(pattern: RefreshPattern, devices: Sequence[int]) -> _Stuck | None:
    """Return the op that is stuck once the holes repeat."""
    counts = [2 * settled_after(pattern) + 1] * len(pattern.devices)
    lowered = lower_refresh(pattern, counts, devices=devices)
    heads = window_heads(lowered.problem)
    return _stuck(lowered, heads) if isinstance(heads, int) else None


def _why(pattern: RefreshPattern, stuck: _Stuck | None, most: int) -> str:
    if stuck is None:
        return f"the holes have no room for all work, however many iterations ({most} tried)"
    length = f"{pattern.scale.time(stuck.length)} {pattern.scale.unit}"
    return (
        f"{stuck.op} takes {length} and fits into no hole after its data, however many "
        f"iterations there are (margin {float(pattern.margin):g})"
    )


@dataclass(frozen=True)
class _Stuck:
    """An op without a hole after its data; `has_windows`: there are earlier ones."""

    op: str
    length: int
    has_windows: bool


def _stuck(lowered: LoweredRefresh, op: int) -> _Stuck:
    problem = lowered.problem
    return _Stuck(problem.op_name(op), int(problem.duration[op]), len(problem.windows[op]) > 0)


def _by_sums(pattern: RefreshPattern, devices: Sequence[int], most: int) -> int:
    """Return a number of iterations below which data is not there, or all holes are too small.

    Holes are added up only where all iterations have the same.
    """
    fewest = max(1, *(_data_there(pattern, device) for device in devices))
    if is_tidy(pattern, devices):
        for device in devices:
            room = sum(end - start for start, end in pattern.holes(device, 1))
            work = sum(
                work.parts * work.length
                for work in pattern.devices[device].work
                if pattern.syncs_in_holes or work.label.kind != "sync"
            )
            if work > 0:
                fewest = max(fewest, -(-work // room) if room else most + 1)
    return min(fewest, most + 1)


def _data_there(pattern: RefreshPattern, device: int) -> int:
    """Return the iteration by whose end the data of all curvature of a device is there."""
    own = pattern.devices[device]
    ends = [data[: work.parts] for work, data in zip(own.work, data_ends(own), strict=True)]
    return -(-max((max(data) for data in ends if data), default=0) // pattern.period)


def _overfull(
    pattern: RefreshPattern, lowered: LoweredRefresh, devices: Sequence[int], heads: IntArray
) -> str | None:
    """Return ``work`` where some device has more work than room, else None."""
    problem = lowered.problem
    for resource, device in zip(problem.span_resources.tolist(), devices, strict=True):
        ops = problem.ops_by_resource[resource]
        ops = ops[[op in problem.windows and problem.duration[op] > 0 for op in ops.tolist()]]
        if len(ops) and _is_overfull(pattern, lowered, device, ops, heads):
            return "work"
    return None


def window_heads(problem: Problem) -> IntArray | int:
    """Return the earliest start of every op, within its windows, int64[n].

    Where an op has no window that late, its number is returned instead.
    """
    heads = np.maximum(problem.release, problem.pinned)
    graph = Dag.of(problem)
    groups = _alike_windows(problem)
    for _ in range(problem.num_ops):
        before = heads
        heads = graph.heads(heads)
        stuck = [op for group in groups if (op := _into_windows(heads, *group)) is not None]
        if stuck:
            return min(stuck)
        if np.array_equal(heads, before):
            break
    return heads


def _alike_windows(problem: Problem) -> list[tuple[IntArray, IntArray]]:
    """Return the ops that share one array of windows, and that array, for each array."""
    alike: dict[int, tuple[list[int], IntArray]] = {}
    for op, windows in problem.windows.items():
        alike.setdefault(id(windows), ([], windows))[0].append(op)
    return [(np.array(ops, dtype=np.int64), windows) for ops, windows in alike.values()]


def _into_windows(heads: IntArray, ops: IntArray, windows: IntArray) -> int | None:
    """Move the heads of `ops` into their next windows; return the first op that has none left."""
    place = np.searchsorted(windows[:, 1], heads[ops])
    late = place == len(windows)
    if np.any(late):
        return int(ops[late].min())
    heads[ops] = np.maximum(heads[ops], windows[place, 0])
    return None


def _is_overfull(
    pattern: RefreshPattern,
    lowered: LoweredRefresh,
    device: int,
    ops: IntArray,
    heads: IntArray,
) -> bool:
    """Whether the work that is ready from some moment on exceeds the room of the holes."""
    lengths = lowered.problem.duration[ops]
    shortest = int(lengths.min())
    holes = pattern.holes(device, lowered.iterations[device])
    rooms = [(hole[0], pattern.latest_start(hole, shortest) + shortest) for hole in holes]
    room = np.array([r for r in rooms if r[1] - r[0] >= shortest], dtype=np.int64).reshape(-1, 2)
    order = np.argsort(heads[ops], kind="stable")
    moments = heads[ops][order]
    work = np.cumsum(lengths[order][::-1])[::-1]
    # Work of the same moment counts in full at the first op of that moment, less at the others.
    place = np.searchsorted(room[:, 1], moments, side="right")
    after = np.append(np.cumsum((room[:, 1] - room[:, 0])[::-1])[::-1], 0)
    begin = np.append(room[:, 0], np.iinfo(np.int64).max)[place]
    left = after[place] - np.maximum(moments - begin, 0)
    return bool(np.any(work > left))
