"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ppsolve.models.core.result import HeuristicStatus, OwnBoundStatus, Status
from ppsolve.models.documents.printable import LONGEST_LINE, printable
from ppsolve.solver.run.progress import Progress, ProgressListener
from ppsolve.solver.views.figures import counted, figures, percent, seconds
from ppsolve.solver.views.terminal import TerminalConsole
from ppsolve.solver.views.time_units import readable_times
from ppsolve.solver.views.wording import with_unit

if TYPE_CHECKING:
    from ppsolve.models.studies.bench.file import (
        BenchHeuristic,
        BenchOwnBound,
        BenchRecord,
    )
    from ppsolve.solver.studies.plan.progress import PlanListener, PlanProgress

PER_SECOND = "samples/s"

EventT = TypeVar("EventT", bound="Progress | PlanProgress")


def _write(stream: TextIO, line: str) -> None:
    # Called on solver threads, where nobody could handle that stderr has been closed.
    with suppress(OSError, ValueError):
        stream.write(f"{printable(line, LONGEST_LINE)}\n")
        stream.flush()


Parts = Iterator[tuple[str, str]]  # texts and their styles


def run_parts(event: Progress, unit: str) -> Parts:
    """Yield best value, bound and gap of a run, each with its style."""
    (best, bound), unit = readable_times(unit, event.incumbent, event.bound)
    if event.incumbent is not None:
        yield f"best {with_unit(best, unit)}", "green"
    if event.bound is not None:
        yield f"bound {with_unit(bound, unit)}", "cyan"
    if event.gap is not None:
        yield f"gap {percent(event.gap)}", "yellow"


def plan_parts(event: PlanProgress) -> Parts:
    """Yield what is examined, best goodput, bound and gap of a plan, each with its style."""
    best = event.best
    reached, bound = figures(
        best, event.bound if best is None else max(event.bound, best)
    )
    yield f"{event.examined:,}/{event.enumerated:,}", ""
    if best is not None:
        yield f"best {reached} {PER_SECOND}", "green"
    yield f"at most {bound}", "cyan"
    if best is not None and event.bound > 0:
        yield f"gap {percent(max(1 - best / event.bound, 0.0))}", "yellow"


@dataclass(frozen=True)
class EventWords(Generic[EventT]):
    """What is said of an event: what happened, and what is known then."""

    what: Callable[[EventT], str]
    parts: Callable[[EventT], Parts]

    def line(self, event: EventT) -> str:
        """Return an event as one line of text without colour."""
        texts = (text for text, _ in self.parts(event))
        return "  ".join([f"[{event.seconds:8.2f} s] {self.what(event)}", *texts])


def run_words(unit: str) -> EventWords[Progress]:
    """Return the words for events of a run whose values have a unit."""
    return EventWords(lambda e: f"{e.event}: {e.source}", lambda e: run_parts(e, unit))


PLAN_WORDS: EventWords[PlanProgress] = EventWords(lambda event: event.phase, plan_parts)


@dataclass
class PlainLines(Generic[EventT]):
    """Writes events as lines if they are due after the one before; lines of threads do not mix."""

    stream: TextIO
    words: EventWords[EventT]
    is_due: Callable[[EventT | None, EventT], bool]
    label: str = ""  # beginning of each line
    latest: EventT | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: EventT) -> None:
        """Write one event, if there is something to say."""
        with self.lock:
            if self.is_due(self.latest, event):
                self.latest = event
                _write(self.stream, f"{self.label}{self.words.line(event)}")


def is_news_of_run(
    latest: Progress | None, event: Progress, *, everything: bool
) -> bool:
    """Whether an event of a run says something that the latest one told did not."""
    if event.event == "heuristic" and not everything:
        return False
    return latest is None or replace(latest, seconds=event.seconds) != event


def is_news_of_plan(
    latest: PlanProgress | None, event: PlanProgress, *, everything: bool
) -> bool:
    """Whether phase or goodput of a plan differ from those told last, or much time has passed."""
    if latest is None or (everything and event.best != latest.best):
        return True
    is_new = event.phase != latest.phase or event.best != latest.best
    return event.seconds - latest.seconds >= (1.0 if is_new else 10.0)


class LiveLine(Generic[EventT]):
    """The state of a run as one line that is drawn anew several times a second."""

    def __init__(
        self, title: str, time_limit: float | None, words: EventWords[EventT]
    ) -> None:
        self._title, self._limit, self._words = title, time_limit, words
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._latest: EventT | None = None

    def __call__(self, event: EventT) -> None:
        """Take note of an event."""
        self._latest = event

    def __rich__(self) -> Text:
        """Return the line as it is now: the time, what is known, what happened last, the title."""
        line, event = Text(no_wrap=True, overflow="ellipsis"), self._latest
        frame = self._spinner.render(time.monotonic())
        line.append_text(frame if isinstance(frame, Text) else Text())
        limit = f" of {seconds(self._limit)}" if self._limit else ""
        line.append(f" {seconds(time.monotonic() - self._began)}{limit}", "bold")
        for text, style in () if event is None else self._words.parts(event):
            line.append("  ").append(text, style)
        activity = "starting" if event is None else self._words.what(event)
        return line.append(f"  {activity}  {self._title}", "dim")


@contextmanager
def _shown(
    live: LiveLine[EventT],
    plain: Callable[[TextIO], PlainLines[EventT]],
    *,
    quiet: bool,
) -> Iterator[Callable[[EventT], None] | None]:
    console = TerminalConsole(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal or console.is_dumb_terminal:
        yield plain(console.file)  # type: ignore[arg-type]
    else:
        with Live(live, console=console, refresh_per_second=8, transient=True):
            yield live


def progress(
    title: str,
    unit: str,
    *,
    time_limit: float | None,
    quiet: bool = False,
    everything: bool = False,
    label: str = "",
) -> AbstractContextManager[ProgressListener | None]:
    """Return a context with the listener that suits stderr, which tidies up afterwards.

    Values are in `unit`. With `everything`, what every heuristic reaches is told where lines are
    written. `label` is the place of this run among several, with its title.
    """
    words, is_news = run_words(unit), partial(is_news_of_run, everything=everything)
    head = f"{label}  " if label else ""
    live = LiveLine(label or title, time_limit, words)
    return _shown(
        live, lambda stream: PlainLines(stream, words, is_news, head), quiet=quiet
    )


def plan_progress(
    title: str,
    *,
    time_limit: float | None,
    quiet: bool = False,
    everything: bool = False,
) -> AbstractContextManager[PlanListener | None]:
    """Return a context with the listener of a plan, as `progress` does of a run."""
    is_news = partial(is_news_of_plan, everything=everything)
    live = LiveLine(title, time_limit, PLAN_WORDS)
    return _shown(
        live, lambda stream: PlainLines(stream, PLAN_WORDS, is_news), quiet=quiet
    )


def tally(records: Iterable[BenchRecord]) -> str:
    """Return in words how many items were proved, solved, not solved, and failed by cause."""
    counts = Counter(_outcome(record) for record in records)
    order = ("proved", "feasible", "infeasible", "nothing found")
    failed = sorted(name for name in counts if name not in order)
    texts = [f"{counts[name]} {name}" for name in (*order, *failed) if counts[name]]
    return ", ".join(texts) or "none"


def _outcome(record: BenchRecord) -> str:
    if record.failure is not None:
        return f"failed ({record.failure.value})"
    words = {Status.OPTIMAL: "proved", Status.UNKNOWN: "nothing found"}
    return words.get(record.status, record.status.value.lower())


def own_failures(records: Iterable[BenchRecord]) -> Iterator[str]:
    """Yield in a line each way in which users' functions failed, its reason in full."""
    entries: list[BenchHeuristic | BenchOwnBound] = []
    for r in records:
        code = r.settings.get("code", ())
        entries += [entry for entry in r.heuristics if entry.name in code]
        entries += r.own_bounds or ()
    reasons_of: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        if entry.status in {HeuristicStatus.FAILED, OwnBoundStatus.FAILED}:
            reason = entry.reason or "no reason given"
            # What is raised at one place may name figures of its instance.
            cause = entry.name, reason.partition(":")[0], reason.rpartition(" (")[2]
            reasons_of.setdefault(cause, []).append(reason)
    for (name, *_), reasons in reasons_of.items():
        ran = counted(sum(entry.name == name for entry in entries), "instance")
        example = ", for example" if len(set(reasons)) > 1 else ""
        line = f"{name} failed on {len(reasons)} of {ran}{example}: {reasons[0]}"
        yield printable(line, sys.maxsize)


class TallyProgress:
    """Writes the state of a run at times, and each item that failed, or all of them.

    Of `total` items earlier runs have done some; `everything` writes a line for each item.
    """

    def __init__(
        self,
        stream: TextIO,
        total: int,
        done: int = 0,
        *,
        everything: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._total, self._before = stream, total, done
        self._everything, self._clock = everything, clock
        self._began = self._told = clock()
        self._records: list[BenchRecord] = []

    def __call__(self, record: BenchRecord) -> None:
        """Take note of an item that has ended."""
        self._records.append(record)
        if self._everything or record.failure is not None:
            _write(self._stream, self._item(record))
        now = self._clock()
        if now - self._told >= 10.0:  # a log of a day has 8,640 lines
            self._told = now
            _write(self._stream, self.line())

    def line(self) -> str:
        """Return the state in one line."""
        done, spent = len(self._records), self._clock() - self._began
        remaining = self._total - self._before - done
        per_minute = 60 * done / spent if spent else 0.0
        ahead = (
            f", {seconds(remaining * spent / done)} left" if done and remaining else ""
        )
        return (
            f"[{self._before + done}/{self._total}] {per_minute:.3g} items/min{ahead}: "
            f"{tally(self._records)}"
        )

    def _item(self, record: BenchRecord) -> str:
        prefix = (
            f"[{self._before + len(self._records)}/{self._total}] {record.instance}: "
        )
        if record.failure is not None:
            return f"{prefix}failed ({record.failure.value}): {record.error}"
        value = "" if record.value is None else f" {record.value:g} {record.time_unit}"
        return f"{prefix}{record.status.value}{value} after {record.seconds:.2f} s"
