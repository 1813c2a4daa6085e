"""PipeFisher's timelines, one pickle a node, to a K-FAC instance; a refresh to its schedule."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import gcd
from pathlib import Path
from typing import Any

from ppsolve.models.documents.base import describe, series
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import STANDARD_STREAM
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.labels import PROFILED_STEP, START, UP_PIPE, parse_label
from ppsolve.solver.formats.pickles.timeline import (
    Timeline,
    load_timeline_pickle,
    read_pickle_file,
)
from ppsolve.solver.formats.program import entry_in

_NODE = re.compile(r"_?node([0-9]{1,9})(?![0-9])(?:_timeline)?")
_SCHEDULE = re.compile(r"(?:^|[_.-])schedule$", re.IGNORECASE)


def timeline_files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the timeline files of files and folders in human order of names, and warnings.

    A folder stands for its ``*.pickle`` files but hidden ones and schedules. Raises `InputError`
    for no path, a folder without timelines, standard input, or a file or node that appears twice.
    """
    files: list[Path] = []
    warnings: list[str] = []
    for path in paths:
        if str(path) == STANDARD_STREAM:
            raise InputError(
                "expected files, pickles are not read from here",
                source="<stdin>",
                code=ErrorCode.UNSUPPORTED,
            )
        files += _in_folder(path, warnings) if os.path.isdir(path) else [path]
    if not files:
        raise InputError(
            "expected at least one timeline pickle or a folder of them, got none",
            code=ErrorCode.LENGTH,
        )
    files.sort(key=lambda file: (human_key(file.name), str(file)))
    _refuse_twice(files)
    return files, warnings


def _in_folder(folder: Path, warnings: list[str]) -> list[Path]:
    try:
        pickles = sorted(
            path for path in folder.iterdir() if path.name.endswith(".pickle")
        )
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", source=str(folder), code=ErrorCode.FILE
        ) from None
    hidden = [path.name for path in pickles if path.name.startswith(".")]
    named = (
        path
        for path in pickles
        if not path.name.startswith(".") and not os.path.isdir(path)
    )
    files = [path for path in named if not _SCHEDULE.search(path.stem)]
    if not files:
        hint = f" ({len(hidden)} hidden: name it to read it)" if hidden else ""
        text = f"expected a folder with timelines named *.pickle, there is none{hint}"
        raise InputError(text, source=str(folder), code=ErrorCode.FILE)
    if hidden:
        warnings.append(f"{folder}: hidden files are not read: {', '.join(hidden[:3])}")
    return files


def human_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by value: 2 before 10."""
    pieces = re.split("([0-9]+)", name)
    return [
        (int(piece), piece) if index % 2 else (0, piece)
        for index, piece in enumerate(pieces)
    ]


def _refuse_twice(files: list[Path]) -> None:
    seen: dict[str, Path] = {}
    for file in files:
        real = os.path.realpath(file)
        if real in seen:
            same = "" if str(seen[real]) == str(file) else f", also as {seen[real]}"
            raise InputError(
                f"this file appears twice{same}",
                source=str(file),
                code=ErrorCode.CONFLICT,
            )
        seen[real] = file
    first: dict[int, Path] = {}
    for number, file in zip(node_numbers(files) or (), files, strict=False):
        if number in first:
            text = f"node {number} is there already: {first[number]}"
            raise InputError(text, source=str(file), code=ErrorCode.CONFLICT)
        first[number] = file


def node_numbers(files: Sequence[Path]) -> list[int] | None:
    """Return the node numbers in the names, or None unless every name has one."""
    matches = [_last_match(file.name) for file in files]
    numbers = [int(match[1]) for match in matches if match is not None]
    return numbers if len(numbers) == len(files) else None


def refuse_missing_nodes(numbers: Sequence[int]) -> None:
    """Refuse a run without some of its nodes, by their ascending numbers.

    A run with several replicas of each stage may have a file for every k-th node only. Raises
    `InputError` where numbers do not start at 0 or are not evenly spaced; names the first five
    missing.
    """
    step = gcd(*numbers) or 1
    nodes = range(0, numbers[-1], step)
    count = len(nodes) + 1 - len(numbers)
    if count == 0:
        return
    there = set(numbers)
    missing: list[object] = list(
        islice((node for node in nodes if node not in there), 5)
    )
    if count > len(missing):
        missing.append(f"{count - len(missing)} more")
    noun, verb = ("node", "is") if count == 1 else ("nodes", "are")
    raise InputError(
        f"{noun} {series(missing)} of 0..{numbers[-1]} {verb} missing; "
        "name the files one by one to go without",
        code=ErrorCode.MISSING,
    )


def _last_match(name: str) -> re.Match[str] | None:
    return next(reversed(list(_NODE.finditer(name))), None)


def instance_name(files: Sequence[Path]) -> str:
    """Return the beginning that all names share before ``_node<k>``, else the folder's name."""
    matches = [(_last_match(file.name), file) for file in files]
    stems = [
        file.name[: match.start()] if match else file.stem for match, file in matches
    ]
    common = os.path.commonprefix(stems).strip("_-. ")  # noqa: RUF071 - names, not paths
    name = common or files[0].resolve().parent.name or "pipefisher"
    return name.encode("utf-8", "replace").decode()


CALLS = ("call_forward", "call_backward")
PIPES = {"": "", UP_PIPE: " of the second pipe"}


def convert_pipefisher(
    paths: Sequence[Path], *, allow_pickle: bool
) -> tuple[KfacInstance, list[str]]:
    """Read the timeline pickles of a run, one per node, as one K-FAC instance, and warnings.

    It has the last profiled step of every node, in nanoseconds; warnings say what is suspicious or
    was left out. Paths are pickles, or folders of them, which count in human order of names (node 2
    before node 10); reading pickles at all needs consent. Raises `InputError` without consent or
    files, and for a file that cannot be read or is no timeline, the same node twice, a folder that
    lacks a node, or a timeline without a pipeline.
    """
    if not allow_pickle:
        raise InputError(
            "expected --allow-pickle: pickles can run code. This reader runs none, and takes "
            "numbers only, but has to be told",
            code=ErrorCode.MISSING,
        )
    files, warnings = timeline_files(paths)
    numbers = node_numbers(files)
    folder = next((path for path in paths if os.path.isdir(path)), None)
    if folder is not None and numbers is not None:
        with errors_in(str(folder)):
            refuse_missing_nodes(numbers)
    names = [str(file) for file in files]
    timelines = [_read_step(name, warnings) for name in names]
    for call in CALLS:
        if next(_starts(timelines[0], [call]), None) is None:
            kind = call.removeprefix("call_")
            text = (
                f"expected {kind}s of node 0, whose times are the zero of all others; "
            )
            raise InputError(
                f"{text}there are none",
                source=names[0],
                field=call,
                code=ErrorCode.MISSING,
            )
    document = timelines_document(timelines, instance_name(files))
    warnings += _node_warnings(numbers, timelines) + _timeline_warnings(
        names, timelines
    )
    source = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return KfacInstance.parse(document, source), warnings


def _read_step(name: str, warnings: list[str]) -> Timeline:
    timeline, notes = last_step(load_timeline_pickle(read_pickle_file(name), name))
    warnings += [f"{name}: {warning}" for warning in notes]
    for label, pairs in timeline.items():
        for index, (start, end) in enumerate(pairs):
            if start is not None and end is not None and end < start:
                text = f"expected an end at or after the start {start}, got {end}"
                raise InputError(
                    text, source=name, field=f"{label}[{index}]", code=ErrorCode.RANGE
                )
    return timeline


def timelines_document(timelines: Sequence[Timeline], name: str) -> dict[str, Any]:
    """Return the K-FAC instance of the profiled steps of some nodes, as it is written in JSON."""
    return {
        "kind": "kfac",
        "name": name,
        "time_unit": "ns",
        "timelines": [
            {label: [list(pair) for pair in pairs] for label, pairs in timeline.items()}
            for timeline in timelines
        ],
        # PipeFisher's margin: work of length d takes 1.05 d of a bubble.
        "margin_ratio": 0.05,
    }


def last_step(timeline: Timeline) -> tuple[Timeline, list[str]]:
    """Return the known labels of the last profiled step, and warnings about what was left out.

    The rule is PipeFisher's: with k pairs in `start_end` (k > 1), every list keeps its last
    ``len // k`` items, all of them where that is 0.
    """
    steps = len(timeline.get(PROFILED_STEP, ()))
    warnings = (
        [] if steps else ["start_end: missing or empty, taken as one profiled step"]
    )
    kept = {
        label: pairs
        for label, pairs in timeline.items()
        if parse_label(label) is not None
    }
    unknown = [label for label in timeline if label not in kept]
    if unknown:
        warnings.append(f"unknown labels dropped: {_listed(unknown)}")
    uneven = [
        label for label, pairs in kept.items() if steps > 1 and len(pairs) % steps
    ]
    if uneven:
        warnings.append(
            f"the number of intervals is no multiple of the {steps} profiled steps, "
            f"the last step is a guess: {_listed(uneven)}"
        )
    if steps > 1:
        kept = {label: pairs[-(len(pairs) // steps) :] for label, pairs in kept.items()}
    return kept, warnings


def _listed(labels: list[str], limit: int = 3) -> str:
    text = ", ".join(re.sub(r"\s", " ", label[:60]) for label in labels[:limit])
    return text + (f" and {len(labels) - limit} more" if len(labels) > limit else "")


def _has_syncs(timeline: Timeline) -> bool:
    return any(
        label is not None
        and label.kind == "sync"
        and any(None not in pair for pair in pairs)
        for label, pairs in (
            (parse_label(text), pairs) for text, pairs in timeline.items()
        )
    )


def _node_warnings(
    numbers: Sequence[int] | None, timelines: Sequence[Timeline]
) -> list[str]:
    """Return at most one warning, about nodes that seem to be missing.

    Every second number alone is what a run with two replicas per stage gives, one file a stage.
    """
    if numbers is None:
        return []
    listing = ", ".join(map(str, numbers[:12])) + (", ..." if len(numbers) > 12 else "")
    text = f"nodes seem to be missing: there are {listing}"
    if numbers[0] or len({second - first for first, second in pairwise(numbers)}) > 1:
        return [
            text + (f"; node {numbers[0]} is taken for node 0" if numbers[0] else "")
        ]
    if len(numbers) > 1 < numbers[1] and not any(map(_has_syncs, timelines)):
        return [f"{text}, but no sync with replicas was recorded"]
    return []


def _timeline_warnings(
    names: Sequence[str], timelines: Sequence[Timeline]
) -> list[str]:
    """Return warnings about suspicious times and labels, those that compare nodes at the end."""
    origin = min(_starts(timelines[0], CALLS[:1]))
    pairs = zip(names, timelines, strict=True)
    warnings = [
        f"{name}: {text}"
        for name, timeline in pairs
        for text in _suspicions(timeline, origin)
    ]
    for pipe, words in PIPES.items():
        for kind in ("forward", "backward"):
            counts = [_count(timeline, kind, pipe) for timeline in timelines]
            odd = next(
                (k for k, count in enumerate(counts) if count != counts[0]), None
            )
            if odd is not None:
                text = f"{counts[odd]} {kind}s{words}, node 0 has {counts[0]}"
                warnings.append(f"{names[odd]}: {text}")
    return warnings


def _starts(timeline: Timeline, calls: Sequence[str]) -> Iterator[int | float]:
    intervals = (timeline.get(call + pipe, ()) for call in calls for pipe in PIPES)
    return (start for pairs in intervals for start, _ in pairs if start is not None)


def _count(timeline: Timeline, kind: str, pipe: str) -> int:
    return len(timeline.get(f"call_{kind}{pipe}", ()))


def _suspicions(timeline: Timeline, origin: float) -> Iterator[str]:
    first = min(_starts(timeline, CALLS), default=None)
    if first is not None and first < origin:
        text = (
            f"its first op starts {origin - first} ns before node 0's first forward: "
        )
        yield f"{text}is its clock ahead?"
    for pipe, words in PIPES.items():
        forwards, backwards = (
            _count(timeline, "forward", pipe),
            _count(timeline, "backward", pipe),
        )
        if forwards != backwards:
            yield f"{forwards} forwards but {backwards} backwards{words}"
    if first is None:
        yield "no forwards and no backwards at all"
    labels = {text: parse_label(text) for text in timeline}
    bare = [
        text
        for text, label in labels.items()
        if label and label.factor and not label.module
    ]
    if bare:
        yield f"without a module's name, taken for one more module: {', '.join(bare)}"


ScheduleLabels = list[list[list[str]]]
"""Labels by device and iteration, markers included."""


def schedule_labels(
    data: Any, source: str, heuristic: str | None = None
) -> tuple[ScheduleLabels, list[str]]:
    """Return the labels of a result or heuristic entry by device and iteration, and warnings.

    Markers are included; a warning says that the schedule breaks rules. Raises `InputError` where
    there are no labels, they are no labels by device and iteration, or the heuristic is not among
    those of the result.
    """
    with errors_in(source):
        if not isinstance(data, dict):
            raise InputError(
                f"expected an object, got {describe(data)}", code=ErrorCode.TYPE
            )
        if heuristic is not None:
            data = entry_in(data, heuristic)
        labels = data.get("labels")
        if not labels:
            raise InputError(_why_none(data), field="labels")
        _check(labels)
    if data.get("status") != "infeasible":
        return labels, []
    return labels, [f"{source}: {data.get('name')} is infeasible: {data.get('reason')}"]


def _why_none(data: dict[str, Any]) -> str:
    if data.get("objective") == "iterations" or "iterations_of" in data:
        reason = f": {data['reason']}" if data.get("reason") else ""
        return f"expected a schedule of every device, there is none{reason}"
    return (
        "expected the result or heuristic entry of a K-FAC instance around a pinned pipeline, "
        "this one has no labels"
    )


def _check(labels: Any) -> None:
    for device, rows in enumerate(_items(labels, "labels", "devices")):
        field = f"labels[{device}]"
        starts = 0
        for number, row in enumerate(_items(rows, field, "iterations")):
            for index, label in enumerate(_items(row, f"{field}[{number}]", "labels")):
                if not isinstance(label, str):
                    raise InputError(
                        f"expected a label, got {describe(label)}",
                        field=f"{field}[{number}][{index}]",
                        code=ErrorCode.TYPE,
                    )
                starts += label == START
        if not starts:
            raise InputError(f'expected an iteration with "{START}"', field=field)


def _items(value: Any, field: str, noun: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(
            f"expected a list of {noun}, got {describe(value)}",
            field=field,
            code=ErrorCode.TYPE,
        )
    return value


def schedule_pickle(labels: ScheduleLabels) -> bytes:
    """Return the pickle of labels by device and iteration, for every Python from 3.4 on."""
    plain = [[[str(label) for label in row] for row in device] for device in labels]
    return pickle.dumps(plain, protocol=4)
