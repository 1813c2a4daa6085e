"""Every heuristic of every kind by name, in the order in which they are run and reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import entry_points

from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean
from ppsolve.models.documents.printable import LONGEST_LINE
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import all_kinds, kind_of
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.heuristics.own import (
    OwnFunction,
    arguments_of,
    is_spec,
    load_function,
    name_of,
    own_heuristic,
)

ENTRY_POINTS = "ppsolve.heuristics"
"""Group of entry points in which other packages declare heuristics: functions by name."""

Named = str | OwnFunction
"""A heuristic as users give it: a name, ``module:function``, ``file.py:function`` or a function."""


def all_heuristics() -> dict[str, Heuristic]:
    """Return every heuristic by name: those of each kind, those for every kind, installed ones."""
    return _published() | {heuristic.name: heuristic for heuristic in installed()}


@cache
def installed() -> tuple[Heuristic, ...]:
    """Return the heuristics of installed packages; each is imported when it is first run.

    One that has the name of a published heuristic goes by its ``module:function``.
    """
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    # Without any, kinds that nobody asked for need not be imported.
    published = _published() if points else {}
    return tuple(
        own_heuristic(
            point.value if point.name.lower() in published else point.name,
            partial(load_function, point.value),
        )
        for point in points
    )


def _published() -> dict[str, Heuristic]:
    owned = [heuristic for kind in all_kinds() for heuristic in kind.published]
    return {heuristic.name: heuristic for heuristic in (*owned, *GENERIC)}


def find_heuristic(heuristic: Named) -> Heuristic:
    """Return the heuristic of a name, of a spec (see `load_function`), or of a function.

    Names are taken in upper or lower case; a user's function keeps the name that was given, or its
    own. An `InputError` says that there is none, and which is nearest, or that the function cannot
    be imported or called.
    """
    if not isinstance(heuristic, str):
        if not callable(heuristic):
            raise InputError(
                f"expected the name of a heuristic or a function, got {heuristic!r:.40}",
                code=ErrorCode.TYPE,
            )
        arguments_of(heuristic)
        return own_heuristic(name_of(heuristic), lambda: heuristic)
    if is_spec(heuristic):
        function = load_function(heuristic)
        arguments_of(function)
        return own_heuristic(heuristic, lambda: function)
    return known_heuristic(heuristic)


def known_heuristic(name: str) -> Heuristic:
    """Return the heuristic of a name; names in files are looked up here, as no file may run code.

    The name may be in upper or lower case. An `InputError` names the nearest where there is none.
    """
    by_name = {key.lower(): heuristic for key, heuristic in all_heuristics().items()}
    match = by_name.get(name.lower())
    if match is None:
        hint = did_you_mean(name.lower(), all_heuristics(), listed=len(by_name))
        raise InputError(
            f'unknown heuristic "{name[:60]}"{hint}',
            longest=LONGEST_LINE,
            code=ErrorCode.UNKNOWN_NAME,
            expected=tuple(all_heuristics()),
        )
    return match


def chosen_heuristics(
    instance: Instance, names: Iterable[Named] | None, extra: Iterable[Named] = ()
) -> tuple[Heuristic, ...]:
    """Return the heuristics to run on an instance, in the order of reports.

    They are those of `names`, by default all that its kind runs and all installed ones, and the
    `extra` ones: each once, functions last, of other kinds too where they are named.
    """
    by_key = {
        name if isinstance(name, str) else id(name): name
        for name in (*(names or ()), *extra)
    }
    heuristics = [find_heuristic(name) for name in by_key.values()]
    if names is None:
        heuristics = [
            *kind_of(instance).heuristics_of(instance),
            *installed(),
            *heuristics,
        ]
        return tuple(_each_once(heuristics))
    rank = {name: number for number, name in enumerate(all_heuristics())}
    heuristics.sort(key=lambda heuristic: rank.get(heuristic.name, len(rank)))
    return tuple(_each_once(heuristics))


def _each_once(heuristics: Iterable[Heuristic]) -> Iterator[Heuristic]:
    seen: dict[str, list[Heuristic]] = {}
    for heuristic in heuristics:
        alike = seen.setdefault(heuristic.name, [])
        if any(previous is heuristic or not previous.is_own for previous in alike):
            continue
        alike.append(heuristic)
        number = f"#{len(alike)}" if len(alike) > 1 else ""
        yield replace(heuristic, name=heuristic.name + number) if number else heuristic


def quick_heuristics(instance: Instance) -> list[str]:
    """Return the names of the heuristics that are run on an instance and do not search."""
    return [h.name for h in chosen_heuristics(instance, None) if not h.is_search]
