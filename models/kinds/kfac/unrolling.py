"""A refresh pattern over a given number of iterations, as the integer problem."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise

import numpy as np

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Objective, Pool, Problem
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.kfac.labels import KIND_OF, PRECONDITION_KIND, Label
from ppsolve.models.kinds.kfac.pattern import (
    DevicePattern,
    PinnedOp,
    RefreshPattern,
    Work,
    common_starts,
    windows_in,
)

PINNED_KINDS = {
    "forward": "F",
    "backward": "B",
    "backward_weight": "W",
    "precondition": PRECONDITION_KIND,
}
"""Op kind of each kind of pinned op."""

MAX_UNROLLED = 200_000
"""Most ops of all iterations that a heuristic may need: the four heuristics, their checks and the
bounds of a refresh of 115,000 ops (3,600 iterations) took 21 s of one core in all."""

Key = tuple[int, int, int]
"""Device, index of the work of the device, and part."""


@dataclass(frozen=True, eq=False)
class LoweredRefresh:
    """A lowered refresh, and its op for each part of the work."""

    problem: Problem  # pipeline ops of every iteration, pinned, and the K-FAC ops of one refresh
    iterations: tuple[int, ...]
    op_of: dict[
        Key, int
    ]  # op number by device, index of the work of that device, and part


WeightOf = Callable[[Label], int]
"""From the label of a K-FAC op to the weight of its end."""


def lower_refresh(
    pattern: RefreshPattern,
    iterations: int | Sequence[int],
    *,
    devices: Sequence[int] | None = None,
    weight_of: WeightOf | None = None,
) -> LoweredRefresh:
    """Lower a pattern, repeated a given number of times on each device.

    Every K-FAC op lies in one hole of its device (`Problem.windows`), K-FAC ops of a device do not
    overlap, and the dependencies are those of the exact task: part i of a curvature after the i-th
    forward (A) or backward (B) of iteration 0 on its own pipe, a sync after all curvature of its
    factor and module on every device that meets in it, an inversion after its own curvature and
    that sync.

    `iterations`: one number for all devices, or one for each.
    `devices`: the devices to lower, among which syncs meet; all by default.
    `weight_of`: weight of the end of a K-FAC op in `Objective.COMPLETION`; 0 by default.
    """
    selected = range(len(pattern.devices)) if devices is None else devices
    counts = _counts(pattern, iterations)
    return _RefreshLowering(
        pattern, counts, list(selected), weight_of or (lambda _: 0)
    ).run()


def _counts(
    pattern: RefreshPattern, iterations: int | Sequence[int]
) -> tuple[int, ...]:
    if isinstance(iterations, int):
        return (iterations,) * len(pattern.devices)
    return tuple(iterations)


def unrolled_ops(
    pattern: RefreshPattern, iterations: int | Sequence[int], devices: Sequence[int]
) -> int:
    """Return the number of ops of a refresh: those of the pipeline, and parts of K-FAC work.

    A sync counts on each device that meets in it. Iterations are one number for all devices, or one
    for each.
    """
    selected = [pattern.devices[device] for device in devices]
    counts = _counts(pattern, iterations)
    pinned = sum(counts[device.device] * len(device.ops) for device in selected)
    return pinned + sum(work.parts for device in selected for work in device.work)


def refuse_long(pattern: RefreshPattern, iterations: Sequence[int]) -> None:
    """Raise an `InputError` where the iterations of a refresh have more than `MAX_UNROLLED` ops."""
    ops = unrolled_ops(pattern, iterations, range(len(iterations)))
    if ops > MAX_UNROLLED:
        raise InputError(
            f"expected a refresh of at most {MAX_UNROLLED} ops, got {ops} in {max(iterations)} "
            "iterations",
            source=pattern.name,
            field="iterations",
            code=ErrorCode.RANGE,
        )


class _RefreshLowering:
    def __init__(
        self,
        pattern: RefreshPattern,
        iterations: tuple[int, ...],
        devices: list[int],
        weight_of: WeightOf,
    ) -> None:
        self.pattern = pattern
        self.iterations = iterations
        self.devices = [pattern.devices[device] for device in devices]
        self.weight_of = weight_of
        self.builder = ProblemBuilder(pattern.name, pattern.scale, Objective.COMPLETION)
        self.compute = {
            d: self.builder.add_resource(DeviceName("device", (d,))) for d in devices
        }
        self.comm: dict[int, int] = {}
        if not pattern.syncs_in_holes:
            self.comm = {
                d: self.builder.add_resource(DeviceName("comm", (d,))) for d in devices
            }
        self.names, self.windows = self.builder.explicit_names, self.builder.windows
        self.weights: dict[int, int] = {}
        self.edges: list[tuple[int, int]] = []
        self.op_of: dict[Key, int] = {}
        # Ops of iteration 0 by device, kind and pipe, in the order in which they start.
        self.data_ops: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        self.holes_of = cache(lambda device: pattern.holes(device, iterations[device]))
        # Ops of one length on the same devices share one array of windows.
        self.windows_of = cache(self._windows)

    def run(self) -> LoweredRefresh:
        for device in self.devices:
            self._add_pipeline(device)
        self._add_work()
        pools = [self._add_dependencies(device) for device in self.devices]
        before, after = np.array(self.edges, dtype=np.int64).reshape(-1, 2).T
        self.builder.add_precedences(before, after)
        weight = np.zeros(len(self.names), dtype=np.int64)
        weight[list(self.weights)] = list(self.weights.values())
        self.builder.span_resources = list(self.compute.values())
        self.builder.pools, self.builder.weight = (
            [pool for pool in pools if pool],
            weight,
        )
        return LoweredRefresh(self.builder.build(), self.iterations, self.op_of)

    def _add_pipeline(self, device: DevicePattern) -> None:
        copies = self._copies(device)
        kinds = [self.builder.kind_number(PINNED_KINDS[op.kind]) for *_, op in copies]
        spans = [(start, start + op.end - op.start) for start, _, _, op in copies]
        # A clock that runs ahead measures ops before time 0, where a problem has none.
        begins, ends = np.maximum(np.array(spans, dtype=np.int64).reshape(-1, 2), 0).T
        added = self.builder.add_ops(
            np.array(kinds, dtype=np.int64),
            ends - begins,
            self._occupied(device.device, begins, ends),
            OpLabels(
                device.device, device.device, [number for _, _, number, _ in copies]
            ),
            pinned=begins,
        )
        for op, (_, k, number, pinned) in zip(added.tolist(), copies, strict=True):
            self.names[op] = f"{device.device}/{pinned.label}#{number}@{k}"
            if k == 0:
                self.data_ops[device.device, pinned.kind, pinned.pipe].append(op)

    def _copies(self, device: DevicePattern) -> list[tuple[int, int, int, PinnedOp]]:
        # Start, iteration and number among the ops of its label.
        numbers: Counter[str] = Counter()
        copies = []
        for op in sorted(device.ops, key=lambda op: op.start):
            for k in range(self.iterations[device.device]):
                copies.append(
                    (op.start + k * self.pattern.period, k, numbers[op.label], op)
                )
            numbers[op.label] += 1
        return sorted(copies, key=lambda copy: copy[:3])

    def _occupied(self, device: int, begins: IntArray, ends: IntArray) -> IntArray:
        # Copies overlap where a device takes longer than the period; holes are what all leave.
        occupied = np.full((len(begins), 1), FREE, dtype=np.int64)
        busy_until = 0
        for index, (begin, end) in enumerate(
            zip(begins.tolist(), ends.tolist(), strict=True)
        ):
            if begin >= busy_until:
                occupied[index] = self.compute[device]
                busy_until = end
        return occupied

    def _add_work(self) -> None:
        # In one block, as there are thousands of them; resources of few members are filled up.
        rows: list[tuple[int, int, int, int]] = []
        streams: list[list[int]] = []
        for device in self.devices:
            for index, work in enumerate(device.work):
                members = self.pattern.rendezvous[device.device, index]
                if members[0] != (device.device, index):
                    # The first device that meets has added the op for all of them.
                    self.op_of[device.device, index, 0] = self.op_of[(*members[0], 0)]
                    continue
                length = self.pattern.lengths[device.device, index]
                kind = self.builder.kind_number(
                    KIND_OF[work.label.kind, work.label.factor]
                )
                numbers = range(work.parts) if work.label.kind == "cov" else [FREE]
                rows += [(kind, length, device.device, number) for number in numbers]
                devices = tuple(d for d, _ in members)
                streams += [self._name_work(devices, index, work, length)] * work.parts
        kinds, durations, owners, microbatches = (
            np.array(rows, dtype=np.int64).reshape(-1, 4).T
        )
        width = max(map(len, streams), default=1)
        table = [row + [FREE] * (width - len(row)) for row in streams]
        resources = np.array(table, dtype=np.int64).reshape(-1, width)
        labels = OpLabels(owners, owners, microbatches)
        self.builder.add_ops(kinds, durations, resources, labels)

    def _name_work(
        self, devices: tuple[int, ...], index: int, work: Work, length: int
    ) -> list[int]:
        """Name the next ops, one for each part; return the resources that each of them takes."""
        in_hole = work.label.kind != "sync" or self.pattern.syncs_in_holes
        who, first = "+".join(map(str, devices)), len(self.names)
        for part in range(work.parts):
            op, number = first + part, f"#{part}" if work.label.kind == "cov" else ""
            self.names[op] = f"{who}/{work.name}{number}"
            self.weights[op] = self.weight_of(work.label)
            self.op_of[devices[0], index, part] = op
            if in_hole:
                self.windows[op] = self.windows_of(devices, length)
        streams = self.compute if in_hole else self.comm
        return [streams[device] for device in devices]

    def _windows(self, devices: tuple[int, ...], length: int) -> IntArray:
        room = self.pattern.room_for(length)
        windows = (windows_in(self.holes_of(device), room) for device in devices)
        return np.array(reduce(common_starts, windows), dtype=np.int64).reshape(-1, 2)

    def _add_dependencies(self, device: DevicePattern) -> Pool | None:
        """Add the precedences of a device's work; return the pool that its data is saved in."""
        acquires, releases = [], []
        ops_of = [
            [self.op_of[device.device, index, part] for part in range(work.parts)]
            for index, work in enumerate(device.work)
        ]
        for work, ops, predecessors in zip(
            device.work, ops_of, device.predecessors, strict=True
        ):
            self.edges += [
                (op, ops[0])
                for predecessor in predecessors
                for op in ops_of[predecessor]
            ]
            if work.label.kind != "cov":
                continue
            data = self.data_ops[device.device, work.label.data_kind, work.label.pipe]
            self.edges += [*zip(data, ops, strict=False), *pairwise(ops)]
            for op in ops[len(data) :]:
                self.windows[op] = np.zeros((0, 2), dtype=np.int64)
            amount = self.pattern.saved[work.label.factor]
            acquires += [(op, amount) for op, _ in zip(data, ops, strict=False)]
            releases += [(op, amount) for op in ops[: len(data)]]
        if not self.pattern.capacities:
            return None
        capacity = self.pattern.capacities[device.device]
        return Pool.of(
            DeviceName("device", (device.device,)), capacity, acquires, releases
        )
