"""``ppsolve bench``: many instances solved into one file, its merging and its report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import destination
from ppsolve.models.documents.printable import plain_json
from ppsolve.models.documents.text import fingerprint
from ppsolve.models.instances import Instance
from ppsolve.models.studies.bench.file import (
    BenchFile,
    BenchRecord,
    Records,
    merged,
    read_records,
    write_records,
)
from ppsolve.solver.api.kinds import parse_instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.generate import drawn_again, instances_of
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import (
    check_folder,
    check_writable,
    make_folder,
    save,
    stdout_console,
)
from ppsolve.solver.studies.bench.many import set_up
from ppsolve.solver.studies.bench.pool import Engine, Limits
from ppsolve.solver.studies.bench.report.report import Report, bench_report
from ppsolve.solver.studies.bench.suite import (
    BenchItem,
    Shard,
    Suite,
    code_of,
    collect,
    distinct,
)
from ppsolve.solver.studies.generate.instances import DrawnBy
from ppsolve.solver.views.bench import outputs as report_as
from ppsolve.solver.views.bench.latex import (
    latex_report,
    methods_csv,
    plain_names,
    profiles_csv,
)
from ppsolve.solver.views.bench.pictures import Picture, draw_pictures
from ppsolve.solver.views.bench.sections import check_columns
from ppsolve.solver.views.figures import counted
from ppsolve.solver.views.line_chart import has_matplotlib, require_matplotlib
from ppsolve.solver.views.progress import TallyProgress, own_failures, tally


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
    help="""Solve many instances and write one file; a killed run can be resumed.

    `ppsolve bench PATHS... -o results.jsonl` is short for `ppsolve bench run PATHS... -o ...`;
    its options are listed by `ppsolve bench run --help`.
    """,
)


@dataclass(frozen=True)
class ItemOptions:
    """Which items are solved, besides files of instances."""

    recipe: Annotated[
        list[str] | None,
        value(
            "TEXT", "Instances drawn with options of `generate`: 'tight --devices 4'."
        ),
    ] = None
    recipe_file: Annotated[
        list[str] | None, value("FILE", "A recipe in each line.")
    ] = None
    count: Annotated[int, value("N", "Instances of each recipe, by seed.", min=1)] = 1
    shard: Annotated[
        str | None, value("I/N", "Run only this part of the items, divided by key.")
    ] = None


@dataclass(frozen=True)
class EngineOptions:
    """Where items are solved, and what each may take."""

    processes: Annotated[int, value("N", "Items that run at once.", min=1)] = 1
    memory_limit: Annotated[
        float | None,
        value("GIB", "GiB of each item [90% of the memory, shared].", min=0.01),
    ] = None
    hard_limit: Annotated[
        float | None,
        value("S", "Kill an item after this time [1.05 x time limit + 10].", min=0.01),
    ] = None
    retry_failed: Annotated[bool, flag("Run failed items again.", "--retry-failed")] = (
        False
    )
    engine: Annotated[EngineName, Option(help="Where items are solved.")] = (
        EngineName.LOCAL
    )
    scheduler: Annotated[
        str | None,
        value("ADDRESS", "Dask scheduler, or its file [a cluster of this machine]."),
    ] = None

    def set_up(
        self, options: opt.SolveOptions
    ) -> tuple[Engine, dict[str, Any], Limits]:
        """Return the engine, the options of every item, and its limits."""
        engine: str | Engine = self.engine
        if self.engine is EngineName.DASK:
            from ppsolve.solver.studies.bench.cluster import DaskEngine

            engine = DaskEngine(self.scheduler, processes=self.processes)
        elif self.scheduler is not None:
            raise InputError(
                "this option needs --engine dask",
                field="--scheduler",
                code=ErrorCode.MISSING,
            )
        return set_up(
            engine,
            options.keywords(),
            self.processes,
            self.hard_limit,
            self.memory_limit,
        )


@group.command("run", short_help="Solve instances; `bench PATHS` is short for it.")
@opt.with_option_groups
def bench_run_command(
    items: ItemOptions,
    engine: EngineOptions,
    options: opt.SolveOptions,
    output: Annotated[
        Path,
        value("FILE", "JSON lines; items in it are not run again.", "--output", "-o"),
    ],
    paths: Annotated[
        list[str] | None,
        argument(
            "PATHS...",
            "Files, quoted globs, directories, earlier results (.jsonl); - is stdin.",
            show_default=False,
        ),
    ] = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Run every heuristic and the solver on many instances, into one file.

    Each item is solved in a process of its own and becomes a line of the file when it is done. The
    same command continues an interrupted run. Items that run at once share the processors unless
    --workers sets the threads of each. Exit codes: 0 every item has a result, 1 some failed (their
    lines say how), 2 wrong input, 130 interrupted.
    """
    executor, keywords, limits = engine.set_up(options)
    shard = Shard() if items.shard is None else Shard.parse(items.shard)
    check_writable(output, *(paths or ()))
    unique, doubles = distinct(_items(items, paths or [], keywords))
    _tell_doubles(doubles)
    if not unique:
        raise InputError(
            "expected instances: files, directories, or --recipe",
            field="PATHS",
            code=ErrorCode.MISSING,
        )
    with BenchFile(output) as file:
        if file.torn:
            say(f"note: {output}: the last line was not written whole; it is run again")
        suite = Suite(
            [item for item in unique if shard.has(item)],
            file,
            retry_failed=engine.retry_failed,
        )
        _tell_others(suite, output)
        code = _run(suite, executor, limits, quiet=quiet, verbose=verbose)
        count = len(suite.records)
        words = [tally(suite.records), *own_failures(suite.records)]
        typer.echo(f"{output}: {counted(count, 'item')}: {'; '.join(words)}")
    raise typer.Exit(code)


def _run(
    suite: Suite, engine: Engine, limits: Limits, *, quiet: bool, verbose: bool
) -> ExitCode:
    done = len(suite.records)
    total = done + len(suite.waiting)
    if done:
        say(f"{done} of {total} items are in the file already")
    progress = TallyProgress(sys.stderr, total, done, everything=verbose)
    try:
        suite.run(engine, limits, (lambda record: None) if quiet else progress)
    except KeyboardInterrupt:
        say(f"interrupted; {total - len(suite.records)} of {total} items not done")
        return ExitCode.INTERRUPTED
    failed = any(record.failure is not None for record in suite.records)
    return ExitCode.INTERNAL if failed else ExitCode.FOUND


def _items(
    options: ItemOptions, paths: list[str], keywords: dict[str, Any]
) -> Iterator[BenchItem]:
    code = code_of(keywords)
    for path in (path for path in paths if path.endswith(RECORDS)):
        for record in _read(Path(path)).records:
            instance, drawn = _asked_in(record, path)
            yield BenchItem(instance, record.family, record.path, keywords, code, drawn)
    for source in collect([p for p in paths if not p.endswith(RECORDS)], say):
        yield BenchItem(source.instance, source.family, source.path, keywords, code)
    recipes, files = options.recipe or [], options.recipe_file or []
    for name, instance, drawn in instances_of(recipes, files, options.count):
        yield BenchItem(instance, name, None, keywords, code, drawn)


RECORDS = ".jsonl"
"""Ending of files of results, whose instances can be solved again."""


def _asked_in(record: BenchRecord, source: str) -> tuple[Instance, DrawnBy | None]:
    """Make the instance of a record again, and hold it to the hash of its content."""
    drawn = None
    if record.instance_document is not None:
        instance = parse_instance(record.instance_document, source)
    elif record.recipe is not None:
        seed = record.recipe_seed or 0
        instance = drawn_again(record.recipe, seed)
        options = {
            name: value
            for name, value in record.factors.items()
            if name not in instance.factors
        }
        drawn = DrawnBy(record.recipe, seed, options)
    else:
        text = f"{record.instance}: this record holds neither its instance nor a recipe"
        raise InputError(text, source=source, code=ErrorCode.MISSING)
    if record.content is not None and fingerprint(instance) != record.content:
        text = f"{record.instance}: another instance now than when it was solved"
        raise InputError(text, source=source, field="content", code=ErrorCode.MISSING)
    return instance, drawn


def _tell_doubles(doubles: list[tuple[BenchItem, BenchItem]]) -> None:
    for item, same in doubles[:1]:
        count = len(doubles) - 1
        suffix = f", and so do {counted(count, 'other pair')}" if count else ""
        say(
            f"note: {item.path or item.instance.name} asks the same as "
            f"{same.path or same.instance.name}{suffix}; each question is solved once"
        )


def _tell_others(suite: Suite, output: Path) -> None:
    if count := len(suite.others):
        lines = "line is" if count == 1 else "lines are"
        say(
            f"note: {output}: {count} {lines} about these instances with other settings, code or "
            "version; they stay, and are reported too"
        )


@group.command("merge", short_help="Put several files of results into one.")
def bench_merge_command(
    results: Annotated[list[Path], argument("RESULTS...", "Files of results.")],
    output: Annotated[Path, value("FILE", "File for all of them.", "--output", "-o")],
    verbose: opt.Verbose = False,
) -> None:
    """Merge several files of results into one, each item once.

    If two files have the same item, a result is kept rather than a failure, otherwise that of the
    first file. Results that differ are listed.
    """
    check_writable(output, *results)
    files = {str(path): _read(path) for path in results}
    records, differences = merged(files)
    write_records(output, records)
    say(*(f"note: {difference}" for difference in differences))
    count = sum(len(content.records) for content in files.values())
    typer.echo(
        f"{output}: {len(records)} items of {count} lines, {len(differences)} differences"
    )


def _json(report: Report) -> str:
    return plain_json(json.dumps(report.document(), indent=1)) + "\n"


FORMS: dict[str, Callable[[Report], str]] = {
    ".md": report_as.markdown_report,
    ".csv": report_as.csv_report,
    ".json": _json,
    ".html": report_as.html_report,
    ".tex": latex_report,
    "profiles.csv": profiles_csv,
    "methods.csv": methods_csv,
}
"""How each file of a report is made, by the end of its name."""


@group.command("report", short_help="Tables, curves and regressions of results.")
def bench_report_command(
    results: Annotated[Path, argument("RESULTS", "Results of a benchmark.")],
    baseline: Annotated[
        Path | None,
        argument("BASELINE", "Earlier results; the report names what is worse now."),
    ] = None,
    output: Annotated[
        list[Path] | None,
        value("FILE", f"Write {', '.join(FORMS)}; repeatable.", "--output", "-o"),
    ] = None,
    pictures: Annotated[
        Path | None,
        value("FOLDER", "Write the pictures (SVG) into this folder; needs matplotlib."),
    ] = None,
    tolerance: Annotated[
        float,
        value(
            "SHARE",
            "Values and bounds may be worse by this share.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    by: Annotated[
        str | None,
        value(
            "FACTOR,...", "Group by factors of instances instead of families: p,m/p."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        value("NAME,...", "Columns of tables by how their names begin: solved,mean."),
    ] = None,
    as_json: opt.Json = False,
    as_latex: Annotated[
        bool, flag("Print tables for papers (booktabs).", "--latex")
    ] = False,
    verbose: opt.Verbose = False,
) -> None:
    """Report benchmark results: gaps, proofs and heuristics by family.

    With a second, earlier file the report names every instance that is worse now: value, proof,
    bound or failure. Exit code 7 if there is one, 5 if a bound is above a value, in one file or
    between the two.
    """
    outputs = list(output or ())
    if as_json and as_latex:
        raise InputError(
            "expected only one of them",
            field="--json, --latex",
            code=ErrorCode.CONFLICT,
        )
    inputs = [results] if baseline is None else [results, baseline]
    _check_outputs(outputs, pictures, inputs)
    earlier = None if baseline is None else (_read(baseline), str(baseline))
    report = bench_report(
        _read(results),
        str(results),
        earlier,
        tolerance,
        by=_words(by),
        columns=_words(columns),
    )
    check_columns(report)
    _write(report, outputs, pictures)
    if as_json or as_latex:
        typer.echo(FORMS[".json" if as_json else ".tex"](report), nl=False)
    else:
        stdout_console().print(report_as.terminal_report(report, verbose=verbose))
    if report.contradictions:
        raise typer.Exit(ExitCode.CHECK_FAILED)
    if report.comparison is not None and report.comparison.regressions:
        raise typer.Exit(ExitCode.REGRESSED)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _read(path: Path) -> Records:
    records = read_records(path)
    if records.torn:
        say(f"note: {path}: the last line was not written whole, left out")
    return records


def _check_outputs(
    outputs: list[Path], folder: Path | None, inputs: list[Path]
) -> None:
    targets: set[Path] = set()
    for path in outputs:
        _form(path)
        check_writable(path, *inputs)
        target = destination(path).absolute()
        if target in targets:
            raise InputError(
                "it is given twice",
                source=str(path),
                field="--output",
                code=ErrorCode.CONFLICT,
            )
        targets.add(target)
    if folder is not None:
        require_matplotlib("--pictures")
        check_folder(folder, "--pictures")


def _form(path: Path) -> str:
    endings = [end for end in FORMS if path.name.lower().endswith(end)]
    if not endings:
        message = f"expected a file name ending in {', '.join(FORMS)}"
        raise InputError(
            message, source=str(path), field="--output", code=ErrorCode.FILE
        )
    return max(endings, key=len)


def _write(report: Report, outputs: list[Path], folder: Path | None) -> None:
    is_drawn = folder is not None or ".html" in map(_form, outputs)
    drawn = list(draw_pictures(report)) if is_drawn and has_matplotlib() else None
    if is_drawn and drawn is None:
        say(
            "warning: the page has no pictures, they need matplotlib: pip install 'ppsolve[plot]'"
        )
    if folder is not None:
        _write_pictures(folder, drawn or [])
    by_name = None if drawn is None else {picture.name: picture for picture in drawn}
    for path in outputs:
        writers = FORMS | {".html": partial(report_as.html_report, pictures=by_name)}
        save(path, writers[_form(path)](report))


def _write_pictures(folder: Path, drawn: list[Picture]) -> None:
    make_folder(folder, "--pictures")
    names = plain_names(picture.name for picture in drawn)
    for picture, name in zip(drawn, names, strict=True):
        save(folder / f"{name}.svg", picture.svg)
