"""The kernels of one rank's profile, step by step: streams, launches, synchronisation events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import source_name
from ppsolve.solver.formats.kineto.events import (
    KERNELS,
    LAUNCHES,
    STEP,
    moments_of,
    number_in,
    read_events,
)

COMMUNICATION = ("nccl", "rccl")
"""Beginnings of names of kernels that are collectives."""


@dataclass(frozen=True)
class RecordedKernel:
    """A kernel, copy or fill on a stream; moments in nanoseconds."""

    name: str
    stream: int
    start: int
    end: int
    launched: int  # on the CPU; its start where the launch was not recorded
    described: dict[str, Any]  # of a collective: what the profiler says about it

    @property
    def is_collective(self) -> bool:
        """Whether it communicates."""
        return self.name.lower().startswith(COMMUNICATION)

    @property
    def turn(self) -> tuple[int, int]:
        """Place in the order of launches; kernels of a CUDA graph have one launch."""
        return self.launched, self.start


@dataclass(frozen=True)
class Sync:
    """Work that waits for an event of a stream; moments on the CPU, nanoseconds."""

    waiter: int | None  # the stream that waits; None: the CPU, and with it all streams
    stream: int | None  # the stream that is waited for; None: all
    recorded: int  # when the event was recorded
    waited: int  # when the wait was launched, or was over on the CPU


@dataclass(frozen=True)
class ProfiledStep:
    """Kernels that were launched in one step of a profile, in order of launch."""

    source: str
    number: int | None  # of the ProfilerStep; None: the profile marks none
    kernels: list[RecordedKernel]
    syncs: list[Sync]

    @property
    def span(self) -> int:
        """Nanoseconds from the first start to the last end."""
        return max(kernel.end for kernel in self.kernels) - min(
            kernel.start for kernel in self.kernels
        )


_Event = tuple[str, int, int, dict[str, Any]]
"""Name, start, end and arguments."""


@dataclass
class _Profile:
    source: str
    kernels: list[_Event] = field(default_factory=list)
    launches: dict[int, int] = field(default_factory=dict)
    syncs: list[_Event] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self, event: dict[str, Any]) -> None:
        kind, name = event.get("cat"), event.get("name")
        if (
            event.get("ph") != "X"
            or not isinstance(kind, str)
            or not isinstance(name, str)
        ):
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if kind in KERNELS:
            described = {"stream": event.get("tid"), **args}
            self.kernels.append((name, *moments_of(event, name), described))
        elif (
            kind in LAUNCHES and (number := number_in(args, "correlation")) is not None
        ):
            self.launches[number] = moments_of(event, name)[0]
        elif kind == "cuda_sync":
            self.syncs.append((name, *moments_of(event, name), args))
        elif kind == "user_annotation" and (step := STEP.fullmatch(name)):
            self.steps.append((*moments_of(event, name), int(step[1])))

    def split(self) -> Iterator[ProfiledStep]:
        """Yield the steps that have kernels."""
        kernels = sorted(
            map(self._kernel, self.kernels), key=lambda kernel: kernel.turn
        )
        syncs = [sync for record in self.syncs for sync in self._sync(*record)]
        steps: list[tuple[int, int, int | None]] = [*self.steps] or [
            (-(2**62), 2**62, None)
        ]
        for begin, end, number in steps:
            launched = [kernel for kernel in kernels if begin <= kernel.launched < end]
            if launched:
                waits = [sync for sync in syncs if begin <= sync.waited < end]
                yield ProfiledStep(self.source, number, launched, waits)

    def _kernel(self, event: _Event) -> RecordedKernel:
        name, start, end, args = event
        stream = number_in(args, "stream")
        if stream is None:
            raise InputError(
                "expected the number of a stream",
                field=f"{name[:60]}.args.stream",
                code=ErrorCode.TYPE,
            )
        return RecordedKernel(
            name, stream, start, end, self._launched(args, "correlation", start), args
        )

    def _sync(
        self, name: str, start: int, end: int, args: dict[str, Any]
    ) -> Iterator[Sync]:
        stream, waited_for = (
            number_in(args, "stream"),
            number_in(args, "wait_on_stream"),
        )
        if "streamwait" not in name.lower().replace(" ", ""):
            yield Sync(None, stream if waited_for is None else waited_for, start, end)
        elif stream is not None and waited_for is not None:
            waited = self._launched(args, "correlation", start)
            recorded = self._launched(args, "wait_on_cuda_event_record_corr_id", waited)
            yield Sync(stream, waited_for, recorded, waited)

    def _launched(self, args: dict[str, Any], key: str, otherwise: int) -> int:
        number = number_in(args, key)
        return otherwise if number is None else self.launches.get(number, otherwise)


def read_steps(paths: list[Path]) -> list[ProfiledStep]:
    """Return the steps of one rank that have kernels, in the order of the files.

    Files are profiles of the same rank, Chrome JSON, plain or gzipped. Raises `InputError` where
    one is no profile or has no kernels, or they are of several ranks.
    """
    profiled, ranks = [], set()
    for path in paths:
        profile = _Profile(source_name(path))
        with errors_in(profile.source):
            info = read_events(path, profile.take).get("distributedInfo")
            ranks.add(
                repr(info.get("rank")) if isinstance(info, dict) else profile.source
            )
            if len(ranks) > 1:
                text = (
                    "expected profiles of one rank, these files are of several; give those of "
                    "one"
                )
                raise InputError(
                    text, field="distributedInfo.rank", code=ErrorCode.CONFLICT
                )
            steps = list(profile.split())
            if not steps:
                raise InputError(
                    "expected kernels of a GPU inside the profiled steps, there is none",
                    code=ErrorCode.MISSING,
                )
        profiled += steps
    numbers = [step.number for step in profiled]
    if len(set(numbers)) < len(numbers):
        raise InputError(
            "expected each step once, in one file; a file is given twice, or none marks its steps",
            source=profiled[0].source,
            code=ErrorCode.CONFLICT,
        )
    return profiled
