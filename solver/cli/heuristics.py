"""``ppsolve heuristics`` and ``simulate``: what heuristics need, and what one of them reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ppsolve.models.documents.files import source_name
from ppsolve.solver.api.kinds import kind_of, load_instance
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_file
from ppsolve.solver.cli.inputs import warn_of_units
from ppsolve.solver.cli.options import argument
from ppsolve.solver.cli.output import (
    check_writable,
    deliver,
    print_json,
    stdout_console,
)
from ppsolve.solver.cli.solving import refuse_not_applicable, simulate_entry
from ppsolve.solver.views.heuristics import applicable, catalogue, heuristic_rows
from ppsolve.solver.views.reports import entry_line, entry_report


def heuristics_command(
    file: Annotated[
        Path | None,
        argument(
            "[INSTANCE]",
            "Instance: list which heuristics apply, and why others do not; - is stdin.",
            show_default=False,
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """List heuristics: what each does, what it needs, and its source.

    A heuristic that applies may still refuse or fail when it runs; `ppsolve simulate` shows that.
    """
    heuristics = list(all_heuristics().values())
    instance = None if file is None else load_instance(file)
    obstacles = None
    if instance is not None:
        obstacles = [
            kind_of(instance).obstacle(heuristic, instance) for heuristic in heuristics
        ]
    if as_json:
        print_json(heuristic_rows(heuristics, obstacles))
    elif instance is None or obstacles is None:
        stdout_console().print(catalogue(heuristics))
    else:
        stdout_console().print(applicable(instance.name, heuristics, obstacles))


@opt.with_option_groups
def simulate_command(
    file: opt.InstanceFile,
    heuristic: opt.HeuristicName,
    reporting: opt.Reporting,
    group_size: opt.GroupSize = None,
    exact: opt.Exact = False,
) -> None:
    """Run one heuristic and report its schedule.

    Exit codes: 0 for feasible, infeasible (with the reason) and failed; 2 if the heuristic does not
    apply or its name is unknown.
    """
    check_writable(reporting.output, file)
    instance = load_instance(file)
    warn_of_units(instance, source_name(file))
    with about_file(instance, file):
        entry = simulate_entry(instance, heuristic, group_size=group_size, exact=exact)
    used_stdout = deliver(entry, reporting.output, as_json=reporting.as_json)
    refuse_not_applicable(entry)
    if used_stdout:
        return
    quiet = reporting.quiet
    summary = (
        entry_line(entry, instance.time_unit)
        if quiet
        else entry_report(instance, entry)
    )
    stdout_console().print(summary, soft_wrap=quiet)
