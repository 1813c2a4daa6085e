"""Numbers as people read them; plain strings, no terminal library."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal

ABSENT = "-"


def figure(value: float | None, significant: int = 6) -> str:
    """Return a time or amount with thousands separators and few significant digits.

    Whole numbers keep all their digits. ``None`` becomes a dash.
    """
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return str(value)
    if value == int(value):
        return f"{int(value):,}"
    digits = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 12) if significant == 6 else digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def figures(*values: float | None) -> list[str]:
    """Return figures that stand side by side, with digits enough to tell different ones apart.

    Only for values that are exact, or the doubles nearest to exact ones: the digits that tell
    sums of doubles apart mean nothing.
    """
    different = len(set(values))
    for significant in range(6, 17):
        texts = [figure(value, significant) for value in values]
        if len(set(texts)) == different:
            return texts
    return [
        ABSENT if value is None else f"{Decimal(repr(value)):,f}" for value in values
    ]


def at_most(value: float) -> str:
    """Return a figure of two digits that is no smaller than `value`: ``2.4E-06`` for 2.31e-6."""
    number = Decimal(repr(value))
    step = Decimal(1).scaleb(number.adjusted() - 1)
    return f"{float(number.quantize(step, ROUND_CEILING)):.2G}"


def compact(value: float) -> str:
    """Return an amount in at most four characters where it is below 10^18: ``12``, ``1.3M``."""
    for power, suffix in enumerate(("", "k", "M", "G", "T", "P")):
        scaled = value / 1000**power
        if scaled < 999.5 or (not suffix and value == int(value) and value < 10_000):
            digits = 0 if scaled >= 9.95 or scaled == int(scaled) else 1
            return f"{scaled:.{digits}f}{suffix}"
    return f"{value:.0e}".replace("e+", "e")


def percent(ratio: float | None) -> str:
    """Return a ratio as a percentage with two decimals; a tiny gap never reads as none."""
    if ratio is None:
        return ABSENT
    if 0 < abs(ratio) < 0.00005:
        return "<0.01 %"
    return f"{100 * ratio:.2f} %"


def ratio(value: float | None) -> str:
    """Return a bubble ratio with the four decimals that papers print."""
    return ABSENT if value is None else f"{value:.4f}"


def seconds(value: float) -> str:
    """Return a wall time: ``0.04 s``, ``3.1 s``, ``2 min 05 s``, ``3.5 h``."""
    if value < 1:
        return f"{value:.2f} s"
    if value < 100:
        return f"{value:.1f} s"
    if value < 6000:
        return f"{int(value) // 60} min {int(value) % 60:02d} s"
    return f"{value / 3600:.1f} h"


def shorten(text: str, width: int) -> str:
    """Return a text cut to a width, with a tilde where something is missing."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "~"


def counted(number: int, word: str) -> str:
    """Return a number with its noun: ``1 node``, ``1,024 nodes``, ``2 micro-batches``."""
    plural = "" if number == 1 else "es" if word.endswith("ch") else "s"
    return f"{number:,} {word}{plural}"
