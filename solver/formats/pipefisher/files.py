"""The files of a PipeFisher run: which ones, in which order, and what their names say."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from math import gcd
from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import STANDARD_STREAM

_NODE = re.compile(r"_?node([0-9]{1,9})(?![0-9])(?:_timeline)?")
_SCHEDULE = re.compile(r"(?:^|[_.-])schedule$", re.IGNORECASE)


def timeline_files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the timeline files of files and folders in human order of names, and warnings.

    A folder stands for its ``*.pickle`` files but hidden ones and schedules. Raises `InputError`
    for no path, a folder without timelines, standard input, or a file or node that is there twice.
    """
    files: list[Path] = []
    warnings: list[str] = []
    for path in paths:
        if str(path) == STANDARD_STREAM:
            raise InputError("expected files, pickles are not read from here", source="<stdin>")
        files += _in_folder(path, warnings) if os.path.isdir(path) else [path]
    if not files:
        raise InputError("expected at least one timeline pickle or a folder of them, got none")
    files.sort(key=lambda file: (human_key(file.name), str(file)))
    _refuse_twice(files)
    return files, warnings


def _in_folder(folder: Path, warnings: list[str]) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(".pickle"))
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
        text = f"expected a folder with timelines named *.pickle, there is none{left}"
        raise InputError(text, source=str(folder))
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
    first: dict[int, Path] = {}
    for number, file in zip(node_numbers(files) or (), files, strict=False):
        if number in first:
            text = f"node {number} is there already: {first[number]}"
            raise InputError(text, source=str(file))
        first[number] = file


def node_numbers(files: Sequence[Path]) -> list[int] | None:
    """Return the node numbers in the names, or None unless every name has one."""
    matches = [_last_match(file.name) for file in files]
    numbers = [int(match[1]) for match in matches if match is not None]
    return numbers if len(numbers) == len(files) else None


def refuse_missing_nodes(numbers: Sequence[int]) -> None:
    """Refuse a run without some of its nodes, by their ascending numbers.

    A run with several replicas of each stage may have a file for every k-th node only. Raises
    `InputError` where numbers do not start at 0 or are not evenly spaced; names the first five
    missing.
    """
    step = gcd(*numbers) or 1
    nodes = range(0, numbers[-1], step)
    count = len(nodes) + 1 - len(numbers)
    if count == 0:
        return
    there = set(numbers)
    shown: list[object] = list(islice((node for node in nodes if node not in there), 5))
    if count > len(shown):
        shown.append(f"{count - len(shown)} more")
    noun, verb = ("node", "is") if count == 1 else ("nodes", "are")
    raise InputError(
        f"{noun} {in_words(shown)} of 0..{numbers[-1]} {verb} missing; "
        "name the files one by one to go without"
    )


def in_words(items: Sequence[object]) -> str:
    """Return ``0``, ``0 and 3`` or ``0, 1 and 3``."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def _last_match(name: str) -> re.Match[str] | None:
    return next(reversed(list(_NODE.finditer(name))), None)


def instance_name(files: Sequence[Path]) -> str:
    """Return the beginning that all names share before ``_node<k>``, else the folder's name."""
    matches = [(_last_match(file.name), file) for file in files]
    stems = [file.name[: match.start()] if match else file.stem for match, file in matches]
    common = os.path.commonprefix(stems).strip("_-. ")  # noqa: RUF071 - names, not paths
    name = common or files[0].resolve().parent.name or "pipefisher"
    return name.encode("utf-8", "replace").decode()
