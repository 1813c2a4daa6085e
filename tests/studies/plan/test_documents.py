"""Requests for plans: what they mean, and every bad one: its own field and message."""

from __future__ import annotations

import copy
import json
import random
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.profile import ModelProfile
from ppsolve.models.studies.plan.request import (
    Cluster,
    Link,
    PlanRequest,
    RankOrder,
    load_request,
    parse_request,
)
from tests.marks import examples

Path_ = tuple[str | int, ...]

GONE = object()
"""In place of a value: the field is taken out."""

NAN, INFINITE = float("nan"), float("inf")

REQUEST: dict[str, Any] = {
    "schema": 1,
    "kind": "plan",
    "name": "example",
    "time_unit": "us",
    "model": {
        "microbatch_sizes": [1, 2],
        "layers": [
            {
                "name": "embedding",
                "forward": [1, 2],
                "backward": [2, 4],
                "activation_bytes": [3, 6],
                "output_bytes": 1,
                "parameter_bytes": 5,
            },
            {"count": 3, "forward": {"fixed": 1, "per_sample": 0.5}, "backward": 2},
        ],
    },
    "cluster": {
        "nodes": 2,
        "devices_per_node": 2,
        "memory": 1000,
        "within_node": {"latency": 1, "bandwidth": 100},
        "between_nodes": {"bandwidth": 10},
    },
    "goodput": {
        "init_batch_size": 4,
        "max_batch_size": 64,
        "grad": {"sqr": 1, "var": 2},
    },
    "search": {"pipeline_depths": [1, 2], "placements": ["linear", "vshape"]},
}


def changed(path: Path_, value: Any) -> Any:
    """Return the example with one value replaced, added or taken out."""
    if not path:
        return value
    document = copy.deepcopy(REQUEST)
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return document


def refused(document: Any) -> tuple[str | None, str]:
    with pytest.raises(InputError) as caught:
        parse_request(document, "request.json")
    assert caught.value.source == "request.json"
    return caught.value.field, caught.value.message


AMOUNT = (
    "expected a number (per sample), a list with one number per micro-batch size, or "
    '{"fixed": ..., "per_sample": ...}, got '
)
BACKWARD = 'expected either "backward", or both "backward_input" and "backward_weight"'
REQUIRED = "this field is required"
AT_LEAST_1 = "input should be greater than or equal to 1, got "
AT_MOST = "input should be less than or equal to "
NOT_NEGATIVE = "expected a number >= 0, got "
FINITE = "expected a finite number, got "


def per_size(right: int, wrong: int) -> str:
    return f"expected {right} numbers, one per micro-batch size, got {wrong}"


BAD: list[tuple[str, Any, str, str]] = [
    ("", [], "", "expected an object, got a list of 0"),
    ("", None, "", "expected an object, got null"),
    ("", "plan", "", 'expected an object, got the text "plan"'),
    ("kind", "plans", "", "input should be 'plan', got the text \"plans\""),
    ("kind", None, "", "input should be 'plan', got null"),
    ("schema", 2, "", "input should be 1, got 2"),
    (
        "time_unit",
        "h",
        "",
        "input should be 'ns', 'us', 'ms' or 's', got the text \"h\"",
    ),
    ("name", 5, "", "input should be a valid string, got 5"),
    ("modle", {}, "", 'unknown field "modle"; did you mean "model"?'),
    ("model", GONE, "", REQUIRED),
    ("cluster", GONE, "", REQUIRED),
    ("goodput", GONE, "", REQUIRED + ' without "batch_sizes" in "search"'),
    ("model", [], "", "expected an object, got a list of 0"),
    ("search", None, "", "expected an object, got null"),
    ("model.microbatch_sizes", GONE, "", REQUIRED),
    ("model.microbatch_sizes", [2, 1], "", "expected ascending sizes, got 2, 1"),
    ("model.microbatch_sizes", [2, 2], "", "expected ascending sizes, got 2, 2"),
    ("model.microbatch_sizes", [0, 1], "[0]", AT_LEAST_1 + "0"),
    ("model.microbatch_sizes", [1, 2.5], "[1]", "expected a whole number, got 2.5"),
    ("model.microbatch_sizes", [True, 2], "[0]", "expected a whole number, got true"),
    ("model.microbatch_sizes", 5, "", "expected a list, got 5"),
    ("model.microbatch_sizes", [1, 2, 4], "=model.layers[0].forward", per_size(3, 2)),
    ("model.layers", GONE, "", REQUIRED),
    ("model.layers", {}, "", "expected a list, got an object"),
    ("model.layers", [5], "[0]", "expected an object, got 5"),
    (
        "model.layers",
        [{"forward": 0, "backward": {"fixed": 0}}],
        "",
        "expected times > 0, all are 0 at micro-batch size 1",
    ),
    (
        "model.layers",
        [{"forward": [1, 0], "backward": 0}],
        "",
        "expected times > 0, all are 0 at micro-batch size 2",
    ),
    ("model.layers[0].forward", GONE, "", REQUIRED),
    ("model.layers[0].forward", None, "", AMOUNT + "null"),
    ("model.layers[0].forward", "x", "", AMOUNT + 'the text "x"'),
    ("model.layers[0].forward", -1, "", NOT_NEGATIVE + "-1"),
    ("model.layers[0].forward", NAN, "", FINITE + "NaN"),
    ("model.layers[0].forward", INFINITE, "", FINITE + "Infinity"),
    ("model.layers[0].forward", 1e16, "", "expected at most 1E+15, got 1.000000E+16"),
    (
        "model.layers[0].forward",
        1e-31,
        "",
        "expected 0 or at least 1E-30, got 1.000000E-31",
    ),
    ("model.layers[0].forward", True, "", "expected a number, got true"),
    ("model.layers[0].forward", [1, -2], "[1]", NOT_NEGATIVE + "-2"),
    ("model.layers[0].forward", [NAN, 2], "[0]", FINITE + "NaN"),
    ("model.layers[0].forward", [1, None], "[1]", "expected a number, got null"),
    ("model.layers[0].forward", [], "", per_size(2, 0)),
    ("model.layers[0].backward", [1, 2, 3], "", per_size(2, 3)),
    ("model.layers[0].activation_bytes", [1], "", per_size(2, 1)),
    ("model.layers[0].output_bytes", [1], "", per_size(2, 1)),
    ("model.layers[0].activation_bytes", None, "", AMOUNT + "null"),
    ("model.layers[0].forward", {"fixed": -1}, ".fixed", NOT_NEGATIVE + "-1"),
    (
        "model.layers[0].forward",
        {"fixd": 1},
        ".fixd",
        'unknown field "fixd"; did you mean "fixed"?',
    ),
    ("model.layers[0].backward", GONE, "=model.layers[0]", BACKWARD),
    ("model.layers[0].backward_input", 1, "=model.layers[0]", BACKWARD),
    ("model.layers[0].backward_weight", [1, 2], "=model.layers[0]", BACKWARD),
    ("model.layers[1]", {"forward": 1, "backward_input": 1}, "", BACKWARD),
    (
        "model.layers[0].parameter_bytes",
        [1, 2],
        "",
        "expected a number, got a list of 2",
    ),
    ("model.layers[0].state_bytes", -1, "", NOT_NEGATIVE + "-1"),
    ("model.layers[0].optimizer", "1", "", 'expected a number, got the text "1"'),
    ("model.layers[0].count", 0, "", AT_LEAST_1 + "0"),
    ("model.layers[0].count", 2001, "", AT_MOST + "2000, got 2001"),
    (
        "model.layers[1].count",
        2000,
        "=model.layers",
        "expected at most 2000 layers, got 2001",
    ),
    (
        "model.layers[0].forwrd",
        1,
        "",
        'unknown field "forwrd"; did you mean "forward"?',
    ),
    ("model.state_factor", -1, "", NOT_NEGATIVE + "-1"),
    ("model.released_by_backward_weight", 1.5, "", AT_MOST + "1, got 1.5"),
    ("cluster.nodes", 0, "", AT_LEAST_1 + "0"),
    ("cluster.devices_per_node", GONE, "", REQUIRED),
    ("cluster.devices_per_node", 4097, "", AT_MOST + "4096, got 4097"),
    (
        "cluster",
        {
            "nodes": 64,
            "devices_per_node": 1025,
            "within_node": {"bandwidth": 1},
            "between_nodes": {"bandwidth": 1},
        },
        ".nodes",
        "expected at most 65536 devices, got 65600",
    ),
    ("cluster.memory", 0, "", "input should be greater than 0, got 0"),
    ("cluster.memory", NAN, "", FINITE + "NaN"),
    ("cluster.memory", [1, 2], "", "expected a number, got a list of 2"),
    ("cluster.within_node", GONE, "", REQUIRED),
    ("cluster.within_node", 5, "", "expected an object, got 5"),
    ("cluster.within_node.bandwidth", 0, "", "input should be greater than 0, got 0"),
    ("cluster.within_node.latency", -1, "", NOT_NEGATIVE + "-1"),
    (
        "cluster.within_node.bandwith",
        1,
        "",
        'unknown field "bandwith"; did you mean "bandwidth"?',
    ),
    ("cluster.between_nodes", GONE, "", REQUIRED + " with 2 nodes"),
    ("cluster.between_nodes", None, "", REQUIRED + " with 2 nodes"),
    ("goodput.init_batch_size", GONE, "", REQUIRED),
    ("goodput.init_batch_size", 0, "", AT_LEAST_1 + "0"),
    ("goodput.init_batch_size", 2.5, "", "expected a whole number, got 2.5"),
    (
        "goodput.max_batch_size",
        3,
        "",
        "expected at least the initial batch size 4, got 3",
    ),
    ("goodput.grad.var", GONE, "", REQUIRED),
    ("goodput.grad.var", NAN, "", "expected a number >= 0, got nan"),
    ("goodput.grad.sqr", -1, "", NOT_NEGATIVE + "-1"),
    ("goodput.grads", {}, "", 'unknown field "grads"; did you mean "grad"?'),
    (
        "search.pipeline_depths",
        [1, 5],
        "[1]",
        "expected at most 4 (4 devices, 4 layers), got 5",
    ),
    ("search.pipeline_depths", [0], "[0]", AT_LEAST_1 + "0"),
    ("search.pipeline_depths", 3, "", "expected a list, got 3"),
    ("search.replicas", [-1], "[0]", AT_LEAST_1 + "-1"),
    (
        "search.placements",
        ["lineer"],
        "[0]",
        "input should be 'linear', 'interleaved', 'vshape' or 'wave', got the text \"lineer\"",
    ),
    (
        "search.virtual_stages",
        [2, 1],
        "[1]",
        "input should be greater than or equal to 2, got 1",
    ),
    (
        "search.microbatch_sizes",
        [1, 3],
        "[1]",
        "expected a profiled size (1, 2), got 3",
    ),
    ("search.batch_sizes", [3], "[0]", "expected a batch size of 4 to 64, got 3"),
    ("search.batch_sizes", [8, 65], "[1]", "expected a batch size of 4 to 64, got 65"),
    (
        "search",
        {"batch_sizes": [8], "microbatches": [4]},
        ".microbatches",
        'expected either "batch_sizes" or "microbatches", not both',
    ),
    (
        "search.rank_orders",
        ["x"],
        "[0]",
        "input should be 'stages_first' or 'replicas_first', got the text \"x\"",
    ),
    (
        "search.backward",
        ["fused", "split"],
        "",
        '"split" needs "backward_input" and "backward_weight" in every layer',
    ),
    (
        "search.layer_splits",
        ["best"],
        "[0]",
        "input should be 'searched', 'balanced' or 'even', got the text \"best\"",
    ),
    ("search.schedules", [5], "[0]", "input should be a valid string, got 5"),
    (
        "search.schedule",
        ["1f1b"],
        "",
        'unknown field "schedule"; did you mean "schedules"?',
    ),
]
"""Path, value, what the field of the error has beyond the path (after =: all of it), message."""


def test_the_example_is_valid_before_it_is_spoilt() -> None:
    assert parse_request(REQUEST).model.num_layers == 4


@pytest.mark.parametrize(("path", "value", "field", "message"), BAD)
def test_bad_requests(path: str, value: Any, field: str, message: str) -> None:
    steps = tuple(
        int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)
    )
    expected = field[1:] if field.startswith("=") else path + field
    assert refused(changed(steps, value)) == (expected or None, message)


EMPTY = [
    "pipeline_depths",
    "replicas",
    "placements",
    "virtual_stages",
    "microbatch_sizes",
    "batch_sizes",
    "microbatches",
    "rank_orders",
    "backward",
    "layer_splits",
    "schedules",
]


@pytest.mark.parametrize("name", EMPTY)
def test_empty_lists_leave_nothing_to_choose(name: str) -> None:
    field, message = refused(changed(("search", name), []))
    assert field == f"search.{name}"
    assert "at least 1" in message


def test_batch_sizes_without_a_maximum() -> None:
    document = changed(("search",), {"batch_sizes": [10**6, 2]})
    del document["goodput"]["max_batch_size"]
    assert refused(document) == (
        "search.batch_sizes[1]",
        "expected a batch size of at least 4, got 2",
    )


def test_unknown_fields_come_before_other_errors() -> None:
    document = changed(("goodput", "init_batch_size"), GONE)
    document["serch"] = {}
    assert refused(document) == (
        "serch",
        'unknown field "serch"; did you mean "search"?',
    )


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST), encoding="utf-8")
    assert load_request(path) == parse_request(REQUEST)
    path.write_text('{"kind": "plan",', encoding="utf-8")
    with pytest.raises(InputError, match="JSON"):
        load_request(path)
    path.write_text(json.dumps(changed(("cluster", "memory"), -1)), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_request(path)
    assert (
        str(caught.value) == f"{path}: cluster.memory: expected a number >= 0, got -1"
    )
    with pytest.raises(InputError, match="no such file"):
        load_request(tmp_path / "none.json")


def test_repeated_fields_and_nan_in_files(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text('{"kind": "plan", "kind": "plan"}', encoding="utf-8")
    with pytest.raises(InputError, match="twice"):
        load_request(path)
    text = json.dumps(changed(("goodput", "grad", "sqr"), NAN))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_request(path)
    assert caught.value.source == str(path)


def test_numbers_mean_the_same_as_ints_floats_and_decimals() -> None:
    whole = parse_request(REQUEST)
    as_floats = json.loads(json.dumps(REQUEST), parse_int=float)
    as_decimals = json.loads(
        json.dumps(REQUEST), parse_int=Decimal, parse_float=Decimal
    )
    assert parse_request(as_floats | {"schema": 1}) == whole
    assert parse_request(as_decimals | {"schema": 1}) == whole


def test_requests_survive_json() -> None:
    request = parse_request(REQUEST)
    assert (
        parse_request(json.loads(request.model_dump_json(exclude_none=True))) == request
    )


def test_amounts_by_size() -> None:
    model = parse_request(REQUEST).model
    assert model.amounts("forward", 1) == [
        1,
        Fraction(3, 2),
        Fraction(3, 2),
        Fraction(3, 2),
    ]
    assert model.amounts("forward", 2) == [2, 2, 2, 2]
    assert model.backward(2) == [4, 4, 4, 4]
    assert model.amounts("activation_bytes", 2) == [6, 0, 0, 0]
    assert model.amounts("output_bytes", 2) == [2, 0, 0, 0]
    assert model.amounts("state_bytes", 2) == [40, 0, 0, 0]
    assert model.amounts("parameter_bytes", 2) == [5, 0, 0, 0]
    assert model.amounts("optimizer", 2) == [0, 0, 0, 0]
    assert model.is_measured
    assert not model.is_split


def test_split_backwards_add_up() -> None:
    model = ModelProfile.parse(
        {
            "microbatch_sizes": [4],
            "layers": [
                {
                    "forward": 1,
                    "backward_input": [3],
                    "backward_weight": {"fixed": 0.25},
                },
                {
                    "forward": 1,
                    "backward_input": 0,
                    "backward_weight": 0.5,
                    "state_bytes": 7,
                },
            ],
        }
    )
    assert model.is_split
    assert model.amounts("backward_input", 4) == [3, 0]
    assert model.amounts("backward_weight", 4) == [Fraction(1, 4), 2]
    assert model.backward(4) == [Fraction(13, 4), 2]
    assert model.amounts("state_bytes", 2) == [0, 7]


def test_one_fused_layer_makes_the_profile_fused() -> None:
    layers = [
        {"forward": 1, "backward_input": 3, "backward_weight": 1},
        {"forward": 1, "backward": 5},
    ]
    model = ModelProfile.parse({"microbatch_sizes": [1], "layers": layers})
    assert not model.is_split
    assert model.backward(1) == [4, 5]
    document = changed(("model",), {"microbatch_sizes": [1], "layers": layers})
    document["search"] = {"backward": ["split"]}
    assert refused(document)[0] == "search.backward"


def test_sizes_beyond_the_profile_need_formulas() -> None:
    document = changed(("search", "microbatch_sizes"), [3, 7])
    document["model"]["layers"] = [
        {"count": 4, "forward": {"fixed": 1, "per_sample": 2}, "backward": 0.5}
    ]
    request = parse_request(document)
    assert request.model.amounts("forward", 7)[0] == 15
    document["model"]["layers"][0]["activation_bytes"] = [1, 2]
    assert refused(document)[1] == "expected a profiled size (1, 2), got 3"


def test_links_are_exact() -> None:
    link = Link(latency=Decimal("0.1"), bandwidth=Decimal(3))
    assert link.transfer(Fraction(1)) == Fraction(1, 10) + Fraction(1, 3)
    assert link.ring_allreduce(Fraction(12), 1) == 0
    assert link.ring_allreduce(Fraction(12), 4) == 6 * (Fraction(1, 10) + 1)


def plain_ranks(depth: int, replicas: int, order: str) -> dict[tuple[int, int], int]:
    """Return the rank of every (device, replica), counted one by one."""
    outer, inner = (replicas, depth) if order == "stages_first" else (depth, replicas)
    pairs = [(a, b) for a in range(outer) for b in range(inner)]
    if order == "stages_first":
        return {(device, replica): rank for rank, (replica, device) in enumerate(pairs)}
    return {(device, replica): rank for rank, (device, replica) in enumerate(pairs)}


@given(
    depth=st.integers(1, 6),
    replicas=st.integers(1, 6),
    per_node=st.integers(1, 9),
    order=st.sampled_from(list(RankOrder)),
)
@examples(20)
def test_links_between_ranks(
    depth: int, replicas: int, per_node: int, order: RankOrder
) -> None:
    links = {
        name: {"bandwidth": index + 1}
        for index, name in enumerate(
            (
                "within_node",
                "between_nodes",
                "allreduce_within_node",
                "allreduce_between_nodes",
            )
        )
    }
    nodes = -(-depth * replicas // per_node)
    cluster = Cluster.parse({"nodes": nodes, "devices_per_node": per_node, **links})
    ranks = plain_ranks(depth, replicas, order)
    assert sorted(ranks.values()) == list(range(depth * replicas))
    shape = (depth, replicas)
    for a in range(depth):
        own = {ranks[a, replica] // per_node for replica in range(replicas)}
        assert cluster.allreduce(a, shape, order).bandwidth == (
            3 if len(own) == 1 else 4
        )
        for b in range(depth):
            pairs = [
                (ranks[a, r] // per_node, ranks[b, r] // per_node)
                for r in range(replicas)
            ]
            crosses = any(one != other for one, other in pairs)
            assert cluster.p2p(a, b, shape, order).bandwidth == (2 if crosses else 1)


def test_all_reduces_use_the_links_of_transfers_by_default() -> None:
    cluster = parse_request(REQUEST).cluster
    assert cluster.allreduce(0, (1, 2), RankOrder.STAGES_FIRST) == cluster.within_node
    assert cluster.allreduce(0, (1, 3), RankOrder.STAGES_FIRST) == cluster.between_nodes


JUNK: list[Any] = [
    *(
        None,
        True,
        False,
        "",
        "x",
        "linear",
        [],
        [1],
        [[1]],
        {},
        {"fixed": 1},
        {"bandwidth": 1e-30},
    ),
    *(
        0,
        1,
        -1,
        2,
        7,
        0.5,
        1e-30,
        1e-31,
        1e15,
        1e16,
        1e300,
        NAN,
        INFINITE,
        10**20,
        10**400,
    ),
]


def places(value: Any, at: Path_ = ()) -> list[Path_]:
    """Return the path of every value in a document."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [at, *(path for key, item in inner for path in places(item, (*at, key)))]


def spoilt(rng: random.Random) -> Any:
    """Return the example with one to three values replaced or taken out at random."""
    document: Any = copy.deepcopy(REQUEST)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(places(document)[1:] or [()])
        if not path:
            break
        at = document
        for step in path[:-1]:
            at = at[step]
        if rng.random() < 0.2:
            del at[path[-1]]
        else:
            at[path[-1]] = copy.deepcopy(rng.choice(JUNK))
    return document


def test_junk_is_refused_by_input_errors_only() -> None:
    accepted = 0
    for seed in range(1500):
        try:
            request = parse_request(spoilt(random.Random(seed)), "junk.json")
        except InputError as error:
            assert str(error).startswith("junk.json: "), seed
        else:
            assert isinstance(request, PlanRequest)
            accepted += 1
    assert 100 < accepted < 1400
