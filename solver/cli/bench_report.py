"""``ppsolve bench report``: tables, curves and regressions of benchmark results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.bench.file import Records, read_records
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import destination
from ppsolve.models.documents.printable import plain_json
from ppsolve.solver.bench.report.comparison import Judgement
from ppsolve.solver.bench.report.report import Report, bench_report
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import check_writable, save, stdout_console
from ppsolve.solver.render.bench.csv import csv_report
from ppsolve.solver.render.bench.markdown import markdown_report
from ppsolve.solver.render.bench.page import html_report
from ppsolve.solver.render.bench.pictures import Picture, draw_pictures
from ppsolve.solver.render.bench.terminal import terminal_report
from ppsolve.solver.render.figure_file import has_matplotlib, require_matplotlib


def bench_report_command(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results of a benchmark.")],
    baseline: Annotated[
        Path | None,
        typer.Argument(metavar="BASELINE", help="Earlier results; what is worse now is named."),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report here, by its name .md, .csv, .json or .html; may be repeated.",
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown on stdout.")] = False,
    pictures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the pictures (SVG) into this folder; needs matplotlib."
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Values and bounds may be worse by this share of theirs.",
        ),
    ] = 0.0,
    time_ratio: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            min=1,
            help="Times that grew by more than this factor are regressions [times are not judged].",
        ),
    ] = None,
    as_json: opt.Json = False,
    verbose: opt.Verbose = False,
) -> None:
    """Report benchmark results: gaps, proofs, heuristics and bounds by family.

    With a second, earlier file every instance that is worse now is named: value, proof, bound,
    failure, and time where --time-ratio judges it. Exit code 7 if there is one, 5 if a bound is
    above a value, in one file or between the two.
    """
    outputs = list(output or ())
    inputs = [results] if baseline is None else [results, baseline]
    _check_outputs(outputs, pictures, inputs, markdown=markdown, as_json=as_json)
    earlier = None if baseline is None else (_read(baseline), str(baseline))
    found = bench_report(_read(results), str(results), earlier, Judgement(tolerance, time_ratio))
    _write(found, outputs, pictures)
    _print(found, markdown=markdown, as_json=as_json, verbose=verbose)
    if found.contradictions:
        raise typer.Exit(ExitCode.CHECK_FAILED)
    if found.has_regressed:
        raise typer.Exit(ExitCode.REGRESSED)


def _read(path: Path) -> Records:
    records = read_records(path)
    if records.torn:
        say(f"note: {path}: the last line is torn, left out")
    return records


def _check_outputs(
    outputs: list[Path],
    folder: Path | None,
    inputs: list[Path],
    *,
    markdown: bool,
    as_json: bool,
) -> None:
    if markdown and as_json:
        raise InputError("expected either --markdown or --json", field="--markdown")
    taken: set[Path] = set()
    for path in outputs:
        if path.suffix.lower() not in {".md", ".csv", ".json", ".html"}:
            message = "expected a file name ending in .md, .csv, .json or .html"
            raise InputError(message, source=str(path), field="--output")
        check_writable(path, *inputs)
        target = destination(path).absolute()
        if target in taken:
            raise InputError("it is given twice", source=str(path), field="--output")
        taken.add(target)
    if folder is not None:
        require_matplotlib("--pictures")
        if folder.exists() and not folder.is_dir():
            raise InputError(
                "expected a folder, this is a file", source=str(folder), field="--pictures"
            )


def _write(report: Report, outputs: list[Path], folder: Path | None) -> None:
    kinds = [path.suffix.lower() for path in outputs]
    is_drawn = folder is not None or ".html" in kinds
    drawn = list(draw_pictures(report)) if is_drawn and has_matplotlib() else None
    if is_drawn and drawn is None:
        say("warning: the page has no pictures, they need matplotlib: pip install 'ppsolve[plot]'")
    if folder is not None:
        _write_pictures(folder, drawn or [])
    for path, kind in zip(outputs, kinds, strict=True):
        save(path, _text(report, kind, drawn))


def _text(report: Report, kind: str, drawn: list[Picture] | None) -> str:
    if kind == ".html":
        by_name = None if drawn is None else {picture.name: picture for picture in drawn}
        return html_report(report, by_name)
    if kind == ".csv":
        return csv_report(report)
    return _json(report) if kind == ".json" else markdown_report(report)


def _write_pictures(folder: Path, drawn: list[Picture]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be made: {error.strerror}", source=str(folder), field="--pictures"
        ) from None
    taken: set[str] = set()
    for picture in drawn:
        name = re.sub(r"[^\w.-]+", "-", picture.name).strip("-.")[:80] or "picture"
        while name.lower() in taken:
            name += "-"
        taken.add(name.lower())
        save(folder / f"{name}.svg", picture.svg)


def _print(report: Report, *, markdown: bool, as_json: bool, verbose: bool) -> None:
    if as_json:
        typer.echo(_json(report), nl=False)
    elif markdown:
        typer.echo(markdown_report(report), nl=False)
    else:
        stdout_console().print(terminal_report(report, verbose=verbose))


def _json(report: Report) -> str:
    return plain_json(json.dumps(report.document(), indent=1)) + "\n"
