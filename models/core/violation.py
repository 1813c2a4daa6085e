"""One broken rule of one schedule, as the checker reports it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.units import readable_amounts


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Parameters
    ----------
    rule : str
        ``missing``, ``start``, ``tick``, ``duration``, ``release``, ``pin``, ``window``
        (a start outside the holes that the op fits into), ``precedence``, ``overlap``, ``memory``,
        ``assignment`` (a micro-batch in no replica or in two, or wrong counts), ``modes`` (memory
        modes that are unknown, or not decided so), ``label`` (kind,
        stage, device or micro-batch contradict the id), ``order`` (an invalid program order, or one
        that runs otherwise than its schedule), or ``objective`` (a false figure, or a bound, gap or
        status that contradicts the value).
    message : str
        Description of the violation, with names and times in the instance's unit.
    ops : tuple of str
        Names of the ops involved.
    pool : DeviceName or None
        The pool that holds too much.
    short : str or None
        The message without what is said at length: by how much a pool is overfull.
    """

    rule: str
    message: str
    ops: tuple[str, ...]
    pool: DeviceName | None = None
    short: str | None = None

    def __str__(self) -> str:
        """Return ``rule: message``."""
        return f"{self.rule}: {self.message}"


def excess_text(peak: Fraction, capacity: Fraction, unit: str) -> str:
    """Return by how much a pool is overfull: ``holds 91.4 of 80.0 GB``."""
    (held, room), shown = readable_amounts((peak, capacity), unit)
    return f"holds {held} of {room} {shown}".rstrip()
