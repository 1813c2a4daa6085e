"""Instances from files, globs and directories."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import STANDARD_STREAM, read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.optimize.kinds import NO_INSTANCES, is_result, load_instance, parse_instance


@dataclass(frozen=True)
class Source:
    """An instance and the file that it is from; ``-`` is standard input."""

    path: str
    instance: Instance

    @property
    def family(self) -> str:
        """Name of the folder of the file."""
        if self.path == STANDARD_STREAM:
            return source_name(self.path)
        return Path(self.path).resolve().parent.name


def collect(files: Iterable[str], tell: Callable[[str], None]) -> list[Source]:
    """Read all instances that files, globs and directories name, each file once.

    Parameters
    ----------
    files : iterable of str
        Files of instances, globs, directories that are searched with all below them, or ``-``.
    tell : callable
        Told in a line of each JSON file of a directory that is no instance.

    Returns
    -------
    list of Source
        In the order given, files of a directory or glob by name.

    Raises
    ------
    InputError
        Nothing is there, or a file is no valid instance.
    """
    return list(_load(files, tell))


def _load(files: Iterable[str], tell: Callable[[str], None]) -> Iterator[Source]:
    for path, is_from_directory in dict(_expand(files)).items():
        if not is_from_directory:
            yield Source(path, load_instance(path))
            continue
        data = read_json(path)
        if _is_instance(data):
            yield Source(path, parse_instance(data, path))
        else:
            tell(f"note: {path} is not an instance, left out")


def _is_instance(data: Any) -> bool:
    """Whether a file of a directory is worth reading: no result, no plan, nothing else."""
    return (
        isinstance(data, dict)
        and "kind" in data
        and not (is_result(data) or data["kind"] in NO_INSTANCES)
    )


def _expand(files: Iterable[str]) -> Iterator[tuple[str, bool]]:
    for file in files:
        path = Path(file)
        if path.is_dir():
            found = list(_json_files(path))
        elif file == STANDARD_STREAM or path.exists() or not glob.has_magic(file):
            yield file, False
            continue
        else:
            found = glob.glob(file, recursive=True)
        if not found:
            raise InputError("no instance files there", source=file)
        for name in sorted(found, key=_human):
            yield name, path.is_dir()


def _json_files(directory: Path) -> Iterator[str]:
    """Yield the files below `directory`, without those in hidden directories such as .venv."""
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for path in (Path(folder, name) for name in files if name.endswith(".json")):
            if path.is_file():
                yield str(path)


def _human(name: str) -> list[tuple[int, Fraction | str]]:
    """Return a key that puts 2 before 10, and 1.5 between 1 and 2."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(0, Fraction(part)) if part[:1].isdecimal() else (1, part) for part in parts]
