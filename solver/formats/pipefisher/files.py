"""The files of a PipeFisher run: which ones, in which order, and what their names say."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice, takewhile
from math import gcd
from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import STANDARD_STREAM

SUFFIX = ".pickle"
MOST_NAMED = 5
"""Missing nodes that are named; more are counted."""

_NODE = re.compile(r"_?node([0-9]{1,9})(?![0-9])(?:_timeline)?")
_SCHEDULE = re.compile(r"(?:^|[_.-])schedule$", re.IGNORECASE)


def timeline_files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the timeline files of files and folders in human order of names, and warnings.

    A folder stands for its ``*.pickle`` files but hidden ones and schedules.

    Raises
    ------
    InputError
        No path, a folder without timelines, standard input, or a file or node that is there twice.
    """
    files: list[Path] = []
    warnings: list[str] = []
    for path in paths:
        if str(path) == STANDARD_STREAM:
            raise InputError("expected files, pickles are not read from here", source="<stdin>")
        if os.path.isdir(path):
            files += _in_folder(path, warnings)
        else:
            files.append(path)
    if not files:
        raise InputError("expected at least one timeline pickle or a folder of them, got none")
    files.sort(key=lambda file: (human_key(file.name), str(file)))
    _refuse_twice(files)
    return files, warnings


def _in_folder(folder: Path, warnings: list[str]) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(folder)) from None
    hidden = [path.name for path in found if path.name.startswith(".")]
    files = [
        path
        for path in found
        if path.name not in hidden and not os.path.isdir(path) and not _SCHEDULE.search(path.stem)
    ]
    if not files:
        left = f" ({len(hidden)} hidden: name it to read it)" if hidden else ""
        raise InputError(
            f"expected a folder with timelines named *{SUFFIX}, there is none{left}",
            source=str(folder),
        )
    if hidden:
        warnings.append(f"{folder}: hidden files are not read: {', '.join(hidden[:3])}")
    return files


def human_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by value: 2 before 10."""
    parts = re.split("([0-9]+)", name)
    return [(int(part), part) if place % 2 else (0, part) for place, part in enumerate(parts)]


def _refuse_twice(files: list[Path]) -> None:
    seen: dict[str, Path] = {}
    for file in files:
        real = os.path.realpath(file)
        if real in seen:
            same = "" if str(seen[real]) == str(file) else f", also as {seen[real]}"
            raise InputError(f"this file is there twice{same}", source=str(file))
        seen[real] = file
    numbers = node_numbers(files)
    for place, number in enumerate(numbers or ()):
        first = (numbers or []).index(number)
        if first != place:
            raise InputError(
                f"node {number} is there already: {files[first]}", source=str(files[place])
            )


def node_numbers(files: Sequence[Path]) -> list[int] | None:
    """Return the node numbers in the names, or None unless every name has one."""
    matches = [_last_match(file.name) for file in files]
    numbers = [int(match[1]) for match in matches if match is not None]
    return numbers if len(numbers) == len(files) else None


def refuse_missing_nodes(numbers: Sequence[int] | None, source: str) -> None:
    """Refuse a run without some of its nodes.

    A run with several replicas of each stage may have a file for every k-th node only.

    Parameters
    ----------
    numbers : sequence of int or None
        Ascending node numbers, None unless every file's name has one.
    source : str
        Folder for errors.

    Raises
    ------
    InputError
        Ascending numbers do not start at 0 or are not evenly spaced; names those missing.
    """
    if numbers is None:
        return
    step = gcd(*numbers) or 1
    there = set(numbers)
    count = numbers[-1] // step + 1 - len(there)
    if count == 0:
        return
    missing = (node for node in range(0, numbers[-1], step) if node not in there)
    shown: list[object] = list(islice(missing, MOST_NAMED))
    if count > len(shown):
        shown.append(f"{count - len(shown)} more")
    nodes, verb = ("node", "is") if count == 1 else ("nodes", "are")
    raise InputError(
        f"{nodes} {in_words(shown)} of 0..{numbers[-1]} {verb} missing; "
        "name the files one by one to go without",
        source=source,
    )


def in_words(items: Sequence[object]) -> str:
    """Return ``0``, ``0 and 3`` or ``0, 1 and 3``."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def _last_match(name: str) -> re.Match[str] | None:
    return next(reversed(list(_NODE.finditer(name))), None)


def instance_name(files: Sequence[Path]) -> str:
    """Return the beginning that all names share before ``_node<k>``, else the folder's name."""
    stems = [_before_node(file) for file in files]
    low, high = min(stems), max(stems)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False))
    common = "".join(letter for letter, _ in same).strip("_-. ")
    name = common or files[0].resolve().parent.name or "pipefisher"
    return name.encode("utf-8", "replace").decode()


def _before_node(file: Path) -> str:
    match = _last_match(file.name)
    return file.name[: match.start()] if match is not None else file.stem
