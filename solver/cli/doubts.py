"""Lines on stderr about what is valid and may still mislead: units, and times that are rounded."""

from __future__ import annotations

from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.transfers import doubtful_units
from ppsolve.solver.cli.guard import say
from ppsolve.solver.render.wording import rounding_note


def question_units(instance: Instance, source: str) -> None:
    """Warn of transfers whose times are orders of magnitude from those of the ops.

    Parameters
    ----------
    instance : Instance
        The instance; kinds without transfers have nothing to ask about.
    source : str
        Its file, for the warning.
    """
    pipeline, field = instance, ""
    if isinstance(instance, KfacInstance) and instance.pipeline is not None:
        pipeline, field = instance.pipeline, "pipeline."
    if isinstance(pipeline, PipelineInstance):
        for line in doubtful_units(pipeline):
            say(f"warning: {source}: {field}{line}")


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
