"""Lines without the blanks that fill tables up to the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment


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
