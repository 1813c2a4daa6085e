"""``ppsolve bench run`` and ``merge``: heuristics and the solver on many instances, in one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ppsolve.models.bench.file import BenchFile, merged, read_records, write_records
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.bench.collect import collect
from ppsolve.solver.bench.item import BenchItem, code_of
from ppsolve.solver.bench.machine import GIB, memory_share
from ppsolve.solver.bench.many import checked_options
from ppsolve.solver.bench.pool import Engine, Limits, LocalEngine, wall_cap
from ppsolve.solver.bench.suite import Shard, Suite, distinct
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.bench_report import bench_report_command
from ppsolve.solver.cli.generate import instances_of
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import check_writable
from ppsolve.solver.kinds.options import default_workers
from ppsolve.solver.render.tally import TallyProgress, tally


class EngineName(StrEnum):
    """Where items are solved."""

    LOCAL = "local"
    DASK = "dask"


class _RunByDefault(TyperGroup):
    """Takes whatever begins with no subcommand for arguments of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` before arguments that name no subcommand."""
        helps = ctx.help_option_names
        if args and args[0] not in self.commands and args[0] not in helps:
            args = ["run", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="""Solve many instances into one file that survives every kill.

    `ppsolve bench PATHS... -o results.jsonl` is short for `ppsolve bench run PATHS... -o ...`;
    its options are listed by `ppsolve bench run --help`.
    """,
)


@group.command("run", short_help="Solve instances; `bench PATHS` is short for it.")
@opt.with_solve_options
def bench_run_command(
    options: opt.SolveOptions,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="JSON lines, one for each item; what is there is not run again.",
        ),
    ],
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATHS...",
            help="Instances: files, quoted globs, directories; - is stdin.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Instances drawn by options of `generate`: 'tight --devices 4 --capacity 1p'.",
        ),
    ] = None,
    recipe_file: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="A recipe in each line.")
    ] = None,
    count: Annotated[
        int, typer.Option(metavar="N", min=1, help="Instances of each recipe, by seed.")
    ] = 1,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Only this part, divided by key.")
    ] = None,
    processes: Annotated[int, typer.Option(metavar="N", min=1, help="Items side by side.")] = 1,
    memory_limit: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0.01, help="GiB of each item [90% of the memory, shared]."),
    ] = None,
    hard_limit: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0.01,
            help="Seconds after which an item is killed [1.05 x time limit + 10].",
        ),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="Run items again that crashed or exceeded a limit."),
    ] = False,
    engine: Annotated[EngineName, typer.Option(help="Where items are solved.")] = EngineName.LOCAL,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of a dask scheduler, or its file [a cluster of this machine].",
        ),
    ] = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Run every heuristic and the solver on many instances, into one file.

    Each item is solved in a process of its own, and is one line of the file as soon as it is done.
    The same command goes on where a run was ended. Items side by side share the processors unless
    --workers says how many threads each has. Exit codes: 0 every item has a result, 1 some
    failed (their lines say how), 2 wrong input, 130 interrupted.
    """
    where = _engine(engine, scheduler, processes)
    share = 1 if engine is EngineName.DASK else default_workers() // processes
    keywords = checked_options(options.keywords(), share)
    part = Shard() if shard is None else Shard.parse(shard)
    check_writable(output, *(path for path in paths or []))
    sources = _items(paths or [], recipe or [], recipe_file or [], count, keywords)
    items, doubles = distinct(sources)
    _tell_doubles(doubles)
    if not items:
        raise InputError("expected instances: files, directories, or --recipe", field="PATHS")
    limits = _limits(options, hard_limit, memory_limit, processes, engine)
    with BenchFile(output) as file:
        if file.torn:
            say(f"note: {output}: the last line was not written whole; it is run again")
        suite = Suite([i for i in items if part.has(i)], file, retry_failed=retry_failed)
        _tell_others(suite, output)
        code = _run(suite, where, limits, quiet=quiet, verbose=verbose)
        count = len(suite.records)
        word = "item" if count == 1 else "items"
        typer.echo(f"{output}: {count} {word}: {tally(suite.records)}")
    raise typer.Exit(code)


def _run(suite: Suite, engine: Engine, limits: Limits, *, quiet: bool, verbose: bool) -> ExitCode:
    """Run a suite with its progress on stderr; return the exit code."""
    done = len(suite.records)
    total = done + len(suite.waiting)
    if done:
        say(f"{done} of {total} items are in the file already")
    shown = TallyProgress(sys.stderr, total, done, everything=verbose)
    try:
        suite.run(engine, limits, (lambda record: None) if quiet else shown)
    except KeyboardInterrupt:
        shown.close()
        say(f"interrupted; {total - len(suite.records)} of {total} items not done")
        return ExitCode.INTERRUPTED
    finally:
        if not quiet:
            shown.close()
    failed = any(record.failure is not None for record in suite.records)
    return ExitCode.INTERNAL if failed else ExitCode.FOUND


def _items(
    paths: list[str],
    recipes: list[str],
    recipe_files: list[str],
    count: int,
    keywords: dict[str, Any],
) -> Iterator[BenchItem]:
    code = code_of(keywords)
    for source in collect(paths, say):
        yield BenchItem(source.instance, source.family, source.path, keywords, code)
    for name, instance in instances_of(recipes, recipe_files, count):
        yield BenchItem(instance, name, None, keywords, code)


def _tell_doubles(doubles: list[tuple[BenchItem, BenchItem]]) -> None:
    for item, same in doubles[:1]:
        more = f", as are {len(doubles) - 1} others of another" if len(doubles) > 1 else ""
        say(
            f"note: {item.path or item.instance.name} is the same question as "
            f"{same.path or same.instance.name}{more}; each is solved once"
        )


def _tell_others(suite: Suite, output: Path) -> None:
    count = len(suite.others)
    if count:
        lines = "line is" if count == 1 else "lines are"
        say(
            f"note: {output}: {count} {lines} about these instances with other settings, code or "
            "version; they stay, and are reported too"
        )


def _limits(
    options: opt.SolveOptions,
    hard_limit: float | None,
    memory_limit: float | None,
    processes: int,
    engine: EngineName,
) -> Limits:
    seconds = hard_limit or wall_cap(options.time_limit, is_kept=not options.deterministic)
    if memory_limit is not None:
        return Limits(seconds, int(memory_limit * GIB))
    # Workers of a cluster know the memory of their own machines.
    return Limits(seconds, None if engine is EngineName.DASK else memory_share(processes))


def _engine(name: EngineName, scheduler: str | None, processes: int) -> Engine:
    if name is EngineName.LOCAL:
        if scheduler is not None:
            raise InputError("expected --engine dask with it", field="--scheduler")
        return LocalEngine(processes)
    from ppsolve.solver.bench.cluster import DaskEngine

    return DaskEngine(scheduler, processes=processes)


@group.command("merge", short_help="Put several files of results into one.")
def bench_merge_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS...", help="Files of results.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File for all of them.")
    ],
    verbose: opt.Verbose = False,
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


group.command("report", short_help="Tables, curves and regressions of results.")(
    bench_report_command
)
