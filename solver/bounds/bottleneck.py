"""What keeps a schedule from being shorter, in words: the strongest rule and what it is about."""

from __future__ import annotations

from collections.abc import Sequence

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.result import Bottleneck
from ppsolve.solver.board import Bound

MEMORY_RULES = frozenset({"memory-cycle", "first-return", "memory-work", "memory-time"})
"""Rules that say nothing without a capacity."""

FREE_OF_MEMORY = frozenset({"critical-path", "work", "one-machine", "path"})
"""Rules that count no memory: what they prove holds however much there is."""

WORDS = {
    "critical-path": (
        "the critical path: the longest chain of ops that wait for each other",
        "shorter ops or transfers on that chain",
    ),
    "work": (
        "the work of {about}, after what must come before it and with what must follow",
        "less work on {about}, or a shorter way to its first op and from its last",
    ),
    "one-machine": (
        "the work of {about}, whose ops become ready and must end at different times",
        "less work on {about}, or a shorter way to it and from it",
    ),
    "chain": (
        "the work of {about} between the first and the last op of another device",
        "less work on {about}, or a shorter way from there to the other device",
    ),
    "joint-spans": (
        "the devices together: each begins late enough to end in time, so that others wait for it",
        "shorter ways between devices, or more equal ones",
    ),
    "memory-cycle": (
        "memory: the longest chain in which ops wait until others have given theirs back",
        "more memory, or shorter ops between taking memory and giving it back",
    ),
    "first-return": (
        "the round trip from {about}: until its first backward only forwards that fit run there",
        "more memory on {about}, or a shorter round trip through the later stages",
    ),
    "memory-work": (
        "the memory of {about}: its forwards wait for the work that makes room for them",
        "more memory on {about}, or less that a micro-batch holds there",
    ),
    "path": (
        "the longest way of one micro-batch through all devices and back",
        "a shorter longest micro-batch, or fewer stages",
    ),
    "passing": (
        "the way of one micro-batch past all others: each delays it, follows it or overtakes it",
        "less work in all, or more equal micro-batches",
    ),
    "ends": (
        "the busiest device, with the micro-batches that it can run first and last",
        "less work there, or more equal micro-batches",
    ),
    "drain": (
        "a busy device and the backwards that must follow it, one after the other",
        "less work on these devices, or more equal micro-batches",
    ),
    "memory-time": (
        "memory: every amount times the time that it is held fills the whole capacity",
        "more memory, or less that a micro-batch holds",
    ),
    "two-resources": (
        "the first and the last device, with the few micro-batches that memory lets be on the way",
        "more memory on these devices, less work there, or more equal micro-batches",
    ),
}
"""What each rule is about, and what would lower its bound."""


def bottleneck(problem: Problem, bounds: Sequence[Bound], best: Bound) -> Bottleneck | None:
    """Return the rule and the resource of the strongest analytic bound, in words.

    Parameters
    ----------
    problem : Problem
        The problem.
    bounds : sequence of Bound
        Its analytic bounds in ticks, strongest first.
    best : Bound
        The best bound that is known, of these or of a search.

    Returns
    -------
    Bottleneck or None
        In the unit of results; None where no known rule says anything.
    """
    strongest = next((bound for bound in bounds if bound.value > 0), None)
    if strongest is None or strongest.name not in WORDS:
        return None
    time, resource = problem.scale.time, strongest.resource
    about = problem.resource_names[resource] if resource != FREE else None
    why, lowered_by = (text.format(about=about or "one device") for text in WORDS[strongest.name])
    others = [bound.value for bound in bounds if bound.name in FREE_OF_MEMORY]
    has_memory = strongest.name in MEMORY_RULES
    return Bottleneck(
        rule=strongest.name,
        about=about,
        value=time(strongest.value),
        work=None if resource == FREE else time(_work(problem, resource)),
        without_memory=time(max(others)) if has_memory and others else None,
        raised_by=best.name if best.value > strongest.value else None,
        why=why,
        lowered_by=lowered_by,
    )


def _work(problem: Problem, resource: int) -> int:
    """Return the ticks that the ops of a resource take."""
    return int(problem.duration[problem.ops_by_resource[resource]].sum())
