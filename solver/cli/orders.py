"""Orders on stdout for other programs: of a program a name per line, of a pipeline a device."""

from __future__ import annotations

import sys
from pathlib import Path

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.solver.optimize.kinds import kind_of, known_kind
from ppsolve.solver.render.drawings import drawing_of


def expect_orders(instance: Instance, path: str | Path, option: str) -> None:
    """Refuse instances that have no order to print.

    Parameters
    ----------
    instance : Instance
        The instance.
    path : str or Path
        File of the instance, for the error.
    option : str
        Name of the option that asks for the order.

    Raises
    ------
    InputError
        The instance is of another kind than ``overlap`` and ``pipeline``.
    """
    if kind_of(instance).orders_are is None:
        message = f"expected an overlap or pipeline instance, this is of kind {instance.kind}"
        raise InputError(message, source=source_name(path), field=option)


def print_order(found: Result | HeuristicEntry | None, source: str) -> None:
    """Print the order of a result or of a heuristic's entry.

    Parameters
    ----------
    found : Result or HeuristicEntry or None
        The result or entry, if there is one.
    source : str
        Name of the file or instance in errors.

    Raises
    ------
    InputError
        There is none; says why if that is known.
    """
    lines = order_of(found)
    if lines is None:
        why = f": {plain_reason(found)}" if found is not None and found.reason else ""
        raise InputError(f"there is no {_noun(found)} in it{why}", source=source, field="order")
    shown = map(printable, lines) if sys.stdout.isatty() else lines
    sys.stdout.write("".join(f"{line}\n" for line in shown))


def order_of(found: Result | HeuristicEntry | None) -> list[str] | None:
    """Return the lines of the order, None where there is none."""
    kind = known_kind(found.kind) if found is not None and found.kind is not None else None
    return None if kind is None or found is None else kind.order_lines(found)


def _noun(found: Result | HeuristicEntry | None) -> str:
    kind = known_kind(found.kind) if found is not None and found.kind is not None else None
    return (kind.orders_are if kind is not None else None) or "program order"


def plain_reason(found: Result | HeuristicEntry) -> str:
    """Return why there is no order; failures of passes in plain words."""
    if isinstance(found, HeuristicEntry):
        return drawing_of(found.kind).reason(found)
    return found.reason or ""
