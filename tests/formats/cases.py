"""Tiny results, made by hand: ops of one unit, idle time as dots."""

from __future__ import annotations

from typing import Any


def schedule(*rows: str) -> dict[str, Any]:
    """Return a result with ops like ``0F1`` per rank, ``.`` for a unit of idle time."""
    ops = []
    for rank, row in enumerate(rows):
        for start, word in enumerate(row.split()):
            if word == ".":
                continue
            kind = next(letter for letter in word if letter.isalpha())
            stage, microbatch = map(int, word.split(kind))
            labels = {
                "kind": kind,
                "stage": stage,
                "device": rank,
                "microbatch": microbatch,
            }
            times = {"start": start, "end": start + 1}
            ops.append({"id": f"{kind}{stage}.{microbatch}", **labels, **times})
    return {"instance": "tiny", "schedule": {"time_unit": "us", "ops": ops}}


TWO_RANKS = schedule("0F0 0F1 . 0B0 . 0B1", ". 1F0 1B0 1F1 1B1")
"""1F1B on two ranks."""

FOLDED = schedule("0F0 . . 3F0 3I0 3W0 . 0I0 0W0", ". 1F0 2F0 . . 2I0 1I0 2W0 1W0")
"""A V placement: stages 1 and 2 on rank 1, 0 and 3 on rank 0."""
