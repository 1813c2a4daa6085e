"""Heuristics that users write: functions of an instance or its problem, held to every rule.

Whatever such a function raises or returns becomes an outcome of its own and nobody else's: it sees
the problem through arrays that cannot be written, and its schedule is checked like any other.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import (
    DeadlockError,
    ErrorCode,
    HeuristicFailedError,
    InputError,
    NotApplicableError,
    did_you_mean,
)
from ppsolve.models.documents.printable import LONGEST_LINE
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request

OwnFunction = Callable[..., Any]
"""Takes an `Instance`, a `Problem` or both; returns orders or starts."""


def own_heuristic(name: str, load: Callable[[], OwnFunction]) -> Heuristic:
    """Return the heuristic that a user's function is, for instances scheduled as one problem.

    An `InputError` from `load` is the reason why the heuristic failed.
    """
    return Heuristic(
        name,
        "a heuristic of your own",
        partial(_propose, load),
        is_own=True,
        source="yours",
    )


def name_of(function: OwnFunction) -> str:
    """Return ``module:name`` of a function; its colon keeps it apart from published names."""
    named = _named(function)
    return f"{named.__module__}:{named.__qualname__}"


def _named(function: OwnFunction) -> Any:
    return function if hasattr(function, "__qualname__") else type(function)


def arguments_of(function: OwnFunction) -> tuple[str, ...]:
    """Return the arguments of a function in order: ``instance``, ``problem`` or both.

    The annotation of a parameter decides, where it names a problem or an instance; else its name.
    Parameters with a default are left alone. An `InputError` says that it takes neither, or
    something else besides.
    """
    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    words = tuple(
        _argument(parameter) for parameter in parameters if _is_required(parameter)
    )
    if not words or None in words:
        raise InputError(
            f'expected "{_named(function).__qualname__}" to take an instance or a problem: a '
            'parameter called "instance" or "problem", or annotated as one',
            code=ErrorCode.TYPE,
        )
    return tuple(word for word in words if word is not None)


def _is_required(parameter: Parameter) -> bool:
    starred = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in starred


def _argument(parameter: Parameter) -> str | None:
    if parameter.kind is Parameter.KEYWORD_ONLY:
        return None
    annotation = parameter.annotation
    text = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", "")
    )
    last = text.strip("'\"").rpartition(".")[2]
    if last == "Problem":
        return "problem"
    if last.endswith("Instance"):
        return "instance"
    return parameter.name if parameter.name in {"instance", "problem"} else None


def _propose(load: Callable[[], OwnFunction], request: Request) -> Proposal:
    try:
        function = load()
        words = arguments_of(function)
    except InputError as error:
        raise HeuristicFailedError(error.message) from None
    arguments = {"instance": request.instance, "problem": read_only(request.problem)}
    try:
        answer = function(*(arguments[word] for word in words))
    except NotApplicableError:
        raise
    except (Exception, SystemExit) as error:
        raise HeuristicFailedError(exception_line(error)) from None
    return _proposed(answer, request)


def _proposed(answer: Any, request: Request) -> Proposal:
    try:
        result = _read(answer)
        if isinstance(result, np.ndarray):
            return Proposal(
                _moved(request.problem, _starts(result, request.problem.num_ops))
            )
        if request.follow is None:
            raise InputError(
                "expected starts: this kind of instance takes no orders",
                code=ErrorCode.UNSUPPORTED,
            )
        return request.follow(result)
    except DeadlockError:
        raise
    except InputError as error:
        raise HeuristicFailedError(f"its answer: {error}") from None
    except Exception as error:
        raise HeuristicFailedError(f"its answer: {exception_line(error)}") from None


def exception_line(error: BaseException) -> str:
    """Return an exception and where it was raised in one line."""
    text = " ".join(str(error).split())[:LONGEST_LINE]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename[:1] != "<"
    ]
    location = (
        f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    )
    return f"{type(error).__name__}{': ' if text else ''}{text}{location}"


def _read(answer: Any) -> np.ndarray[Any, Any] | list[list[Any]]:
    if isinstance(answer, Schedule):
        return answer.start
    if isinstance(answer, np.ndarray) and answer.ndim == 1:
        return answer
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise InputError(
            f"expected orders or starts, got {_described(answer)}", code=ErrorCode.TYPE
        )
    rows = list(answer)
    if all(isinstance(row, str) for row in rows):
        return [rows]
    if any(isinstance(row, Iterable) for row in rows):
        return [_row(row) for row in rows]
    return np.array(rows)


def _row(row: Any) -> list[Any]:
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        raise InputError(
            f"expected a list per device, got {_described(row)} among lists",
            code=ErrorCode.TYPE,
        )
    return list(row)


def _described(value: Any) -> str:
    if value is None or isinstance(
        value, bool | int | float | str | list | tuple | dict
    ):
        return describe(value)
    return f"a {type(value).__name__}"


def _starts(starts: np.ndarray[Any, Any], count: int) -> IntArray:
    if starts.shape != (count,):
        raise InputError(
            f"expected {count} starts, one for each op, got {len(starts)}",
            code=ErrorCode.LENGTH,
        )
    if starts.dtype.kind not in "iufO" or any(
        isinstance(start, bool) for start in starts.tolist()
    ):
        raise InputError("expected starts in whole ticks", code=ErrorCode.TYPE)
    limit = 2**60  # with a duration, at most 2^58 as all times together, it fits int64
    for op, start in enumerate(starts.tolist()):
        if (
            not isinstance(start, int | float)
            or start != start // 1
            or abs(start) > limit
        ):
            raise InputError(
                f"expected a start in whole ticks, got {_described(start)} for op {op}",
                code=ErrorCode.TYPE,
            )
    return np.array([int(start) for start in starts.tolist()], dtype=np.int64)


def _moved(problem: Problem, start: IntArray) -> Schedule:
    schedule = Schedule(problem, start)
    return schedule.normalised() if len(start) and start.min() > 0 else schedule


def read_only(problem: Problem) -> Problem:
    """Return a problem whose arrays cannot be written."""
    pools = tuple(replace(pool, **_views(pool)) for pool in problem.pools)
    return replace(problem, **{**_views(problem), "pools": pools})


def _views(owner: Any) -> dict[str, Any]:
    values = {field.name: getattr(owner, field.name) for field in fields(owner)}
    return {
        name: _view(value)
        for name, value in values.items()
        if name != "pools" and isinstance(value, np.ndarray | Mapping | tuple)
    }


def _view(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, Mapping):
        return MappingProxyType({key: _view(item) for key, item in value.items()})
    if isinstance(value, tuple) and any(isinstance(item, np.ndarray) for item in value):
        return tuple(map(_view, value))
    return value


def op_numbers(problem: Problem, orders: Sequence[Sequence[Any]]) -> list[IntArray]:
    """Return orders of ops, by number or by name, as numbers.

    An `InputError` names an op that the problem does not have, or one that appears twice.
    """
    every = range(problem.num_ops)
    numbers = dict(zip(problem.op_names(every), every, strict=True))
    rows = [
        [_number(entry, numbers, position) for entry in row]
        for position, row in enumerate(orders)
    ]
    seen: set[int] = set()
    for op in (op for row in rows for op in row):
        if op in seen:
            raise InputError(
                f'the op "{problem.op_name(op)}" appears twice', code=ErrorCode.CONFLICT
            )
        seen.add(op)
    return [np.array(row, dtype=np.int64) for row in rows]


def _number(entry: Any, numbers: Mapping[str, int], position: int) -> int:
    is_number = isinstance(entry, int | np.integer) and not isinstance(entry, bool)
    op = (
        int(entry)
        if is_number
        else numbers.get(entry, FREE)
        if isinstance(entry, str)
        else FREE
    )
    if not 0 <= op < len(numbers):
        raise InputError(
            f"order {position} has {_described(entry)}, which is no op of the instance",
            code=ErrorCode.UNKNOWN_NAME,
        )
    return op


EXPECTED = "expected package.module:function or path/to/file.py:function"


def is_spec(name: str) -> bool:
    """Whether a name says where a function is; names of heuristics have no colon."""
    return ":" in name


def load_function(spec: str) -> Callable[..., Any]:
    """Return the function of a spec: ``package.module:function`` or ``path/to/file.py:function``.

    The folder of the file, or the current one for a module, is put at the end of ``sys.path``, so
    that it finds its neighbours and hides nothing that is installed. An `InputError` says that
    there is no such module or function, or why its module cannot be imported.
    """
    home, _, name = spec.rpartition(":")
    if not home or not name:
        raise InputError(f'"{spec}": {EXPECTED}', code=ErrorCode.SYNTAX)
    module = _imported(spec, home)
    target: Any = module
    for attribute in name.split("."):
        target = getattr(target, attribute, None)
    if target is None:
        names = [
            key
            for key, value in vars(module).items()
            if callable(value) and key[:1] != "_"
        ]
        hint = did_you_mean(name, names) if names else ""
        raise InputError(
            f'"{spec}": there is no "{name}" in {home}{hint}',
            code=ErrorCode.UNKNOWN_NAME,
            expected=tuple(names),
        )
    if not callable(target):
        raise InputError(
            f'"{spec}": expected a function, "{name}" is none', code=ErrorCode.TYPE
        )
    return target


def source_of(spec: str) -> Path | None:
    """Return the file of a spec's module, None where there is none; imports only parents."""
    home = spec.rpartition(":")[0]
    if home.endswith(".py"):
        return Path(home)
    _reachable(Path.cwd())
    try:
        module_spec = importlib.util.find_spec(home)
    except Exception:
        return None
    return (
        Path(module_spec.origin)
        if module_spec is not None and module_spec.has_location and module_spec.origin
        else None
    )


def _imported(spec: str, home: str) -> ModuleType:
    is_file = home.endswith(".py")
    if is_file and not Path(home).is_file():
        raise InputError(f'"{spec}": there is no file {home}', code=ErrorCode.FILE)
    try:
        return _of_file(Path(home)) if is_file else _of_name(home)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f'"{spec}": cannot be imported: {exception_line(error)}',
            code=ErrorCode.FILE,
        ) from None


def _of_name(home: str) -> ModuleType:
    _reachable(Path.cwd())
    return importlib.import_module(home)


def _of_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"ppsolve-own:{path}"
    if name in sys.modules:
        return sys.modules[name]
    _reachable(path.parent)
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise InputError(f'"{path}": {EXPECTED}', code=ErrorCode.SYNTAX)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reachable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
