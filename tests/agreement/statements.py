"""Questions in other words: as a graph, as lists, with parts without effect, with given choices."""

from __future__ import annotations

from functools import partial
from itertools import compress, product
from random import Random
from typing import Any

from tests.agreement import changes, draws
from tests.agreement.claims import Claim, best_of, worst_of
from tests.agreement.draws import Document
from tests.agreement.graphs import as_graph
from tests.agreement.question import Question, solved


def _with_endings(draw: Random) -> Document:
    document = draws.pipeline(draw)
    if draw.random() < 0.3:
        draws.endings(draw, document)
    return document


def _alike(draw: Random) -> Document:
    document = draws.pipeline(draw, most_ops=12)
    if draw.random() < 0.3:
        draws.modes(draw, document)
    return document


def _small(draw: Random) -> Document:
    return draws.pipeline(draw, most_ops=12)


def _with_a_useless_mode(document: Document) -> Claim | None:
    if "memory" not in document:
        return None
    mode = {"name": "useless", "time": 7, "held": document["memory"]["activation"]}
    recompute = {"modes": [mode], "decide": "stage", "place": "anytime"}
    return solved(document | {"memory": document["memory"] | {"recompute": recompute}})


def _with_an_idle_part(name: str, document: Document) -> Claim:
    return solved(changes.with_idle_parts(document)[name])


def _open_modes(draw: Random) -> Document:
    document = draws.pipeline(draw, most_ops=12)
    draws.modes(draw, document, decide="stage")
    return document


def _given_modes(draw: Random) -> Document:
    document = _open_modes(draw)
    names = draws.mode_names(document)
    given = [draw.choice(names) for _ in range(draws.num_stages(document))]
    return draws.decided(document, given)


def _every_list(document: Document) -> Claim:
    lists = product(draws.mode_names(document), repeat=draws.num_stages(document))
    return best_of(solved(draws.decided(document, list(modes))) for modes in lists)


def _all_alike(document: Document) -> Claim:
    stages = draws.num_stages(document)
    lists = [[name] * stages for name in draws.mode_names(document)]
    return best_of(solved(draws.decided(document, modes)) for modes in lists)


def _as_graph_with_modes(document: Document) -> Claim:
    memory = document["memory"]
    part = memory.get("recompute") or memory["offload"]
    return solved(as_graph(document, part["decide"]))


def _of_replicas(draw: Random) -> Document:
    while True:
        document = draws.pipeline(draw, most_ops=24)
        if document["num_microbatches"] > 1:
            break
    draws.unequal(draw, document)
    if draw.random() < 0.3:
        draws.endings(draw, document)
    return document


def _shared_by_two(document: Document) -> Claim:
    replicas = {"count": 2, "assignment": "free", "counts": "any"}
    return solved(document | {"replicas": replicas})


def _assignments(document: Document) -> list[list[list[int]]]:
    """Return every way to share micro-batches between two replicas, the first has number 0."""
    count = document["num_microbatches"]
    rest = [
        [k for k in range(1, count) if mask >> (k - 1) & 1]
        for mask in range(1, 2**count // 2)
    ]
    return [[sorted(set(range(count)) - set(second)), second] for second in rest]


def _every_assignment(document: Document) -> Claim:
    replicas = {"count": 2, "counts": "any"}
    return best_of(
        solved(document | {"replicas": replicas | {"members": members}})
        for members in _assignments(document)
    )


def _each_replica_alone(document: Document) -> Claim:
    return best_of(
        worst_of(
            solved(changes.with_microbatches(document, numbers)) for numbers in members
        )
        for members in _assignments(document)
    )


def _over_lengths(draw: Random) -> Document:
    document = draws.pipeline(draw, most_ops=12)
    count = document["num_microbatches"]
    document["lengths"] = [draw.choice([1, 2, 4]) for _ in range(count)]
    document["times"] = {
        kind: [
            {
                "per_token": draw.choice([1, 2]),
                "per_square": draw.choice([0, 0.25]),
                "constant": draw.choice([0, 1]),
            }
            for _ in range(draws.num_stages(document))
        ]
        for kind in document["times"]
    }
    return document


def _without_lengths(document: Document) -> Claim:
    def cost(terms: Document, length: int) -> Any:
        terms_of = (terms["per_token"] * length, terms["per_square"] * length**2)
        return sum(terms_of) + terms["constant"]

    times = {
        kind: [
            [cost(terms, length) for length in document["lengths"]] for terms in stages
        ]
        for kind, stages in document["times"].items()
    }
    rest = {name: entry for name, entry in document.items() if name != "lengths"}
    return solved(rest | {"times": times})


def _a_layer_for_each_stage(draw: Random) -> Document:
    stages, is_split = draw.randint(2, 3), draw.random() < 0.5
    kinds = (
        ("forward", "backward_input", "backward_weight")
        if is_split
        else ("forward", "backward")
    )
    layers = {
        name: {kind: draw.randint(1, 6) for kind in kinds}
        | {"activation": draw.choice([0, 0.5, 1]), "static": draw.choice([0, 1])}
        for name in ("first", "body", "last")
    }
    layers["body"] |= {"count": stages, "activation": draw.choice([1, 2])}
    document: Document = {
        "kind": "pipeline",
        "num_devices": stages,
        "num_microbatches": draw.randint(1, 3),
        "layers": layers,
        "memory": {"capacity": draw.choice([3, 4, 5, 7])},
    }
    if draw.random() < 0.5:
        document["p2p"] = {"latency": draw.choice([1, 2])}
    return document


def _a_recomputed_layer_for_each_stage(draw: Random) -> Document:
    document = _a_layer_for_each_stage(draw)
    # First and last layers hold nothing, so that what a layer recomputes is what its stage does.
    for name in ("first", "last"):
        document["layers"][name]["activation"] = 0
    held = document["layers"]["body"]["activation"] * draw.choice([0, 0.25, 0.5])
    document["layers"]["recompute"] = [
        {"name": "full", "time": draw.randint(1, 3), "held": held}
    ]
    return document


def _shared_out(document: Document) -> Document:
    """Return the pipeline of layers that can be shared out in one way."""
    layers, stages = document["layers"], document["num_devices"]

    def sums(field: str) -> list[Any]:
        amounts = [layers["body"].get(field, 0)] * stages
        amounts[0] += layers["first"].get(field, 0)
        amounts[-1] += layers["last"].get(field, 0)
        return amounts

    kinds = [
        kind for kind in layers["body"] if kind.startswith(("forward", "backward"))
    ]
    pipeline = {name: entry for name, entry in document.items() if name != "layers"}
    pipeline["times"] = {kind: sums(kind) for kind in kinds}
    amounts = {"activation": sums("activation"), "static": sums("static")}
    pipeline["memory"] = document["memory"] | amounts
    return pipeline


def _layers(document: Document) -> Claim:
    # What a second does not prove about all splits stays open.
    return solved(document, time_limit=1)


def _stages(document: Document) -> Claim:
    return solved(_shared_out(document))


def _stages_that_recompute(document: Document) -> Claim:
    # A recomputed layer holds as much all the time, and its backward takes longer.
    (mode,) = document["layers"]["recompute"]
    stages = range(document["num_devices"])

    def recomputing(chosen: tuple[bool, ...]) -> Document:
        pipeline = _shared_out(document)
        kind = "backward_input" if "backward_input" in pipeline["times"] else "backward"
        for stage in compress(stages, chosen):
            pipeline["times"][kind][stage] += mode["time"]
            pipeline["memory"]["activation"][stage] = mode["held"]
        return pipeline

    return best_of(
        solved(recomputing(chosen))
        for chosen in product([False, True], repeat=len(stages))
    )


STATEMENTS = (
    Question(
        "written out",
        _with_endings,
        {"pipeline": solved, "graph": lambda document: solved(as_graph(document))},
        count=24,
    ),
    Question(
        "listed",
        _alike,
        {
            "alike": solved,
            "by micro-batch": lambda d: solved(changes.listed_by_microbatch(d)),
            "by device": lambda d: solved(changes.with_placement_listed(d)),
        },
        count=16,
    ),
    Question(
        "replicas",
        _of_replicas,
        {
            "free": _shared_by_two,
            "every assignment": _every_assignment,
            "each alone": _each_replica_alone,
        },
        count=8,
    ),
    Question(
        "lengths",
        _over_lengths,
        {"costs": solved, "times": _without_lengths},
        count=12,
    ),
    Question(
        "parts without effect",
        _small,
        {"alone": solved, "a useless mode": _with_a_useless_mode}
        | {name: partial(_with_an_idle_part, name) for name in changes.IDLE_PARTS},
        count=12,
    ),
    Question(
        "modes by stage",
        _open_modes,
        {"open": solved, "every list": _every_list},
        count=10,
    ),
    Question(
        "one mode for all",
        lambda draw: draws.decided(_open_modes(draw), "all"),
        {"open": solved, "every mode": _all_alike},
        count=12,
    ),
    Question(
        "given modes",
        _given_modes,
        {"given": solved, "graph": _as_graph_with_modes},
        count=24,
    ),
    Question(
        "one split",
        _a_layer_for_each_stage,
        {"layers": _layers, "stages": _stages},
        count=12,
    ),
    Question(
        "recomputed layers",
        _a_recomputed_layer_for_each_stage,
        {"layers": _layers, "stages": _stages_that_recompute},
        count=12,
    ),
)
