"""PipeFisher's pickles: measured timelines to a K-FAC instance, schedules for its runner."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.kfac.labels import PROFILED_STEP, parse_label
from ppsolve.solver.convert.pickles import ScheduleLabels, Timeline, load_timeline_pickle
from ppsolve.solver.convert.pickles.files import read_pickle_file
from ppsolve.solver.convert.pipefisher.files import (
    in_words,
    instance_name,
    node_numbers,
    refuse_missing_nodes,
    timeline_files,
)
from ppsolve.solver.convert.pipefisher.replicas import sync_groups
from ppsolve.solver.convert.pipefisher.warnings import node_warnings, timeline_warnings

TIME_UNIT = "ns"
MARGIN_RATIO = 0.05
"""PipeFisher's margin: work of length d takes 1.05 d of a bubble."""

SCHEDULE_PROTOCOL = 4
"""Every Python from 3.4 on reads it."""

REFUSAL = (
    "expected --allow-pickle: pickles can run code when other programs read them; "
    "this reader runs none and takes numbers only, and reads them only when told to"
)


class Converted(NamedTuple):
    """A run as an instance, what is suspicious in it or was left out, and what else to know."""

    instance: KfacInstance
    warnings: list[str]
    notes: list[str]


def convert_pipefisher(
    paths: Sequence[Path], *, allow_pickle: bool, couple_replicas: bool = False
) -> Converted:
    """Read the timeline pickles of a run, one per node, as one K-FAC instance.

    Parameters
    ----------
    paths : sequence of Path
        Pickles, or folders of them; whatever their order, they count in human order of their
        names (node 2 before node 10).
    allow_pickle : bool
        Consent to reading pickles at all.
    couple_replicas : bool
        Let the syncs of devices with replicas of the same modules meet; PipeFisher schedules
        each device alone.

    Returns
    -------
    Converted
        The last profiled step of every node in nanoseconds, with warnings and notes.

    Raises
    ------
    InputError
        No consent, no files, a file that cannot be read or is no timeline, the same node twice,
        a folder with a node missing, or a timeline that no schedule can be made of.
    """
    if not allow_pickle:
        raise InputError(REFUSAL)
    files, warnings = timeline_files(paths)
    folder = next((path for path in paths if os.path.isdir(path)), None)
    if folder is not None:
        refuse_missing_nodes(node_numbers(files), str(folder))
    names = [str(file) for file in files]
    timelines = [_read_step(name, warnings) for name in names]
    _refuse_no_pipeline(timelines[0], names[0])
    numbers = node_numbers(files)
    groups = sync_groups(timelines, numbers)
    coupled = groups if couple_replicas else []
    document = timelines_document(timelines, instance_name(files), coupled)
    warnings += node_warnings(numbers, timelines) + timeline_warnings(names, timelines)
    notes = [] if coupled == groups else [_replicas_note(groups)]
    return Converted(KfacInstance.parse(document, _source(names)), warnings, notes)


def _read_step(name: str, warnings: list[str]) -> Timeline:
    """Return the last step of a file, and add what is odd in it to the warnings."""
    timeline, found = last_step(load_timeline_pickle(read_pickle_file(name), name))
    warnings += [f"{name}: {warning}" for warning in found]
    _refuse_negative(timeline, name)
    return timeline


def timelines_document(
    timelines: Sequence[Timeline], name: str, groups: Sequence[Sequence[int]] = ()
) -> dict[str, Any]:
    """Return the K-FAC instance of some timelines as it is written in JSON.

    Parameters
    ----------
    timelines : sequence of Timeline
        The profiled step of each node.
    name : str
        Name of the instance.
    groups : sequence of sequences of int
        Devices whose syncs meet.

    Returns
    -------
    dict
        Fields of the instance; ``sync_groups`` only where there are groups.
    """
    document: dict[str, Any] = {
        "kind": "kfac",
        "name": name,
        "time_unit": TIME_UNIT,
        "timelines": [
            {label: [list(pair) for pair in pairs] for label, pairs in timeline.items()}
            for timeline in timelines
        ],
        "margin_ratio": MARGIN_RATIO,
    }
    return {**document, "sync_groups": [list(group) for group in groups]} if groups else document


def last_step(timeline: Timeline) -> tuple[Timeline, list[str]]:
    """Return the known labels of the last profiled step, and warnings about what was left out.

    The rule is PipeFisher's: with k pairs in `start_end` (k > 1), every list keeps its last
    ``len // k`` items, all of them where that is 0.
    """
    steps = len(timeline.get(PROFILED_STEP, ()))
    warnings = []
    if not steps:
        warnings.append("start_end: missing or empty, taken as one profiled step")
    unknown = [label for label in timeline if parse_label(label) is None]
    if unknown:
        warnings.append(f"unknown labels dropped: {_listed(unknown)}")
    known = {label: pairs for label, pairs in timeline.items() if parse_label(label) is not None}
    uneven = [label for label, pairs in known.items() if steps > 1 and len(pairs) % steps]
    if uneven:
        warnings.append(
            f"the number of intervals is no multiple of the {steps} profiled steps, "
            f"the last step is a guess: {_listed(uneven)}"
        )
    if steps > 1:
        known = {label: pairs[-(len(pairs) // steps) :] for label, pairs in known.items()}
    return known, warnings


def schedule_pickle(labels: ScheduleLabels) -> bytes:
    """Return the schedule pickle that PipeFisher's runner reads.

    Parameters
    ----------
    labels : list of list of list of str
        Labels by device and iteration, markers included.
    """
    plain = [[[str(label) for label in row] for row in device] for device in labels]
    return pickle.dumps(plain, protocol=SCHEDULE_PROTOCOL)


def _refuse_negative(timeline: Timeline, source: str) -> None:
    for label, pairs in timeline.items():
        for place, (start, end) in enumerate(pairs):
            if start is not None and end is not None and end < start:
                raise InputError(
                    f"expected an end at or after the start {start}, got {end}",
                    source=source,
                    field=f"{label}[{place}]",
                )


def _refuse_no_pipeline(timeline: Timeline, source: str) -> None:
    for kind in ("forward", "backward"):
        labels = (f"call_{kind}", f"call_{kind}:up_pipe")
        if not any(start is not None for label in labels for start, _ in timeline.get(label, [])):
            raise InputError(
                f"expected {kind}s of node 0, whose times are the zero of all others; "
                "there are none",
                source=source,
                field=labels[0],
            )


def _replicas_note(groups: Sequence[Sequence[int]]) -> str:
    named = "; ".join(f"devices {in_words(group)}" for group in groups)
    return f"{named} hold replicas of the same modules; --couple-replicas makes their syncs meet"


def _source(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _listed(labels: list[str], most: int = 3) -> str:
    shown = ", ".join(re.sub(r"\s", " ", label[:60]) for label in labels[:most])
    return shown + (f" and {len(labels) - most} more" if len(labels) > most else "")
