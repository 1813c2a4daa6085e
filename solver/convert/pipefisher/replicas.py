"""Which nodes of a PipeFisher run hold replicas of the same modules and meet in their syncs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from ppsolve.models.kfac.labels import Label, parse_label
from ppsolve.solver.convert.pickles import Timeline

Sync = tuple[int | float, int | float]


def sync_groups(
    timelines: Sequence[Timeline], numbers: Sequence[int] | None = None
) -> list[list[int]]:
    """Return the groups of two or more devices that share modules, in ascending order.

    Module names are local to a stage (``encoder.layer.0`` is in all of them), so that equal
    names alone say nothing. Two nodes whose recorded syncs name the same modules share them if
    they are mirror images in a Chimera (device d and the d-th from the end run the same two
    stages), or if every one of their syncs overlaps the other's in time, as those of a collective
    do.

    Parameters
    ----------
    timelines : sequence of Timeline
        One profiled step of each node.
    numbers : sequence of int, optional
        Node numbers; mirror images are not known where they have holes.

    Returns
    -------
    list of list of int
        Devices of each group.
    """
    modules = [_synced_modules(timeline) for timeline in timelines]
    syncs = [_recorded_syncs(timeline) for timeline in timelines]
    mirrored = all(map(_has_both_pipes, timelines)) and not (numbers and has_holes(numbers))
    groups = [[device] for device in range(len(timelines))]
    for one, other in combinations(range(len(timelines)), 2):
        if modules[one] != modules[other] or not (syncs[one] and syncs[other]):
            continue
        is_mirror = mirrored and one + other == len(timelines) - 1
        if is_mirror or _meet(syncs[one], syncs[other]):
            _join(groups, one, other)
    return [group for group in groups if len(group) > 1]


def has_holes(numbers: Sequence[int]) -> bool:
    """Tell whether ascending node numbers do not start at 0 or are not evenly spaced."""
    steps = {right - left for left, right in pairwise(numbers)}
    return numbers[0] != 0 or len(steps) > 1


def has_syncs(timeline: Timeline) -> bool:
    """Tell whether any sync was recorded with times."""
    return bool(_recorded_syncs(timeline))


def _labels(timeline: Timeline) -> Iterator[Label]:
    return (label for text in timeline if (label := parse_label(text)) is not None)


def _recorded_syncs(timeline: Timeline) -> dict[tuple[str, int], Sync]:
    return {
        (label.text, place): (start, end)
        for label in _labels(timeline)
        if label.kind == "sync"
        for place, (start, end) in enumerate(timeline[label.text])
        if start is not None and end is not None
    }


def _synced_modules(timeline: Timeline) -> set[str]:
    return {label.module for label in _labels(timeline) if label.kind == "sync"}


def _has_both_pipes(timeline: Timeline) -> bool:
    pipes = {label.pipe for label in _labels(timeline) if label.kind == "forward"}
    return pipes == {0, 1}


def _meet(one: dict[tuple[str, int], Sync], other: dict[tuple[str, int], Sync]) -> bool:
    return one.keys() == other.keys() and all(
        one[key][0] <= other[key][1] and other[key][0] <= one[key][1] for key in one
    )


def _join(groups: list[list[int]], one: int, other: int) -> None:
    """Merge the groups of two devices in place."""
    first = next(group for group in groups if one in group)
    second = next(group for group in groups if other in group)
    if first is not second:
        first.extend(second)
        first.sort()
        groups.remove(second)
