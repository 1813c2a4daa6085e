"""Every error ppsolve raises on purpose, under one root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ppsolve.models.documents.printable import LONGEST_PART, printable


class PpsolveError(Exception):
    """Root of all deliberate errors; its text is fit to be shown to a user."""


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
    """

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        field: str | None = None,
        longest: int = LONGEST_PART,
    ) -> None:
        self.message = message
        self.source = source
        self.field = field
        self.longest = longest
        prefixes = [printable(prefix) for prefix in (source, field) if prefix]
        super().__init__(": ".join([*prefixes, printable(message, longest)]))

    def located(self, source: str) -> InputError:
        """Return the same error with `source` filled in where it was unknown."""
        return InputError(
            self.message,
            source=self.source or source,
            field=self.field,
            longest=self.longest,
        )

    def about(self, field: str) -> InputError:
        """Return the same error with another field."""
        return InputError(
            self.message, source=self.source, field=field, longest=self.longest
        )


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
