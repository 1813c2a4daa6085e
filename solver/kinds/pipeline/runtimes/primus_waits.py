"""Where the ranks of Primus wait for their transfers.

As the handlers of Primus (main of 2026-08-22) do with ``communication_method: async_p2p``, the
default: transfers that follow each other in the table are posted together, once the sends of the
group before have ended. An op waits for its receive. Between stages of one
rank nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ppsolve.solver.kinds.pipeline.grammar import (
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    TRANSFERS,
    Communication,
    Step,
)
from ppsolve.solver.kinds.pipeline.programs.communications import (
    Ends,
    Rows,
    with_communications,
)
from ppsolve.solver.kinds.pipeline.programs.waited import Programs
from ppsolve.solver.kinds.pipeline.programs.waits import (
    ProgramStep,
    Wait,
    waits_before,
)


def primus_programs(rows: Rows, ends: Ends) -> Programs:
    """Return the programs of ranks that run the table of a schedule.

    `ends`: when its ops end, which decides where receives stand.
    """
    return [as_primus_waits(row) for row in with_communications(rows, ends)]


def as_primus_waits(row: Sequence[Step]) -> list[ProgramStep]:
    """Return the program of a rank whose row has the transfers to and from other ranks."""
    program: list[ProgramStep] = []
    group: list[Communication] = []
    sends: list[Communication] = []
    received: set[Communication] = set()
    for step in row:
        if isinstance(step, Communication):
            group += [step] if step.kind in TRANSFERS else []
            continue
        if group:
            program += [*map(Wait, sends), *group]
            sends = [post for post in group if post.kind in {SEND_F, SEND_B}]
            received.update(post for post in group if post.kind in {RECV_F, RECV_B})
            group = []
        program += [*waits_before(step, received), step]
    return [*program, *map(Wait, sends), *group] if group else program
