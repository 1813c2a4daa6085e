"""Sends and receives of a program that computes, in an order in which nothing waits for ever.

A transfer is one event: the send goes behind the op that makes its data, and in the same moment the
receive behind what its rank has begun by then. All ranks follow one order of events, so that
receives of a pair of ranks are in the order of its sends, and no cycle of waiting is possible even
where the transfers of a rank run one by one (PyTorch's `_add_send_recv` goes by the same rule).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ppsolve.models.documents.errors import DeadlockError
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECV_B,
    RECV_F,
    REDUCE_GRAD,
    RESHARD,
    SEND_B,
    SEND_F,
    UNSHARD,
    Action,
    Communication,
    ComputeStep,
    Step,
    actions_of,
)

Rows = Sequence[Sequence[ComputeStep]]
"""The steps of each rank, in order."""

Ends = Mapping[Action, float]
"""When each action ends, in any unit."""


def stages_to_ranks(rows: Sequence[Sequence[Step]]) -> dict[int, int]:
    """Return the rank of each stage; the first one where there are several."""
    ranks: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for step in row:
            for action in actions_of(step):
                ranks.setdefault(action.stage, rank)
    return ranks


def with_communications(
    rows: Rows,
    end_times: Ends | None = None,
    *,
    shards: bool = False,
    local: bool = False,
) -> list[list[Step]]:
    """Add sends, receives and reductions of gradients to the rows of a program, which have all ops.

    Each receive stands behind the ops that its rank has begun when the data are ready,
    ``REDUCE_GRAD`` behind the last W or B of its stage. The ends of the actions order the events;
    by default each is one unit long. With `shards`, ``UNSHARD`` stands before the first op of each
    stage and ``RESHARD`` behind its last one. With `local`, neighbouring stages on one rank have
    transfers too. A `DeadlockError` says that the ops wait for each other.
    """
    ranks = stages_to_ranks(rows)
    full: list[list[Step]] = [[] for _ in rows]
    pending = Counter(
        action.stage for row in rows for step in row for action in actions_of(step)
    )
    begun: set[int] = set()
    for rank, index in events(rows, end_times):
        step = rows[rank][index]
        stages = dict.fromkeys(action.stage for action in actions_of(step))
        if shards:
            full[rank] += [
                Communication(stage, UNSHARD) for stage in stages if stage not in begun
            ]
        begun.update(stages)
        full[rank].append(step)
        for action in actions_of(step):
            pending[action.stage] -= 1
            transfer = transfer_of(action, ranks, local=local)
            if transfer is not None:
                send, receive = transfer
                full[rank].append(send)
                full[ranks[receive.stage]].append(receive)
        for stage in stages:
            if not pending[stage]:
                full[rank].append(Communication(stage, REDUCE_GRAD))
                full[rank] += [Communication(stage, RESHARD)] if shards else []
    return full


def transfer_of(
    action: Action, ranks: Mapping[int, int], *, local: bool = False
) -> tuple[Communication, Communication] | None:
    """Return the send and the receive that an action causes, None where it causes none.

    That is where no stage needs the result, or one on the same rank, unless those are `local`
    transfers.
    """
    stage, kind, microbatch = action
    if kind == BACKWARD_WEIGHT:
        return None
    user = stage + 1 if kind == FORWARD else stage - 1
    if user not in ranks or (ranks[user] == ranks[stage] and not local):
        return None
    names = (SEND_F, RECV_F) if kind == FORWARD else (SEND_B, RECV_B)
    return Communication(stage, names[0], microbatch), Communication(
        user, names[1], microbatch
    )


def needs(action: Action, num_stages: int) -> list[tuple[Action, ...]]:
    """Return the actions that an action waits for."""
    stage, kind, microbatch = action
    if kind == FORWARD:
        return [(Action(stage - 1, FORWARD, microbatch),)] if stage else []
    if kind == BACKWARD_WEIGHT:
        return [(Action(stage, BACKWARD_INPUT, microbatch),)]
    forward = (Action(stage, FORWARD, microbatch),)
    if stage + 1 == num_stages:
        return [forward]
    following = (BACKWARD_INPUT, BACKWARD)
    return [
        forward,
        tuple(Action(stage + 1, backward, microbatch) for backward in following),
    ]


def events(rows: Rows, end_times: Ends | None = None) -> Iterator[tuple[int, int]]:
    """Yield rank and place of the steps of a program in an order that all ranks can follow.

    A `DeadlockError` says that there is none.
    """
    yield from _ProgramWalk(rows, end_times)


class _ProgramWalk:
    def __init__(self, rows: Rows, end_times: Ends | None) -> None:
        self.rows, self.end_times = rows, end_times
        self.actions = [[tuple(actions_of(step)) for step in row] for row in rows]
        self.num_stages = max(stages_to_ranks(rows), default=-1) + 1
        self.done: dict[Action, float] = {}
        self.clock = [0.0] * len(rows)
        self.place = [0] * len(rows)
        self.waiting: dict[Action, list[int]] = defaultdict(list)
        self.ready: list[tuple[float, int]] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for rank in range(len(self.rows)):
            self._look(rank)
        while self.ready:
            end, rank = heapq.heappop(self.ready)
            yield rank, self.place[rank]
            self._finish(rank, end)
        self._refuse_rest()

    def _missing(self, rank: int) -> tuple[Action, ...]:
        actions = self.actions[rank][self.place[rank]]
        for action in actions:
            for options in needs(action, self.num_stages):
                if not any(
                    option in self.done or option in actions for option in options
                ):
                    return options
        return ()

    def _look(self, rank: int) -> None:
        if self.place[rank] == len(self.rows[rank]):
            return
        missing = self._missing(rank)
        for option in missing:
            self.waiting[option].append(rank)
        if not missing:
            heapq.heappush(self.ready, (self._end(rank), rank))

    def _end(self, rank: int) -> float:
        actions = self.actions[rank][self.place[rank]]
        if self.end_times is not None:
            return max(self.end_times[action] for action in actions)
        inputs = [
            self.done[option]
            for action in actions
            for options in needs(action, self.num_stages)
            for option in options
            if option in self.done
        ]
        return max([self.clock[rank], *inputs]) + len(actions)

    def _finish(self, rank: int, end: float) -> None:
        actions = self.actions[rank][self.place[rank]]
        self.clock[rank] = end
        self.place[rank] += 1
        woken = [rank]
        for action in actions:
            self.done[action] = end
            woken += self.waiting.pop(action, ())
        for woken_rank in sorted(set(woken)) if len(woken) > 1 else woken:
            self._look(woken_rank)

    def _refuse_rest(self) -> None:
        stuck = [
            rank for rank, row in enumerate(self.rows) if self.place[rank] < len(row)
        ]
        if not stuck:
            return
        ranks = stages_to_ranks(self.rows)
        seen: list[int] = []
        rank = stuck[0]
        while rank not in seen:
            seen.append(rank)
            rank = ranks.get(self._missing(rank)[0].stage, rank)
        cycle = seen[seen.index(rank) :]
        raise DeadlockError(
            [str(self.rows[rank][self.place[rank]]) for rank in reversed(cycle)]
        )
