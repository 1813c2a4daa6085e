"""Inductor's overlap passes by name, as published and with ties broken by program order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.solver.overlap.inductor_lists import list_raise, list_reorder, list_sink
from ppsolve.solver.overlap.nodes import OverlapProgram
from ppsolve.solver.overlap.reorder import reorder_compute_for_overlap
from ppsolve.solver.overlap.replay import broken_dependency

RAISE_FAILURE = "AssertionError in raise_comms: assert len(cur_comms) <= 1"
"""Error of raise_comms where more than one collective could come first."""

STABLE = "-stable"
"""Suffix of the variants that do not depend on names."""


@dataclass(frozen=True)
class PassResult:
    """Outcome of one pass, or of several in a row.

    Parameters
    ----------
    order : list of int or None
        Places in the program in their new order; None where a pass failed.
    error : str or None
        The failing pass's own words.
    completed : tuple of str
        Names of the passes that ran through.
    """

    order: list[int] | None
    error: str | None
    completed: tuple[str, ...]


class PassError(Exception):
    """A pass cannot handle a program; the text is the pass's own."""


Pass = Callable[[OverlapProgram], list[int]]
OverlapPass = Callable[[OverlapInstance], PassResult]


def sink_waits(program: OverlapProgram) -> list[int]:
    """Hold every wait back until a node that is no wait uses it directly (Inductor's pass)."""
    held: set[int] = set()
    order: list[int] = []
    for node in range(program.size):
        if program.kind[node] is NodeKind.WAIT:
            held.add(node)
            continue
        used = held.intersection(program.deps[node])
        held -= used
        order += [*sorted(used, key=program.rank.__getitem__), node]
    return order + sorted(held, key=program.rank.__getitem__)


def raise_comms(program: OverlapProgram) -> list[int]:
    """Move collectives up to their last direct dependency, in their order (Inductor's pass).

    Raises
    ------
    PassError
        More than one collective is left to come first.
    """
    held: deque[int] = deque()
    backwards: list[int] = []
    for node in range(program.size - 1, -1, -1):
        if program.kind[node] is NodeKind.COMM:
            held.append(node)
            continue
        # The queue holds descending places, all below those of collectives that left it.
        users = (user for user in program.users[node] if program.kind[user] is NodeKind.COMM)
        first = min(users, default=program.size)
        while held and held[0] >= first:
            backwards.append(held.popleft())
        backwards.append(node)
    if len(held) > 1:
        raise PassError(RAISE_FAILURE)
    return [*held, *reversed(backwards)]


SINGLE_PASSES: dict[str, Pass] = {
    "sink_waits": sink_waits,
    "raise_comms": raise_comms,
    "reorder_compute_for_overlap": reorder_compute_for_overlap,
    "list_sink": list_sink,
    "list_raise": list_raise,
    "list_reorder": list_reorder,
}
"""The single passes by their own names."""

PASS_SEQUENCES: dict[str, tuple[str, ...]] = {
    "sink-waits": ("sink_waits",),
    "raise-comms": ("raise_comms",),
    "reorder-compute": ("reorder_compute_for_overlap",),
    "inductor-default": ("reorder_compute_for_overlap", "sink_waits", "raise_comms"),
    "inductor-tests": ("sink_waits", "raise_comms", "reorder_compute_for_overlap"),
    "inductor-list-sink": ("list_sink",),
    "inductor-list-raise": ("list_raise",),
    "inductor-list-reorder": ("list_reorder",),
}
"""Passes that run one after another, by the name of their heuristic."""


def run_passes(
    instance: OverlapInstance, steps: tuple[str, ...], *, by_name: bool = True
) -> PassResult:
    """Run passes one after another, each on the order of the one before.

    Before the first, each collective is made to depend on the previous one of its group.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    steps : tuple of str
        Names in `SINGLE_PASSES`.
    by_name : bool
        Break ties by the string order of names, as published, else by program order.

    Returns
    -------
    PassResult
        The final order, or the first failure.
    """
    program = OverlapProgram.of(instance, by_name=by_name)
    order = list(range(program.size))
    for number, step in enumerate(steps):
        try:
            moved = SINGLE_PASSES[step](program)
        except PassError as error:
            return PassResult(None, str(error), steps[:number])
        order = [order[place] for place in moved]
        wrong = broken_dependency(instance, order)
        if wrong is not None:
            return PassResult(None, _wrong_order(instance, step, *wrong), steps[:number])
        program = program.permuted(moved)
    return PassResult(order, None, steps)


def _wrong_order(instance: OverlapInstance, step: str, node: int, dep: int) -> str:
    names = instance.nodes[node].name, instance.nodes[dep].name
    return f'wrong order from {step}: "{names[0]}" comes before "{names[1]}", which it depends on'


def _registry() -> dict[str, OverlapPass]:
    found: dict[str, OverlapPass] = {"original": partial(run_passes, steps=())}
    for name, steps in PASS_SEQUENCES.items():
        found[name] = partial(run_passes, steps=steps)
        found[name + STABLE] = partial(run_passes, steps=steps, by_name=False)
    return found


OVERLAP_PASSES: dict[str, OverlapPass] = _registry()
"""Every pass, or row of passes, by the name of its heuristic."""
