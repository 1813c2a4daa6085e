"""Overlap instances from JSON: what is accepted, and one clear error for everything else."""

from __future__ import annotations

import copy
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.cli.main import build
from tests.kinds.overlap.bruteforce import Document, random_document, with_caps
from tests.marks import examples, first

KERNEL: Document = {"name": "k0", "kind": "compute", "duration": 2, "bytes": 3}
COMM: Document = {"name": "c0", "kind": "comm", "duration": 2, "deps": ["k0"]}
WAIT: Document = {"name": "w0", "kind": "wait", "deps": ["c0"]}
PROGRAM = [KERNEL, COMM, WAIT]


def parse(*nodes: Any, **fields: Any) -> OverlapInstance:
    return OverlapInstance.parse(
        {"kind": "overlap", "nodes": list(nodes), **fields}, "x.json"
    )


def kernel(name: str, *deps: str, **fields: Any) -> Document:
    return {
        "name": name,
        "kind": "compute",
        "duration": 1,
        "deps": list(deps),
        **fields,
    }


def error_of(*nodes: Any, **fields: Any) -> str:
    with pytest.raises(InputError) as caught:
        parse(*nodes, **fields)
    text = str(caught.value)
    assert text.startswith("x.json: ") and text.isprintable()
    return text.removeprefix("x.json: ")


WRONG_PROGRAMS = {
    "twice": (
        [kernel("a"), kernel("b"), kernel("a")],
        'nodes[2].name: the name "a" appears twice (nodes 0 and 2)',
    ),
    "no collective": (
        [kernel("a"), {"name": "w", "kind": "wait", "deps": ["a"]}],
        'nodes[1].deps: expected exactly one collective that the wait "w" waits for, got 0',
    ),
    "a wait for nothing": (
        [{"name": "w", "kind": "wait"}],
        'nodes[0].deps: expected exactly one collective that the wait "w" waits for, got 0',
    ),
    "two collectives": (
        [KERNEL, COMM, {**COMM, "name": "c1"}, {**WAIT, "deps": ["c0", "c1"]}],
        'nodes[3].deps: expected exactly one collective that the wait "w0" waits for, got 2',
    ),
    "no wait": (
        [KERNEL, COMM],
        'nodes[1]: expected one wait for the collective "c0", got 0',
    ),
    "two waits": (
        [*PROGRAM, {**WAIT, "name": "w1"}],
        'nodes[1]: expected one wait for the collective "c0", got 2',
    ),
    "forward": (
        [kernel("a", "b"), kernel("b")],
        'nodes[0].deps[0]: "a" depends on "b", which comes later',
    ),
    "cycle": (
        [kernel("z"), kernel("a", "z", "b"), kernel("b", "a")],
        'nodes[1].deps[1]: "a" depends on "b", which comes later; expected earlier nodes only '
        "(a cycle, or nodes out of program order)",
    ),
    "itself": ([kernel("a", "a")], 'nodes[0].deps[0]: "a" depends on itself'),
    "unknown": (
        [kernel("alpha"), kernel("b", "alpa")],
        'nodes[1].deps[0]: unknown node "alpa"; did you mean "alpha"?',
    ),
    "a wait with a duration": (
        [KERNEL, COMM, {**WAIT, "duration": 2}],
        "nodes[2].duration: expected 0 for a wait, got 2",
    ),
    "a wait with bytes": (
        [KERNEL, COMM, {**WAIT, "bytes": 4}],
        "nodes[2].bytes: expected 0 for a wait, got 4",
    ),
    "a wait with a group": (
        [KERNEL, COMM, {**WAIT, "group": "x"}],
        "nodes[2].group: expected on collectives only",
    ),
    "a kernel with a group": (
        [kernel("a", group="x")],
        "nodes[0].group: expected on collectives only",
    ),
    "a group that is true or false": (
        [KERNEL, {**COMM, "group": True}, WAIT],
        "nodes[1].group: ",
    ),
    "a group that is a fraction": (
        [KERNEL, {**COMM, "group": 1.5}, WAIT],
        "nodes[1].group: ",
    ),
    "a collective that is a matrix product": (
        [KERNEL, {**COMM, "category": "matmul"}, WAIT],
        "nodes[1].category: expected on kernels only",
    ),
    "a kernel with a type of collective": (
        [kernel("a", collective="all_gather")],
        "nodes[0].collective: expected on collectives only",
    ),
    "negative": (
        [kernel("a", bytes=-1)],
        "nodes[0].bytes: expected a number >= 0, got -1",
    ),
    "not finite": (
        [{**KERNEL, "duration": float("nan")}],
        "nodes[0].duration: expected a finite number, got NaN",
    ),
    "text for a number": (
        [{**KERNEL, "duration": "2"}],
        'nodes[0].duration: expected a number, got the text "2"',
    ),
    "unknown kind": ([{"name": "a", "kind": "send"}], "nodes[0].kind: "),
    "no name": ([{"kind": "compute"}], "nodes[0].name: this field is required"),
    "no kind": ([{"name": "a"}], "nodes[0].kind: this field is required"),
    "unknown field": (
        [kernel("a", group_="x")],
        'nodes[0].group_: unknown field "group_"; did you mean "group"?',
    ),
    "not a node": ([3], "nodes[0]: expected an object, got 3"),
    "taken": ([kernel("launch:a")], "nodes[0].name: names that begin with launch: "),
}


@pytest.mark.parametrize("name", WRONG_PROGRAMS)
def test_a_wrong_program(name: str) -> None:
    nodes, message = WRONG_PROGRAMS[name]
    assert error_of(*nodes).startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_in_flight": 0}, "max_in_flight: "),
        ({"max_in_flight": 1.5}, "max_in_flight: expected a whole number"),
        ({"max_in_flight": "1"}, "max_in_flight: expected a whole number"),
        ({"max_in_flight": {"0": 0}}, "max_in_flight"),
        ({"max_in_flight": {"dq": 1}}, 'max_in_flight.dq: unknown group "dq"'),
        ({"max_live_bytes": -1}, "max_live_bytes: expected a number >= 0, got -1"),
        ({"max_live_bytes": "1"}, "max_live_bytes: expected a number, got the text"),
        (
            {"max_live_bytes": "1 ms"},
            'max_live_bytes: expected a number in B, got the text "1 ms"',
        ),
        ({"collective_order": "any"}, "collective_order: "),
        ({"objective": "bytes"}, "objective: "),
        (
            {"max_inflight": 1},
            'max_inflight: unknown field "max_inflight"; did you mean',
        ),
        ({"nodes": {"k0": 1}}, "nodes: expected a list, got an object"),
        ({"schema": 2}, "schema: "),
        ({"kind": "graph"}, "kind: "),
    ],
)
def test_a_wrong_field(fields: Document, message: str) -> None:
    nodes = [KERNEL, {**COMM, "group": "dp"}, WAIT]
    assert error_of(**{"nodes": nodes, **fields}).startswith(message)


JUNK = [
    None, True, 0, -1, 1, 3.5, -2.5, float("nan"), float("inf"), 1e308, 1e-320, 1e-31, 10**400,
    -(10**400), 10**5000, "", "x", "compute", "wait", "k\n0", "\x1b[31m", "\ud800", "a" * 600, [],
    {}, [[]], [None], [{}], ["k0"], {"k0": 1}, {"x": 0}, {"x": 2}, {"x\n": 1}, {"": 1}, {1: 1},
    [1] * 5, "free", b"x", object(), {"k0"}, (1, 2), 1 + 2j, Decimal("sNaN"), 2**63,
    {"x": 10**400}, {"y" * 5000: 0}, {None: 0}, Decimal("1E+400"), {"x": True}, {"x": "1"},
]  # fmt: skip

FIELDS = [*OverlapInstance.model_fields, "schema", "unknown"]
NODE_FIELDS = [
    "name",
    "kind",
    "duration",
    "deps",
    "group",
    "bytes",
    "collective",
    "unknown",
]


def attempt(document: Any) -> None:
    """Parse; whatever is wrong must be one line of one kind of error."""
    try:
        instance = OverlapInstance.parse(document, "x.json")
    except InputError as error:
        assert str(error).startswith("x.json: ")
        assert str(error).isprintable() and len(str(error)) < 1000
    else:
        assert instance.deps is not None


@pytest.mark.parametrize("seed", range(2))
def test_junk_in_any_field(seed: int) -> None:
    rng = random.Random(seed)
    document = with_caps(rng, random_document(rng, most=6))
    for junk in JUNK:
        attempt(junk)
        for field in FIELDS:
            attempt({**document, field: junk})
        for place, node in enumerate(document["nodes"]):
            spoilt = [{**node, field: junk} for field in NODE_FIELDS]
            for other in (junk, *spoilt, {**node, "deps": [*node["deps"], junk]}):
                nodes = list(document["nodes"])
                nodes[place] = other
                attempt({**document, "nodes": nodes})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
    ),
    max_leaves=6,
)
NODES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "c", "d"]) | VALUES,
        "kind": st.sampled_from(["compute", "comm", "wait"]),
        "deps": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=2) | VALUES,
    },
    optional={
        "duration": VALUES,
        "bytes": VALUES,
        "group": VALUES,
        "collective": VALUES,
    },
)


PROGRAMS = st.fixed_dictionaries({"nodes": st.lists(NODES, max_size=4) | VALUES})


@examples(17)
@given(PROGRAMS, VALUES, VALUES)
def test_any_json_parses_or_raises_an_input_error(
    document: Document, flights: Any, amount: Any
) -> None:
    attempt(document)
    attempt({**document, "max_in_flight": flights, "max_live_bytes": amount})


@pytest.mark.slow
@examples(134)
@given(PROGRAMS, VALUES, VALUES)
def test_much_more_json_parses_or_raises_an_input_error(
    document: Document, flights: Any, amount: Any
) -> None:
    attempt(document)
    attempt({**document, "max_in_flight": flights, "max_live_bytes": amount})


@pytest.mark.parametrize("seed", first(4, range(20)))
def test_a_program_survives_its_own_json(seed: int) -> None:
    rng = random.Random(seed)
    document = with_caps(rng, random_document(rng))
    before = copy.deepcopy(document)
    instance = OverlapInstance.parse(document)
    assert document == before
    again = OverlapInstance.parse(json.loads(instance.model_dump_json()))
    assert again == instance
    assert (
        ppsolve.optimize(again, workers=1).value
        == ppsolve.optimize(instance, workers=1).value
    )


def test_groups_and_deps() -> None:
    instance = parse(
        kernel("a"),
        {"name": "c", "kind": "comm", "deps": ["a", "a"], "duration": 1, "group": 3},
        {"name": "d", "kind": "comm", "duration": 1},
        {"name": "e", "kind": "comm", "duration": 1, "group": "3"},
        *({"name": f"w{c}", "kind": "wait", "deps": [c]} for c in "cde"),
        max_in_flight={"3": 2},
    )
    assert instance.groups == ("3", "0")
    assert instance.deps[1] == (0,)
    assert instance.previous_in_group == {3: 1}
    assert (instance.cap_of("3"), instance.cap_of("0")) == (2, None)
    assert instance.wait_of == {1: 4, 2: 5, 3: 6}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command on an instance file that holds a document."""
    monkeypatch.chdir(tmp_path)

    def invoke(document: Any, *arguments: str) -> Any:
        (tmp_path / "x.json").write_text(json.dumps(document))
        return CliRunner().invoke(build(), [arguments[0], "x.json", *arguments[1:]])

    return invoke


def test_a_cap_below_one_output_is_proved_infeasible(run: Any) -> None:
    document = {"kind": "overlap", "nodes": PROGRAM, "max_live_bytes": 2}
    done = run(document, "optimize", "--json")
    assert done.exit_code == 3
    result = json.loads(done.stdout)
    assert (result["status"], result["value"]) == ("INFEASIBLE", None)
    assert "k0" in result["reason"] and "capacity 2" in result["reason"]
    assert run({**document, "max_live_bytes": 3}, "optimize", "--json").exit_code == 0


@pytest.mark.parametrize("name", WRONG_PROGRAMS)
def test_a_wrong_program_on_the_command_line(run: Any, name: str) -> None:
    nodes, message = WRONG_PROGRAMS[name]
    if name == "not finite":
        return
    done = run({"kind": "overlap", "nodes": nodes}, "optimize")
    assert done.exit_code == 2
    assert message[:40] in " ".join(done.output.split())


def test_a_result_is_checked_on_the_command_line(run: Any, tmp_path: Path) -> None:
    document = {"kind": "overlap", "nodes": PROGRAM}
    assert run(document, "optimize", "-o", "result.json").exit_code == 0
    assert run(document, "check", "result.json").exit_code == 0
    result = json.loads((tmp_path / "result.json").read_text())
    result["order"] = result["order"][::-1]
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert run(document, "check", "result.json").exit_code == 5
    result["order"] = ["k0", "c0", "no such node"]
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert run(document, "check", "result.json").exit_code == 2
