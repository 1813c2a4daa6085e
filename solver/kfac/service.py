"""What the library does with K-FAC work around a pinned pipeline: optimize and simulate."""

from __future__ import annotations

from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.kfac.result import RefreshEntry, RefreshResult
from ppsolve.solver.kfac.heuristics import (
    REFRESH_HEURISTICS,
    refresh_entry,
    run_refresh_heuristic,
)
from ppsolve.solver.kfac.pattern import pattern_of
from ppsolve.solver.kfac.report import refresh_result
from ppsolve.solver.kfac.run import RefreshRun
from ppsolve.solver.optimize.options import Options
from ppsolve.solver.optimize.progress import ProgressListener
from ppsolve.solver.optimize.registry import find_heuristic


def optimize_refresh(
    instance: KfacInstance,
    options: Options,
    on_progress: ProgressListener | None = None,
    *,
    round_up: bool = False,
) -> RefreshResult:
    """Find the fewest iterations of every device; see `ppsolve.optimize`."""
    pattern = pattern_of(instance, round_up=round_up)
    run = RefreshRun(instance, pattern, options, on_progress)
    run.execute()
    return refresh_result(run)


def simulate_refresh(
    instance: KfacInstance, heuristic: str, *, round_up: bool = False
) -> RefreshEntry:
    """Run one heuristic and return its entry with the schedule.

    Raises
    ------
    InputError
        Unknown name.
    NotApplicableError
        The heuristic is for other instances.
    """
    pattern = pattern_of(instance, round_up=round_up)
    if heuristic not in REFRESH_HEURISTICS:
        needs = find_heuristic(heuristic).requirements_text
        raise NotApplicableError(f"{heuristic} is not applicable: {needs}")
    outcome = run_refresh_heuristic(heuristic, pattern)
    return refresh_entry(outcome, pattern, with_schedule=True)
