"""``ppsolve simulate``: one heuristic on one instance, with its schedule."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import typer

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.documents.files import source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.doubts import question_units
from ppsolve.solver.cli.guard import about_file
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.optimize import api
from ppsolve.solver.optimize.kinds import load_instance
from ppsolve.solver.render.reports import entry_line, entry_report


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("simulate")(simulate_command)


def simulate_command(
    file: opt.InstanceFile,
    heuristic: opt.HeuristicName,
    group_size: opt.GroupSize = None,
    exact: opt.Exact = False,
    as_json: opt.Json = False,
    output: opt.Output = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Run one heuristic and report what it reaches.

    Exit codes: 0 for feasible, infeasible (with the reason) and failed; 2 where the heuristic is
    not applicable or its name unknown.
    """
    check_writable(output, file)
    instance = load_instance(file)
    question_units(instance, source_name(file))
    with about_file(instance, file):
        entry = simulate_entry(instance, heuristic, group_size=group_size, exact=exact)
    used_stdout = deliver(entry, output, as_json=as_json)
    refuse_not_applicable(entry)
    if used_stdout:
        return
    shown = entry_line(entry, instance.time_unit) if quiet else entry_report(instance, entry)
    stdout_console().print(shown, soft_wrap=quiet)


def simulate_entry(
    instance: Instance, name: str, *, group_size: int | None, exact: bool
) -> HeuristicEntry:
    """Run a heuristic; one that is not applicable gives an entry that says so.

    Parameters
    ----------
    instance : Instance
        A validated instance.
    name : str
        Name of the heuristic.
    group_size : int or None
        Micro-batches per group of ``interleaved-1f1b``; PyTorch's choice by default.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    HeuristicEntry
        With the schedule, or with the reason why there is none.
    """
    chosen = {} if group_size is None else {"group_size": group_size}
    try:
        # What a user's heuristic prints must not end up in the result.
        with redirect_stdout(sys.stderr):
            return api.simulate(instance, name, exact=exact, **chosen)
    except NotApplicableError as error:
        # The name of the heuristic, which may have been given in upper case.
        known, _, reason = str(error).partition(" is not applicable: ")
        return HeuristicEntry(name=known, status=HeuristicStatus.NOT_APPLICABLE, reason=reason)


def refuse_not_applicable(entry: HeuristicEntry) -> None:
    """Raise `NotApplicableError` (exit code 2) for an entry without meaning."""
    if entry.status is HeuristicStatus.NOT_APPLICABLE:
        raise NotApplicableError(f"{entry.name} is not applicable: {entry.reason}")
