"""What is suspicious in the timelines of a PipeFisher run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ppsolve.models.kfac.labels import UP_PIPE, parse_label
from ppsolve.solver.convert.pickles import Timeline
from ppsolve.solver.convert.pipefisher.replicas import has_holes, has_syncs

CALLS = ("call_forward", "call_backward")
PIPES = {"": "", UP_PIPE: " of the second pipe"}


def node_warnings(numbers: Sequence[int] | None, timelines: Sequence[Timeline]) -> list[str]:
    """Return warnings about nodes that seem to be missing.

    Every second number alone is what a run with two replicas per stage gives, one file a stage.

    Parameters
    ----------
    numbers : sequence of int or None
        Ascending node numbers, None unless every file's name has one.
    timelines : sequence of Timeline
        One profiled step of each node.

    Returns
    -------
    list of str
        At most one warning.
    """
    if numbers is None:
        return []
    shown = ", ".join(map(str, numbers[:12])) + (", ..." if len(numbers) > 12 else "")
    if has_holes(numbers):
        taken = f"; node {numbers[0]} is taken for node 0" if numbers[0] else ""
        return [f"nodes seem to be missing: there are {shown}{taken}"]
    if len(numbers) > 1 < numbers[1] and not any(map(has_syncs, timelines)):
        return [
            f"nodes seem to be missing: there are {shown}, but no sync with replicas was recorded"
        ]
    return []


def timeline_warnings(names: Sequence[str], timelines: Sequence[Timeline]) -> list[str]:
    """Return warnings about suspicious times and labels, each with its file's name.

    Parameters
    ----------
    names : sequence of str
        File of each node.
    timelines : sequence of Timeline
        One profiled step of each node; node 0 has a forward.

    Returns
    -------
    list of str
        Warnings by node; those that compare nodes come last.
    """
    origin = min(_starts(timelines[0], CALLS[:1]))
    warnings = [
        f"{name}: {warning}"
        for name, timeline in zip(names, timelines, strict=True)
        for warning in (*_clock(timeline, origin), *_unequal(timeline), *_bare(timeline))
    ]
    return [*warnings, *_different(names, timelines)]


def _starts(timeline: Timeline, calls: Sequence[str]) -> Iterator[int | float]:
    intervals = (timeline.get(call + pipe, ()) for call in calls for pipe in PIPES)
    return (start for pairs in intervals for start, _ in pairs if start is not None)


def _clock(timeline: Timeline, origin: float) -> Iterator[str]:
    first = min(_starts(timeline, CALLS), default=origin)
    if first < origin:
        yield (
            f"its first op starts {origin - first} ns before node 0's first forward: "
            "is its clock ahead?"
        )


def _unequal(timeline: Timeline) -> Iterator[str]:
    for pipe, words in PIPES.items():
        forwards, backwards = _count(timeline, "forward", pipe), _count(timeline, "backward", pipe)
        if forwards != backwards:
            yield f"{forwards} forwards but {backwards} backwards{words}"
    if next(_starts(timeline, CALLS), None) is None:
        yield "no forwards and no backwards at all"


def _count(timeline: Timeline, kind: str, pipe: str) -> int:
    return len(timeline.get(f"call_{kind}{pipe}", ()))


def _bare(timeline: Timeline) -> Iterator[str]:
    labels = {label: parse_label(label) for label in timeline}
    bare = [text for text, label in labels.items() if label and label.factor and not label.module]
    if bare:
        yield f"without a module's name, taken for one more module: {', '.join(bare)}"


def _different(names: Sequence[str], timelines: Sequence[Timeline]) -> Iterator[str]:
    for pipe, words in PIPES.items():
        for kind in ("forward", "backward"):
            counts = [_count(timeline, kind, pipe) for timeline in timelines]
            odd = next((k for k, count in enumerate(counts) if count != counts[0]), None)
            if odd is not None:
                yield f"{names[odd]}: {counts[odd]} {kind}s{words}, node 0 has {counts[0]}"
