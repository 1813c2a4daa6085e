"""Exit codes, and the one place where errors become them."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    PpsolveError,
    causes,
    is_interrupt,
)
from ppsolve.models.documents.printable import LONGEST_LINE, plain_json, printable

if TYPE_CHECKING:
    from ppsolve.models.instances import Instance

VERBOSE_KEY = "ppsolve.verbose"
JSON_KEY = "ppsolve.json"


class ExitCode(IntEnum):
    """What the process returns."""

    FOUND = 0
    INTERNAL = 1
    USAGE = 2
    INFEASIBLE = 3
    NOTHING_FOUND = 4
    CHECK_FAILED = 5
    GAP_EXCEEDED = 6
    REGRESSED = 7
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class GuardedGroup(TyperGroup):
    """Command group that turns every error of its commands into one line and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the program's own options, and remember if the command is to print JSON."""
        ctx.meta[JSON_KEY] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        with guarded(ctx.meta):
            return super().invoke(ctx)


_POSTPONED: ContextVar[list[PpsolveError] | None] = ContextVar(
    "postponed", default=None
)

STREAM_FAILURES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing to a stream fails with: no space, or a terminal that has gone."""


def postpone(error: PpsolveError) -> None:
    """Report an error once the command has ended; raise it if no command is running."""
    waiting = _POSTPONED.get()
    if waiting is None:
        raise error
    waiting.append(error)


@contextmanager
def guarded(meta: dict[str, Any]) -> Iterator[None]:
    """Map errors to exit codes: input 2, interrupt 130, closed pipe 141, anything else 1.

    Errors of the command line itself are left to typer, which knows the command's usage. Where
    ``meta`` says that the command prints JSON, the last line of stderr is the error as JSON.
    """
    with output_kept(), _errors_told(meta):
        waiting: list[PpsolveError] = []
        before = _POSTPONED.set(waiting)
        try:
            yield
        except typer.Exit:
            if not waiting:
                sys.stdout.flush()
                raise
        finally:
            _POSTPONED.reset(before)
        sys.stdout.flush()
        if waiting:
            raise waiting[0]


@contextmanager
def output_kept() -> Iterator[None]:
    """Report that stdout cannot be written, once, or nothing where its reader has gone."""
    try:
        yield
    except BrokenPipeError:
        _silence_stdout()
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except OSError as error:
        if not _is_about_stream(error):
            raise
        _silence_stdout()
        say(f"error: <stdout>: cannot be written: {error.strerror}")
        raise typer.Exit(ExitCode.USAGE) from None


@contextmanager
def _errors_told(meta: dict[str, Any]) -> Iterator[None]:
    as_json = bool(meta.get(JSON_KEY))
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except (Exception, KeyboardInterrupt) as error:
        is_shown_by_typer = hasattr(error, "show") and not as_json
        if is_shown_by_typer or _is_about_stream(error):
            raise
        failure = _failure(error, with_traceback=bool(meta.get(VERBOSE_KEY)))
        if as_json:
            _say_json(failure, error)
        else:
            say(f"{failure.label}{failure.text}")
        raise typer.Exit(failure.exit_code) from None


class _CommandFailure(NamedTuple):
    """What is said of an error, and what the process returns."""

    label: str
    text: str
    code: ErrorCode
    exit_code: ExitCode


def _failure(error: BaseException, *, with_traceback: bool) -> _CommandFailure:
    if isinstance(error, PpsolveError):
        return _CommandFailure("error: ", str(error), error.code, ExitCode.USAGE)
    if hasattr(error, "format_message"):
        return _CommandFailure(
            "", error.format_message(), ErrorCode.USAGE, ExitCode.USAGE
        )
    if is_interrupt(error):
        return _CommandFailure(
            "", "interrupted", ErrorCode.INTERRUPTED, ExitCode.INTERRUPTED
        )
    if is_out_of_memory(error):
        code = ErrorCode.OUT_OF_MEMORY
        return _CommandFailure("error: ", OUT_OF_MEMORY, code, ExitCode.INTERNAL)
    if with_traceback:
        say(*traceback.format_exc().splitlines())
    hint = "" if with_traceback else "; --verbose shows where"
    text = (
        f"{type(error).__name__}: {' '.join(str(error).split())} "
        f"(a defect of ppsolve: please report it with the input file{hint})"
    )
    return _CommandFailure(
        "internal error: ", text, ErrorCode.INTERNAL, ExitCode.INTERNAL
    )


def _say_json(failure: _CommandFailure, error: BaseException) -> None:
    """Write an error to stderr as one line of JSON, whole."""
    document = {"code": failure.code, "message": failure.text}
    for name in ("message", "source", "field", "expected"):
        part = getattr(error, name, None)
        if isinstance(error, PpsolveError) and part is not None:
            document[name] = part
    with suppress(OSError):
        sys.stderr.write(plain_json(json.dumps({"error": document})) + "\n")
        sys.stderr.flush()


@contextmanager
def about_file(instance: Instance, path: str | Path) -> Iterator[None]:
    """Let errors of a block about an instance name its file."""
    from ppsolve.models.documents.files import source_name

    try:
        yield
    except InputError as error:
        if error.source != instance.name:
            raise
        raise error.moved(source_name(path), error.field) from None


@contextmanager
def about_options(options: Mapping[str, str]) -> Iterator[None]:
    """Name options in errors about fields, by the library's names of them."""
    try:
        yield
    except InputError as error:
        field = error.field or ""
        name, bracket, suffix = field.rpartition(".")[2].partition("[")
        option = f"{options[name]}{bracket}{suffix}" if name in options else error.field
        option = options.get(field, option)
        raise (error if option is None else error.about(option)) from None


OUT_OF_MEMORY = (
    "out of memory: allow more, or use fewer --workers or a smaller instance"
)

_STARVED = re.compile(
    "bad_alloc|cannot allocate memory|failed to map segment|can't start new thread"
    "|resource temporarily unavailable|unable to allocate|returned NULL without setting"
    "|error return without exception set",
    re.IGNORECASE,
)
"""How libraries, and Python's compiler, put it that memory or room for a stack was refused."""

_STARVING = (ImportError, RuntimeError, OSError, SystemError)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a lack of memory is behind an error, as where a library could not load."""
    return any(
        isinstance(cause, MemoryError)
        or (isinstance(cause, _STARVING) and _STARVED.search(str(cause)) is not None)
        for cause in causes(error)
    )


def _is_about_stream(error: BaseException) -> bool:
    """Whether writing to stdout failed; files of a command are known by their names."""
    if isinstance(error, BrokenPipeError):
        return True
    return (
        isinstance(error, OSError)
        and not error.filename
        and error.errno in STREAM_FAILURES
    )


INTERRUPTS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)
"""Signals that ask a run to end, Ctrl-C first."""


def end_like_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does: the best so far is printed and saved.

    Schedulers of jobs repeat them; only the first counts, so that saving is not cut off. SIGHUP
    stays ignored if it is, as below nohup.
    """
    waiting = [KeyboardInterrupt]

    def handler(number: int, frame: object) -> None:
        if waiting:
            raise waiting.pop()

    for number in INTERRUPTS[1:]:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handler)


def end_process(code: str | int | None) -> NoReturn:
    """End the process, at once if compiled code still holds the work of a thread.

    All is said and saved by then: signals are ignored while the interpreter is torn down.
    """
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    is_left = any(
        thread.daemon and thread.is_alive() for thread in threading.enumerate()
    )
    if is_left and (code is None or isinstance(code, int)):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code or 0)
    # The interpreter looks for garbage once more as it ends: a fifth of a short command.
    gc.freeze()
    sys.exit(code)


def say(*lines: str) -> None:
    """Write harmless lines to stderr, which nobody may be reading."""
    try:
        sys.stderr.write(
            "".join(printable(line, LONGEST_LINE) + "\n" for line in lines)
        )
        sys.stderr.flush()
    except OSError:
        return


def open_streams() -> None:
    """Let stdout and stderr lead to nowhere where the program was started without them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end


def _silence_stdout() -> None:
    """Keep the interpreter from complaining about the closed pipe when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        return
