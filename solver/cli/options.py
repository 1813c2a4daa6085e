"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ppsolve.solver.cli.guard import VERBOSE_KEY

LIMITS, SEARCH, OUTPUT = "Limits", "Search", "Output"


def _remember_verbose(ctx: typer.Context, value: bool) -> bool:
    ctx.meta[VERBOSE_KEY] = value
    return value


def _known_heuristics() -> list[str]:
    from ppsolve.solver.optimize.registry import all_heuristics

    return list(all_heuristics())


def _complete_name(incomplete: str) -> list[str]:
    return [name for name in _known_heuristics() if name.startswith(incomplete)]


def _complete_names(incomplete: str) -> list[str]:
    done, comma, word = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in _complete_name(word)]


def time_limit(text: str, least: float = 0) -> Any:
    """Return the option `--time-limit`.

    Parameters
    ----------
    text : str
        What the help says of its seconds.
    least : float
        Fewest seconds that are taken.

    Returns
    -------
    OptionInfo
        For the annotation of a parameter.
    """
    return typer.Option(
        "--time-limit", "-t", metavar="S", min=least, help=text, rich_help_panel=LIMITS
    )


InstanceFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Instance (JSON); - is stdin.", show_default=False),
]
TimeLimit = Annotated[float, time_limit("Wall seconds in all. 0: bounds and heuristics only.")]
Gap = Annotated[
    float,
    typer.Option(
        metavar="G",
        min=0,
        max=1,
        help="Stop once (value - bound) / value <= G.",
        rich_help_panel=LIMITS,
    ),
]
FailOnGap = Annotated[
    float | None,
    typer.Option(
        metavar="G",
        min=0,
        max=1,
        help="Exit with 6 if the gap that remains exceeds G.",
        rich_help_panel=LIMITS,
    ),
]
DeterministicLimit = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        min=0,
        help="Stop after this much deterministic time (reproducible).",
        rich_help_panel=LIMITS,
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic", help="Same input, same result: one worker.", rich_help_panel=SEARCH
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Threads [all cores].", rich_help_panel=SEARCH),
]
Seed = Annotated[
    int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed.", rich_help_panel=SEARCH)
]
Heuristics = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Run only these heuristics [all].",
        autocompletion=_complete_names,
        rich_help_panel=SEARCH,
    ),
]
OwnHeuristics = Annotated[
    list[str] | None,
    typer.Option(
        "--heuristic",
        metavar="SPEC",
        help="Run your own too: module:function or file.py:function.",
        rich_help_panel=SEARCH,
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Refuse times without a common tick; else they are rounded up.",
        rich_help_panel=SEARCH,
    ),
]
Robust = Annotated[
    float | None,
    typer.Option(
        metavar="CV",
        help="Among equal makespans, prefer a schedule that jitter of CV (e.g. 0.02) delays less.",
        rich_help_panel=SEARCH,
    ),
]
Verify = Annotated[
    bool | None,
    typer.Option(
        "--verify/--no-verify",
        help="Prove again what only CP-SAT has proved [small instances, for a tenth of the time].",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
HeuristicName = Annotated[
    str,
    typer.Option(
        "--heuristic",
        metavar="NAME",
        help="Heuristic to run, e.g. gpipe, zb-h1, list-tail (`ppsolve heuristics` lists all), or "
        "your own: module:function, file.py:function.",
        autocompletion=_complete_name,
    ),
]
GroupSize = Annotated[
    int | None,
    typer.Option(metavar="G", min=1, help="Micro-batches in a group of an interleaved order."),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=OUTPUT),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the result (JSON) here; - is stdout.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress, one line.", rich_help_panel=OUTPUT),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Every event, bound and reason; tracebacks.",
        callback=_remember_verbose,
        rich_help_panel=OUTPUT,
    ),
]


@dataclass(frozen=True)
class SolveOptions:
    """What `optimize` and `compare` pass on to the library, under the library's names.

    A new option of the library is added here and nowhere else: `with_solve_options` gives it to
    the commands.
    """

    time_limit: TimeLimit = 60.0
    gap: Gap = 0.0
    deterministic_limit: DeterministicLimit = None
    deterministic: Deterministic = False
    workers: Workers = None
    seed: Seed = 0
    heuristics: Heuristics = None
    more_heuristics: OwnHeuristics = None
    exact: Exact = False
    robust: Robust = None
    verify: Verify = None

    def keywords(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `ppsolve.optimize`.

        Raises
        ------
        InputError
            An unknown heuristic, or none at all.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        own = own_specs(self.more_heuristics or ())
        return given | {"heuristics": split_names(self.heuristics), "more_heuristics": own}


def with_solve_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every field of `SolveOptions` as an option; it takes them as `options`."""
    hints = {
        **get_type_hints(SolveOptions, include_extras=True),
        **get_type_hints(command, include_extras=True),
    }
    taken = signature(command).parameters
    defaults = {name: one.default for name, one in taken.items() if name != "options"}
    shared = {field.name: field.default for field in fields(SolveOptions)}

    @wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in shared}
        command(options=SolveOptions(**chosen), **given)

    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in {**defaults, **shared}.items()
    ]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def split_names(names: str | None) -> list[str] | None:
    """Return the heuristics that ``a,b`` names, each one known.

    Raises
    ------
    InputError
        An unknown name, or none at all.
    """
    if names is None:
        return None
    from ppsolve.models.documents.errors import InputError
    from ppsolve.solver.optimize.registry import find_heuristic

    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not wanted:
        raise InputError("expected at least one name", field="--heuristics")
    try:
        return [find_heuristic(name).name for name in wanted]
    except InputError as error:
        raise error.about("--heuristics") from None


def own_specs(specs: Iterable[str]) -> list[str]:
    """Return the specs of ``--heuristic``, each function found.

    Raises
    ------
    InputError
        A name without a colon, or a function that cannot be found.
    """
    from ppsolve.models.documents.errors import InputError
    from ppsolve.solver.heuristics.loading import EXPECTED, is_spec
    from ppsolve.solver.optimize.registry import find_heuristic

    found = []
    for spec in specs:
        try:
            if not is_spec(spec):
                raise InputError(f'{EXPECTED}, got "{spec}"; --heuristics runs only those it names')
            found.append(find_heuristic(spec).name)
        except InputError as error:
            raise error.about("--heuristic") from None
    return found
