"""Lines on stderr about what is valid and may still mislead: units, and times that are rounded."""

from __future__ import annotations

from ppsolve.models.instances import Instance
from ppsolve.solver.cli.guard import say
from ppsolve.solver.optimize.kinds import kind_of
from ppsolve.solver.render.wording import rounding_note


def question_units(instance: Instance, source: str) -> None:
    """Warn of figures whose unit looks wrong.

    Parameters
    ----------
    instance : Instance
        The instance.
    source : str
        Its file, for the warning.
    """
    for line in kind_of(instance).doubts(instance):
        say(f"warning: {source}: {line}")


def note_rounding(error: float | None, unit: str) -> None:
    """Say that times are rounded to ticks, and what that means, where any are.

    Parameters
    ----------
    error : float or None
        Time by which the optimum on ticks may exceed that of the given times.
    unit : str
        Its unit.
    """
    note = rounding_note(error, unit)
    if note is not None:
        say(f"note: {note}")
