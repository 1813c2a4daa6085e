"""Colours 16 to 255 of terminals: their light, and the text that is read on them."""

from __future__ import annotations

BLACK, WHITE = 16, 231
CUBE = (0, 95, 135, 175, 215, 255)
"""Levels of red, green and blue of colours 16 to 231 (xterm)."""

SEEN_EQUAL = 0.179
"""Luminance on which black and white text have one contrast, 4.58 (WCAG 2: (L + .05) / .05)."""


def rgb(colour: int) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255, of one of the terminal's colours from 16 on."""
    if colour > WHITE:
        return (8 + 10 * (colour - WHITE - 1),) * 3
    red, green, blue = (colour - BLACK) // 36, (colour - BLACK) // 6 % 6, (colour - BLACK) % 6
    return CUBE[red], CUBE[green], CUBE[blue]


def text_colour(colour: int) -> int:
    """Return black or white, whichever is read better on a colour from 16 on."""
    return BLACK if luminance(colour) > SEEN_EQUAL else WHITE


def luminance(colour: int) -> float:
    """Return the relative luminance of a colour from 16 on, 0 to 1 (WCAG 2, sRGB)."""
    return luminance_of(rgb(colour))


def luminance_of(parts: tuple[int, int, int]) -> float:
    """Return the relative luminance of red, green and blue, 0 to 255 each (WCAG 2, sRGB)."""
    weights = (0.2126, 0.7152, 0.0722)
    return sum(w * linear(part) for w, part in zip(weights, parts, strict=True))


def linear(part: int) -> float:
    """Return the light of an sRGB part, 0 to 255, as a share of its most."""
    share = part / 255
    return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)
