"""Amounts with a unit: exact where a unit is declared, refused with a remedy where none is."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import ppsolve
from ppsolve.models.core.units import SIZES, amount_in, finest_time, readable_amounts
from ppsolve.models.documents.base import Number, StrictModel
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.measures import ByteCount, MemoryAmount, Time
from ppsolve.models.instances import Instance
from ppsolve.models.studies.plan.request import load_request, parse_request
from tests.paths import ROOT

UNITS = [(given_, unit) for sizes in SIZES for given_ in sizes for unit in sizes]


class _Kettle(StrictModel):
    boil: Time[Number | tuple[Number, ...]]
    room: MemoryAmount[dict[str, Number]] = Field(default={})
    forward: str = "up"  # a name, whatever it means elsewhere


class _Brewery(Instance):
    memory_unit_at: ClassVar[tuple[str, ...]] = ("measured_in",)

    name: str = "brewery"
    measured_in: str = "B"
    kettles: tuple[_Kettle, ...] = ()
    spare: dict[str, _Kettle] = Field(default={})
    grain: ByteCount[Number] | None = None
    duration: Number | str = 0  # no time: nothing says so


def pipeline(**changes: Any) -> Any:
    fields = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
    }
    return ppsolve.parse_instance({**fields, **changes}, "f.json")


@given(st.decimals(0, 10**6, places=3), st.sampled_from(UNITS))
def test_amounts_are_exact(number: Decimal, units: tuple[str, str]) -> None:
    sizes = next(sizes for sizes in SIZES if units[0] in sizes)
    found = amount_in(f"{number} {units[0]}", units[1])
    assert isinstance(found, Decimal)
    assert Fraction(found) == Fraction(number) * sizes[units[0]] / sizes[units[1]]


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("80GB", "B", "80000000000"),
        ("40GiB", "GB", "42.94967296"),
        ("80 GB", "GiB", "74.50580596923828125"),
        (" 24 ms ", "us", "24000"),
        ("1e3us", "ms", "1"),
        ("25GB/s", "B/us", "25000"),
    ],
)
def test_examples(text: str, unit: str, amount: str) -> None:
    assert amount_in(text, unit) == Decimal(amount)


def test_a_pipeline_reads_its_time_unit_and_the_unit_of_its_memory() -> None:
    made = pipeline(
        time_unit="ms",
        times={"forward": "24 ms", "backward": ["41000us", 0.04]},
        p2p={"mode": "link", "latency": "5us", "bytes": "16MiB", "bandwidth": "25GB/s"},
        memory={
            "unit": "GB",
            "capacity": ["80GB", "1.5p"],
            "activation": "1 GiB",
            "static": 20,
        },
    )
    alike = pipeline(
        time_unit="ms",
        times={"forward": 24, "backward": [41, 0.04]},
        p2p={"mode": "link", "latency": 0.005, "bytes": 2**24, "bandwidth": 25 * 10**6},
        memory={
            "unit": "GB",
            "capacity": [80, 3 * 1.073741824],
            "activation": 1.073741824,
            "static": 20,
        },
    )
    assert made == alike


def test_the_unit_of_the_memory_holds_for_layers_and_inside_kfac_work() -> None:
    layer = {"count": 4, "forward": "1us", "backward": 2, "activation": "512MiB"}
    free = {"layers": {"body": layer}, "memory": {"unit": "GiB", "capacity": "4GiB"}}
    fields = {"kind": "pipeline", "num_devices": 2, "num_microbatches": 2, **free}
    made = ppsolve.parse_instance(fields)
    assert made.layers.body.activation == Decimal("0.5")  # type: ignore[attr-defined]
    module = {"stage": 0, "name": "1s", "curvature_a": "2ms", "curvature_b": 1}
    module |= {"inverse_a": 1, "inverse_b": 1, "input_bytes": "0.01MB"}
    inner = {
        "num_devices": 1,
        "num_microbatches": 2,
        "times": {"forward": "1ms", "backward": 2},
    }
    inner["memory"] = {"unit": "kB", "capacity": "1MB", "activation": 1}
    work = {"kind": "kfac", "time_unit": "us", "pipeline": inner, "modules": [module]}
    around: Any = ppsolve.parse_instance(work)
    assert around.pipeline.times.forward == 1000
    assert around.pipeline.memory.capacity == 1000
    (read,) = around.modules
    assert (read.name, read.curvature_a, read.input_bytes) == ("1s", 2000, 10)


def test_programs_and_graphs_read_theirs() -> None:
    node = {"name": "5s", "kind": "compute", "duration": "1.5ms", "bytes": "2kB"}
    again = {"name": "b", "kind": "compute", "duration": 1, "deps": ["5s"]}
    program: Any = ppsolve.parse_instance({"kind": "overlap", "nodes": [node, again]})
    assert (program.nodes[0].duration, program.nodes[0].bytes) == (1500, 2000)
    ops = [{"id": "1us", "duration": "1us", "resources": ["r"]}]
    graph: Any = ppsolve.parse_instance(
        {"kind": "graph", "resources": ["r"], "ops": ops}
    )
    assert (graph.ops[0].id, graph.ops[0].duration) == ("1us", 1)


def test_names_stay_names() -> None:
    ops = [
        {
            "id": "1us",
            "duration": 1,
            "resources": ["r"],
            "acquire": {"time": 5, "2s": 1},
        }
    ]
    pools = [{"name": "time", "capacity": 5}, {"name": "2s", "capacity": 1}]
    fields = {"kind": "graph", "resources": ["r"], "ops": ops, "pools": pools}
    graph: Any = ppsolve.parse_instance(fields)
    assert graph.ops[0].acquire == {"time": 5, "2s": 1}
    ops[0]["acquire"] = {"bytes": "5GB"}
    with pytest.raises(InputError, match=r"acquire\.bytes: expected a plain number"):
        ppsolve.parse_instance(fields)
    nodes = [{"name": "5ms", "kind": "compute", "duration": "1ms"}]
    nodes.append({"name": "b", "kind": "compute", "duration": 1, "deps": ["5ms"]})
    for name in ("1F", "5ms", "time", "memory"):
        overlap = {"time": name, "programs": {name: {"nodes": nodes}}}
        block: Any = pipeline(placement="vshape", overlap=overlap)
        assert block.overlap.time == name
        assert block.overlap.programs[name].nodes[0].duration == 1000


def test_long_texts_are_no_amounts() -> None:
    for text in ("1" * 200_000, "1" * 5000 + " ms"):
        with pytest.raises(InputError, match=r"times\.forward: expected a number"):
            pipeline(times={"forward": text, "backward": 2})


def test_a_request_for_a_plan_counts_bytes() -> None:
    plain = load_request(ROOT / "instances" / "plans" / "small-12x4.plan.json")
    data = plain.model_dump(mode="json", exclude_none=True)
    data["cluster"]["memory"] = "16GiB"
    data["cluster"]["within_node"] = {"latency": "8us", "bandwidth": "200GB/s"}
    data["model"]["layers"][0]["parameter_bytes"] = "1.5MB"
    read = parse_request(data)
    assert read.cluster.memory == 2**34
    assert read.cluster.within_node.latency == 8
    assert read.cluster.within_node.bandwidth == 200_000
    assert read.model.layers[0].parameter_bytes == 1_500_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory": {"capacity": "80GB", "activation": 1}},
            'memory.capacity: expected a plain number (a unit needs a "unit" beside it, such as '
            'memory.unit), got the text "80GB"',
        ),
        (
            {"memory": {"unit": "GB", "capacity": "80gb", "activation": 1}},
            'memory.capacity: unknown unit "gb"; expected one of ns, us, ms, s, B, kB, MB, GB, TB, '
            "KiB, MiB, GiB, TiB",
        ),
        (
            {"memory": {"unit": "GB", "capacity": 80, "activation": [1, "3 ms"]}},
            'memory.activation[1]: expected a number in GB, got the text "3 ms"',
        ),
        (
            {"memory": {"unit": "Gb", "capacity": 80, "activation": 1}},
            'memory.unit: unknown unit "Gb"; expected one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB',
        ),
        (
            {"memory": {"unit": "gigabytes", "capacity": "80GB", "activation": 1}},
            'memory.unit: unknown unit "gigabytes"; expected one of B, kB, MB, GB, TB, KiB',
        ),
        (
            {"memory": {"unit": 8, "capacity": 80, "activation": 1}},
            "memory.unit: input should be 'B', 'kB', 'MB', 'GB'",
        ),
        (
            {"memory": {"unit": "GB", "capacity": "80 XB", "activation": 1}},
            'memory.capacity: unknown unit "XB"; expected one of ns, us, ms, s, B, kB, MB, GB, TB',
        ),
        (
            {"times": {"forward": "24GB", "backward": 1}},
            'times.forward: expected a number in us, got the text "24GB"',
        ),
        (
            {"times": {"forward": "24 msec", "backward": 1}},
            'times.forward: unknown unit "msec"; expected one of ns, us, ms, s, B',
        ),
        (
            {"time_unit": "steps", "times": {"forward": "2s", "backward": 1}},
            'times.forward: expected a number in steps, got the text "2s"',
        ),
        (
            {"p2p": {"mode": "link", "bytes": 1, "bandwidth": "25GB"}},
            'p2p.bandwidth: expected a number in B/us, got the text "25GB"',
        ),
        ({"times": {"forward": "24", "backward": 1}}, 'got the text "24"'),
        (
            {
                "memory": {
                    "unit": "GB",
                    "capacity": 8,
                    "activation": 1,
                    "released_by_backward_weight": "1GB",
                }
            },
            "released_by_backward_weight: expected a number or a list with one number per stage",
        ),
        (
            {"num_devices": "2 s"},
            'num_devices: expected a whole number, got the text "2 s"',
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        pipeline(**changes)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("unit", "meant"),
    [
        ("mss", "ms"),
        ("msec", "ms"),
        ("milliseconds", "ms"),
        ("sec", "s"),
        ("seconds", "s"),
        ("microseconds", "us"),
        ("usec", "us"),
        ("µs", "us"),
        ("nano-seconds", "ns"),
        ("MS", "ms"),
    ],
)
def test_a_misspelt_time_unit_gets_a_suggestion(unit: str, meant: str) -> None:
    message = f'f.json: time_unit: unknown unit "{unit}"; did you mean "{meant}"?'
    with pytest.raises(InputError) as refused:
        pipeline(time_unit=unit)
    assert str(refused.value) == message
    with pytest.raises(InputError, match=f'did you mean "{meant}"'):
        parse_request({"kind": "plan", "time_unit": unit})


@pytest.mark.parametrize(
    "unit", ["ns", "us", "ms", "s", "u", "min", "h", "ticks", "units", "slots"]
)
def test_units_of_no_known_length_stay(unit: str) -> None:
    assert pipeline(time_unit=unit).time_unit == unit


def test_a_deep_document_is_refused_by_its_fields() -> None:
    deep: Any = "80GB"
    for _ in range(900):
        deep = [deep]
    with pytest.raises(InputError, match="expected a number"):
        pipeline(times={"forward": deep, "backward": 1})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"times": {"forward": [1, 0.3333333333333333], "backward": 20.25}},
            "times.forward[1] = 0.3333333333333333",
        ),
        ({"times": {"forward": 1e9, "backward": 1e-9}}, "times.backward = 1E-9"),
        (
            {"p2p": {"latency": [[0, 1], [0.12345678901234567, 0]]}},
            "p2p.latency[1][0] = ",
        ),
        ({"times": {"forward": 0.25, "backward": 2}}, None),
        # Here thirds and the like are quotients.
        ({"p2p": {"mode": "link", "bytes": 12345, "bandwidth": 9876543211}}, None),
        ({"memory": {"capacity": 0.12345678901234567, "activation": 0}}, None),
    ],
)
def test_the_time_that_has_the_finest_digit_is_named(
    changes: Any, named: str | None
) -> None:
    assert (finest_time(pipeline(**changes)) or "").startswith(named or "")
    assert (finest_time(pipeline(**changes)) is None) is (named is None)


def test_the_finest_time_of_other_kinds() -> None:
    ops = [{"id": "a", "duration": 1e9}, {"id": "b", "duration": 1, "release": 1 / 3}]
    graph = ppsolve.parse_instance({"kind": "graph", "resources": [], "ops": ops})
    assert finest_time(graph) == "ops[1].release = 0.3333333333333333"
    assert (
        finest_time(load_request(ROOT / "instances/plans/small-12x4.plan.json")) is None
    )
    empty = ppsolve.parse_instance({"kind": "overlap", "nodes": []})
    assert finest_time(empty) is None


def test_the_models_of_a_kind_say_what_their_fields_measure() -> None:
    kettle = {
        "boil": ["1s", 2],
        "room": {"time": "2GB", "duration": 1},
        "forward": "5ms",
    }
    fields = {
        "kind": "brewery",
        "time_unit": "ms",
        "measured_in": "MB",
        "duration": "3s",
    }
    fields |= {"kettles": [kettle], "spare": {"boil": kettle}, "grain": "1kB"}
    read = _Brewery.parse(fields)
    for own in (*read.kettles, read.spare["boil"]):
        assert own.boil == (1000, 2)
        assert own.room == {"time": 2000, "duration": 1}
        assert own.forward == "5ms"
    assert (read.grain, read.duration) == (1000, "3s")
    with pytest.raises(
        InputError, match=r"^spare\.b\.boil: expected a number in ms, got the text"
    ):
        _Brewery.parse({**fields, "spare": {"b": {"boil": "1GB"}}})
    with pytest.raises(
        InputError, match=r'^measured_in: unknown unit "pint"; expected one of B'
    ):
        _Brewery.parse({**fields, "measured_in": "pint"})


def test_the_finest_time_is_one_that_the_models_call_a_time() -> None:
    kettles = [{"boil": 1e9, "room": {"time": 1 / 3}}]
    fields = {"kind": "brewery", "kettles": kettles, "duration": 1 / 3}
    assert finest_time(_Brewery.parse(fields)) is None
    spare = {"time": {"boil": [1, 1 / 7]}}
    named = finest_time(_Brewery.parse({**fields, "spare": spare}))
    assert named == "spare.time.boil[1] = 0.14285714285714285"


def test_names_of_programs_are_no_times() -> None:
    nodes = [{"name": "a", "kind": "compute", "duration": 1 / 3}]
    overlap = {"time": "b", "programs": {"b": {"nodes": nodes}}}
    times = {"forward": 1e9, "backward": 2}
    block = pipeline(placement="vshape", overlap=overlap, times=times)
    named = "overlap.programs.b.nodes[0].duration = 0.3333333333333333"
    assert finest_time(block) == named


@pytest.mark.parametrize(
    ("amounts", "unit", "texts", "shown"),
    [
        ((91_400_000_000, 80_000_000_000), "B", ["91.4", "80.0"], "GB"),
        ((80_000_100_000, 80_000_000_000), "B", ["80.0001", "80.0000"], "GB"),
        ((91_400, 80_000), "MB", ["91.4", "80.0"], "GB"),
        ((20_480, 10_240), "MiB", ["20.0", "10.0"], "GiB"),
        ((91, 80), "GB", ["91", "80"], "GB"),
        ((91_400_000, 80_000_000), "", ["91,400,000", "80,000,000"], ""),
        ((Fraction(7, 2), 3), "GB", ["3.5", "3"], "GB"),
    ],
)
def test_amounts_for_people(
    amounts: tuple[Any, ...], unit: str, texts: list[str], shown: str
) -> None:
    exact = tuple(map(Fraction, amounts))
    assert readable_amounts(exact, unit) == (texts, shown)
