"""Lines without the blanks that fill tables up to the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
    RenderResult,
)
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
        super().__init__(width=width, stderr=stderr, highlight=False, emoji=False, markup=False)
        # Where the width is given, the environment does not change it.
        self.wider = WIDER if width is None else "--width {}"
        if self.width > MAX_WIDTH:
            self.width = MAX_WIDTH

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render anything, texts made harmless.

        Parameters
        ----------
        renderable, options
            As for any console.

        Returns
        -------
        iterable of Segment
        """
        shown = _harmless(renderable) if isinstance(renderable, Text) else renderable
        return super().render(shown, options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a harmless text for a string.

        Parameters
        ----------
        text, options
            As for any console.

        Returns
        -------
        Text
        """
        return super().render_str(printable_lines(text), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to the program how it ends."""
        raise BrokenPipeError


def _harmless(text: Text) -> Text:
    if printable_lines(text.plain) == text.plain:
        return text
    shown = text.blank_copy()
    for part in text.render(Console(width=LONGEST_LINE), end=""):
        shown.append(printable_lines(part.text), part.style)
    return shown


class TrimLines(RenderHook):
    """Hook that lets a console print no line with blanks at its end."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the renderables without the blanks at the ends of their lines."""
        return [_Trimmed(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Trimmed:
    content: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in Segment.split_lines(console.render(self.content, options)):
            yield from _without_blanks(line)
            yield Segment.line()


def _without_blanks(line: Iterable[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.rstrip():
        kept.pop()
    if kept:
        kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
    return kept
