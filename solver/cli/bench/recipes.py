"""Instances that recipes describe: what one would type behind ``ppsolve generate``, many times."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_text, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli.main import load
from ppsolve.solver.generate.flags import read_options
from ppsolve.solver.generate.instances import generate

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
UNNAMED = "recipe"


def instances_of(
    recipes: Iterable[str], files: Iterable[str], count: int
) -> Iterator[tuple[str, Instance]]:
    """Yield the instances of recipes, with the names of the recipes.

    Parameters
    ----------
    recipes : iterable of str
        A name, which may be left out, and options of ``ppsolve generate``.
    files : iterable of str
        Files with one recipe in each line; empty lines and those with ``#`` first do not count.
    count : int
        Instances of each recipe that has no ``--count`` of its own, from successive seeds.

    Yields
    ------
    tuple of str and Instance
        Name of the recipe and an instance.

    Raises
    ------
    InputError
        A recipe cannot be used; names it, or its file and line.
    """
    for text in recipes:
        yield from _instances(text, count, "--recipe")
    for path in files:
        source = source_name(path)
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield from _instances(line, count, f"{source}: line {number}")


def _instances(text: str, count: int, source: str) -> Iterator[tuple[str, Instance]]:
    try:
        name, own, given = _parsed(text)
        count = count if own is None else own
        seed, profile = given.pop("seed"), given.pop("profile")
        options = read_options(given)
        if profile is not None and count > 1:
            raise InputError("expected one instance of a profile: nothing of it is drawn")
        if profile is not None:
            yield name, generate(profile=profile, **options)
            return
        first = 0 if seed is None else seed
        for place in range(count):
            yield name, generate(seed=first + place, **options)
    except InputError as error:
        raise InputError(error.message, source=source, field=error.field) from None


def _parsed(text: str) -> tuple[str, int | None, dict[str, Any]]:
    """Return the name of a recipe, its own count, and the options of ``ppsolve generate``."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f'not readable: {error}, got "{text}"') from None
    if not words:
        raise InputError("expected options of `ppsolve generate`, got none")
    name = words.pop(0) if not words[0].startswith("-") else UNNAMED
    if not NAME.fullmatch(name):
        raise InputError(f'expected a name of letters, digits, dots and dashes, got "{name}"')
    own, words = _own_count(words)
    return name, own, _options(words)


def _own_count(words: list[str]) -> tuple[int | None, list[str]]:
    if "--count" not in words:
        return None, words
    place = words.index("--count")
    value = words[place + 1] if place + 1 < len(words) else ""
    if not re.fullmatch(r"[1-9]\d{0,6}", value):
        raise InputError(f'expected a whole number >= 1, got "{value}"', field="--count")
    return int(value), words[:place] + words[place + 2 :]


def _options(words: list[str]) -> dict[str, Any]:
    """Return the options that words give to ``ppsolve generate``, always `seed` and `profile`."""
    command = load("generate")
    try:
        given: dict[str, Any] = command.make_context("generate", list(words)).params
    except Exception as error:
        # Errors of usage are known by their method only: whose class it is depends on typer.
        if not hasattr(error, "format_message"):
            raise
        raise InputError(str(error.format_message())) from None
    for name in ("output", "random"):
        given.pop(name)
    always = {name: given.pop(name) for name in ("seed", "profile")}
    return always | {name: value for name, value in given.items() if value is not None}
