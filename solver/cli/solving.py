"""One solve or one heuristic with its progress, its exit code, and its order on stdout."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    Status,
    StopReason,
)
from ppsolve.models.documents.errors import ErrorCode, InputError, NotApplicableError
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of, known_kind
from ppsolve.solver.cli.guard import ExitCode, about_file
from ppsolve.solver.cli.options import Reporting, SolveOptions


def solve(
    path: str | Path,
    instance: Instance,
    options: SolveOptions,
    reporting: Reporting,
    *,
    label: str = "",
    **settings: Any,
) -> Result:
    """Optimise an instance with progress on stderr, its lines behind `label`.

    Errors name `path`, the file of the instance. `settings` are more keywords of
    `ppsolve.optimize`.
    """
    from ppsolve.solver.api import api
    from ppsolve.solver.views.progress import progress

    display = progress(
        instance.name,
        kind_of(instance).value_unit(instance),
        time_limit=options.time_limit,
        quiet=reporting.quiet,
        everything=reporting.verbose,
        label=label,
    )
    keywords = options.keywords() | settings
    # What a user's heuristic prints must not end up in the result.
    with about_file(instance, path), display as listener, redirect_stdout(sys.stderr):
        try:
            return api.optimize(instance, on_progress=listener, **keywords)
        except InputError as error:
            option = {"robust": "--robust", "runtime": "--for"}.get(error.field or "")
            raise (error if option is None else error.about(option)) from None


def exit_code(result: Result, fail_on_gap: float | None = None) -> ExitCode:
    """Return the exit code of the process for a result; gaps up to `fail_on_gap` are no failure."""
    if result.stop_reason is StopReason.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if result.status is Status.INFEASIBLE:
        return ExitCode.INFEASIBLE
    if result.value is None:
        return ExitCode.NOTHING_FOUND
    if fail_on_gap is not None and (result.gap is None or result.gap > fail_on_gap):
        return ExitCode.GAP_EXCEEDED
    return ExitCode.FOUND


def simulate_entry(
    instance: Instance, name: str, *, group_size: int | None, exact: bool
) -> HeuristicEntry:
    """Run a heuristic; one that is not applicable gives an entry with the reason.

    The options are those of `ppsolve.simulate`.
    """
    from ppsolve.solver.api import api

    arguments = {} if group_size is None else {"group_size": group_size}
    try:
        # What a user's heuristic prints must not end up in the result.
        with redirect_stdout(sys.stderr):
            return api.simulate(instance, name, exact=exact, **arguments)
    except NotApplicableError as error:
        # The name that was asked for may be in upper case.
        name, status = error.heuristic or name, HeuristicStatus.NOT_APPLICABLE
        return HeuristicEntry(name=name, status=status, reason=error.reason)


def refuse_not_applicable(entry: HeuristicEntry) -> None:
    """Raise `NotApplicableError` (exit code 2) for an entry that says so."""
    if entry.status is HeuristicStatus.NOT_APPLICABLE:
        raise NotApplicableError(entry.reason or "", entry.name)


def print_order(outcome: Result | HeuristicEntry | None, source: str) -> None:
    """Print the order of a result or heuristic's entry, for other programs.

    Where there is none, an `InputError` names `source` and, if it is known, the reason.
    """
    kind = None if outcome is None or outcome.kind is None else known_kind(outcome.kind)
    lines = None if kind is None or outcome is None else kind.order_lines(outcome)
    if lines is None:
        noun = (kind and kind.orders_are) or "program order"
        why = f": {_reason(outcome)}" if outcome is not None and outcome.reason else ""
        raise InputError(
            f"there is no {noun} in it{why}",
            source=source,
            field="order",
            code=ErrorCode.MISSING,
        )
    printed = map(printable, lines) if sys.stdout.isatty() else lines
    sys.stdout.write("".join(f"{line}\n" for line in printed))


def _reason(outcome: Result | HeuristicEntry) -> str:
    if isinstance(outcome, HeuristicEntry):
        from ppsolve.solver.views.drawings import drawing_of

        return drawing_of(outcome.kind).reason(outcome)
    return outcome.reason or ""
