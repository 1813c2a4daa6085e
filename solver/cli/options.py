"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Option

from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.solver.cli.guard import VERBOSE_KEY


def _remember_verbose(ctx: typer.Context, value: bool) -> bool:
    ctx.meta[VERBOSE_KEY] = value
    return value


def argument(metavar: str, text: str, **settings: Any) -> Any:
    """Return a positional argument, for the annotation of a parameter; `text` is its help."""
    return typer.Argument(metavar=metavar, help=text, **settings)


def value(metavar: str, text: str, *names: str, **settings: Any) -> Any:
    """Return an option with a value, named like the parameter unless `names` are given."""
    return typer.Option(*names, metavar=metavar, help=text, **settings)


def flag(text: str, *names: str, **settings: Any) -> Any:
    """Return an option without a value; `text` is its line in the help."""
    return typer.Option(*names, help=text, **settings)


def time_limit(text: str, minimum: float = 0) -> Any:
    """Return the option `--time-limit`, for the annotation of a parameter."""
    return value("S", text, "--time-limit", "-t", min=minimum)


InstanceFile = Annotated[Path, argument("FILE", "Instance (JSON); - is stdin.")]
FailOnGap = Annotated[
    float | None,
    value("G", "Exit with code 6 if the remaining gap exceeds G.", min=0, max=1),
]
Deterministic = Annotated[
    bool,
    flag(
        "Give the same result for the same input, with one worker.", "--deterministic"
    ),
]
Workers = Annotated[int | None, value("N", "Threads [all cores].", min=1)]
Seed = Annotated[int, value("N", "Seed.", min=0, max=2**31 - 1)]
Exact = Annotated[
    bool,
    flag("Refuse times without a common tick instead of rounding them up.", "--exact"),
]
HeuristicName = Annotated[
    str,
    value(
        "NAME",
        "Heuristic to run, e.g. gpipe, zb-h1, list-tail (`ppsolve heuristics` lists all), or "
        "your own: module:function, file.py:function.",
        "--heuristic",
    ),
]
GroupSize = Annotated[
    int | None, value("G", "Micro-batches in a group of an interleaved order.", min=1)
]
Runtime = Annotated[
    str | None,
    value(
        "NAME",
        "Allow only what this runtime runs: torch, torchtitan, megatron, colossalai, primus, "
        "deepspeed.",
        "--for",
    ),
]
Json = Annotated[
    bool,
    flag("Print one JSON document on stdout, errors as JSON on stderr.", "--json"),
]
Output = Annotated[
    Path | None,
    value("FILE", "Write the result (JSON) here; - is stdout.", "--output", "-o"),
]
TextOutput = Annotated[
    str, value("FILE", "File to write; - is stdout.", "--output", "-o")
]
Quiet = Annotated[bool, flag("Print one line and no progress.", "--quiet", "-q")]
Verbose = Annotated[
    bool,
    flag(
        "Print every event, bound and reason, and tracebacks.",
        "--verbose",
        "-v",
        callback=_remember_verbose,
    ),
]


@dataclass(frozen=True)
class Reporting:
    """The options of a command that say what it prints and writes."""

    as_json: Json = False
    output: Output = None
    quiet: Quiet = False
    verbose: Verbose = False


@dataclass(frozen=True)
class SolveOptions:
    """Options of commands that solve, under the names of `ppsolve.optimize`.

    A new option of the library is added here and nowhere else: `with_option_groups` gives it to
    the commands.
    """

    time_limit: Annotated[
        float, time_limit("Wall time in seconds; 0 runs bounds and heuristics only.")
    ] = 60.0
    gap: Annotated[
        float, value("G", "Stop once (value - bound) / value <= G.", min=0, max=1)
    ] = 0.0
    deterministic_limit: Annotated[
        float | None,
        value("D", "Stop after this much deterministic time (reproducible).", min=0),
    ] = None
    deterministic: Deterministic = False
    workers: Workers = None
    seed: Seed = 0
    heuristics: Annotated[
        str | None,
        value(
            "A,B",
            "Run only these heuristics. Searches such as list-sweep are among them: without these, "
            "values may be worse [all].",
        ),
    ] = None
    more_heuristics: Annotated[
        list[str] | None,
        value(
            "SPEC",
            "Also run your own: module:function or file.py:function.",
            "--heuristic",
        ),
    ] = None
    bounds: Annotated[
        list[str] | None,
        value(
            "SPEC",
            "Compare a lower bound of your own: module:function or file.py:function.",
            "--bound",
        ),
    ] = None
    exact: Exact = False
    robust: Annotated[
        float | None,
        value(
            "CV",
            "Among equal makespans, prefer a schedule that jitter of CV (e.g. 0.02) delays less.",
        ),
    ] = None
    runtime: Runtime = None
    verify: Annotated[
        bool | None,
        Option(
            "--verify/--no-verify",
            help="Repeat proofs that only CP-SAT has found [for small instances, in a tenth of "
            "the time].",
            show_default=False,
        ),
    ] = None
    params: Annotated[
        list[str] | None,
        value(
            "PATH=X",
            "Set a budget of the search; docs/data/budgets.md lists them.",
            "--param",
        ),
    ] = None

    def keywords(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `ppsolve.optimize`.

        An `InputError` names an unknown heuristic or budget, or says that there is no heuristic.
        """
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        specs = own_specs(self.more_heuristics or ())
        # Without any, keys of benchmarks stay what they were.
        bounds = settings.pop("bounds")
        if bounds:
            from ppsolve.solver.api.own_bounds import chosen_bounds

            with errors_about("--bound"):
                chosen_bounds(bounds)
            settings |= {"bounds": bounds}
        return settings | {
            "heuristics": split_names(self.heuristics),
            "more_heuristics": specs,
            "params": self._budgets(),
        }

    def _budgets(self) -> dict[str, float] | None:
        if not self.params:
            return None
        from ppsolve.solver.run.params import SearchParams, budgets_of

        try:
            budgets = budgets_of(self.params)
            SearchParams().varied(budgets)
        except InputError as error:
            raise error.about("--param") from None
        return budgets


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every field of its dataclass parameters as an option, behind its own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and is_dataclass(hint)
    }
    own_parameters = signature(command).parameters.items()
    defaults = {
        name: parameter.default
        for name, parameter in own_parameters
        if name not in groups
    }
    for group in groups.values():
        hints |= get_type_hints(group, include_extras=True)
        defaults |= {field.name: field.default for field in fields(group)}

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        for name, group in groups.items():
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            arguments[name] = group(**values)
        command(**arguments)

    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
    ]
    with_options.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def split_names(names: str | None) -> list[str] | None:
    """Return the names in ``a,b``; raises InputError for an unknown name, or none at all."""
    if names is None:
        return None
    from ppsolve.solver.api.registry import find_heuristic

    unique = list(
        dict.fromkeys(name.strip() for name in names.split(",") if name.strip())
    )
    if not unique:
        raise InputError(
            "expected at least one name", field="--heuristics", code=ErrorCode.LENGTH
        )
    with errors_about("--heuristics"):
        return [find_heuristic(name).name for name in unique]


def own_specs(specs: Iterable[str]) -> list[str]:
    """Return the specs of ``--heuristic``; raises InputError for a function that is not found."""
    from ppsolve.solver.api.registry import find_heuristic
    from ppsolve.solver.heuristics.own import EXPECTED, is_spec

    names = []
    for spec in specs:
        with errors_about("--heuristic"):
            if not is_spec(spec):
                raise InputError(
                    f'{EXPECTED}, got "{spec}"; --heuristics runs only those it names',
                    code=ErrorCode.SYNTAX,
                )
            names.append(find_heuristic(spec).name)
    return names


def share_of(text: str, option: str) -> float:
    """Return a share, ``0.05`` or ``5%``; a bare number above 1 may mean either, and is refused."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number)
    except ValueError:
        message = f"expected a share such as 0.05 or 5%, got {text[:40]!r}"
        raise InputError(message, field=option, code=ErrorCode.SYNTAX) from None
    if number != text.strip():
        return share / 100
    if share > 1:
        raise InputError(
            f"expected 0.05 or 5%; {number} would be {100 * share:g} %: write {number}% for "
            f"{number} %, or {100 * share:g}%",
            field=option,
            code=ErrorCode.RANGE,
        )
    return share


def named_number(text: str, option: str, form: str) -> tuple[str, float]:
    """Return name and number of ``NAME=NUMBER``; the name may be missing, then it is empty.

    An error names the option, and says by `form` what would be right.
    """
    name, _, number = text.rpartition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise InputError(
            f"expected {form}, got {text[:40]!r}", field=option, code=ErrorCode.SYNTAX
        ) from None
