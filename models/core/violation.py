"""What the checker reports: one broken rule of one schedule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Parameters
    ----------
    rule : str
        ``missing``, ``start``, ``tick``, ``duration``, ``release``, ``pin``, ``window``
        (a start outside the holes that have room), ``precedence``, ``overlap``, ``memory``,
        ``label`` (a document gives an op another kind, stage, device or micro-batch than its id
        says), ``order`` (a program order that is none, or runs otherwise than the schedule beside
        it), or ``objective`` (a document claims another figure than its schedule has, or a
        bound, gap or status that contradicts its value).
    message : str
        What is wrong, with names and times in the instance's unit.
    ops : tuple of str
        Names of the ops involved.
    """

    rule: str
    message: str
    ops: tuple[str, ...]

    def __str__(self) -> str:
        """Return ``rule: message``."""
        return f"{self.rule}: {self.message}"
