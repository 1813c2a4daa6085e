"""Spoilt JSON documents and texts: wrong types, huge numbers, lost, repeated and swapped values."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[str | int, ...]
Mutation = Callable[[Any, random.Random], Any]

MOST_CHANGES = 3
LONG = 5_000  # characters of a long text
DEEP = 300  # levels of a deep value; ten times as many are refused when JSON is parsed
REPEATS = 50

STRANGE: tuple[tuple[Any, ...], ...] = (
    (None,),
    (True, False),
    (0, 1, -1, 2, 7),
    (0.1, -0.5, 1e-9, 1e7, 1e18, 1e300, -1e300),
    (10**7, 10**9, 2**31, 2**53 + 1, 2**63, 2**64, 10**18, 10**30, 10**400),
    (float("nan"), float("inf"), float("-inf")),
    ("", "x", "1", "-1", "80GB", "1e999", "NaN", "\x00\x1b[31m\n", "\u202e\U0001f600"),
    ([], [0], [None], [[]]),
    ({}, {"kind": "pipeline"}, {"": None}),
)
"""Values in the place of others, by type."""


def strange(rng: random.Random) -> Any:
    """Return a value of any type, each type as often as the others."""
    return copy.deepcopy(rng.choice(rng.choice(STRANGE)))


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value below a document, the document itself left out."""
    if isinstance(data, dict):
        children: Any = data.items()
    elif isinstance(data, list):
        children = enumerate(data)
    else:
        return
    for key, child in children:
        yield (*path, key)
        yield from paths(child, (*path, key))


def value_at(data: Any, path: Path) -> Any:
    """Return the value at a path."""
    for key in path:
        data = data[key]
    return data


def replaced(data: Any, path: Path, value: Any) -> Any:
    """Put a value at a path, in place, and return the document."""
    value_at(data, path[:-1])[path[-1]] = value
    return data


def any_path(
    data: Any, rng: random.Random, kinds: tuple[type, ...] = (object,)
) -> Path | None:
    """Return the path of a value of these types, short paths as often as long ones."""
    by_depth: dict[int, list[Path]] = {}
    for path in paths(data):
        if isinstance(value_at(data, path), kinds):
            by_depth.setdefault(len(path), []).append(path)
    if not by_depth:
        return None
    return rng.choice(by_depth[rng.choice(sorted(by_depth))])


def strange_value(data: Any, rng: random.Random) -> Any:
    """Put a value of another type or size in the place of one."""
    path = any_path(data, rng)
    return data if path is None else replaced(data, path, strange(rng))


def scaled_number(data: Any, rng: random.Random) -> Any:
    """Multiply, shift or negate a number."""
    path = any_path(data, rng, (int, float))
    if path is None:
        return data
    number = value_at(data, path)
    change = rng.choice((-1, 0, 2, 10, 1000, 10**7, 1e-7, 1 / 3, "+1", "-1"))
    changed = number + int(change) if isinstance(change, str) else number * change
    return replaced(data, path, changed)


def scaled_numbers(data: Any, rng: random.Random) -> Any:
    """Multiply all numbers below a value, often by 0: an instance whose ops take no time."""
    path = any_path(data, rng, (dict, list))
    change = rng.choice((0, 0, -1, 1e-9, 10**7))
    if path is not None:
        owner = value_at(data, path)
        for below in list(paths(owner)):
            number = value_at(owner, below)
            if isinstance(number, int | float) and not isinstance(number, bool):
                replaced(owner, below, number * change)
    return data


def wrapped(data: Any, rng: random.Random) -> Any:
    """Put a value into a list or an object, or a list's first value in the place of the list."""
    path = any_path(data, rng)
    if path is None:
        return data
    value = value_at(data, path)
    if isinstance(value, list) and value and rng.random() < 0.5:
        return replaced(data, path, value[0])
    return replaced(
        data, path, rng.choice(([value], {"value": value}, [value, value], str(value)))
    )


def lost(data: Any, rng: random.Random) -> Any:
    """Leave a field or an entry out."""
    path = any_path(data, rng)
    if path is not None:
        del value_at(data, path[:-1])[path[-1]]
    return data


def emptied(data: Any, rng: random.Random) -> Any:
    """Empty a list or an object."""
    path = any_path(data, rng, (list, dict))
    return data if path is None else replaced(data, path, type(value_at(data, path))())


def added(data: Any, rng: random.Random) -> Any:
    """Add a field that is known elsewhere in the document, or by nobody."""
    path = any_path(data, rng, (dict,)) or ()
    owner = value_at(data, path)
    names = [path[-1] for path in paths(data) if isinstance(path[-1], str)]
    if isinstance(owner, dict):
        owner[rng.choice([*names, "extra", ""])] = strange(rng)
    return data


def repeated(data: Any, rng: random.Random) -> Any:
    """Repeat a list, or one of its entries, many times."""
    path = any_path(data, rng, (list,))
    if path is None:
        return data
    values = value_at(data, path)
    times = rng.choice((2, REPEATS))
    if values and rng.random() < 0.5:
        values = values + [rng.choice(values)] * times
    else:
        values = values * times
    return replaced(data, path, copy.deepcopy(values))


def cut(data: Any, rng: random.Random) -> Any:
    """Keep only the beginning of a list, or turn its order round."""
    path = any_path(data, rng, (list,))
    if path is None:
        return data
    values = value_at(data, path)
    kept = values[: rng.randrange(len(values) + 1)]
    return replaced(data, path, rng.choice((kept, values[::-1])))


def swapped(data: Any, rng: random.Random) -> Any:
    """Swap two values, neither of which holds the other."""
    first, second = any_path(data, rng), any_path(data, rng)
    if first is None or second is None:
        return data
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return data
    values = copy.deepcopy((value_at(data, first), value_at(data, second)))
    return replaced(replaced(data, first, values[1]), second, values[0])


def copied(data: Any, rng: random.Random) -> Any:
    """Put one value of the document in the place of another."""
    source, target = any_path(data, rng), any_path(data, rng)
    if source is None or target is None:
        return data
    return replaced(data, target, copy.deepcopy(value_at(data, source)))


def lengthened(data: Any, rng: random.Random) -> Any:
    """Put a long text, or a deep value, in the place of a value."""
    path = any_path(data, rng)
    if path is None:
        return data
    value: Any = rng.choice(("n" * LONG, "\u00e9 " * LONG, "9" * LONG))
    if rng.random() < 0.3:
        value = []
        for _ in range(DEEP):
            value = [value] if rng.random() < 0.5 else {"a": value}
    return replaced(data, path, value)


MUTATIONS: tuple[Mutation, ...] = (
    strange_value,
    strange_value,
    scaled_number,
    scaled_numbers,
    wrapped,
    lost,
    emptied,
    added,
    repeated,
    cut,
    swapped,
    copied,
    lengthened,
)


def mutated_json(text: str, rng: random.Random) -> str:
    """Return the text of a JSON document after one to three mutations, sometimes spoilt as text."""
    data = json.loads(text)
    # Most readers stop at the first wrong field: one change gets further than several.
    for _ in range(rng.choice((1, 1, 1, MOST_CHANGES))):
        is_number = rng.random() < 0.3
        mutation = rng.choice(
            (scaled_number, scaled_numbers) if is_number else MUTATIONS
        )
        data = mutation(data, rng)
    spoilt = json.dumps(data)
    if rng.random() < 0.05:
        return mutated_text(spoilt, rng)
    if rng.random() < 0.05:
        return doubled_key(spoilt, rng)
    return spoilt


def mutated_lines(text: str, rng: random.Random) -> str:
    """Return lines of JSON, one of which is mutated as a document or as text."""
    lines = text.splitlines()
    number = rng.randrange(len(lines))
    if rng.random() < 0.3:
        return mutated_text(text, rng)
    lines[number] = mutated_json(lines[number], rng)
    return "\n".join([*lines, ""])


def doubled_key(text: str, rng: random.Random) -> str:
    """Write the first field of an object twice."""
    places = [place for place, letter in enumerate(text) if letter == "{"]
    place = rng.choice(places) if places else 0
    return text[: place + 1] + '"kind": 1, "kind": 2, ' + text[place + 1 :]


def mutated_text(text: str, rng: random.Random) -> str:
    """Return a text of lines and fields, some of them lost, repeated, swapped or replaced."""
    for _ in range(rng.randint(1, MOST_CHANGES)):
        lines = text.split("\n")
        number = rng.randrange(len(lines))
        fields = lines[number].split(",")
        change = rng.randrange(7)
        if change == 0:
            fields[rng.randrange(len(fields))] = str(strange(rng))
        elif change == 1:
            rng.shuffle(fields)
        elif change == 2:
            del fields[rng.randrange(len(fields))]
        elif change == 3:
            fields = fields * rng.choice((2, REPEATS))
        lines[number] = ",".join(fields)
        if change == 4:
            del lines[number]
        elif change == 5:
            lines[number:number] = [lines[number]] * rng.choice((1, REPEATS))
        text = "\n".join(lines)
        if change == 6:
            text = text[: rng.randrange(len(text) + 1)]
    return text
