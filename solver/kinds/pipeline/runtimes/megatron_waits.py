"""Where the ranks of Megatron-LM post their transfers and wait for them.

As `schedules.py` and `p2p_communication.py` of megatron-core 0.16.1 do. Without chunks all calls
wait for what they post. With chunks transfers of the steady phase overlap the ops behind them by
default, those of warm-up and flush only with ``--overlap-p2p-communication-warmup-flush``, and none
with ``--no-overlap-p2p-communication``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import (
    FORWARD,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    Action,
    Communication,
    ComputeStep,
    Overlap,
    actions_of,
)
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.programs.waited import Programs
from ppsolve.solver.kinds.pipeline.programs.waits import (
    ProgramStep,
    Wait,
    input_of,
    output_of,
)
from ppsolve.solver.kinds.pipeline.runtimes.family import FixedOrder, WaitRule


class TransferOverlap(Enum):
    """Which transfers of chunks overlap the ops behind them; the value says so in reports."""

    STEADY = ""
    ALL = "warm-up flush"
    NONE = "no overlap"


P2P_OVERLAP = "p2p_overlap"
"""Setting with the name of a `TransferOverlap`, in small letters; the default is not named."""

OVERLAP_FLAGS = {
    "all": "--overlap-p2p-communication-warmup-flush",
    "none": "--no-overlap-p2p-communication",
}
"""Flag of each value of that setting."""


@dataclass(frozen=True)
class _RankOps:
    """The forwards and backwards of a rank by number, and their transfers."""

    rank: int
    num_ranks: int
    num_stages: int
    forwards: Sequence[Action]
    backwards: Sequence[Action]

    @classmethod
    def of(cls, rank: int, shape: PipelineShape, order: Order) -> _RankOps:
        actions = [action for step in order for action in actions_of(step)]
        return cls(
            rank,
            shape.num_ranks,
            shape.num_stages,
            [action for action in actions if action.kind == FORWARD],
            [action for action in actions if action.kind != FORWARD],
        )

    @property
    def is_last(self) -> bool:
        return self.rank == self.num_ranks - 1

    def output(self, action: Action) -> Communication | None:
        """Return the send of what an op makes, None at the end of the model."""
        return output_of(action, self.num_stages)

    def input(self, action: Action) -> Communication | None:
        """Return the receive of what an op needs, None at the end of the model."""
        return input_of(action, self.num_stages)

    def prefetched(
        self, actions: Sequence[Action], number: int
    ) -> Communication | None:
        """Return the receive that a rank posts with the op of this number, None for none.

        It is the input of the next op. The rank where micro-batches enter a chunk asks for what the
        rank at the other end makes meanwhile, p - 1 ops behind it.
        """
        if number + 1 == len(actions):
            return None
        is_forward = actions is self.forwards
        is_entered_here = self.rank == 0 if is_forward else self.is_last
        if not is_entered_here:
            return self.input(actions[number + 1])
        made = number - (self.num_ranks - 1)
        if made < 0:
            return None
        # The op of that number at the other end is of the same chunk and micro-batch.
        stage, kind, microbatch = actions[made]
        step = self.num_ranks if is_forward else -self.num_ranks
        if not 0 <= stage + step < self.num_stages:
            return None
        return self.input(Action(stage + step, kind, microbatch))


class _RankProgram:
    """The steps of a rank, which are added one by one."""

    def __init__(self, ops: _RankOps) -> None:
        self.ops = ops
        self.steps: list[ProgramStep] = []
        # What was posted and is waited for later: receives in order, and the latest send of each
        # direction.
        self.receives: dict[str, list[Communication]] = {RECV_F: [], RECV_B: []}
        self.latest: dict[str, Communication | None] = {SEND_F: None, SEND_B: None}

    def run(self, step: ComputeStep) -> None:
        self.steps.append(step)

    def call(self, *posts: Communication | None) -> None:
        """Post transfers and wait for all of them."""
        real = [post for post in posts if post is not None]
        self.steps += real
        self.steps += map(Wait, real)

    def launch(self, send: Communication | None, receive: Communication | None) -> None:
        """Post transfers that are waited for later."""
        self.steps += [post for post in (send, receive) if post is not None]
        if receive is not None:
            self.receives[receive.kind].append(receive)

    def relay(
        self,
        kind: str,
        send: Communication | None,
        receive: Communication | None,
    ) -> None:
        """Post transfers, then wait for the send of this kind before; the new one waits later."""
        self.launch(send, receive)
        self.settle(kind)
        self.latest[kind] = send

    def settle(self, kind: str) -> None:
        """Wait for the latest send of this kind."""
        before = self.latest[kind]
        if before is not None:
            self.steps.append(Wait(before))
        self.latest[kind] = None

    def collect(self, action: Action) -> None:
        """Before an op that has an input wait for the oldest receive of its kind."""
        receive = self.ops.input(action)
        if receive is not None and self.receives[receive.kind]:
            self.steps.append(Wait(self.receives[receive.kind].pop(0)))


def one_f_one_b_program(
    shape: PipelineShape, rank: int, order: Order
) -> list[ProgramStep]:
    """Return the program of a rank without chunks, which waits in every call."""
    ops = _RankOps.of(rank, shape, order)
    program = _RankProgram(ops)
    count = len(ops.forwards)
    warmup = min(ops.num_ranks - rank - 1, count)
    for forward in ops.forwards[:warmup]:
        program.call(ops.input(forward))
        program.run(forward)
        program.call(ops.output(forward))
    if warmup < count:
        program.call(ops.input(ops.forwards[warmup]))
    for number, forward in enumerate(ops.forwards[warmup:]):
        backward = ops.backwards[number]
        program.run(forward)
        program.call(ops.output(forward), ops.input(backward))
        program.run(backward)
        following = ops.forwards[warmup + number + 1 : warmup + number + 2]
        program.call(ops.output(backward), *map(ops.input, following))
    for backward in ops.backwards[count - warmup :]:
        program.call(ops.input(backward))
        program.run(backward)
        program.call(ops.output(backward))
    return program.steps


@dataclass(frozen=True)
class _Phases:
    """The program of a rank with chunks: warm-up, steady phase, flush."""

    ops: _RankOps
    overlap: TransferOverlap
    warmup: int
    is_combined: bool

    def steps(self) -> list[ProgramStep]:
        ops = self.ops
        program = _RankProgram(ops)
        steady = len(ops.forwards) - self.warmup
        program.call(ops.input(ops.forwards[0]))
        for number in range(self.warmup):
            self._warm_up(program, number)
        for number in range(steady):
            if self.overlap is TransferOverlap.NONE:
                self._step(program, number)
            else:
                self._overlapped_step(program, number)
        if not steady:
            program.call(ops.input(ops.backwards[0]))
        for number in range(steady, len(ops.backwards)):
            self._flush(program, number)
        program.settle(SEND_B)
        return program.steps

    def _warm_up(self, program: _RankProgram, number: int) -> None:
        ops, forward = self.ops, self.ops.forwards[number]
        send, receive = ops.output(forward), ops.prefetched(ops.forwards, number)
        is_behind_others = number == self.warmup - 1 < len(ops.forwards) - 1
        gradient = ops.input(ops.backwards[0]) if is_behind_others else None
        if self.overlap is TransferOverlap.ALL:
            if number:
                program.collect(forward)
            if ops.rank:
                program.launch(None, receive)
                receive = None
            program.run(forward)
            program.relay(SEND_F, send, receive)
            program.launch(None, gradient)
            return
        program.run(forward)
        if self.overlap is TransferOverlap.NONE:
            program.call(send, receive, gradient)
            return
        program.call(send, receive)
        program.launch(None, gradient)

    def _overlapped_step(self, program: _RankProgram, number: int) -> None:
        ops, forward_number = self.ops, self.warmup + number
        forward, backward = ops.forwards[forward_number], ops.backwards[number]
        activation = ops.prefetched(ops.forwards, forward_number)
        gradient = ops.prefetched(ops.backwards, number)
        program.collect(forward)
        if self.is_combined:
            program.collect(backward)
            program.run(Overlap(forward, backward))
            program.relay(SEND_F, ops.output(forward), activation)
        else:
            program.run(forward)
            program.relay(SEND_F, ops.output(forward), activation)
            program.collect(backward)
            program.run(backward)
        program.relay(SEND_B, ops.output(backward), gradient)

    def _step(self, program: _RankProgram, number: int) -> None:
        ops, forward_number = self.ops, self.warmup + number
        forward, backward = ops.forwards[forward_number], ops.backwards[number]
        pair = [Overlap(forward, backward)] if self.is_combined else [forward, backward]
        for step in pair:
            program.run(step)
        program.call(
            ops.output(backward),
            ops.prefetched(ops.forwards, forward_number),
            ops.output(forward),
            ops.prefetched(ops.backwards, number),
        )

    def _flush(self, program: _RankProgram, number: int) -> None:
        ops, backward = self.ops, self.ops.backwards[number]
        send, receive = ops.output(backward), ops.prefetched(ops.backwards, number)
        if number:
            program.collect(backward)
        if self.overlap is not TransferOverlap.ALL:
            program.run(backward)
            program.call(send, receive)
            return
        if not ops.is_last:
            program.launch(None, receive)
            receive = None
        program.run(backward)
        program.relay(SEND_B, send, receive)


def interleaved_program(
    shape: PipelineShape, rank: int, order: FixedOrder, overlap: TransferOverlap
) -> list[ProgramStep]:
    """Return the program of a rank with chunks."""
    assert order.group_size is not None
    ops = _RankOps.of(rank, shape, order.orders[rank])
    warmup = 2 * (ops.num_ranks - rank - 1) + (shape.chunks - 1) * order.group_size
    warmup = min(warmup + order.is_combined, len(ops.forwards))
    return _Phases(ops, overlap, warmup, order.is_combined).steps()


def _programs_of(
    overlap: TransferOverlap,
) -> Callable[[PipelineShape, FixedOrder], Programs]:
    return lambda shape, order: [
        interleaved_program(shape, rank, order, overlap)
        for rank in range(shape.num_ranks)
    ]


def _plain_programs(shape: PipelineShape, order: FixedOrder) -> Programs:
    return [
        one_f_one_b_program(shape, rank, steps)
        for rank, steps in enumerate(order.orders)
    ]


def megatron_waits(shape: PipelineShape) -> list[WaitRule]:
    """Return the ways in which ranks wait: one without chunks, else by what overlaps.

    Two ranks cannot go without overlap: a rank would not tell sends of both directions apart.
    """
    if shape.chunks == 1:
        return [WaitRule("", {}, _plain_programs)]
    overlaps = list(TransferOverlap)[: 3 if shape.num_ranks > 2 else 2]
    return [
        WaitRule(
            overlap.value,
            {P2P_OVERLAP: overlap.name.lower()} if overlap.value else {},
            _programs_of(overlap),
        )
        for overlap in overlaps
    ]
