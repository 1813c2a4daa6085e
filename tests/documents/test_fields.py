"""No value of any field of an instance is more than a wrong value."""

import contextlib
import copy
import functools
import operator

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import parse_instance

PIPELINE = {
    "schema": 1,
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 4,
    "placement": {"stage_to_device": [0, 1]},
    "times": {"forward": 1, "backward": 2},
    "p2p": {"mode": "link", "latency": 1, "bytes": 1, "bandwidth": 1},
    "memory": {"capacity": 4, "activation": 1, "static": [1, 2]},
    "replicas": {"count": 2, "assignment": "free", "counts": "equal"},
    "objective": "makespan",
}
KFAC = {
    "kind": "kfac",
    "pipeline": {
        key: PIPELINE[key] for key in PIPELINE if key not in {"p2p", "replicas"}
    },
    "modules": [
        {
            "stage": stage,
            "name": "m",
            **dict.fromkeys(("curvature_a", "curvature_b"), 1),
        }
        | dict.fromkeys(("inverse_a", "inverse_b", "precondition"), 2)
        for stage in (0, 1)
    ],
    "pattern": "free",
    "objective": "makespan",
    "tie_break": "staleness",
}
OVERLAP = {
    "kind": "overlap",
    "collective_order": "free",
    "objective": "makespan",
    "nodes": [{"name": "a", "kind": "compute", "duration": 1}],
}
GRAPH = {
    "kind": "graph",
    "resources": ["r"],
    "ops": [{"id": "a", "duration": 1, "resources": ["r"]}],
    "objective": "device_span",
}
ODD = [None, True, {}, {"": 0}, [], [[]], "", -1, 1.5, 10**400, float("nan")]


def places(data, at=()):
    """Yield where each value inside a document is."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield (*at, key)
            yield from places(value, (*at, key))


@pytest.mark.parametrize(
    "base", [PIPELINE, KFAC, OVERLAP, GRAPH], ids=lambda base: base["kind"]
)
def test_odd_values_are_taken_or_refused(base):
    parse_instance(base)
    for at in places(base):
        for value in ODD:
            document = copy.deepcopy(base)
            functools.reduce(operator.getitem, at[:-1], document)[at[-1]] = value
            with contextlib.suppress(InputError):
                parse_instance(document)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (PIPELINE, "'makespan' or 'device_span'"),
        (GRAPH, "'makespan' or 'device_span'"),
        (KFAC, "'iterations' or 'makespan'"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_an_objective_that_is_no_text_is_named_with_its_choices(base, expected):
    with pytest.raises(InputError) as caught:
        parse_instance({**base, "objective": {"": 0}})
    assert str(caught.value) == f"objective: input should be {expected}, got an object"
