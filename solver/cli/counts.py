"""Lists of whole numbers as options give them: ``1,2,4``, ``1-8``, ``1..8``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ppsolve.models.documents.errors import InputError

MOST_NUMBERS = 100_000
"""Longer lists are refused rather than left to fill the memory."""

_RANGE = re.compile(r"([0-9]{1,15})(?:(?:-|\.\.)([0-9]{1,15}))?", re.ASCII)


def parse_counts(text: str, option: str) -> list[int]:
    """Return the numbers that an option lists, in its order.

    Parameters
    ----------
    text : str
        Numbers and ascending ranges with commas between, as in ``1,2,4-8``.
    option : str
        Name of the option in errors.

    Returns
    -------
    list of int
        At most `MOST_NUMBERS`.

    Raises
    ------
    InputError
        Something else than numbers and ascending ranges, or too many of them.
    """
    numbers: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise InputError(
                f"expected numbers (1,2,4) or ranges (1-8), got {part.strip()[:40]!r}", field=option
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if len(numbers) + last - first >= MOST_NUMBERS:
            raise InputError(f"expected at most {MOST_NUMBERS:,} numbers", field=option)
        numbers += range(first, last + 1)
    return numbers


def broadcast(lists: Mapping[str, list[int]]) -> Iterator[tuple[int, ...]]:
    """Yield rows of lists of one length; lists of one number go with all rows.

    Raises
    ------
    InputError
        Two lists of more than one number differ in length; names their options.
    """
    lengths = {option: len(numbers) for option, numbers in lists.items() if len(numbers) > 1}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{option} has {length}" for option, length in lengths.items())
        raise InputError(f"expected lists of one length or single numbers: {found}")
    rows = max(lengths.values(), default=1)
    columns = (numbers * rows if len(numbers) == 1 else numbers for numbers in lists.values())
    return zip(*columns, strict=True)
