"""Random chains of one device, and tiny pipelines with memory; the optimum of a chain by trying."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.frontier import device_chains
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.frontier import DeviceChain, DeviceMoves
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.outside.plain_model import Instance


class PlainOp(NamedTuple):
    """An op of a row: its time, what it takes and gives back, and the loose work behind it."""

    duration: int
    lag: int  # from its end to the start of the next op of the chain
    acquire: int = 0
    release: int = 0
    loose: int = 0  # work behind it
    pending: int = 0  # what that work gives back when it ends


class Plain(NamedTuple):
    """A device: alike rows of a chain of ops, each with at most one loose op behind it."""

    ops: tuple[PlainOp, ...]
    members: int
    room: int
    head: int = 0
    tail: int = 0
    loose_tail: int = 0

    @property
    def chain(self) -> DeviceChain:
        """The same for the kernel, all its tables written out."""
        ops, count = self.ops, len(self.ops)
        delay = [op.duration + op.lag for op in ops[:-1]] + [0]
        behind = ops[-1].duration + self.tail
        to_end = [sum(delay[j:]) + behind for j in range(count)]
        to_release = []
        for j in range(count):
            ends = [
                sum(delay[j:k]) + ops[k].duration
                for k in range(j, count)
                if ops[k].release + ops[k].pending
            ]
            to_release.append(min(ends, default=NEVER))
        heads = [self.head + sum(delay[:j]) for j in range(count)]
        table = self.waiting()
        has_loose = any(op.loose for op in ops)
        tail = min(self.tail, self.loose_tail) if has_loose else self.tail
        return DeviceChain(
            device=np.zeros(count, dtype=np.int64),
            duration=np.array([op.duration for op in ops]),
            delay=np.array(delay),
            acquire=np.array([op.acquire for op in ops]),
            change=np.array([op.acquire - op.release - op.pending for op in ops]),
            work=np.array([op.duration for op in ops]),
            load=np.array([op.duration + op.loose for op in ops]),
            to_end=np.array(to_end),
            to_release=np.array(to_release),
            to_device=np.zeros(count, dtype=np.int64),
            heads=np.array(heads * self.members),
            table=np.array([0, len(table)]),
            held=np.array(sorted(table)),
            waiting=np.array([table[amount] for amount in sorted(table)]),
            moves=DeviceMoves(
                op=np.arange(count),
                partner=np.full(count, FREE),
                ticks=np.array([op.duration for op in ops]),
                acquire=np.array([op.acquire for op in ops]),
                loose=np.array([op.loose for op in ops]),
            ),
            room=np.array([self.room]),
            tail=np.array([self.tail]),
            loose_tail=np.array([tail]),
            members=self.members,
            rows=self.members,
        )

    def waiting(self) -> dict[int, int]:
        """Return the most loose work for each amount of the pool that it may hold."""
        best = dict.fromkeys(range(self.room + 1), 0)
        for op in self.ops:
            for amount, work in sorted(best.items(), reverse=True):
                for count in range(1, self.members + 1):
                    held = amount + count * op.pending
                    if held <= self.room:
                        best[held] = max(best[held], work + count * op.loose)
        return {
            amount: max(best[less] for less in range(amount + 1)) for amount in best
        }

    def optimum(self) -> int:
        """Return the least end over all orders in which rows keep theirs, NEVER if none fits."""
        return _least(self, [0] * len(self.ops), [0] * len(self.ops), 0, 0, {})


def _least(
    plain: Plain,
    passed: list[int],
    done: list[int],
    free: int,
    used: int,
    ready: dict[tuple[int, int], int],
) -> int:
    """Return the least end from here on; loose ops run without interruption."""
    ops, members = plain.ops, plain.members
    best = NEVER
    if min(passed) == members and all(
        done[j] == members or not ops[j].loose for j in range(len(ops))
    ):
        return 0
    for j, op in enumerate(ops):
        row = passed[j]
        behind = members if j == 0 else passed[j - 1]
        if row < behind and (not op.acquire or used + op.acquire <= plain.room):
            arrival = plain.head if j == 0 else ready[j, row]
            end = max(free, arrival) + op.duration
            after = ready | {(j + 1, row): end + op.lag}
            now = used + op.acquire - op.release
            counts = passed.copy()
            counts[j] += 1
            closing = end + (plain.tail if j + 1 == len(ops) else 0)
            ending = _least(plain, counts, done, end, now, after)
            best = min(best, max(ending, closing))
        if op.loose and done[j] < passed[j]:
            end = free + op.loose
            counts = done.copy()
            counts[j] += 1
            closing = end + plain.loose_tail
            ending = _least(plain, passed, counts, end, used - op.pending, ready)
            best = min(best, max(ending, closing))
    return best


def drawn_chain(draw: Random, *, loose: bool) -> Plain:
    """Return a random device of at most 12 ops, with loose ones or without."""
    halves, members = draw.choice(
        [(1, 2), (1, 3), (2, 2)]
        if loose
        else [(1, 3), (1, 4), (1, 5), (2, 2), (2, 3), (3, 2)]
    )
    long = draw.choice([3, 9, 20])
    amounts = [draw.choice([1, 1, 2]) for _ in range(halves)]
    amounts = [amount + loose for amount in amounts]
    lags = draw.choice([0, 1, 8])
    forwards, backwards = [], []
    for amount in amounts:
        excess = draw.choice([0, 0, 1])
        forwards.append(
            PlainOp(
                draw.randint(1, long), draw.randint(0, lags), amount + excess, excess
            )
        )
        again = draw.choice([0, 0, 1])
        kept = draw.randint(0, amount) if loose else 0
        backwards.append(
            PlainOp(
                draw.randint(1, 2 * long),
                draw.randint(0, lags),
                again,
                amount + again - kept,
                draw.randint(1, long) if loose else 0,
                kept,
            )
        )
    room = sum(amounts) + draw.choice([0, 0, 1, 1, 2])
    ends = [draw.choice([0, 0, 5, 30]) for _ in range(3)]
    return Plain((*forwards, *backwards[::-1]), members, room, *ends)


def drawn_pipeline(draw: Random, *, ops: int) -> Instance:
    """Return a pipeline of few ops in tight memory."""
    while True:
        instance = _pipeline(draw)
        stages = len(instance["times"]["forward"])
        if stages * instance["num_microbatches"] * len(instance["times"]) <= ops:
            return instance


def _pipeline(draw: Random) -> Instance:
    devices = draw.choice([1, 2, 2, 3])
    chunks = draw.choice([1, 2, 2, 3] if devices < 3 else [1, 2])
    stages = devices * chunks
    count = draw.choice([2, 3, 4] if stages <= 3 else [2, 3])
    longest = draw.choice([5, 20, 100])

    def times(factor: int = 1) -> list[int]:
        return [draw.randint(1, factor * longest) for _ in range(stages)]

    is_split = draw.random() < 0.5
    data: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": count,
        "placement": "linear"
        if chunks == 1
        else draw.choice(["interleaved", "vshape"]),
        "p2p": {"latency": draw.choice([0, 0, 1, 7])},
        "times": {"forward": times()}
        | (
            {"backward_input": times(), "backward_weight": times()}
            if is_split
            else {"backward": times(2)}
        ),
        "memory": {
            "activation": draw.choice(
                [1, [draw.choice([1, 1.5, 0.5]) for _ in range(stages)]]
            ),
            "capacity": 1.5 * chunks
            + draw.choice([0, 0, 1, 1, 2])
            - draw.choice([0, 0.5]),
        },
    }
    if data["placement"] == "vshape" and chunks != 2:
        data["placement"] = "interleaved"
    if chunks > 1:
        data["stages_per_device"] = chunks
    if is_split:
        data["memory"]["released_by_backward_weight"] = draw.choice([0, 0.25, 0.5, 1])
    if draw.random() < 0.15:
        data["optimizer"] = [draw.choice([0, 3, 30]) for _ in range(stages)]
    return data


def problem_of(instance: Instance) -> Problem:
    return lower(PipelineInstance(**instance))


def chains_of(problem: Problem) -> list[DeviceChain]:
    """Return the chains to which the rule applies, none where memory is refused before."""
    try:
        return [chain for _, chain in device_chains(Relaxations(ImpliedOrder(problem)))]
    except MemoryInfeasible:
        return []
