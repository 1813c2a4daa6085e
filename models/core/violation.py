"""One broken rule of one schedule, as the checker reports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Parameters
    ----------
    rule : str
        ``missing``, ``start``, ``tick``, ``duration``, ``release``, ``pin``, ``window``
        (a start outside the holes that the op fits into), ``precedence``, ``overlap``, ``memory``,
        ``assignment`` (a micro-batch in no replica or in two, or other counts than were asked for),
        ``label`` (a document gives an op another kind, stage, device or micro-batch than its id
        says), ``order`` (an invalid program order, or one that runs otherwise than the schedule
        beside it), or ``objective`` (a document claims another figure than its schedule has, or a
        bound, gap or status that contradicts its value).
    message : str
        Description of the violation, with names and times in the instance's unit.
    ops : tuple of str
        Names of the ops involved.
    """

    rule: str
    message: str
    ops: tuple[str, ...]

    def __str__(self) -> str:
        """Return ``rule: message``."""
        return f"{self.rule}: {self.message}"
