"""Exit codes, and the one place where errors become them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ppsolve.models.instances import Instance

VERBOSE_KEY = "ppsolve.verbose"


class ExitCode(IntEnum):
    """What the process returns."""

    FOUND = 0
    INTERNAL = 1
    USAGE = 2
    INFEASIBLE = 3
    NOTHING_FOUND = 4
    CHECK_FAILED = 5
    GAP_EXCEEDED = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class GuardedGroup(TyperGroup):
    """Command group that turns every error of its commands into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        with guarded(ctx.meta):
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def guarded(meta: dict[str, Any]) -> Iterator[None]:
    """Map errors to exit codes: input 2, interrupt 130, closed pipe 141, anything else 1.

    Errors of the command line itself are left to typer, which knows the command's usage.
    """
    from ppsolve.models.documents.errors import PpsolveError, is_interrupt

    try:
        yield
    except PpsolveError as error:
        say(f"error: {error}")
        raise typer.Exit(ExitCode.USAGE) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        _silence_stdout()
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except Exception as error:
        if _belongs_to_typer(error):
            raise
        if is_interrupt(error):
            say("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        _report_internal(error, with_traceback=bool(meta.get(VERBOSE_KEY)))
        raise typer.Exit(ExitCode.INTERNAL) from None


@contextmanager
def about_file(instance: Instance, path: str | Path) -> Iterator[None]:
    """Let errors about an instance name its file; the library knows the instance's name only."""
    from ppsolve.models.documents.errors import InputError
    from ppsolve.models.documents.files import source_name

    try:
        yield
    except InputError as error:
        if error.source != instance.name:
            raise
        raise InputError(error.message, source=source_name(path), field=error.field) from None


def _belongs_to_typer(error: Exception) -> bool:
    control = (typer.Exit, typer.Abort)
    return isinstance(error, control) or hasattr(error, "show")


def _report_internal(error: Exception, *, with_traceback: bool) -> None:
    if with_traceback:
        say(traceback.format_exc().rstrip())
    text = " ".join(str(error).split())
    hint = "" if with_traceback else "; --verbose shows where"
    say(
        f"internal error: {type(error).__name__}: {text} "
        f"(a defect of ppsolve: please report it with the input file{hint})"
    )


def say(line: str) -> None:
    """Write one line to stderr, which nobody may be reading."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        return


def _silence_stdout() -> None:
    """Keep the interpreter from complaining about the closed pipe when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return
