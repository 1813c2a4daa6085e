"""The events of one rank that ops are made of, kept as short arrays while a file streams by.

The file is a large JSON object. A window of the text slides over it, and Python's own decoder reads
each event at its place: memory stays that of one piece.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import opened, source_name

Take = Callable[[dict[str, Any]], None]


def read_events(path: str | Path, take: Take, window: int = 2**20) -> dict[str, Any]:
    """Give each event of a trace to `take`, and return the other fields of the object.

    The file is Chrome JSON, plain or gzipped: an object with ``traceEvents``, or a bare list of
    events, which has no other fields. Events are taken in its order; `window` characters are read
    at a time. Raises `InputError` where the file cannot be read, is cut off, or is no such JSON;
    says after which event.
    """
    with errors_in(source_name(path)):
        try:
            with (
                opened(path) as raw,
                io.TextIOWrapper(unpacked(raw), encoding="utf-8") as stream,
            ):
                return _Scanner(stream, window).run(take)
        except UnicodeDecodeError:
            raise InputError("expected UTF-8 text", code=ErrorCode.SYNTAX) from None


def unpacked(raw: BinaryIO) -> BinaryIO:
    """Return the bytes of a file, those that are packed in it where it is gzipped."""
    is_packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return cast("BinaryIO", gzip.open(raw, "rb")) if is_packed else raw


class _Scanner:
    def __init__(self, stream: TextIO, window: int) -> None:
        self.stream, self.window = stream, window
        self.text, self.at, self.is_end = "", 0, False
        self.events = 0
        self.decode = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode

    def run(self, take: Take) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._peek() == "[":
            self._events(take)
        else:
            for name in self._names():
                if name == "traceEvents":
                    self._events(take)
                else:
                    fields[name] = self._value()
        if self._peek():
            raise self._error("expected nothing behind the trace")
        return fields

    def _names(self) -> Iterator[str]:
        seen: set[str] = set()
        for _ in self._items("{", "}"):
            name = self._value()
            if not isinstance(name, str):
                raise self._error("expected the name of a field")
            if name in seen:
                raise self._error(f'the field "{name[:40]}" appears twice')
            seen.add(name)
            self._expect(":")
            yield name

    def _events(self, take: Take) -> None:
        for _ in self._items("[", "]"):
            event = self._value()
            self.events += 1
            if isinstance(event, dict):
                take(event)

    def _items(self, begin: str, end: str) -> Iterator[None]:
        """Yield at each item between two brackets; the caller reads it."""
        self._expect(begin)
        if self._peek() != end:
            yield
            while self._peek() == ",":
                self.at += 1
                yield
            if self._peek() != end:
                raise self._error(f'expected "," or "{end}"')
        self.at += 1

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._error(f'expected "{mark}"')
        self.at += 1

    def _peek(self) -> str:
        """Return the next character that is not blank, or an empty text at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self.decode(self.text, self.at)
            except RecursionError:
                raise self._error("nested too deeply") from None
            except _ConstantError as error:
                raise self._error(str(error)) from None
            except ValueError:
                # A value of more than 2^25 characters was cut off or is no trace.
                if len(self.text) - self.at > 2**25 or not self._more():
                    raise self._error("expected a JSON value") from None
                continue
            # Of "-12.5e+2", "-12.5" is a number too, up to "e+".
            if len(self.text) - end >= len("e+2") or not self._more():
                self.at = end
                return value

    def _more(self) -> bool:
        if self.is_end:
            return False
        try:
            piece = self.stream.read(self.window)
        except (EOFError, zlib.error) as error:
            raise self._error(
                f"the compressed file is cut off or damaged ({error})"
            ) from None
        if not piece:
            self.is_end = True
            return False
        self.text, self.at = self.text[self.at :] + piece, 0
        return True

    def _error(self, message: str) -> InputError:
        cut = (
            ", the file is cut off there"
            if self.is_end and self.at >= len(self.text)
            else ""
        )
        if self.is_end and not cut and message == "expected a JSON value":
            cut = " (the file is cut off or damaged there)"
        return InputError(
            f"not a trace: {message}{cut}",
            field=f"after event {self.events}",
            code=ErrorCode.SYNTAX,
        )


class _ConstantError(ValueError):
    pass


def _refuse_constant(name: str) -> float:
    raise _ConstantError(f"expected finite numbers, got {name}")


RANGE = re.compile(r"PP:(\d{1,7})(F|B|I|W)(\d{1,7})")
OVERLAPPED = re.compile(r"PP:.*OVERLAP_F_B")
TRANSFER = re.compile(r"PP:(\d{1,7})(SEND_F|RECV_F|SEND_B|RECV_B)\d{1,7}")
CALL = re.compile(r"(?:.*\W)?(forward|backward)_step")
"""Functions of Megatron-LM's schedules: ranges, or frames such as ``schedules.py(403): …``."""

PIPELINE_GROUP = "PIPELINE_MODEL_PARALLEL_GROUP"

STEP = re.compile(r"ProfilerStep#(\d{1,15})")
COMMUNICATION = re.compile(r"nccl|rccl|c10d::|gloo:|record_param_comms", re.IGNORECASE)
"""Names of kernels and ops that wait for other ranks: their time is no work."""

KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime"})
ANNOTATIONS = frozenset({"user_annotation", "gpu_user_annotation", "cpu_op"})


@dataclass(frozen=True, order=True)
class OpRange:
    """A range that names an op: moments in nanoseconds on the clock of the file."""

    start: int
    end: int
    name: str
    stage: int
    kind: str
    microbatch: int
    thread: str
    is_gpu: bool


@dataclass
class Intervals:
    """Intervals in the order of the file, nanoseconds."""

    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))

    def add(self, start: int, end: int) -> None:
        """Append one interval."""
        self.start.append(start)
        self.end.append(end)


@dataclass
class RankEvents:
    """Events of one file."""

    source: str  # name of the file
    ranges: list[OpRange] = field(
        default_factory=list
    )  # named ranges on the CPU and on the GPU
    calls: list[OpRange] = field(
        default_factory=list
    )  # of Megatron-LM, without a micro-batch
    # ops that kernels of CUDA graphs name in their arguments, as no range is open for them; by
    # launch of the graph and name
    marked: dict[tuple[int | None, str], OpRange] = field(default_factory=dict)
    # list of (start, end, number, is_gpu): profiled steps
    steps: list[tuple[int, int, int, bool]] = field(default_factory=list)
    work: Intervals = field(
        default_factory=Intervals
    )  # ops on the CPU, without communication
    # kernels, without communication; `correlation` holds the number of each
    kernels: Intervals = field(default_factory=Intervals)
    correlation: array[int] = field(default_factory=lambda: array("q"))
    # moment at which the kernel of each correlation number was launched
    launches: dict[int, int] = field(default_factory=dict)
    # streams with kernels that work, and with kernels of communication
    busy: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    # stages that must exist, since transfers go to or come from them, with such a transfer
    beside: dict[int, str] = field(default_factory=dict)
    # rank in the job, and number of ranks
    rank: int | None = None
    world: int | None = None
    pipeline: int | None = (
        None  # ranks of its pipeline, as Megatron-LM names that group
    )
    base: int | None = (
        None  # nanoseconds to add to all moments, ``baseTimeNanoseconds``
    )


def read_rank(path: str | Path) -> RankEvents:
    """Read the events of one rank, streaming.

    Raises `InputError` where the file is no trace, has neither ranges
    ``PP:<stage><F|B|I|W><micro-batch>`` nor calls of Megatron-LM, or a time in it is none; names
    the file and the event.
    """
    events = RankEvents(source_name(path))
    with errors_in(events.source):
        header = read_events(path, lambda event: _take(events, event))
        if not any(op.is_gpu for op in events.ranges):
            events.ranges += events.marked.values()
        if not events.ranges and not events.calls:
            raise InputError(
                'expected ranges "PP:<stage><F|B|I|W><micro-batch>", or forward_step and '
                "backward_step of Megatron-LM, there is none. In torch, "
                "Schedule1F1B and ScheduleGPipe name none: run ScheduleInterleaved1F1B, which "
                "takes one stage per rank too, or put each op into record_function of that name",
                code=ErrorCode.MISSING,
            )
        info = header.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        events.rank = _whole(info.get("rank"), "distributedInfo.rank")
        events.world = _whole(info.get("world_size"), "distributedInfo.world_size")
        groups = info.get("pg_config")
        for group in groups if isinstance(groups, list) else ():
            if isinstance(group, dict) and group.get("pg_desc") == PIPELINE_GROUP:
                events.pipeline = _whole(
                    group.get("pg_size"), "distributedInfo.pg_config.pg_size"
                )
        events.base = _whole(header.get("baseTimeNanoseconds"), "baseTimeNanoseconds")
    return events


def _whole(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 2**62:
        raise InputError(
            f"expected a whole number from 0, got {describe(value)}",
            field=name,
            code=ErrorCode.RANGE,
        )
    return value


def _take(events: RankEvents, event: dict[str, Any]) -> None:
    if event.get("ph") != "X":
        return
    kind, name = event.get("cat"), event.get("name")
    if not isinstance(kind, str) or not isinstance(name, str):
        return
    if kind in KERNELS:
        _take_kernel(events, event, name)
    elif kind in LAUNCHES:
        number = number_in(event.get("args"), "correlation")
        if number is not None:
            events.launches[number] = moments_of(event, name)[0]
    elif kind in ANNOTATIONS and name.startswith(("PP:", "ProfilerStep#")):
        _take_annotation(events, event, name, is_gpu=kind.startswith("gpu"))
    elif name.endswith("ward_step") and (call := CALL.fullmatch(name)):
        letter = "F" if call[1] == "forward" else "B"
        moments, thread = moments_of(event, name), _thread(event)
        is_gpu = kind.startswith("gpu")
        events.calls.append(OpRange(*moments, name, 0, letter, 0, thread, is_gpu))
    elif kind == "cpu_op" and not COMMUNICATION.search(name):
        events.work.add(*moments_of(event, name))


def _take_kernel(events: RankEvents, event: dict[str, Any], name: str) -> None:
    moments = moments_of(event, name)
    if COMMUNICATION.search(name):
        events.waiting.add(_thread(event))
        return
    events.busy.add(_thread(event))
    args = event.get("args")
    number = number_in(args, "correlation")
    marked = args.get("name") if isinstance(args, dict) else None
    if isinstance(marked, str) and (match := RANGE.fullmatch(marked)):
        kernel = _range(event, moments, match, is_gpu=True)
        op = events.marked.setdefault((number, marked), kernel)
        events.marked[number, marked] = replace(
            op, start=min(op.start, kernel.start), end=max(op.end, kernel.end)
        )
    events.kernels.add(*moments)
    events.correlation.append(-1 if number is None else number)


def _take_annotation(
    events: RankEvents, event: dict[str, Any], name: str, *, is_gpu: bool
) -> None:
    if step := STEP.fullmatch(name):
        events.steps.append((*moments_of(event, name), int(step[1]), is_gpu))
    elif sent := TRANSFER.fullmatch(name):
        goes_up = sent[2] in {"SEND_F", "RECV_B"}
        events.beside.setdefault(int(sent[1]) + (1 if goes_up else -1), name)
    elif match := RANGE.fullmatch(name):
        moments = moments_of(event, name)
        events.ranges.append(_range(event, moments, match, is_gpu=is_gpu))
    elif OVERLAPPED.fullmatch(name):
        text = "expected ranges of one op each; a forward and a backward run overlapped in this one"
        raise InputError(text, field=name[:60])


def _range(
    event: dict[str, Any],
    moments: tuple[int, int],
    match: re.Match[str],
    *,
    is_gpu: bool,
) -> OpRange:
    stage, kind, microbatch = int(match[1]), match[2], int(match[3])
    return OpRange(*moments, match[0], stage, kind, microbatch, _thread(event), is_gpu)


def _thread(event: dict[str, Any]) -> str:
    return f"{event.get('pid')}/{event.get('tid')}"


def number_in(args: Any, key: str) -> int | None:
    """Return a number among the arguments of an event, None where it is no whole number from 0."""
    number = args.get(key) if isinstance(args, dict) else None
    return number if type(number) is int and 0 <= number < 2**62 else None


def moments_of(event: dict[str, Any], name: str) -> tuple[int, int]:
    """Return the start and end of an event in nanoseconds; an `InputError` says which is none."""
    start = _time(event.get("ts"), f"{name[:60]}.ts")
    length = _time(event.get("dur", 0), f"{name[:60]}.dur")
    if length < 0:
        text = f"expected a duration from 0, got {event['dur']}"
        raise InputError(text, field=f"{name}.dur", code=ErrorCode.RANGE)
    return start, start + length


def _time(value: Any, field: str) -> int:
    is_number = type(value) is int or (type(value) is float and math.isfinite(value))
    if not is_number or abs(value) > 2**62 // 1000:  # nanoseconds in int64
        got = "nothing" if value is None else describe(value)
        raise InputError(f"expected microseconds, got {got}", field=field)
    return value * 1000 if type(value) is int else round(value * 1000)
