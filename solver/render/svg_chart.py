"""A chart of a schedule as static SVG: no script, no style sheet, bounded in size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.chart import (
    PIECES,
    Chart,
    Piece,
    Row,
    has_chunks,
    labels_of,
    pieces_of,
)
from ppsolve.solver.render.colours import GREY, darker, ink_on, look_of
from ppsolve.solver.render.figures import figure, shorten
from ppsolve.solver.render.html import text
from ppsolve.solver.render.plot.sheet import in_lines
from ppsolve.solver.render.terminal_chart import round_times


@dataclass(frozen=True)
class SvgLayout:
    """Sizes in pixels, and how much is drawn at most."""

    width: int = 860  # a notebook's cell on a small screen
    row: int = 18
    line: int = 16  # of the legend
    letter: int = 10  # size of letters
    letter_width: float = 6.2
    shares: int = 40  # room for busy shares at the right end
    most_rows: int = 64  # a note says how many more there are
    most_pieces: int = 12_000  # of all rows: about 300 kB
    most_ticks: int = 8
    name_letters: int = 16


SVG = SvgLayout()


def svg_of(chart: Chart, bound: float | None = None) -> str:
    """Return a chart as an SVG element.

    Parameters
    ----------
    chart : Chart
    bound : float, optional
        The proven bound, where it is one of the end of the schedule.

    Returns
    -------
    str
        The element; texts have the colour of the text around it. Empty without any row or time.
    """
    first, last = chart.window
    return str(_SvgChart(chart, bound)) if chart.rows and last > first else ""


@dataclass(frozen=True)
class _SvgChart:
    chart: Chart
    bound: float | None

    @cached_property
    def rows(self) -> list[Row]:
        return self.chart.rows[: SVG.most_rows]

    @cached_property
    def left(self) -> float:
        longest = max(len(printable(row.name)) for row in self.rows)
        return 10 + SVG.letter_width * min(longest, SVG.name_letters)

    @cached_property
    def room(self) -> float:
        return SVG.width - self.left - SVG.shares

    @cached_property
    def scale(self) -> float:
        first, last = self.chart.window
        return self.room / (last - first)

    def x(self, time: float) -> float:
        return self.left + (time - self.chart.window[0]) * self.scale

    @cached_property
    def pieces(self) -> list[tuple[int, Piece]]:
        """What is painted, each with the number of its row."""
        columns = min(self.room, SVG.most_pieces / len(self.rows))
        return [
            (place, piece)
            for place, row in enumerate(self.rows)
            for piece in pieces_of(row.bars, self.chart.window, columns * PIECES.narrow)
        ]

    def __str__(self) -> str:
        foot = len(self.rows) * SVG.row + 2
        legend = self._legend_lines()
        body = [*self._grounds(), *self._boxes(), *self._names(), *self._beside(), *self._bound()]
        body += [*self._axis(foot), *_legend(legend, foot + 2 * SVG.line)]
        height = foot + SVG.line * (2 + len(legend))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SVG.width} {height}" '
            f'width="{SVG.width}" style="max-width:100%" font-family="sans-serif" '
            f'font-size="{SVG.letter}" fill="currentColor" role="img">{"".join(body)}</svg>'
        )

    def _grounds(self) -> Iterator[str]:
        for place, row in enumerate(self.rows):
            width = self.x(self.chart.known_end(row)) - self.left
            box = f'y="{place * SVG.row}" width="{width:.4g}" height="{SVG.row - 2}"'
            yield f'<rect x="{self.left:.4g}" {box} fill="#808080" fill-opacity=".15"/>'

    def _boxes(self) -> Iterator[str]:
        found: dict[tuple[str, bool], str] = defaultdict(str)
        for place, piece in self.pieces:
            width = (piece.end - piece.start) * self.scale
            width, height = max(width - (0.5 if width > 3 else 0.0), 0.2), SVG.row - 2
            box = f"h{width:.3g}v{height}h{-width:.3g}z"
            look = piece.bar.fill, look_of(piece.bar.kind).is_hatched
            found[look] += f"M{self.x(piece.start):.4g} {place * SVG.row}{box}"
        for (colour, is_hatched), path in found.items():
            yield f'<path d="{path}" fill="{colour}"/>'
            if is_hatched:
                name = f"h{crc32(path.encode()):08x}"
                yield f'{_pattern(name)}<path d="{path}" fill="url(#{name})"/>'

    def _names(self) -> Iterator[str]:
        labels = labels_of([piece for _, piece in self.pieces], self.scale, SVG.letter)
        by_ink: dict[str, str] = defaultdict(str)
        for (place, piece), label in zip(self.pieces, labels, strict=True):
            if label:
                x = self.x((piece.start + piece.end) / 2)
                spot = f'x="{x:.4g}" y="{place * SVG.row + 12}"'
                by_ink[ink_on(piece.bar.fill)] += f"<text {spot}>{text(label)}</text>"
        for ink, texts in by_ink.items():
            yield f'<g fill="{ink}" text-anchor="middle">{texts}</g>'

    def _beside(self) -> Iterator[str]:
        for place, row in enumerate(self.rows):
            y, x = place * SVG.row + 12, self.left - 5
            name = text(shorten(printable(row.name), SVG.name_letters))
            yield f'<text x="{x:.4g}" y="{y}" text-anchor="end">{name}</text>'
            if share := self.chart.busy_share(row):
                yield f'<text x="{SVG.width - SVG.shares + 5}" y="{y}" opacity=".7">{share}</text>'

    def _bound(self) -> Iterator[str]:
        first, last = self.chart.window
        if self.bound is not None and first < self.bound <= last:
            x, y = self.x(self.bound), len(self.rows) * SVG.row
            line = f'x1="{x:.5g}" x2="{x:.5g}" y1="0" y2="{y}"'
            title = f"<title>lower bound {figure(self.bound)} {text(self.chart.unit)}</title>"
            yield f'<line {line} stroke="currentColor" stroke-dasharray="5 3">{title}</line>'

    def _axis(self, foot: int) -> Iterator[str]:
        times = round_times(*self.chart.window, SVG.most_ticks)
        for time in times:
            shown = figure(time) + (f" {text(self.chart.unit)}" if time == times[-1] else "")
            spot = f'x="{self.x(time):.5g}" y="{foot + 12}"'
            yield f'<text {spot} text-anchor="middle">{shown}</text>'

    def _legend_lines(self) -> list[list[tuple[str, str]]]:
        items = [(printable(words), look.colour) for words, look in self.chart.legend.items()]
        if has_chunks(self.chart.rows):
            items.append((f"dark: {self.chart.small_letters}", darker(GREY)))
        hidden = len(self.chart.rows) - len(self.rows)
        if hidden > 0:
            items.append((f"{hidden} more rows are not drawn", ""))
        return in_lines(items, lambda item: _room(item[0]), SVG.width - 10.0)


def _pattern(name: str) -> str:
    lines = '<path d="M-1 5L5 -1M1 7L7 1" stroke="#000" stroke-opacity=".45"/>'
    size = 'width="6" height="6" patternUnits="userSpaceOnUse"'
    return f'<defs><pattern id="{name}" {size}>{lines}</pattern></defs>'


def _legend(lines: list[list[tuple[str, str]]], top: int) -> Iterator[str]:
    for place, line in enumerate(lines):
        x, y = 10.0, top + place * SVG.line
        for words, colour in line:
            if colour:
                yield f'<rect x="{x:.4g}" y="{y - 9}" width="12" height="10" fill="{colour}"/>'
            yield f'<text x="{x + 16:.4g}" y="{y}">{text(words)}</text>'
            x += _room(words)


def _room(words: str) -> float:
    return 30 + SVG.letter_width * len(words)
