"""Every bad input: its own message, with the file, the field and what would be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import load_instance, lower, parse_instance

PIPELINE: dict[str, Any] = {
    "schema": 1,
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": 1, "backward": 2},
}
GRAPH: dict[str, Any] = {
    "schema": 1,
    "kind": "graph",
    "resources": ["r", "s"],
    "ops": [{"id": "a", "duration": 1, "resources": ["r"]}, {"id": "b", "duration": 2}],
}


def refused_text(text: str, tmp_path: Path) -> tuple[str | None, str]:
    """Load a file with this text and return the field and message of the error."""
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_instance(path)
    assert caught.value.source == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    return caught.value.field, caught.value.message


def refused(
    base: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> tuple[str, str]:
    field, message = refused_text(json.dumps({**base, **changes}), tmp_path)
    return str(field), message


@pytest.mark.parametrize("base", [PIPELINE, GRAPH])
def test_the_examples_are_valid_before_they_are_spoilt(
    base: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "good.json"
    path.write_text(json.dumps(base), encoding="utf-8")
    assert load_instance(path).kind == base["kind"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_instance(tmp_path / "none.json")
    assert str(caught.value) == f"{tmp_path / 'none.json'}: no such file"


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_instance(tmp_path)
    assert caught.value.message == "expected a file, this is a directory"


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(InputError) as caught:
        load_instance(path)
    assert caught.value.message == "expected UTF-8 text, byte 10 is not"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON, the file is empty"),
        ("  \n", "expected JSON, the file is empty"),
        ('{"kind": "pipeline",\n "num', "line 2, column 2"),
        ('{"kind": "pipeline",\n "name": ', "the file ends too early (truncated?)"),
        (
            '{"kind": "pipeline"\n "name": 1}',
            "not valid JSON: line 2, column 2: Expecting",
        ),
        ("{'kind': 1}", "not valid JSON: line 1, column 2"),
        ('{"kind": 1, "kind": 2}', 'the field "kind" appears twice in one object'),
        (
            '{"times": {"forward": 1, "forward": 2}}',
            'the field "forward" appears twice',
        ),
        ("[" * 100_000, "not usable JSON: nested too deeply"),
        (
            json.dumps(PIPELINE).replace('"forward": 1', '"forward": 1e9999999'),
            "at most 1E+15",
        ),
        ('{"num_devices": 1e99999999999999999999}', "a number has too many digits"),
        (
            r'{"kind": "graph", "name": "\ud800"}',
            r'expected whole characters, got the text "\ud800"',
        ),
        ("[1, 2]", "expected an object, got a list of 2"),
        ("null", "expected an object, got null"),
    ],
)
def test_not_usable_json(text: str, message: str, tmp_path: Path) -> None:
    assert message in refused_text(text, tmp_path)[1]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        (
            {"kind": "pipelin"},
            "kind",
            'unknown kind "pipelin"; did you mean "pipeline"?',
        ),
        (
            {"kind": "k" * 99},
            "kind",
            f'unknown kind "{"k" * 60}"; known: pipeline, graph',
        ),
        ({"kind": 3}, "kind", "expected one of pipeline, graph"),
        ({"schema": 2}, "schema", "expected 1 (the only version), got 2"),
        ({"schema": "1"}, "schema", 'expected 1 (the only version), got the text "1"'),
        ({"schema": True}, "schema", "expected 1 (the only version), got true"),
        ({"num_microbatch": 4}, "num_microbatch", 'did you mean "num_microbatches"?'),
        ({"zzz": 4}, "zzz", 'unknown field "zzz"; known: schema, kind, name'),
        (
            {"times": {"forward": 1, "backwards": 2}},
            "times.backwards",
            'unknown field "backwards"; did you mean "backward"?',
        ),
        ({"p2p": {"latencies": 1}}, "p2p.latencies", 'did you mean "latency"?'),
        ({"name": 7}, "name", "got 7"),
        (
            {"num_devices": "2"},
            "num_devices",
            'expected a whole number, got the text "2"',
        ),
        ({"num_devices": 2.5}, "num_devices", "expected a whole number, got 2.5"),
        ({"num_devices": True}, "num_devices", "expected a whole number, got true"),
        ({"num_devices": None}, "num_devices", "got null"),
        ({"num_devices": 0}, "num_devices", "greater than or equal to 1, got 0"),
        ({"num_devices": 10**9}, "num_devices", "less than or equal to 4096"),
        (
            {"num_microbatches": 0},
            "num_microbatches",
            "greater than or equal to 1, got 0",
        ),
        (
            {"num_microbatches": -3},
            "num_microbatches",
            "greater than or equal to 1, got -3",
        ),
        (
            {"num_microbatches": 999_999},
            "num_microbatches",
            "expected at most 5000000 ops",
        ),
        (
            {"stages_per_device": 0},
            "stages_per_device",
            "greater than or equal to 1, got 0",
        ),
        (
            {"stages_per_device": 2},
            "stages_per_device",
            'expected 1 with placement "linear"',
        ),
        (
            {"stages_per_device": 3, "placement": "vshape"},
            "stages_per_device",
            'expected 2 with placement "vshape", got 3 (use "wave" for more)',
        ),
        ({"objective": "makspan"}, "objective", "'makespan' or 'device_span', got"),
        ({"times": 5}, "times", "expected an object, got 5"),
        ({"times": None}, "times", "expected an object, got null"),
        ({"times": {"backward": 5}}, "times.forward", "this field is required"),
        ({"memory": {"capacity": 1}}, "memory.activation", "this field is required"),
    ],
)
def test_fields_of_a_pipeline(
    changes: dict[str, Any], field: str, message: str, tmp_path: Path
) -> None:
    found = refused(PIPELINE, changes, tmp_path)
    assert found[0] == field
    assert message in found[1]


@pytest.mark.parametrize("digits", [16, 700, 5000])
@pytest.mark.parametrize(
    ("field", "path"),
    [
        ('"num_devices": 2', "num_devices"),
        ('"num_microbatches": 4', "num_microbatches"),
        ('"forward": 1', "times.forward"),
    ],
)
def test_numbers_of_many_digits(
    digits: int, field: str, path: str, tmp_path: Path
) -> None:
    text = json.dumps(PIPELINE)
    assert field in text
    found = refused_text(text.replace(field, field[:-1] + "7" * digits), tmp_path)
    assert found[0] == path
    assert found[1].startswith("expected at most 1E+15, got 7.777778E+")
    assert refused_text(text.replace(field, field[:-1] + "1e5000"), tmp_path) == (
        path,
        "expected at most 1E+15, got 1.000000E+5000",
    )


def test_ints_of_many_digits_from_python() -> None:
    with pytest.raises(InputError) as caught:
        parse_instance({**PIPELINE, "num_devices": 10**5000})
    assert (
        str(caught.value) == "num_devices: expected at most 1E+15, got 1.000000E+5000"
    )
    with pytest.raises(
        InputError, match=r"expected one of pipeline.*, got -1.000000E\+5000"
    ):
        parse_instance({"kind": -(10**5000)})


@pytest.mark.parametrize(
    "missing", ["num_devices", "num_microbatches", "times", "kind"]
)
def test_missing_field(missing: str, tmp_path: Path) -> None:
    data = {key: value for key, value in PIPELINE.items() if key != missing}
    field, message = refused_text(json.dumps(data), tmp_path)
    assert field == missing
    assert message.startswith("this field is required")


@pytest.mark.parametrize(
    ("times", "field", "message"),
    [
        ({"forward": -1}, "times.forward", "expected a number >= 0, got -1"),
        (
            {"forward": [1, -0.5]},
            "times.forward[1]",
            "expected a number >= 0, got -0.5",
        ),
        ({"forward": "1"}, "times.forward", 'got the text "1"'),
        ({"forward": None}, "times.forward", "got null"),
        ({"forward": [1, None]}, "times.forward[1]", "got null"),
        ({"forward": True}, "times.forward", "expected a number, got true"),
        ({"forward": {"a": 1}}, "times.forward", "got an object"),
        (
            {"forward": float("nan")},
            "times.forward",
            "expected a finite number, got NaN",
        ),
        (
            {"forward": float("inf")},
            "times.forward",
            "expected a finite number, got Infinity",
        ),
        (
            {"forward": 1e16},
            "times.forward",
            "expected at most 1E+15, got 1.000000E+16",
        ),
        ({"forward": 1e300}, "times.forward", "expected at most 1E+15"),
        ({"forward": 1e-40}, "times.forward", "expected 0 or at least 1E-30"),
        (
            {"forward": [1]},
            "times.forward",
            "a number or 2 entries (one per stage), got 1",
        ),
        ({"forward": [1, 2, 3]}, "times.forward", "2 entries (one per stage), got 3"),
        ({"forward": []}, "times.forward", "2 entries (one per stage), got 0"),
        (
            {"forward": [[1, 2, 3], 4]},
            "times.forward[0]",
            "a number or 4 entries (one per micro-batch), got 3",
        ),
        (
            {"forward": [1, [[2]]]},
            "times.forward[1][0]",
            "one per micro-batch), got a list of 1",
        ),
        (
            {"forward": [1, [1, -2, 1, 1]]},
            "times.forward[1][1]",
            "expected a number >= 0, got -2",
        ),
        (
            {"backward_input": 1},
            "times",
            'either "backward", or both "backward_input" and',
        ),
    ],
)
def test_times(times: dict[str, Any], field: str, message: str, tmp_path: Path) -> None:
    changes = {"times": {"forward": 1, "backward": 2, **times}}
    found = refused(PIPELINE, changes, tmp_path)
    assert found[0] == field
    assert message in found[1]


@pytest.mark.parametrize("times", [{}, {"backward_input": 1}, {"backward_weight": 1}])
def test_times_without_a_whole_backward(times: dict[str, Any], tmp_path: Path) -> None:
    field, message = refused(PIPELINE, {"times": {"forward": 1, **times}}, tmp_path)
    assert field == "times"
    assert (
        message
        == 'expected either "backward", or both "backward_input" and "backward_weight"'
    )


@pytest.mark.parametrize(
    ("placement", "field", "message"),
    [
        (
            "linaer",
            "placement",
            'known placement, got "linaer"; did you mean "linear"?',
        ),
        (
            "zigzag",
            "placement",
            "known: linear, interleaved, vshape, wave, bidirectional",
        ),
        ([0, 1], "placement", 'or {"stage_to_device": [...]}, got a list of 2'),
        (None, "placement", "got null"),
        ({"stages": [0, 1]}, "placement.stages", 'unknown field "stages"'),
        (
            {"stage_to_device": []},
            "placement.stage_to_device",
            "at least 1 entry, got none",
        ),
        (
            {"stage_to_device": [0, 2]},
            "placement.stage_to_device[1]",
            "expected a device from 0 to 1, got 2",
        ),
        (
            {"stage_to_device": [0, -1]},
            "placement.stage_to_device[1]",
            "expected a device from 0 to 1, got -1",
        ),
        (
            {"stage_to_device": [0, "1"]},
            "placement.stage_to_device[1]",
            'expected a whole number, got the text "1"',
        ),
        (
            {"stage_to_device": [1, 1]},
            "placement.stage_to_device",
            "expected at least one stage on every device, device 0 has none",
        ),
    ],
)
def test_placements(placement: Any, field: str, message: str, tmp_path: Path) -> None:
    found = refused(PIPELINE, {"placement": placement}, tmp_path)
    assert found[0] == field
    assert message in found[1]


def test_odd_microbatches_on_bidirectional_pipes(tmp_path: Path) -> None:
    changes = {"placement": "bidirectional", "num_microbatches": 3}
    field, message = refused(PIPELINE, changes, tmp_path)
    assert field == "num_microbatches"
    assert message.startswith("expected an even number with bidirectional pipes")
    assert message.endswith("got 3")


LINK = {"mode": "link", "bytes": 8, "bandwidth": 2}


@pytest.mark.parametrize(
    ("p2p", "field", "message"),
    [
        ({"latency": -1}, "p2p.latency", "expected a number >= 0, got -1"),
        (
            {"latency": [[0, 1]]},
            "p2p.latency",
            "a number or a 2 x 2 matrix, got 1 rows",
        ),
        (
            {"latency": [[0, 1], [1]]},
            "p2p.latency[1]",
            "expected 2 numbers in every row",
        ),
        ({"latency": [0, 1]}, "p2p.latency[0]", "column per device, got 0 for a row"),
        (
            {"latency": [[0, 1], [-1, 0]]},
            "p2p.latency[1][0]",
            "expected a number >= 0, got -1",
        ),
        ({"mode": "links"}, "p2p.mode", "'send_queue', 'buffered' or 'rendezvous'"),
        ({"mode": "link"}, "p2p", 'expected "bytes" and "bandwidth" with mode "link"'),
        (
            {"mode": "nic", "bytes": 1},
            "p2p",
            'expected "bytes" and "bandwidth" with mode "nic"',
        ),
        (
            {"bytes": 1},
            "p2p",
            'expected mode "link", "nic" or "send_queue" where bytes or bandwidth are given',
        ),
        (
            {"mode": "send_queue"},
            "p2p",
            'expected "bytes" and "bandwidth" with mode "send_queue"',
        ),
        (
            {**LINK, "bytes": [[1, 2, 3]]},
            "p2p.bytes[0]",
            "entries (one per micro-batch), got 3",
        ),
        ({**LINK, "bytes": [[1, [2]]]}, "p2p.bytes[0][1]", "got a list of 1"),
        ({**LINK, "bandwidth": 0}, "p2p.bandwidth", "expected a bandwidth > 0, got 0"),
        (
            {**LINK, "bandwidth": [[0, 1], [0, 0]]},
            "p2p.bandwidth[1][0]",
            "expected a bandwidth > 0 on a link that is used, got 0",
        ),
        (
            {**LINK, "bandwidth": [[0, 1], [1]]},
            "p2p.bandwidth[1]",
            "2 numbers in every row",
        ),
        (
            {**LINK, "bytes": [1, 2]},
            "p2p.bytes",
            "1 entries (one per stage boundary), got 2",
        ),
        ({**LINK, "bytes": -1}, "p2p.bytes", "expected a number >= 0, got -1"),
    ],
)
def test_transfers(
    p2p: dict[str, Any], field: str, message: str, tmp_path: Path
) -> None:
    found = refused(PIPELINE, {"p2p": p2p}, tmp_path)
    assert found[0] == field
    assert message in found[1]


@pytest.mark.parametrize(
    ("memory", "field", "message"),
    [
        (
            {"capacity": [1, 2, 3]},
            "memory.capacity",
            "2 entries (one per device), got 3",
        ),
        ({"capacity": -1}, "memory.capacity", "expected a number >= 0"),
        ({"activation": [1]}, "memory.activation", "2 entries (one per stage), got 1"),
        ({"static": [1, 2, 3]}, "memory.static", "2 entries (one per stage), got 3"),
        (
            {"released_by_backward_weight": 1.5},
            "memory.released_by_backward_weight",
            "less than or equal to 1, got 1.5",
        ),
    ],
)
def test_memory(
    memory: dict[str, Any], field: str, message: str, tmp_path: Path
) -> None:
    changes = {"memory": {"capacity": 2, "activation": 1, **memory}}
    found = refused(PIPELINE, changes, tmp_path)
    assert found[0] == field
    assert message in found[1]


@pytest.mark.parametrize("field", ["allreduce", "optimizer"])
def test_stage_tail_ops(field: str, tmp_path: Path) -> None:
    found = refused(PIPELINE, {field: [1, 2, 3]}, tmp_path)
    assert found == (field, "expected a number or 2 entries (one per stage), got 3")
    assert "expected a number >= 0" in refused(PIPELINE, {field: -1}, tmp_path)[1]


def op(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "duration": 1, **fields}


def edges(*pairs: str) -> list[dict[str, str]]:
    return [{"before": pair[0], "after": pair[1]} for pair in pairs]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"ops": []}, "ops", "at least 1 entry, got none"),
        ({"ops": 3}, "ops", "got 3"),
        (
            {"ops": [op("a"), op("a")]},
            "ops",
            'expected different names, "a" appears twice',
        ),
        ({"ops": [op("")]}, "ops[0].id", "at least 1 character"),
        ({"ops": [{"id": "a"}]}, "ops[0].duration", "this field is required"),
        (
            {"ops": [op("a", duration=-1)]},
            "ops[0].duration",
            "expected a number >= 0, got -1",
        ),
        (
            {"ops": [op("a", release=-1)]},
            "ops[0].release",
            "expected a number >= 0, got -1",
        ),
        (
            {"ops": [op("a", start=-1)]},
            "ops[0].start",
            "expected a number >= 0, got -1",
        ),
        (
            {"ops": [op("a", lenght=1)]},
            "ops[0].lenght",
            'unknown field "lenght"; known: id',
        ),
        ({"ops": [op("a", relese=1)]}, "ops[0].relese", 'did you mean "release"?'),
        (
            {"ops": [op("a", resources=["q"])]},
            "ops[0].resources",
            'unknown resource "q"',
        ),
        (
            {"ops": [op("a", resources=["r", "r"])]},
            "ops[0].resources",
            '"r" appears twice',
        ),
        ({"ops": [op("a", acquire={"m": 1})]}, "ops[0].acquire", 'unknown pool "m"'),
        (
            {"ops": [op("a", release_at_end={"m": 1})]},
            "ops[0].release_at_end",
            "unknown pool",
        ),
        (
            {"resources": ["r", "r"]},
            "resources",
            'expected different names, "r" appears twice',
        ),
        (
            {"pools": [{"name": "m", "capacity": 1}] * 2},
            "pools",
            'expected different names, "m" appears twice',
        ),
        ({"pools": [{"name": "m"}]}, "pools[0].capacity", "this field is required"),
        (
            {"precedences": edges("ac")},
            "precedences[0].after",
            'unknown op "c"; known: a, b',
        ),
        (
            {"precedences": edges("ca")},
            "precedences[0].before",
            'unknown op "c"; known: a, b',
        ),
        (
            {"precedences": [{"before": "a", "after": "b", "lag": -1}]},
            "precedences[0].lag",
            "expected a number >= 0, got -1",
        ),
        (
            {"precedences": edges("aa")},
            "precedences",
            "expected no cycle, found a -> a",
        ),
    ],
)
def test_graphs(
    changes: dict[str, Any], field: str, message: str, tmp_path: Path
) -> None:
    found = refused(GRAPH, changes, tmp_path)
    assert found[0] == field
    assert message in found[1]


def test_cycle_is_named_in_its_order(tmp_path: Path) -> None:
    ops = [op(name) for name in "abcde"]
    changes = {"ops": ops, "precedences": edges("ab", "bc", "cd", "db", "de")}
    field, message = refused(GRAPH, changes, tmp_path)
    assert field == "precedences"
    rotations = {"b -> c -> d -> b", "c -> d -> b -> c", "d -> b -> c -> d"}
    assert message.removeprefix("expected no cycle, found ") in rotations


def test_times_without_a_common_tick() -> None:
    instance = parse_instance({**PIPELINE, "times": {"forward": 1e9, "backward": 1e-9}})
    with pytest.raises(InputError) as caught:
        lower(instance, exact=True)
    assert (caught.value.source, caught.value.field) == ("pipeline", "times")
    assert "give fewer digits" in caught.value.message


def test_times_that_are_too_long_together() -> None:
    times = {"forward": 10**12, "backward": 10**12 - 1}
    data = {**PIPELINE, "name": "long", "num_microbatches": 80_000, "times": times}
    with pytest.raises(InputError) as caught:
        lower(parse_instance(data))
    assert str(caught.value).startswith(
        "long: times: all times together are 3.2E+17 ticks"
    )


@pytest.mark.parametrize("wrong", ["x.json", {"kind": "pipeline"}, None])
def test_what_is_no_instance_is_refused_by_the_library(wrong):
    with pytest.raises(
        InputError, match="expected an instance, as load_instance and parse_"
    ):
        ppsolve.optimize(wrong)
    with pytest.raises(InputError, match="expected an instance"):
        ppsolve.simulate(wrong, "1f1b")
