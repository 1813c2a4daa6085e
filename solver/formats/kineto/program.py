"""A recorded step of one rank as a program of kernels, collectives and waits."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import Any, cast

from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.result import OverlapEntry
from ppsolve.solver.api.api import simulate
from ppsolve.solver.formats.kineto.kernels import (
    ProfiledStep,
    RecordedKernel,
    Sync,
    read_steps,
)

TYPES = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "send_recv",
)
SIZES = {
    **dict.fromkeys(("byte", "char", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
}
"""Bytes of an element by its type, in small letters."""


def convert_kineto_overlap(
    paths: list[Path], step: int | None = None, prefetch: Collection[str] = ()
) -> tuple[OverlapInstance, OverlapEntry, list[str]]:
    """Convert a recorded step of one rank to a program, and its recorded order without gaps.

    Durations are as recorded, in microseconds; the entry is named ``recorded``. Texts say what was
    recorded, and what is assumed. Raises `InputError` where a file is no profile, the files are of
    several ranks, or the step is not there or has no collectives.

    `step`: number of the ProfilerStep; by default one of median length.
    `prefetch`: types of collectives that read no result of a kernel.
    """
    recorded, notes = _chosen(read_steps(paths), step)
    with errors_in(recorded.source):
        program = _Program(recorded, prefetch)
        name = Path(recorded.source).name.partition(".")[0] or "step"
        suffix = "" if recorded.number is None else f"-step{recorded.number}"
        instance = OverlapInstance.parse(
            {"name": name + suffix, "nodes": list(program.nodes())}
        )
    entry = cast("OverlapEntry", simulate(instance, "original"))
    entry = entry.model_copy(update={"name": "recorded"})
    return instance, entry, [*notes, *program.notes(), _verdict(recorded, entry)]


def _chosen(
    steps: Sequence[ProfiledStep], number: int | None
) -> tuple[ProfiledStep, list[str]]:
    numbers = ", ".join(
        str(step.number) for step in steps[:20] if step.number is not None
    )
    if number is None:
        span = median_low(step.span for step in steps)
        typical = next(step for step in steps if step.span == span)
        note = f"step {typical.number} of {numbers}, of median length; --step takes another"
        return typical, [note] if len(steps) > 1 else []
    for step in steps:
        if step.number == number:
            return step, []
    there = (
        f"one of the profiled steps: {numbers}"
        if numbers
        else "none: the profile marks none"
    )
    raise InputError(
        f"expected {there}; got {number}", source=steps[0].source, field="--step"
    )


def _verdict(step: ProfiledStep, entry: OverlapEntry) -> str:
    took, makespan = step.span / 1000, float(entry.makespan or 0)
    return (
        f"recorded {took:,.1f} us; the recorded order runs in {makespan:,.1f} us, of which "
        f"{entry.exposed_wait:,.1f} us are exposed communication; {took - makespan:,.1f} us are "
        "gaps that no wait explains, such as late launches. `ppsolve optimize` sets passes and "
        "optimum beside it"
    )


NOTES = {
    "free": "{} collectives read no result of a kernel, as --prefetch says",
    "by event": "{} collectives depend on what their stream waited for",
    "by launch": "{} collectives depend on the kernel launched last before them on the CPU, as "
    "PyTorch puts them behind the current stream, and on collectives of other streams that had "
    "ended by then",
    "still ran": "{} of them began while that kernel ran: they depend on the last one that had "
    "ended",
    "waited by event": "{} waits stand where events say so",
    "behind a gap": "{} waits are assumed: the stream was idle until the collective ended, so the "
    "next kernel waits",
    "hidden wait": "{} waits are assumed: the collective ended beside a kernel, and the next one "
    "waits, which is the strictest place",
    "at the end": "{} waits stand at the end: no kernel waits for them",
    "no bytes": "{} collectives have no elements or dtype: their bytes are 0",
}
"""Sentences on what was recorded or is assumed, each with its count."""


class _Program:
    """Nodes of a step; kernels and collectives are numbers in the order of launches."""

    def __init__(self, step: ProfiledStep, prefetch: Collection[str]) -> None:
        self.kernels = step.kernels
        self.counts: Counter[str] = Counter()
        self.prefetch = set(prefetch)
        numbers = range(len(self.kernels))
        self.collectives = sorted(
            (k for k in numbers if self.kernels[k].is_collective),
            key=lambda k: (self.kernels[k].start, k),
        )
        if not self.collectives:
            suffix = "" if step.number is None else f" in step {step.number}"
            raise InputError(
                f"expected NCCL kernels{suffix}, there is none", code=ErrorCode.MISSING
            )
        types = sorted({self.type_of(k) for k in self.collectives})
        for unknown in sorted(self.prefetch - set(types)):
            text = f'expected types of this step: {", ".join(types[:20])}; got "{unknown[:60]}"'
            raise InputError(text, field="--prefetch")
        compute = [k for k in numbers if not self.kernels[k].is_collective]
        self.line, self.start, self.end = self._in_line(compute)
        self.queues: dict[int, list[int]] = defaultdict(list)
        for k in self.collectives:
            self.queues[self.kernels[k].stream].append(k)
        self.deps, self.recorded = _dependencies(self.kernels, step.syncs)
        self.waited_on = {sync.stream for sync in step.syncs if sync.waiter is not None}
        self.group = self._groups()
        # the number of compute kernels that had ended when each collective began
        self.slot = {
            k: bisect_right(self.end, self.kernels[k].start) for k in self.collectives
        }
        self.launches = {k: sorted(self._launch_deps(k)) for k in self.collectives}
        self.waits = self._waits()

    def _in_line(self, compute: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Put compute kernels one after the other, those of the busiest stream whole.

        Of other streams counts the first time that the busiest one leaves idle.
        """
        busy: Counter[int] = Counter()
        for k in compute:
            busy[self.kernels[k].stream] += self.kernels[k].end - self.kernels[k].start
        self.streams = [stream for stream, _ in busy.most_common()]
        rows: list[tuple[int, int, int]] = []
        for is_main in (True, False):
            starts, ends = [row[0] for row in rows], [row[1] for row in rows]
            free = -(2**62)
            for k in sorted(compute, key=lambda k: (self.kernels[k].start, k)):
                kernel = self.kernels[k]
                if (kernel.stream == self.streams[0]) != is_main:
                    continue
                index = bisect_right(starts, kernel.start)
                until = starts[index] if index < len(starts) else 2**62
                begin = min(
                    max(kernel.start, free, *ends[max(index - 1, 0) : index]), until
                )
                free = max(begin, min(kernel.end, until))
                self.counts["hidden"] += kernel.end - kernel.start - (free - begin)
                rows.append((begin, free, k))
        rows.sort(key=lambda row: (row[0], row[1], self.kernels[row[2]].start))
        return (
            [row[2] for row in rows],
            [row[0] for row in rows],
            [row[1] for row in rows],
        )

    def _groups(self) -> dict[int, str]:
        """Return the group of each collective: its stream, by the process groups that use it."""
        named = {}
        for stream, collectives in self.queues.items():
            described = [self.kernels[k].described for k in collectives]
            groups = [
                fields.get("Process Group Name") or fields.get("Process Group Ranks")
                for fields in described
            ]
            named[stream] = "+".join(
                dict.fromkeys(str(group or f"stream {stream}")[:60] for group in groups)
            )
        count = Counter(named.values())
        for stream, name in named.items():
            named[stream] = f"{name}/stream {stream}" if count[name] > 1 else name
        return {k: named[self.kernels[k].stream] for k in self.collectives}

    def _launch_deps(self, k: int) -> Iterator[int]:
        """Yield what a collective depends on: recorded, or the kernel launched last before it."""
        if self.type_of(k) in self.prefetch:
            self.counts["free"] += 1
        elif k in self.recorded:
            self.counts["by event"] += 1
            yield from (dep for dep in self.deps[k] if self._comes_before(dep, k))
        else:
            self.counts["by launch"] += 1
            # Launched before it, a kernel that still ran was none that it waited for.
            self.counts["still ran"] += any(
                dep < k for dep in self.line[self.slot[k] :][:1]
            )
            ended = (
                self.line[position] for position in range(self.slot[k] - 1, -1, -1)
            )
            yield from islice((dep for dep in ended if dep < k), 1)
            for queue in self.queues.values():
                index = bisect_right(
                    queue, self.kernels[k].start, key=lambda dep: self.kernels[dep].end
                )
                yield from (
                    dep
                    for dep in queue[max(index - 1, 0) : index]
                    if self._comes_before(dep, k)
                )

    def _comes_before(self, dep: int, k: int) -> bool:
        has_ended = self.kernels[dep].end <= self.kernels[k].start
        return has_ended and self.group.get(dep) != self.group[k]

    def _waits(self) -> dict[int, list[int]]:
        """Return the collectives that are waited for before each place of the line."""
        waits: dict[int, list[int]] = defaultdict(list)
        waiting = set(self.collectives)
        for position, kernel in enumerate(self.line):
            open_deps = list(self.deps[kernel])
            while open_deps:
                k = open_deps.pop()
                # Whoever waits for a collective waits for all that came before it.
                if k in waiting and self.slot[k] <= position:
                    waiting.remove(k)
                    waits[position].append(k)
                    self.counts["waited by event"] += 1
                    open_deps += self.deps[k]
        for k in sorted(waiting):
            position = bisect_left(self.start, self.kernels[k].end)
            if self.kernels[k].stream in self.waited_on or position == len(self.line):
                position = len(self.line)
                self.counts["at the end"] += 1
            else:
                is_idle = not position or self.end[position - 1] < self.kernels[k].end
                self.counts["behind a gap" if is_idle else "hidden wait"] += 1
            waits[position].append(k)
        return waits

    def type_of(self, k: int) -> str:
        """Return the type of a collective, by its recorded name or that of its kernel."""
        about = str(
            self.kernels[k].described.get("Collective name") or self.kernels[k].name
        )
        plain = about.lower().replace("_", "")
        return next(
            (kind for kind in TYPES if kind.replace("_", "") in plain), about[:60]
        )

    def name_of(self, k: int) -> str:
        """Return the name of a node: its type, or the last word of its kernel, and its number."""
        if self.kernels[k].is_collective:
            return f"{self.type_of(k)}_{k}"
        word = re.match(r"(?:void )?(?:\w+::)*(\w+)", self.kernels[k].name)
        return f"{word[1][:60] if word else 'kernel'}_{k}"

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Yield the nodes in program order."""
        by_slot = defaultdict(list)
        for k in self.collectives:
            by_slot[self.slot[k]].append(k)
        last: dict[int, str] = {}
        waited: set[int] = set()
        done: set[int] = set()
        for position in range(len(self.line) + 1):
            yield from map(self._collective, by_slot[position])
            waits = sorted(self.waits[position], key=lambda k: (self.kernels[k].end, k))
            for k in waits:
                yield {
                    "name": f"wait_{self.name_of(k)}",
                    "kind": "wait",
                    "deps": [self.name_of(k)],
                }
            if position < len(self.line):
                kernel = self.line[position]
                # Without events nothing says what streams share: they are one.
                stream = self.kernels[kernel].stream if self.waited_on else 0
                names = {last[stream]} if stream in last else set()
                names |= {self.name_of(k) for k in self.deps[kernel] & done}
                waited.update(waits)
                names |= {
                    f"wait_{self.name_of(k)}"
                    for k in self.deps[kernel] & waited | {*waits}
                }
                done.add(kernel)
                last[stream] = self.name_of(kernel)
                time = Decimal(self.end[position] - self.start[position]) / 1000
                node = {"name": last[stream], "kind": "compute", "duration": time}
                yield {**node, "deps": sorted(names)}

    def _collective(self, k: int) -> dict[str, Any]:
        kernel = self.kernels[k]
        return {
            "name": self.name_of(k),
            "kind": "comm",
            "duration": Decimal(kernel.end - kernel.start) / 1000,
            "deps": [self.name_of(dep) for dep in self.launches[k]],
            "group": self.group[k],
            "bytes": self._bytes(kernel),
            "collective": self.type_of(k),
        }

    def _bytes(self, kernel: RecordedKernel) -> int:
        size = SIZES.get(str(kernel.described.get("dtype")).lower())
        elements = kernel.described.get("Out msg nelems")
        if size is None or type(elements) is not int or not 0 <= elements < 2**53:
            self.counts["no bytes"] += 1
            return 0
        return elements * size

    def notes(self) -> Iterator[str]:
        """Yield sentences on what was recorded and what is assumed."""
        if len(self.streams) > 1:
            yield (
                f"kernels run on streams {', '.join(map(str, self.streams[:20]))}, a program has "
                f"one compute stream: stream {self.streams[0]} counts whole, of others the time "
                f"that it leaves idle ({self.counts['hidden'] / 1000:,.1f} us left out)"
            )
        order = (
            "its stream, and behind events that it waited for"
            if self.waited_on
            else "the step"
        )
        yield f"data dependencies are not recorded: each kernel keeps its place on {order}"
        for key, text in NOTES.items():
            if self.counts[key]:
                yield text.format(self.counts[key])
        yield "durations of collectives include waiting for other ranks"


def _dependencies(
    kernels: Sequence[RecordedKernel], syncs: Sequence[Sync]
) -> tuple[list[set[int]], set[int]]:
    """Return the kernels that events put before each kernel, and those whose stream waited."""
    moments: list[tuple[int, int, int]] = [
        (kernel.launched, 2, k) for k, kernel in enumerate(kernels)
    ]
    moments += [(sync.recorded, 0, number) for number, sync in enumerate(syncs)]
    moments += [(sync.waited, 1, number) for number, sync in enumerate(syncs)]
    streams: set[int | None] = {kernel.stream for kernel in kernels}
    tail: dict[int | None, set[int]] = {stream: set() for stream in streams}
    event: dict[int, set[int]] = {}
    told: set[int | None] = set()
    waited: set[int] = set()
    deps: list[set[int]] = []
    for _, turn, number in sorted(moments):
        if turn == 2:
            stream = kernels[number].stream
            deps.append(tail[stream])
            tail[stream] = {number}
            if stream in told:
                waited.add(number)
                told.remove(stream)
        elif turn == 0:
            sources = (
                {syncs[number].stream} & streams
                if syncs[number].stream is not None
                else streams
            )
            event[number] = set().union(*(tail[stream] for stream in sources))
        else:
            waiter = syncs[number].waiter
            told |= {waiter} & streams
            for told_one in streams if waiter is None else streams & {waiter}:
                tail[told_one] = tail[told_one] | event[number]
    return deps, waited
