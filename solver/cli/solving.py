"""What `optimize` and `compare` do alike: one solve with its progress, and its exit code."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import Result, Status, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.cli.guard import ExitCode, about_file
from ppsolve.solver.cli.options import SolveOptions
from ppsolve.solver.optimize import api
from ppsolve.solver.optimize.kinds import kind_of
from ppsolve.solver.render.progress import progress


def solve(
    path: str | Path,
    instance: Instance,
    options: SolveOptions,
    *,
    quiet: bool,
    verbose: bool,
    label: str = "",
    began: float | None = None,
    start: Any = None,
) -> Result:
    """Optimise an instance with progress on stderr.

    Parameters
    ----------
    path : str or Path
        File of the instance, for errors.
    instance : Instance
        The instance.
    options : SolveOptions
        Limits and seed.
    quiet, verbose : bool
        Show no progress, or every event.
    label : str
        Beginning of the lines of progress.
    began, start : optional
        As for `ppsolve.optimize`.

    Returns
    -------
    Result
        As from `ppsolve.optimize`.
    """
    shown = progress(
        instance.name,
        kind_of(instance).value_unit(instance),
        time_limit=options.time_limit,
        quiet=quiet,
        everything=verbose,
        label=label,
    )
    keywords = options.keywords() | {"began": began, "start": start}
    # What a user's heuristic prints must not end up in the result.
    with about_file(instance, path), shown as listener, redirect_stdout(sys.stderr):
        try:
            return api.optimize(instance, on_progress=listener, **keywords)
        except InputError as error:
            raise (error.about("--robust") if error.field == "robust" else error) from None


def exit_code(result: Result, fail_on_gap: float | None = None) -> ExitCode:
    """Return the exit code of the process for a result.

    Parameters
    ----------
    result : Result
        The result.
    fail_on_gap : float, optional
        Largest gap that is no failure.

    Returns
    -------
    ExitCode
        The table of the README.
    """
    if result.stop_reason is StopReason.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if result.status is Status.INFEASIBLE:
        return ExitCode.INFEASIBLE
    if result.value is None:
        return ExitCode.NOTHING_FOUND
    if fail_on_gap is not None and (result.gap is None or result.gap > fail_on_gap):
        return ExitCode.GAP_EXCEEDED
    return ExitCode.FOUND
