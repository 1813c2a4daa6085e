"""Text of any origin made safe for a terminal: nothing that acts on it, nothing endless.

Unprintable characters are escaped: control characters (C0, C1, DEL), separators of lines and
paragraphs, marks that turn the direction of writing, characters without a width, and blanks other
than the space. Names and units in a file may hold all of them.
"""

from __future__ import annotations

import re

LONGEST_PART = 600
"""Characters that are shown of one name, message or cell of a table: about eight lines."""

LONGEST_LINE = 4000
"""Characters that are shown of one line; the widest picture has as many columns."""

_NOT_PLAIN = re.compile(r"[^\n -~]")


def printable(text: str, longest: int = LONGEST_PART) -> str:
    """Return `text` on one line, unprintable characters escaped, its middle cut out if too long."""
    text = _cut(text, longest)
    if text.isprintable():
        return text
    return _cut("".join(map(_escaped, text)), longest)


def printable_lines(text: str, longest: int = LONGEST_LINE) -> str:
    """Return `text` as `printable` does, its line ends kept, each line cut by itself."""
    if text.isprintable() and len(text) <= longest:
        return text
    return "\n".join(
        printable(line, longest) for line in _cut(text, longest).split("\n")
    )


def plain_json(text: str) -> str:
    r"""Return a JSON text with its unprintable characters as ``\u`` escapes, its data unchanged."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _NOT_PLAIN.sub(lambda match: _escaped_in_json(match[0]), text)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    tail = (longest - 3) // 3
    return f"{text[: longest - 3 - tail]}...{text[-tail:]}"


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _escaped_in_json(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(
        f"\\u{units[index : index + 4]}" for index in range(0, len(units), 4)
    )
