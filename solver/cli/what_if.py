"""``ppsolve what-if``: what changes of a pipeline would gain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.core.result import Status
from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.curve import note_points
from ppsolve.solver.cli.guard import ExitCode, about_file, say
from ppsolve.solver.cli.options import value
from ppsolve.solver.cli.output import check_outputs, deliver, save, stdout_console
from ppsolve.solver.studies.cases import TIME_LIMIT
from ppsolve.solver.studies.what_if import what_if
from ppsolve.solver.views.page.document import page
from ppsolve.solver.views.what_if import what_if_line, what_if_report, what_if_section


@dataclass(frozen=True)
class ChangeOptions:
    """The axes of `ppsolve.what_if`, as options."""

    microbatches: Annotated[str | None, value("N,M", "Numbers of micro-batches.")] = None
    slices: Annotated[
        str | None, value("K,L", "Slices of each micro-batch: 1,8:balanced (8 equal forwards).")
    ] = None
    capacity: Annotated[
        str | None, value("C,D", "Capacities: amounts or multiples of p, as 4,1.5p or 1p:2p:0.5p.")
    ] = None
    placements: Annotated[
        str | None, value("A,B", "Placements: linear,vshape,interleaved:4 (4 per device).")
    ] = None
    recompute: Annotated[
        str | None,
        value("A,B", "Who decides what is recomputed: none, all, stage, window, microbatch."),
    ] = None
    comm: Annotated[str | None, value("xF", "Times of transfers and collectives: x0.5.")] = None
    slow: Annotated[str | None, value("DxF", "A slow device: 2x1.5 for device 2.")] = None


@opt.with_option_groups
def what_if_command(
    file: opt.InstanceFile,
    changes: ChangeOptions,
    time_limit: Annotated[float, opt.time_limit("Wall seconds in all.", least=0.1)] = TIME_LIMIT,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    html: Annotated[Path | None, value("FILE", "Write the table as a page too.")] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Find what changes of a pipeline gain, one at a time and all together.

    The first row is the pipeline as it is; each row has an equal share of the time. With several
    values of an option every combination has a row.

    Exit codes: 0 a schedule found, 2 wrong input, 3 all rows proven infeasible, 4 no schedule
    found, 130 interrupted.
    """
    check_outputs({"--output": output, "--html": html}, file)
    instance = load_instance(file)
    given = {name: text for name, text in vars(changes).items() if text is not None}
    with about_file(instance, file):
        found = what_if(
            instance,
            given,
            time_limit=time_limit,
            on_row=lambda each: _note(each, output, quiet=quiet),
            workers=workers,
            seed=seed,
        )
    if html is not None:
        save(html, page((), [what_if_section(found)]))
    if not deliver(found, output, as_json=as_json):
        shown = what_if_line(found) if quiet else what_if_report(found)
        stdout_console().print(shown, soft_wrap=quiet)
    raise typer.Exit(_exit_code(found))


def _note(found: WhatIf, output: Path | None, *, quiet: bool) -> None:
    if output is not None and str(output) != "-":
        found.save(output)
    if not quiet:
        note_points(found.wall_seconds, found.rows, "rows")


def _exit_code(found: WhatIf) -> ExitCode:
    if found.interrupted:
        say("interrupted")
        return ExitCode.INTERRUPTED
    if any(row.value is not None for row in found.rows):
        return ExitCode.FOUND
    is_proved = all(row.status is Status.INFEASIBLE for row in found.rows)
    return ExitCode.INFEASIBLE if is_proved else ExitCode.NOTHING_FOUND
