"""PyTorch Inductor's passes that move a node at a time and keep the peak of memory in sight.

The rules are those of torch/_inductor/comms.py (2.13; `simple_overlap` 2.14) with its defaults.
"""

from __future__ import annotations

from fractions import Fraction

from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram
from ppsolve.solver.kinds.overlap.pass_memory import PassMemory

BUDGET = Fraction(1, 5)
"""Share of the peak by which `reorder_communication` and `sink_waits_iterative` may exceed it."""


def reorder_communication(program: OverlapProgram) -> list[int]:
    """Move each collective up, with the nodes that it needs, within the budget of memory.

    It passes other collectives only where the instance leaves their order free.
    """
    order, memory = list(range(program.size)), PassMemory(program)
    cap = memory.peak * (1 + BUDGET)
    is_frozen = program.instance.collective_order == "frozen"
    for comm in program.comms:
        head = tail = comm
        needed, peak = set(program.data[comm]), memory.live[comm]
        while head:
            node = order[head - 1]
            is_comm = program.kind[node] is NodeKind.COMM
            if is_comm and is_frozen:
                break
            if node in needed:
                if is_comm or program.matmul[node]:
                    break
                needed.update(program.data[node])
                peak = max(peak, memory.live[node])
                head -= 1
                continue
            group = order[head : tail + 1]
            if not memory.push_back(node, group, peak, cap):
                break
            order[head - 1 : tail + 1] = [*group, node]
            head, tail = head - 1, tail - 1
    return order


def sink_waits_iterative(program: OverlapProgram) -> list[int]:
    """Move each wait down to the next collective, with its users, within the budget of memory."""
    order, memory = list(range(program.size)), PassMemory(program)
    cap = memory.peak * (1 + BUDGET)
    for wait in range(program.size - 1, 0, -1):
        if program.kind[wait] is not NodeKind.WAIT:
            continue
        head = tail = wait
        moving, peak = {wait}, memory.live[wait]
        while tail < program.size - 1:
            node = order[tail + 1]
            if program.kind[node] is NodeKind.COMM:
                break
            if not moving.isdisjoint(program.data[node]):
                if program.kind[node] is NodeKind.WAIT or program.matmul[node]:
                    break
                moving.add(node)
                peak = max(peak, memory.live[node])
                tail += 1
                continue
            group = order[head : tail + 1]
            if not memory.pull_forward(node, group, peak, cap):
                break
            order[head : tail + 2] = [node, *group]
            head, tail = head + 1, tail + 1
    return order


def simple_overlap(program: OverlapProgram) -> list[int]:
    """Move collectives up and waits down one place at a time, never above the peak."""
    order, memory = list(range(program.size)), PassMemory(program)
    cap, live = Fraction(memory.peak), memory.live
    for comm in program.comms:
        position = comm
        while position:
            node = order[position - 1]
            if node in program.deps[comm] or program.kind[node] is NodeKind.COMM:
                break
            if not memory.push_back(node, [comm], live[comm], cap):
                break
            order[position - 1 : position + 1] = [comm, node]
            position -= 1
    for wait in reversed(
        [n for n in range(program.size) if program.kind[n] is NodeKind.WAIT]
    ):
        position = order.index(wait)
        while position < program.size - 1:
            node = order[position + 1]
            if wait in program.deps[node] or program.kind[node] is NodeKind.WAIT:
                break
            if not memory.pull_forward(node, [wait], live[wait], cap):
                break
            order[position : position + 2] = [node, wait]
            position += 1
    return order
