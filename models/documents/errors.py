"""Every error ppsolve raises on purpose, under one root."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice

from ppsolve.models.documents.printable import LONGEST_PART, printable

# Messages say "expected this, got that", or why something else is wrong with what is there.
_EXPECTED = re.compile(
    r"expected (.+?)(?:,? got .*|; .*|, (?:this is|the file|nothing) .*)?$", re.DOTALL
)


class ErrorCode(StrEnum):
    """What is wrong, for programs; codes stay, while the sentences of errors may change."""

    VALUE = "value"  # a value that does not fit, as `expected` says
    TYPE = (
        "type"  # an object, a list, a number, a text or another document was expected
    )
    RANGE = "range"  # a number beyond its limits
    LENGTH = "length"  # a list with too many or too few entries
    MISSING = "missing"  # a field, an option or content that is required
    UNKNOWN_FIELD = "unknown-field"
    UNKNOWN_NAME = "unknown-name"  # a name that is none of those in question
    UNIT = "unit"  # an unknown unit, or one of something else
    CONFLICT = "conflict"  # fields or options that exclude each other
    UNSUPPORTED = "unsupported"  # a valid document that is more than a function takes
    SYNTAX = (
        "syntax"  # text that cannot be read: no JSON, no CSV, no range such as 4..8
    )
    FILE = "file"  # a file that cannot be read or written
    NOT_APPLICABLE = "not-applicable"  # a heuristic outside what it is defined on
    SCHEDULE = "schedule"  # a schedule that is not whole, or that breaks a rule
    NOT_INSTALLED = "not-installed"  # a package that is needed
    FAILED = "failed"  # a heuristic or search without an answer
    DEADLOCK = "deadlock"  # orders that wait for each other
    MEMORY_DEADLOCK = "memory-deadlock"  # ops that wait for memory
    USAGE = "usage"  # a command line with an unknown option or argument
    INTERRUPTED = "interrupted"
    OUT_OF_MEMORY = "out-of-memory"
    INTERNAL = "internal"  # a defect of ppsolve


class PpsolveError(Exception):
    """Root of all deliberate errors; its text is fit to be shown to a user."""

    code: ErrorCode = ErrorCode.FAILED
    field: str | None = None
    expected: str | tuple[str, ...] | None = None


class InputError(PpsolveError):
    """Input that cannot be used: says where, which field, and what would be right.

    Parameters
    ----------
    message : str
        Description of the fault and of a right value.
    source : str or None
        File name (or ``<stdin>``) that the input came from.
    field : str or None
        Dotted path of the offending field, e.g. ``times.forward[2]``.
    longest : int
        Characters of the message that are shown; more for lists of right values.
    code : ErrorCode
        What is wrong, in one word that does not change between releases.
    expected : str, tuple of str, or None
        What would be right: a phrase, or all names; by default what a message of the form
        ``expected ..., got ...`` says.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        field: str | None = None,
        longest: int = LONGEST_PART,
        code: ErrorCode = ErrorCode.VALUE,
        expected: str | tuple[str, ...] | None = None,
    ) -> None:
        self.message = message
        self.source = source
        self.field = field
        self.longest = longest
        self.code = code
        clause = _EXPECTED.match(message)
        self.expected = clause[1] if expected is None and clause else expected
        prefixes = [printable(prefix) for prefix in (source, field) if prefix]
        super().__init__(": ".join([*prefixes, printable(message, longest)]))

    @classmethod
    def unknown(
        cls,
        fault: str,
        name: str,
        names: Iterable[str],
        *,
        source: str | None = None,
        field: str | None = None,
        listed: int = 20,
    ) -> InputError:
        """Return the error about a name that is none of those in question.

        Parameters
        ----------
        fault : str
            What is wrong, before the name: ``unknown runtime``.
        name : str
            The name; 60 characters of it are shown.
        names : iterable of str
            The right names, of which the nearest is suggested.
        source, field : str or None
            As of the error.
        listed : int
            Most right names that are listed where none is near.

        Returns
        -------
        InputError
            An error with all names as `expected`.
        """
        names = tuple(names)
        hint = did_you_mean(name[:60], names, listed)
        return cls(
            f'{fault} "{name[:60]}"{hint}',
            source=source,
            field=field,
            code=ErrorCode.UNKNOWN_NAME,
            expected=names or None,
        )

    def moved(self, source: str | None, field: str | None) -> InputError:
        """Return the same error about another file and field.

        Parameters
        ----------
        source, field : str or None
            Where the error is now.

        Returns
        -------
        InputError
            A new error with the same message, code and expected value.
        """
        return InputError(
            self.message,
            source=source,
            field=field,
            longest=self.longest,
            code=self.code,
            expected=self.expected,
        )

    def located(self, source: str) -> InputError:
        """Return the same error with `source` filled in where it was unknown."""
        return self.moved(self.source or source, self.field)

    def about(self, field: str) -> InputError:
        """Return the same error with another field."""
        return self.moved(self.source, field)


def did_you_mean(word: str, names: Iterable[str], listed: int = 20) -> str:
    """Write a hint for an unknown name: ``; did you mean "x"?``, or a list of known names.

    The first 2,000 names count, which take 0.3 s to compare; a list has at most `listed` of them.
    """
    names = list(islice(names, 2000))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f'; did you mean "{close[0]}"?'
    ellipsis = ", ..." if len(names) > listed else ""
    return f"; known: {', '.join(names[:listed])}{ellipsis}"


@contextmanager
def errors_in(source: str | None) -> Iterator[None]:
    """Name `source`, if there is one, in every `InputError` of a block that names no file."""
    try:
        yield
    except InputError as error:
        raise (error.located(source) if source else error) from None


@contextmanager
def errors_about(field: str) -> Iterator[None]:
    """Name `field` in every `InputError` of a block."""
    try:
        yield
    except InputError as error:
        raise error.about(field) from None


class NotApplicableError(PpsolveError):
    """A heuristic was asked for an instance that it is not defined on.

    Parameters
    ----------
    reason : str
        What the heuristic needs.
    heuristic : str or None
        Name of the heuristic, if the context does not give it.
    """

    code = ErrorCode.NOT_APPLICABLE

    def __init__(self, reason: str, heuristic: str | None = None) -> None:
        self.reason, self.heuristic = reason, heuristic
        super().__init__(
            f"{heuristic} is not applicable: {reason}" if heuristic else reason
        )


class HeuristicFailedError(PpsolveError):
    """A heuristic gave up on an instance that it is defined on; the text is its own."""


class DeadlockError(PpsolveError):
    """Op orders or precedences that wait for each other in a cycle.

    Parameters
    ----------
    cycle : list of str
        Names of the ops on the cycle, each waiting for the one before it.
    """

    code = ErrorCode.DEADLOCK

    def __init__(self, cycle: list[str]) -> None:
        self.cycle = cycle
        self.circle = " -> ".join([*cycle, cycle[0]])
        super().__init__(f"deadlock: {self.circle}")


class MemoryDeadlockError(PpsolveError):
    """A schedule cannot be continued: all that could run waits for memory.

    Parameters
    ----------
    op, pool : str
        Name of an op that waits, and of the memory pool it waits for.
    """

    code = ErrorCode.MEMORY_DEADLOCK

    def __init__(self, op: str, pool: str) -> None:
        self.op, self.pool = op, pool
        super().__init__(
            f"memory deadlock: {op} waits for memory of {pool} that is never released"
        )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is behind an error, as where a compiled module was loading."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(error))
