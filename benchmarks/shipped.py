"""Where the shipped instances are, which files are instances, and how a script writes its set."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from ppsolve import InputError
from ppsolve.models.documents.base import StrictModel
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.studies.plan.request import REQUEST_SUFFIX

ROOT = Path(__file__).resolve().parent.parent
INSTANCES = ROOT / "instances"
BEST_KNOWN = "best_known.json"


def instance_files(directory: Path) -> list[str]:
    """Return the names of the instance files below `directory`, relative to it, sorted.

    Requests for plans (``*.plan.json``) and the best-known file are no instances.

    Raises
    ------
    InputError
        It is no directory, or has no instance file.
    """
    if not directory.is_dir():
        raise InputError("expected a directory of instances", source=str(directory))
    names = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*.json")
        if path.name != BEST_KNOWN and not path.name.endswith(REQUEST_SUFFIX)
    )
    if not names:
        raise InputError(
            "no instance (*.json) below this directory", source=str(directory)
        )
    return names


def writer_options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the one argument of all scripts that write a set: the directory."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("directory", nargs="?", type=Path, default=INSTANCES)
    return parser


def write_set(files: Mapping[str, StrictModel], directory: Path) -> None:
    """Write instances or requests below `directory`, and print how many.

    Parameters
    ----------
    files : mapping of str to StrictModel
        Name of each file relative to the directory, and what goes into it.
    directory : Path
        Where they are written; other files there are left alone.

    Raises
    ------
    InputError
        A file cannot be written.
    """
    for name, instance in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, instance_text(instance))
    print(f"{len(files)} files written below {directory}")


def run_writer(
    description: str | None, make: Callable[[], Mapping[str, StrictModel]]
) -> None:
    """Run a script that does nothing but write the set that `make` returns.

    Parameters
    ----------
    description : str or None
        What its ``--help`` says.
    make : callable
        Returns the name of each file relative to the directory, and what goes into it.
    """
    directory = writer_options(description).parse_args().directory
    write_set(make(), directory)
