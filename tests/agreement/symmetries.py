"""Questions about pipelines under changes that leave the optimum, or multiply it."""

from __future__ import annotations

from functools import partial
from random import Random

from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.graph import GraphInstance
from tests.agreement import changes, draws
from tests.agreement.claims import Claim, exact
from tests.agreement.draws import Document
from tests.agreement.question import Question, solved
from tests.strategies import tiny_instance


def _of_symmetric_parts(draw: Random) -> Document:
    document = draws.pipeline(draw)
    part = draw.choice([None, draws.unequal, draws.endings, draws.modes, draws.fillers])
    if part is not None:
        part(draw, document)
    return document


def _of_whole_backwards(draw: Random) -> Document:
    document = draws.pipeline(draw, split=False)
    part = draw.choice([None, draws.unequal, draws.blocks, draws.copies])
    if part is not None:
        part(draw, document)
    if "overlap" not in document and draw.random() < 0.3:
        document["objective"] = "device_span"
    return document


def _graph(draw: Random) -> Document:
    while True:
        instance = tiny_instance(draw.randrange(2**32))
        if isinstance(instance, GraphInstance):
            return instance_data(instance)


def _next(device: int, count: int) -> int:
    return (device + 1) % count


def _mirrored(device: int, count: int) -> int:
    return count - 1 - device


def _with_times(document: Document, factor: float) -> Claim:
    return solved(changes.times_scaled(document, factor)).divided(exact(factor))


def _with_memory(document: Document, factor: float) -> Claim:
    return solved(changes.memory_scaled(document, factor))


SYMMETRIES = (
    Question(
        "longer times",
        draws.with_a_part,
        {
            "as they are": solved,
            "x 3": partial(_with_times, factor=3),
            "x 0.7": partial(_with_times, factor=0.7),
        },
        count=20,
    ),
    Question(
        "larger memory",
        draws.with_a_part,
        {
            "as it is": solved,
            "x 7": partial(_with_memory, factor=7),
            "x 0.1": partial(_with_memory, factor=0.1),
        },
        count=16,
    ),
    Question(
        "graphs shuffled",
        _graph,
        {
            "as they are": solved,
            "shuffled": lambda document: solved(changes.with_ops_shuffled(document)),
        },
        count=24,
    ),
    Question(
        "devices renamed",
        _of_symmetric_parts,
        {
            "as they are": solved,
            "next": lambda d: solved(changes.with_devices_renamed(d, _next)),
            "mirrored": lambda d: solved(changes.with_devices_renamed(d, _mirrored)),
        },
        count=16,
    ),
    Question(
        "run backwards",
        _of_whole_backwards,
        {
            "forwards": solved,
            "backwards": lambda document: solved(changes.reversed_in_time(document)),
        },
        count=24,
    ),
)
