"""Where the ranks of DeepSpeed wait for their transfers: in every send and receive.

As `TrainSchedule` of DeepSpeed 0.19.8 has them: forward k of stage s is in turn s + 2k, backward k
in turn 2 (k + p) - s - 1, and what an op made is sent in the turn behind it, run or not.
"""

from __future__ import annotations

from ppsolve.solver.kinds.pipeline.grammar import BACKWARD, FORWARD, Action
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.programs.waited import Programs
from ppsolve.solver.kinds.pipeline.programs.waits import (
    ProgramStep,
    Wait,
    input_of,
    output_of,
)
from ppsolve.solver.kinds.pipeline.runtimes.family import FixedOrder, WaitRule


def _program(shape: PipelineShape, stage: int) -> list[ProgramStep]:
    stages, count = shape.num_stages, shape.num_microbatches
    program: list[ProgramStep] = []
    before: Action | None = None
    for turn in range(2 * (count + stages)):
        kind, first = FORWARD, stage
        if (turn - stage) % 2:
            kind, first = BACKWARD, 2 * stages - stage - 1
        number = (turn - first) // 2
        action = Action(stage, kind, number) if 0 <= number < count else None
        send = None if before is None else output_of(before, stages)
        receive = None if action is None else input_of(action, stages)
        # Forwards travel down: a rank sends gradients first and receives gradients first.
        transfers = (send, receive) if kind == FORWARD else (receive, send)
        for transfer in transfers:
            if transfer is not None:
                program += [transfer, Wait(transfer)]
        if action is not None:
            program.append(action)
        before = action
    return program


def _programs(shape: PipelineShape, order: FixedOrder) -> Programs:
    return [_program(shape, rank) for rank in range(shape.num_ranks)]


def deepspeed_waits(shape: PipelineShape) -> list[WaitRule]:
    """Return the one way in which ranks wait."""
    return [WaitRule("", {}, _programs)]
