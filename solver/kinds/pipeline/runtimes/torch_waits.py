"""Where ranks of PyTorch's runtime wait, and how it adds sends and receives to what they compute.

As `_PipelineScheduleRuntime` of torch 2.13 does with a file that is ``compute_only``: ranks take
turns, whatever ops take. In its turn a rank takes its next step, if that is ready; a send goes
behind it, and the receive behind what the other rank has taken by then. Stages that are gathered
and dropped, and gradients that are reduced, take turns too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

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
    TRANSFERS,
    UNSHARD,
    Action,
    Communication,
    ComputeStep,
    Step,
    actions_of,
)
from ppsolve.solver.kinds.pipeline.programs.communications import (
    Rows,
    stages_to_ranks,
    transfer_of,
)
from ppsolve.solver.kinds.pipeline.programs.waited import Programs
from ppsolve.solver.kinds.pipeline.programs.waits import (
    ProgramStep,
    input_of,
    waits_before,
)

GATHERED = 3
"""Stages whose parameters a rank gathers ahead."""


def torch_programs(rows: Rows) -> Programs:
    """Return the programs of ranks whose rows only compute."""
    return [as_torch_waits(row) for row in lowered(rows)]


def as_torch_waits(row: Sequence[Step]) -> list[ProgramStep]:
    """Return the program of a rank whose row has sends and receives.

    It waits for a receive before the op that needs it. Sends are waited for behind all ops.
    """
    program: list[ProgramStep] = []
    received: set[Communication] = set()
    for step in row:
        if not isinstance(step, Communication):
            program += [*waits_before(step, received), step]
        elif step.kind in TRANSFERS:
            program.append(step)
            if step.kind in {RECV_F, RECV_B}:
                received.add(step)
    return program


def lowered(rows: Rows) -> list[list[Step]]:
    """Add sends and receives to the rows of a program, as PyTorch does.

    A `DeadlockError` says that the ops wait for each other.
    """
    ranks = stages_to_ranks(rows)
    turns = [list(_turns(row)) for row in rows]
    position = [0] * len(rows)
    full: list[list[Step]] = [[] for _ in rows]
    # of each rank what it has computed or receives
    taken: list[set[Step]] = [set() for _ in rows]
    while any(position[rank] < len(row) for rank, row in enumerate(turns)):
        before = list(position)
        for rank, row in enumerate(turns):
            if position[rank] == len(row):
                continue
            step = row[position[rank]]
            actions = tuple(actions_of(step))
            if not all(
                _is_ready(action, len(ranks), taken[rank]) for action in actions
            ):
                continue
            position[rank] += 1
            full[rank].append(step)
            taken[rank].update(actions)
            for action in actions:
                transfer = transfer_of(action, ranks)
                if transfer is not None:
                    send, receive = transfer
                    full[rank].append(send)
                    full[ranks[receive.stage]].append(receive)
                    taken[ranks[receive.stage]].add(receive)
        if position == before:
            stuck = zip(turns, position, strict=True)
            raise DeadlockError([str(row[n]) for row, n in stuck if n < len(row)])
    return full


def _is_ready(action: Action, num_stages: int, taken: set[Step]) -> bool:
    stage, kind, microbatch = action
    receive = input_of(action, num_stages)
    if receive is None or kind == BACKWARD_WEIGHT or receive in taken:
        return True
    neighbours = [(stage - 1, FORWARD)]
    if kind != FORWARD:
        neighbours = [(stage + 1, BACKWARD_INPUT), (stage + 1, BACKWARD)]
    return any(Action(*key, microbatch) in taken for key in neighbours)


def _turns(row: Sequence[ComputeStep]) -> Iterator[Step]:
    """Yield what takes turns of a rank."""
    backwards = (BACKWARD, BACKWARD_WEIGHT)
    stages = [[action.stage for action in actions_of(step)] for step in row]
    left = Counter(
        action.stage
        for step in row
        for action in actions_of(step)
        if action.kind in backwards
    )
    gathered: set[int] = set()
    for step, ahead in zip(row, _stages_ahead(stages), strict=True):
        for stage in sorted(gathered - set(ahead)):
            gathered.remove(stage)
            yield Communication(stage, RESHARD)
        for stage in ahead:
            if stage not in gathered:
                gathered.add(stage)
                yield Communication(stage, UNSHARD)
        yield step
        for action in actions_of(step):
            if action.kind in backwards:
                left[action.stage] -= 1
                if not left[action.stage]:
                    yield Communication(action.stage, REDUCE_GRAD)


def _stages_ahead(stages: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each step the stages that are gathered: its own, and those of the next steps.

    Steps add theirs until there are enough; a pair adds both.
    """
    ahead: list[list[int]] = []
    groups: list[list[int]] = []
    for step in reversed(stages):
        candidates = [list(dict.fromkeys(step)), *groups]
        groups, seen = [], set[int]()
        for group in candidates:
            fresh = [stage for stage in group if stage not in seen]
            if fresh and len(seen) < GATHERED:
                groups.append(fresh)
                seen.update(fresh)
        ahead.append([stage for group in groups for stage in group])
    return ahead[::-1]
