"""``ppsolve show``: a schedule as a chart, a picture and its figures, or an instance in short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Option

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.documents.base import validated
from ppsolve.models.documents.contents import kind_named
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import read_json, source_name, write_bytes
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import (
    CARRIED,
    instance_in,
    is_result,
    kind_of,
    owner_in,
    parse_instance,
    refuse_huge_numbers,
)
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.inputs import note_rounding, refuse_given, warn_of_units
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import check_outputs, stdout_console
from ppsolve.solver.cli.solving import (
    print_order,
    refuse_not_applicable,
    simulate_entry,
)
from ppsolve.solver.views.drawings import ANY, Drawn, drawing_of, drawn_on, title_of
from ppsolve.solver.views.figures import figures
from ppsolve.solver.views.schedule_view import ScheduleView, ViewOptions, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppsolve.models.studies.curve import Curve
    from ppsolve.models.studies.what_if import WhatIf


@dataclass(frozen=True)
class Inputs:
    """What files hold: an instance, the data of a result, or both; or a study alone."""

    instance: Instance | None = None
    instance_source: str = ""  # name of its file in errors
    data: Any = None  # parsed JSON of a result, a heuristic's entry or a bare schedule
    source: str = ""  # name of the file of `data` or of a study in errors
    curve: Curve | None = None
    what_if: WhatIf | None = None
    entry: HeuristicEntry | None = (
        None  # what a heuristic has just made of the instance
    )

    @cached_property
    def owner(self) -> Result | HeuristicEntry | None:
        """The result or heuristic's entry, None for a bare schedule."""
        return self.entry or (
            None if self.data is None else owner_in(self.data, self.source)
        )

    @cached_property
    def document(self) -> ScheduleDocument:
        """The schedule of a result that is alone; raises InputError if there is none."""
        written = self.data.get("schedule", self.data)
        if not isinstance(written, dict) or not written.get("ops"):
            raise InputError(
                "there is no schedule in it", source=self.source, code=ErrorCode.MISSING
            )
        refuse_huge_numbers(self.data, self.source)
        return validated(ScheduleDocument, written, self.source)


def read_inputs(files: list[Path]) -> Inputs:
    """Read one or two files, in either order: an instance is what has a ``kind``.

    An `InputError` says that a file cannot be read, or that they do not belong together.
    """
    if len(files) > 2 or [str(file) for file in files] == ["-", "-"]:
        raise InputError(
            "expected an instance, a result, or one of each", code=ErrorCode.TYPE
        )
    inputs = Inputs()
    for file in files:
        data, source = read_json(file), source_name(file)
        study = _whole(data, source)
        if study is not None and len(files) > 1:
            raise InputError(
                "expected this file alone; it needs no instance",
                source=source,
                code=ErrorCode.CONFLICT,
            )
        inputs = study or _with(inputs, data, source)
    return inputs


def _whole(data: Any, source: str) -> Inputs | None:
    """Return a plan, a curve or a what-if, which stand alone; None for other files."""
    kind = kind_named(data)
    if kind in {"curve", "what-if"}:
        refuse_huge_numbers(data, source)
        from ppsolve.models.studies.curve import Curve
        from ppsolve.models.studies.what_if import WhatIf

        if kind == "what-if":
            return Inputs(what_if=validated(WhatIf, data, source), source=source)
        return Inputs(curve=validated(Curve, data, source), source=source)
    if kind == "plan-result":
        from ppsolve.solver.formats.program import winner_in

        with errors_in(source):
            result, instance = winner_in(data)
        return Inputs(instance, source, result, source)
    return None


def _with(inputs: Inputs, data: Any, source: str) -> Inputs:
    if is_result(data):
        if inputs.data is not None:
            raise InputError(
                "expected an instance, this is a second result",
                source=source,
                code=ErrorCode.TYPE,
            )
        return replace(inputs, data=data, source=source)
    if inputs.instance is not None:
        raise InputError(
            "expected a result (with a schedule) here",
            source=source,
            code=ErrorCode.TYPE,
        )
    instance = parse_instance(data, source)
    warn_of_units(instance, source)
    return replace(inputs, instance=instance, instance_source=source)


class FigureKind(StrEnum):
    """What a figure shows."""

    GANTT = "gantt"
    MEMORY = "memory"
    GAPS = "gaps"
    CURVE = "curve"


def picture_file(kind: str) -> Any:
    """Return the option of the file that a picture of a format goes to."""
    help_text = (
        f"Draw a picture into this {kind.upper()} file instead (needs matplotlib)."
    )
    return value("FILE", help_text, f"--{kind}")


@dataclass(frozen=True)
class WantedPictures:
    """The pictures that are asked for."""

    files: dict[str, Path | None]  # by format: png, svg, pdf
    picture: FigureKind | None  # what they show
    title: str | None  # their first line
    inches: float | None  # their width

    @property
    def is_any(self) -> bool:
        """Whether anything is to be drawn."""
        return any(self.files.values())

    def check(self, *inputs: Path) -> None:
        """Raise InputError, naming the option, if they could not be drawn or written in the end."""
        if not self.is_any:
            refused = {
                "--picture": self.picture,
                "--title": self.title,
                "--inches": self.inches,
            }
            refuse_given(refused, "this option needs --png, --svg or --pdf FILE")
            return
        if self.inches is not None and not 2 <= self.inches <= 40:
            raise InputError(
                f"expected 2 to 40, got {self.inches:g}",
                field="--inches",
                code=ErrorCode.TYPE,
            )
        from ppsolve.solver.views.line_chart import require_matplotlib

        options = {f"--{kind}": path for kind, path in self.files.items()}
        require_matplotlib(next(option for option, path in options.items() if path))
        check_outputs(options, *inputs)

    def write(self, draw: Callable[[], Figure]) -> None:
        """Write every file, each whole or not at all; `draw` returns the figure."""
        from ppsolve.solver.views.line_chart import figure_bytes
        from ppsolve.solver.views.plot.sheet import PAPER

        # All are drawn before any is written, so that a figure that fails leaves nothing behind.
        contents = {
            path: figure_bytes(draw, kind, PAPER)
            for kind, path in self.files.items()
            if path
        }
        for path, data in contents.items():
            write_bytes(path, data)


def show_command(
    files: Annotated[
        list[Path],
        argument(
            "INSTANCE [RESULT]", "Instance and its result, one of them, or a study."
        ),
    ],
    heuristic: Annotated[
        str | None, value("NAME", "Draw the schedule of this heuristic.")
    ] = None,
    group_size: opt.GroupSize = None,
    links: Annotated[
        bool, flag("Also draw links and comm streams.", "--links")
    ] = False,
    first: Annotated[
        float,
        value(
            "T",
            "Begin the chart at this time, in the instance's unit.",
            "--from",
            min=0,
        ),
    ] = 0.0,
    last: Annotated[
        float | None, value("T", "End the chart at this time.", "--to", min=0)
    ] = None,
    order: Annotated[
        bool,
        flag(
            "Print only the order: one line per name (kind overlap) or per device (pipeline).",
            "--order",
        ),
    ] = False,
    width: Annotated[
        int | None, value("N", "Columns [the terminal's].", min=40)
    ] = None,
    png: Annotated[Path | None, picture_file("png")] = None,
    svg: Annotated[Path | None, picture_file("svg")] = None,
    pdf: Annotated[Path | None, picture_file("pdf")] = None,
    picture: Annotated[
        FigureKind | None,
        Option(
            help="What to draw; by default the curve of a curve, the schedule (gantt) of a "
            "result."
        ),
    ] = None,
    title: Annotated[
        str | None, value("TEXT", 'Title of the picture; "" for none.')
    ] = None,
    inches: Annotated[
        float | None,
        value(
            "W", "Width: 7 for a page [gantt, memory], 3.4 for a column [gaps, curve]."
        ),
    ] = None,
    exact: opt.Exact = False,
    verbose: opt.Verbose = False,
) -> None:
    """Draw a schedule in the terminal, or as a picture for a paper.

    `show RESULT` uses the instance in the result; `show INSTANCE RESULT` is for results without
    one. If the schedule breaks a rule, the command warns and draws it. `show INSTANCE --heuristic
    NAME` draws a heuristic; `show INSTANCE` describes the instance; `show PLAN` draws the winner,
    `show CURVE` the curve, `show WHAT-IF` the table.
    """
    pictures = WantedPictures(
        {"png": png, "svg": svg, "pdf": pdf}, picture, title, inches
    )
    pictures.check(*files)
    inputs = read_inputs(files)
    window = (first, None if last == inf else last)
    frame = ViewOptions(links, window)
    _refuse_contradictions(inputs, heuristic, window)
    if order and pictures.is_any:
        raise InputError(
            "expected either an order or a picture",
            field="--order",
            code=ErrorCode.TYPE,
        )
    if heuristic is not None:
        inputs = _simulated(inputs, heuristic, group_size=group_size, exact=exact)
    if order:
        _print_order(inputs)
        return
    inputs, console = _with_carried(inputs), stdout_console(width)
    with errors_in(inputs.source or inputs.instance_source):
        if pictures.is_any:
            pictures.write(_figure(pictures, inputs, frame, exact=exact))
        else:
            console.print(_view(inputs, frame, exact=exact))


def _simulated(
    inputs: Inputs, name: str, *, group_size: int | None, exact: bool
) -> Inputs:
    """Add what a heuristic makes of the instance, as if it were a result."""
    assert inputs.instance is not None
    with about_file(inputs.instance, inputs.instance_source):
        entry = simulate_entry(
            inputs.instance, name, group_size=group_size, exact=exact
        )
    refuse_not_applicable(entry)
    source = f"{inputs.instance_source}, {entry.name}"
    return replace(
        inputs, data=entry.model_dump(mode="json"), source=source, entry=entry
    )


def _with_carried(inputs: Inputs) -> Inputs:
    """Take the instance that a result carries, if there is no other one."""
    if (
        inputs.instance is not None
        or inputs.data is None
        or inputs.data.get(CARRIED) is None
    ):
        return inputs
    try:
        instance = instance_in(inputs.data, inputs.source)
    except InputError as error:
        # Such as a kind of a package that is not installed here: the ops can still be drawn.
        say(f"warning: {error}; the schedule is drawn unchecked")
        return inputs
    return replace(inputs, instance=instance, instance_source=inputs.source)


def _figure(
    pictures: WantedPictures, inputs: Inputs, frame: ViewOptions, *, exact: bool
) -> Callable[[], Figure]:
    """Return the function that draws the wanted picture."""
    if inputs.what_if is not None:
        raise InputError(
            "expected a result or a curve; for a what-if, use ppsolve report",
            code=ErrorCode.TYPE,
        )
    from ppsolve.solver.views.plot import pictures as plot
    from ppsolve.solver.views.plot.schedule import schedule_figure
    from ppsolve.solver.views.plot.sheet import SHEET

    curve, result = (
        inputs.curve,
        inputs.owner if isinstance(inputs.owner, Result) else None,
    )
    picture = pictures.picture or _usual(curve, result)
    if (picture is FigureKind.CURVE) is not (curve is not None):
        held = "a curve" if curve is not None else "no curve"
        raise InputError(
            f"this file holds {held}", field=f"--picture {picture}", code=ErrorCode.TYPE
        )
    sizes: dict[str, Any] = {"title": pictures.title}
    sizes |= {} if pictures.inches is None else {"inches": pictures.inches}
    if curve is not None:
        return partial(plot.curve, curve, **sizes)
    if picture is FigureKind.GAPS:
        if result is None:
            raise InputError(
                "expected a result with heuristics",
                field="--picture gaps",
                code=ErrorCode.TYPE,
            )
        return partial(plot.gaps, result, **sizes)
    drawn = _drawn(inputs, frame, exact=exact)
    if drawn is None:
        raise InputError(
            "expected also a RESULT or --heuristic NAME, to draw a schedule",
            code=ErrorCode.TYPE,
        )
    has_rows, inches = picture is FigureKind.GANTT, pictures.inches or SHEET.page_inches
    return partial(schedule_figure, drawn, pictures.title, inches, has_rows=has_rows)


def _usual(curve: Curve | None, result: Result | None) -> FigureKind:
    if curve is not None:
        return FigureKind.CURVE
    has_gaps = result is not None and result.schedule is None and result.heuristics
    return FigureKind.GAPS if has_gaps else FigureKind.GANTT


def _view(inputs: Inputs, frame: ViewOptions, *, exact: bool) -> RenderableType:
    if inputs.curve is not None:
        from ppsolve.solver.views.curve import curve_report

        return curve_report(inputs.curve)
    if inputs.what_if is not None:
        from ppsolve.solver.views.what_if import what_if_report

        return what_if_report(inputs.what_if)
    drawn = _drawn(inputs, frame, exact=exact)
    if drawn is not None:
        return drawn.view
    assert inputs.instance is not None
    with about_file(inputs.instance, inputs.instance_source):
        problem = kind_of(inputs.instance).lower(inputs.instance, exact=exact)
        _note_ticks(problem, inputs.instance)
        return drawing_of(inputs.instance.kind).describe(inputs.instance, problem)


def _drawn(inputs: Inputs, frame: ViewOptions, *, exact: bool) -> Drawn | None:
    """Return the schedule that is shown; None where there is only an instance."""
    if inputs.instance is None:
        drawn = _unchecked(inputs, frame)
    elif inputs.data is not None:
        with about_file(inputs.instance, inputs.instance_source):
            drawn = _checked(inputs.instance, inputs, frame, exact=exact)
    else:
        return None
    first, last = frame.window[0], drawn.shown.end
    if first and first >= last:
        end, got = figures(last, first)
        text = f"expected less than the end of the schedule ({end}), got {got}"
        raise InputError(text, field="--from", code=ErrorCode.TYPE)
    return drawn


def _refuse_contradictions(
    inputs: Inputs, heuristic: str | None, window: Window
) -> None:
    first, last = window
    if last is not None and last <= first:
        start, got = figures(first, last)
        raise InputError(
            f"expected more than --from ({start}), got {got}",
            field="--to",
            code=ErrorCode.TYPE,
        )
    if heuristic is not None and inputs.instance is None:
        raise InputError(
            "a heuristic needs an instance, not a result",
            field="--heuristic",
            code=ErrorCode.CONFLICT,
        )
    if heuristic is not None and inputs.data is not None:
        raise InputError(
            "expected either a result or a heuristic",
            field="--heuristic",
            code=ErrorCode.TYPE,
        )


def _print_order(inputs: Inputs) -> None:
    if inputs.instance is not None and kind_of(inputs.instance).orders_are is None:
        kind = inputs.instance.kind
        message = f"expected an overlap or pipeline instance, this is of kind {kind}"
        raise InputError(
            message, source=inputs.instance_source, field="--order", code=ErrorCode.TYPE
        )
    if inputs.data is None:
        raise InputError(
            "expected also a RESULT or --heuristic NAME",
            field="--order",
            code=ErrorCode.TYPE,
        )
    print_order(inputs.owner, inputs.source)
    _warn_of_reason(inputs.entry)


def _note_ticks(problem: Problem, instance: Instance) -> None:
    note_rounding(problem.scale.time(problem.tick_error), problem.scale.unit, instance)


def _checked(
    instance: Instance, inputs: Inputs, frame: ViewOptions, *, exact: bool
) -> Drawn:
    """Return the schedule of a known instance, with a warning where it breaks a rule."""
    entry = inputs.entry
    if entry is not None and entry.schedule is None:
        why = drawing_of(instance.kind).reason(entry)
        raise InputError(
            f"{entry.name} gives no schedule: {why}",
            source=instance.name,
            code=ErrorCode.MISSING,
        )
    drawn, violations = drawn_on(
        instance, inputs.data, inputs.owner, frame, exact=exact, source=inputs.source
    )
    assert drawn.shown.problem is not None
    _note_ticks(drawn.shown.problem, instance)
    _warn_of_reason(entry)
    if entry is None:
        violations = violations or kind_of(instance).check(
            instance, inputs.data, exact=exact
        )
    if entry is None and violations:
        say(
            f"warning: {inputs.source}: {violations[0]} (ppsolve check lists everything)"
        )
    warning = drawn.drawing.warning(drawn.shown)
    if warning is not None:
        say(f"warning: {inputs.source}: {warning}")
    return drawn


def _warn_of_reason(entry: HeuristicEntry | None) -> None:
    if entry is not None and entry.reason:
        say(f"warning: {entry.status.value}: {drawing_of(entry.kind).reason(entry)}")


def _unchecked(inputs: Inputs, frame: ViewOptions) -> Drawn:
    document, source = inputs.document, inputs.owner
    if source is not None:
        note_rounding(source.tick_error, document.time_unit)
    return Drawn(ScheduleView(title_of(inputs.data), document, source, frame), ANY)
