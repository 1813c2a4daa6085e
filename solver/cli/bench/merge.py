"""``ppsolve bench merge``: several files of results as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.bench.file import read_records, write_records
from ppsolve.models.bench.merge import merged
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import check_writable

ResultFiles = Annotated[
    list[Path],
    typer.Argument(metavar="RESULTS...", help="Files of results.", show_default=False),
]
MergedFile = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", help="File for all of them.", show_default=False
    ),
]


def bench_merge_command(
    results: ResultFiles, output: MergedFile, verbose: opt.Verbose = False
) -> None:
    """Put several files of results into one, each item once.

    Where two files have the same item, a result is kept rather than a failure, else the one of
    the file named first; results that differ are told.
    """
    check_writable(output, *results)
    files = {str(path): read_records(path) for path in results}
    for name, found in files.items():
        if found.torn:
            say(f"note: {name}: the last line was not written whole, left out")
    records, differences = merged(files)
    write_records(output, records)
    for difference in differences:
        say(f"note: {difference}")
    count = sum(len(found.records) for found in files.values())
    typer.echo(f"{output}: {len(records)} items of {count} lines, {len(differences)} differences")
