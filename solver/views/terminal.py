"""Lines without the blanks that fill tables up to the width of a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ppsolve.models.documents.printable import LONGEST_LINE, printable_lines

# Columns of the widest picture; a chart holds a few kilobytes for each of them.
MAX_WIDTH = LONGEST_LINE

WIDER = "COLUMNS={}"  # what asks for a number of columns, of commands that have no option for it


class TerminalConsole(Console):
    """A console that shows texts as they are, but for what would act on the terminal.

    Control characters and the like are escaped and endless texts cut, wherever in a table or
    chart they stand. A closed pipe raises `BrokenPipeError`. `wider` is what asks for a number of
    columns.
    """

    def __init__(self, *, width: int | None = None, stderr: bool = False) -> None:
        super().__init__(
            width=width, stderr=stderr, highlight=False, emoji=False, markup=False
        )
        # Where the width is given, the environment does not change it.
        self.wider = WIDER if width is None else "--width {}"
        if self.width > MAX_WIDTH:
            self.width = MAX_WIDTH

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render anything, texts made harmless."""
        harmless = _harmless(renderable) if isinstance(renderable, Text) else renderable
        return super().render(harmless, options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a harmless text for a string."""
        return super().render_str(printable_lines(text), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to the program how it ends."""
        raise BrokenPipeError


def _harmless(text: Text) -> Text:
    if printable_lines(text.plain) == text.plain:
        return text
    safe = text.blank_copy()
    for segment in text.render(Console(width=LONGEST_LINE), end=""):
        safe.append(printable_lines(segment.text), segment.style)
    return safe


class TrimmedFile:
    """A stream that gets no blanks at the ends of lines."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write whole lines."""
        self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        """Be the stream in all else."""
        return getattr(self._stream, name)
