"""What is suspicious in the timelines of a PipeFisher run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ppsolve.models.kfac.labels import parse_label
from ppsolve.solver.convert.pickles import Timeline
from ppsolve.solver.convert.pipefisher.replicas import has_holes, has_syncs

PIPES = {"": "", ":up_pipe": " of the second pipe"}


def node_warnings(numbers: Sequence[int] | None, timelines: Sequence[Timeline]) -> list[str]:
    """Return what the node numbers (None: not in all names) say about missing files.

    Every second number alone is what a run with two replicas per stage gives, one file a stage.
    """
    if numbers is None:
        return []
    shown = ", ".join(map(str, numbers[:12])) + (", ..." if len(numbers) > 12 else "")
    if has_holes(numbers):
        taken = f"; node {numbers[0]} is taken for node 0" if numbers[0] else ""
        return [f"nodes seem to be missing: there are {shown}{taken}"]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if step > 1 and not any(map(has_syncs, timelines)):
        return [
            f"nodes seem to be missing: there are {shown}, but no sync with replicas was recorded"
        ]
    return []


def timeline_warnings(names: Sequence[str], timelines: Sequence[Timeline]) -> list[str]:
    """Return what is suspicious in the times and labels, each warning with the file's name.

    Parameters
    ----------
    names : sequence of str
        File of each node.
    timelines : sequence of Timeline
        One profiled step of each node; node 0 has a forward.
    """
    warnings: list[str] = []
    origin = min(_starts(timelines[0], ("call_forward",)))
    for name, timeline in zip(names, timelines, strict=True):
        found = [*_clock(timeline, origin), *_unequal(timeline), *_bare(timeline)]
        warnings += [f"{name}: {warning}" for warning in found]
    return warnings + _different(names, timelines)


def _starts(timeline: Timeline, calls: tuple[str, ...]) -> Iterator[int | float]:
    for call in calls:
        for pipe in PIPES:
            for start, _ in timeline.get(call + pipe, ()):
                if start is not None:
                    yield start


def _clock(timeline: Timeline, origin: float) -> Iterator[str]:
    first = min(_starts(timeline, ("call_forward", "call_backward")), default=origin)
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
    if not any(True for _ in _starts(timeline, ("call_forward", "call_backward"))):
        yield "no forwards and no backwards at all"


def _count(timeline: Timeline, kind: str, pipe: str) -> int:
    return len(timeline.get(f"call_{kind}{pipe}", ()))


def _bare(timeline: Timeline) -> Iterator[str]:
    labels = {label: parse_label(label) for label in timeline}
    bare = [text for text, label in labels.items() if label and label.factor and not label.module]
    if bare:
        yield f"without a module's name, taken for one more module: {', '.join(bare)}"


def _different(names: Sequence[str], timelines: Sequence[Timeline]) -> list[str]:
    warnings = []
    for pipe, words in PIPES.items():
        for kind in ("forward", "backward"):
            counts = [_count(timeline, kind, pipe) for timeline in timelines]
            odd = next((k for k, count in enumerate(counts) if count != counts[0]), None)
            if odd is not None:
                warnings.append(
                    f"{names[odd]}: {counts[odd]} {kind}s{words}, node 0 has {counts[0]}"
                )
    return warnings
