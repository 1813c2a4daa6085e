"""The events of one rank that ops are made of, kept as short arrays while a file streams by."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError, errors_in
from ppsolve.models.documents.files import source_name
from ppsolve.solver.formats.kineto.stream import read_events

RANGE = re.compile(r"PP:(\d{1,7})(F|B|I|W)(\d{1,7})")
OVERLAPPED = re.compile(r"PP:.*OVERLAP_F_B")
TRANSFER = re.compile(r"PP:(\d{1,7})(SEND_F|RECV_F|SEND_B|RECV_B)\d{1,7}")
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
        """Append one interval.

        Parameters
        ----------
        start, end : int
            Nanoseconds.
        """
        self.start.append(start)
        self.end.append(end)


@dataclass
class RankEvents:
    """Events of one file."""

    source: str  # name of the file
    ranges: list[OpRange] = field(default_factory=list)  # named ranges on the CPU and on the GPU
    # list of (start, end, number, is_gpu): profiled steps
    steps: list[tuple[int, int, int, bool]] = field(default_factory=list)
    work: Intervals = field(default_factory=Intervals)  # ops on the CPU, without communication
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
    base: int | None = None  # nanoseconds to add to all moments, ``baseTimeNanoseconds``


def read_rank(path: str | Path) -> RankEvents:
    """Read the events of one rank, streaming.

    Raises `InputError` where the file is no trace, has no range
    ``PP:<stage><F|B|I|W><micro-batch>``, or a time in it is none; names the file and the event.
    """
    found = RankEvents(source_name(path))
    with errors_in(found.source):
        header = read_events(path, lambda event: _take(found, event))
        if not found.ranges:
            raise InputError(
                'expected ranges "PP:<stage><F|B|I|W><micro-batch>", there is none. In torch, '
                "Schedule1F1B and ScheduleGPipe name none: run ScheduleInterleaved1F1B, which "
                "takes one stage per rank too, or put each op into record_function of that name"
            )
        info = header.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        found.rank = _whole(info.get("rank"), "distributedInfo.rank")
        found.world = _whole(info.get("world_size"), "distributedInfo.world_size")
        found.base = _whole(header.get("baseTimeNanoseconds"), "baseTimeNanoseconds")
    return found


def _whole(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 2**62:
        raise InputError(f"expected a whole number from 0, got {describe(value)}", field=name)
    return value


def _take(found: RankEvents, event: dict[str, Any]) -> None:
    if event.get("ph") != "X":
        return
    kind, name = event.get("cat"), event.get("name")
    if not isinstance(kind, str) or not isinstance(name, str):
        return
    if kind in KERNELS:
        _take_kernel(found, event, name)
    elif kind in LAUNCHES:
        number = _correlation(event)
        if number is not None:
            found.launches[number] = _moments(event, name)[0]
    elif kind in ANNOTATIONS and name.startswith(("PP:", "ProfilerStep#")):
        _take_annotation(found, event, name, is_gpu=kind.startswith("gpu"))
    elif kind == "cpu_op" and not COMMUNICATION.search(name):
        found.work.add(*_moments(event, name))


def _take_kernel(found: RankEvents, event: dict[str, Any], name: str) -> None:
    moments = _moments(event, name)
    if COMMUNICATION.search(name):
        found.waiting.add(_thread(event))
        return
    found.busy.add(_thread(event))
    number = _correlation(event)
    found.kernels.add(*moments)
    found.correlation.append(-1 if number is None else number)


def _take_annotation(found: RankEvents, event: dict[str, Any], name: str, *, is_gpu: bool) -> None:
    if step := STEP.fullmatch(name):
        found.steps.append((*_moments(event, name), int(step[1]), is_gpu))
    elif sent := TRANSFER.fullmatch(name):
        goes_up = sent[2] in {"SEND_F", "RECV_B"}
        found.beside.setdefault(int(sent[1]) + (1 if goes_up else -1), name)
    elif match := RANGE.fullmatch(name):
        start, end = _moments(event, name)
        stage, microbatch = int(match[1]), int(match[3])
        thread = _thread(event)
        found.ranges.append(OpRange(start, end, name, stage, match[2], microbatch, thread, is_gpu))
    elif OVERLAPPED.fullmatch(name):
        text = "expected ranges of one op each; a forward and a backward run overlapped in this one"
        raise InputError(text, field=name[:60])


def _thread(event: dict[str, Any]) -> str:
    return f"{event.get('pid')}/{event.get('tid')}"


def _correlation(event: dict[str, Any]) -> int | None:
    args = event.get("args")
    number = args.get("correlation") if isinstance(args, dict) else None
    return number if type(number) is int and 0 <= number < 2**62 else None


def _moments(event: dict[str, Any], name: str) -> tuple[int, int]:
    start = _time(event.get("ts"), f"{name[:60]}.ts")
    length = _time(event.get("dur", 0), f"{name[:60]}.dur")
    if length < 0:
        text = f"expected a duration from 0, got {event['dur']}"
        raise InputError(text, field=f"{name}.dur")
    return start, start + length


def _time(value: Any, field: str) -> int:
    is_number = type(value) is int or (type(value) is float and math.isfinite(value))
    if not is_number or abs(value) > 2**62 // 1000:  # nanoseconds in int64
        found = "nothing" if value is None else describe(value)
        raise InputError(f"expected microseconds, got {found}", field=field)
    return value * 1000 if type(value) is int else round(value * 1000)
