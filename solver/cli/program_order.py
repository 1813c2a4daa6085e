"""Program orders of overlap instances on stdout: one name per line, for other programs."""

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


def expect_program(instance: Instance, path: str | Path, option: str) -> None:
    """Refuse instances that have no program order.

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
        The instance is of another kind than ``overlap``.
    """
    if not kind_of(instance).has_program_order:
        message = f"expected an overlap instance, this is of kind {instance.kind}"
        raise InputError(message, source=source_name(path), field=option)


def print_order(found: Result | HeuristicEntry | None, source: str) -> None:
    """Print the program order of a result or of a heuristic's entry.

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
    names = order_of(found)
    if names is None:
        why = f": {plain_reason(found)}" if found is not None and found.reason else ""
        raise InputError(f"there is no program order in it{why}", source=source, field="order")
    shown = map(printable, names) if sys.stdout.isatty() else names
    sys.stdout.write("".join(f"{name}\n" for name in shown))


def order_of(found: Result | HeuristicEntry | None) -> list[str] | None:
    """Return the names of the nodes in program order, None where there is no order."""
    kind = known_kind(found.kind) if found is not None and found.kind is not None else None
    return None if kind is None or found is None else kind.program_order(found)


def plain_reason(found: Result | HeuristicEntry) -> str:
    """Return why there is no order; failures of passes in plain words."""
    if isinstance(found, HeuristicEntry):
        return drawing_of(found.kind).reason(found)
    return found.reason or ""
