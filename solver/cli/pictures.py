"""Schedules beside each other as the file of a viewer, for ``ppsolve export``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name, write_text
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cli.guard import say
from ppsolve.solver.formats.perfetto import TracedSchedule, picture, shown_in
from ppsolve.solver.optimize.kinds import load_instance


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Refuse options that mean nothing here.

    Parameters
    ----------
    options : mapping of str to object
        Values by option; those of options that were not given are None, False or empty.
    why : str
        What would be right.

    Raises
    ------
    InputError
        Names the first option that was given.
    """
    for option, value in options.items():
        if value is not None and value is not False and value != []:
            raise InputError(why, field=option)


def export_picture(
    to: str,
    files: Sequence[str],
    output: Path,
    *,
    instance: Path | None = None,
    heuristic: str | None = None,
) -> None:
    """Write the schedules of documents as one file of a viewer.

    Parameters
    ----------
    to : str
        One of `PICTURES`.
    files : sequence of str
        The documents, the one that the command is about first; ``-`` is standard input.
    output : Path
        Where the file goes; ``-`` is standard output.
    instance : Path, optional
        Instance of documents that carry none; by default that of the first document.
    heuristic : str, optional
        Take the order of this heuristic of the first document.

    Raises
    ------
    InputError
        A document has no schedule or no instance, or two of the files are standard input.
    """
    if [*files, str(instance)].count("-") > 1:
        raise InputError("only one of the files can be standard input")
    known = None if instance is None else load_instance(instance)
    shown, names = [], [source_name(file) for file in files]
    for place, (file, name) in enumerate(zip(files, names, strict=True)):
        chosen = heuristic if place == 0 else None
        found, each = shown_in(read_json(file), name, heuristic=chosen, otherwise=known)
        _warn(each, name)
        shown.append(each)
        known = known or found
    write_text(output, picture(to, shown, names))


def _warn(shown: TracedSchedule, source: str) -> None:
    """Warn of a schedule that breaks a rule."""
    broken = check_schedule(shown.schedule.problem, shown.schedule)
    if broken:
        say(f"warning: {source}: {broken[0]} (ppsolve check lists everything)")
