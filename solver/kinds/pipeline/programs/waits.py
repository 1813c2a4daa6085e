"""Programs of ranks that wait for their transfers, and when all that they do starts and ends.

A rank does one thing after the other: it computes, posts a send or a receive, or waits for what it
posted. Posting takes no time. The n-th send from one rank to another is met by the n-th receive
that the other posts for it, as in one stream of a pair of ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ppsolve.models.documents.errors import DeadlockError, ErrorCode, InputError
from ppsolve.solver.kinds.pipeline.grammar import (
    FORWARD,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    Action,
    Communication,
    ComputeStep,
    actions_of,
)


class Wait(NamedTuple):
    """The end of a send or a receive, for which a rank waits."""

    posted: Communication

    def __str__(self) -> str:
        """Return ``wait <transfer>``."""
        return f"wait {self.posted}"


ProgramStep = ComputeStep | Communication | Wait
"""What a rank does next."""

PEERS = {SEND_F: 1, RECV_B: 1, SEND_B: -1, RECV_F: -1}
"""Stages from the one that posts a transfer to the one at its other end."""

OTHER_END = {SEND_F: RECV_F, RECV_F: SEND_F, SEND_B: RECV_B, RECV_B: SEND_B}


def output_of(action: Action, num_stages: int) -> Communication | None:
    """Return the send of what an op makes, None where no other stage needs it."""
    stage, kind, microbatch = action
    if kind == FORWARD:
        is_end = stage == num_stages - 1
        return None if is_end else Communication(stage, SEND_F, microbatch)
    return None if stage == 0 else Communication(stage, SEND_B, microbatch)


def input_of(action: Action, num_stages: int) -> Communication | None:
    """Return the receive of what an op needs of another stage, None for nothing."""
    stage, kind, microbatch = action
    if kind == FORWARD:
        return None if stage == 0 else Communication(stage, RECV_F, microbatch)
    is_end = stage == num_stages - 1
    return None if is_end else Communication(stage, RECV_B, microbatch)


def waits_before(step: ComputeStep, received: set[Communication]) -> Iterator[Wait]:
    """Yield the waits for what a step needs, which is taken out of the posted receives."""
    for stage, kind, microbatch in actions_of(step):
        name = RECV_F if kind == FORWARD else RECV_B
        receive = Communication(stage, name, microbatch)
        if receive in received:
            received.remove(receive)
            yield Wait(receive)


class Waited(NamedTuple):
    """Time in which a rank does nothing but wait for a transfer."""

    rank: int
    posted: Communication
    start: int
    end: int


@dataclass
class Transfer:
    """One message from a rank to another."""

    source: int
    target: int
    send: Communication | None = None
    receive: Communication | None = None
    # when they were posted, and when the data are there
    sent: int = 0
    received: int = 0
    end: int | None = None
    waiting: list[int] = field(default_factory=list)  # ranks


@dataclass(frozen=True)
class ProgramRun:
    """When the ranks of a program do what."""

    start: Mapping[ComputeStep, int]
    end: Mapping[ComputeStep, int]
    transfers: Sequence[Transfer]
    waits: Sequence[Waited]  # those that take time

    @property
    def makespan(self) -> int:
        """Time until the last op ends."""
        return max(self.end.values(), default=0)


@dataclass(frozen=True)
class Network:
    """How transfers of a pipeline behave."""

    ranks: Sequence[int]  # of each stage
    latency: Callable[[int, int], int]  # from one rank to another, in ticks
    # whether a send ends with its receive; otherwise it ends at once
    is_rendezvous: bool


def run_programs(
    programs: Sequence[Sequence[ProgramStep]],
    duration: Callable[[ComputeStep], int],
    network: Network,
) -> ProgramRun:
    """Run the program of each rank; all start at 0.

    A `DeadlockError` says that ranks wait for each other, an `InputError` that a send is met by the
    receive of something else.
    """
    return _Simulation(programs, duration, network).run()


class _Simulation:
    def __init__(
        self,
        programs: Sequence[Sequence[ProgramStep]],
        duration: Callable[[ComputeStep], int],
        network: Network,
    ) -> None:
        self.programs, self.duration, self.network = programs, duration, network
        self.clock = [0] * len(programs)
        self.position = [0] * len(programs)
        self.ready = list(range(len(programs)))
        self.start: dict[ComputeStep, int] = {}
        self.end: dict[ComputeStep, int] = {}
        self.waits: list[Waited] = []
        # of each pair of ranks, in order, what one or both have posted
        self.streams: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
        self.sends: Counter[tuple[int, int]] = Counter()
        self.receives: Counter[tuple[int, int]] = Counter()
        self.posted: list[dict[Communication, Transfer]] = [{} for _ in programs]

    def run(self) -> ProgramRun:
        while self.ready:
            self._proceed(self.ready.pop())
        stuck = [
            rank
            for rank, program in enumerate(self.programs)
            if self.position[rank] < len(program)
        ]
        if stuck:
            raise DeadlockError(self._cycle(stuck[0]))
        transfers = [t for stream in self.streams.values() for t in stream]
        return ProgramRun(self.start, self.end, transfers, self.waits)

    def _proceed(self, rank: int) -> None:
        program = self.programs[rank]
        while self.position[rank] < len(program):
            step = program[self.position[rank]]
            if isinstance(step, Wait):
                if not self._wait(rank, step.posted):
                    return
            elif isinstance(step, Communication):
                self._post(rank, step)
            else:
                self.start[step] = self.clock[rank]
                self.clock[rank] += self.duration(step)
                self.end[step] = self.clock[rank]
            self.position[rank] += 1

    def _post(self, rank: int, posted: Communication) -> None:
        peer = self.network.ranks[posted.stage + PEERS[posted.kind]]
        is_send = posted.kind in {SEND_F, SEND_B}
        pair = (rank, peer) if is_send else (peer, rank)
        counts = self.sends if is_send else self.receives
        stream, number = self.streams[pair], counts[pair]
        if number == len(stream):
            stream.append(Transfer(*pair))
        counts[pair] += 1
        transfer = self.posted[rank][posted] = stream[number]
        if is_send:
            transfer.send, transfer.sent = posted, self.clock[rank]
        else:
            transfer.receive, transfer.received = posted, self.clock[rank]
        if transfer.send is not None and transfer.receive is not None:
            self._meet(transfer, transfer.send, transfer.receive)

    def _meet(
        self, transfer: Transfer, send: Communication, receive: Communication
    ) -> None:
        wanted = send.stage + PEERS[send.kind], OTHER_END[send.kind], send.microbatch
        if receive != wanted:
            raise InputError(
                f"rank {transfer.target} posts {receive} where rank {transfer.source} posts {send}",
                code=ErrorCode.CONFLICT,
            )
        latency = self.network.latency(transfer.source, transfer.target)
        if self.network.is_rendezvous:
            transfer.end = max(transfer.sent, transfer.received) + latency
        else:
            transfer.end = max(transfer.sent + latency, transfer.received)
        self.ready += transfer.waiting
        transfer.waiting.clear()

    def _wait(self, rank: int, posted: Communication) -> bool:
        """Wait for the end of a transfer; False where the other rank has to post it before."""
        transfer = self.posted[rank][posted]
        is_send = posted.kind in {SEND_F, SEND_B}
        if is_send and not self.network.is_rendezvous:
            return True
        if transfer.end is None:
            transfer.waiting.append(rank)
            return False
        if transfer.end > self.clock[rank]:
            self.waits.append(Waited(rank, posted, self.clock[rank], transfer.end))
            self.clock[rank] = transfer.end
        return True

    def _cycle(self, rank: int) -> list[str]:
        """Return the steps at which ranks wait for each other, from this one on."""
        seen: list[int] = []
        while rank not in seen and self.position[rank] < len(self.programs[rank]):
            seen.append(rank)
            step = self.programs[rank][self.position[rank]]
            assert isinstance(step, Wait)
            rank = self.network.ranks[step.posted.stage + PEERS[step.posted.kind]]
        cycle = seen[seen.index(rank) :] if rank in seen else seen
        return [str(self.programs[rank][self.position[rank]]) for rank in cycle]
