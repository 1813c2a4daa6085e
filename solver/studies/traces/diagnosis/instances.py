"""The step of a recorded run with a change of `diagnose`, as an instance to optimize."""

from __future__ import annotations

from collections.abc import Sequence

from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.trace.table import Trace
from ppsolve.solver.studies.traces.diagnosis.changes import changes_of
from ppsolve.solver.studies.traces.diagnosis.diagnose import recorded_variant
from ppsolve.solver.studies.traces.diagnosis.steps import steps_of
from ppsolve.solver.studies.traces.diagnosis.verdict import Help
from ppsolve.solver.studies.traces.fits import fit
from ppsolve.solver.studies.traces.replay import median_instance


def changed_instance(
    trace: Trace, change: str, name: str = "trace", capacity: Sequence[int] | None = None
) -> PipelineInstance:
    """Return the median step of a run with a change, in the memory that `diagnose` assumes.

    To exchange micro-batches is about single ones: for it the instance is the recorded step of the
    median replay, with all replicas. Raises `InputError` for an unknown change, or
    one that means nothing in this run.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    change : str
        As `Help.change` names it; hyphens may stand for its blanks.
    name : str
        Name of the instance.
    capacity : sequence of int, optional
        As for `diagnose`.

    Returns
    -------
    PipelineInstance
        Its `description` says what is assumed.
    """
    steps = steps_of(trace)
    recorded = recorded_variant(steps, capacity)
    changes = changes_of(steps, recorded)
    known = {one.change if isinstance(one, Help) else one.name: one for one in changes}
    wanted = change.replace("-", " ")
    if wanted not in known:
        hint = did_you_mean(wanted, known)
        raise InputError(f'unknown change "{change[:40]}"{hint}', field="--change")
    found = known[wanted]
    if isinstance(found, Help):
        raise InputError(f"{wanted} means nothing here: {found.assumes}", field="--change")
    if found.name == "exchange":
        by_replay = sorted(steps, key=lambda step: max(step.replays))
        return found.pipeline(by_replay[(len(steps) - 1) // 2], is_free=True)
    memory = {"capacity": list(found.capacity), "activation": 1}
    about = f"{found.name}: {found.assumes}; medians of the recorded steps"
    fits = fit(trace)
    return median_instance(
        trace, fits, name, found.times, memory=memory, description=about, **found.placement
    )
