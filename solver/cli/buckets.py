"""``ppsolve buckets``: which collectives of a program to merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.text import instance_text
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_options
from ppsolve.solver.cli.options import argument, value
from ppsolve.solver.cli.output import check_outputs, deliver, save, stdout_console
from ppsolve.solver.studies.buckets import ALL_COLLECTIVES, advise_buckets
from ppsolve.solver.views.buckets import buckets_report


def buckets_command(
    instance: Annotated[
        Path, argument("INSTANCE", "A program (kind overlap); - is stdin.")
    ],
    latency: Annotated[
        list[str],
        value(
            "[NAME=]X",
            "Time saved per merged collective, in the instance's unit: for all, or for a "
            "group, a type or group/type; repeatable.",
        ),
    ],
    time_limit: Annotated[float, opt.time_limit("Wall seconds.")] = 30.0,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    program_out: Annotated[
        Path | None, value("FILE", "Write the program with merged collectives here.")
    ] = None,
) -> None:
    """Find which collectives of a compiled graph to merge into buckets.

    Adjacent collectives of one group and type may be merged. The search tries fixed sizes, then
    single merges and cuts. A bucket starts when its last collective may start, and holds its memory
    until all of them have been used. E.g. `--latency 15`, or `--latency 15 --latency all_reduce=20
    --latency tp=4`.
    """
    check_outputs({"--output": output, "--program-out": program_out}, instance)
    program: Any = load_instance(instance)
    if program.kind != "overlap":
        raise InputError(
            "expected a program (kind overlap)",
            source=str(instance),
            field="kind",
            code=ErrorCode.UNSUPPORTED,
        )
    numbers = (opt.named_number(text, "--latency", "[NAME=]X") for text in latency)
    by_name = {name or ALL_COLLECTIVES: number for name, number in numbers}
    is_general = by_name.keys() == {ALL_COLLECTIVES}
    with about_options({"latency": "--latency"}):
        advice = advise_buckets(
            program,
            by_name[ALL_COLLECTIVES] if is_general else by_name,
            time_limit=time_limit,
            seed=seed,
        )
    if program_out is not None:
        save(program_out, instance_text(advice.program))
    if not deliver(advice, output, as_json=as_json):
        stdout_console().print(buckets_report(advice))
