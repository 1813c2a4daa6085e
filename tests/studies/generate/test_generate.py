"""Generating instances: options, profiles, seeds, and every message."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import fingerprint, instance_text
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import load_instance, lower, parse_instance
from ppsolve.solver.cli.main import build as program
from ppsolve.solver.studies.generate.flags import (
    IntegerRange,
    PerDevice,
    Unequal,
    parse_capacity,
    parse_count,
    parse_numbers,
    parse_placement,
    parse_times,
    parse_unequal,
    read_options,
)
from ppsolve.solver.studies.generate.instances import (
    PROFILES,
    build,
    find_profile,
    generate,
)
from tests.paths import DATA

GOLDEN = DATA / "random_seed0.json"
PLAIN = {
    "devices": 4,
    "microbatches": 8,
    "forward": Decimal(100),
    "backward": Decimal(200),
}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(
        program(), ["generate", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_seed_0_is_what_it_always_was() -> None:
    assert instance_text(generate(seed=0)) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("seed", range(40))
def test_random_family_follows_the_documented_draw_order(seed: int) -> None:
    instance = generate(seed=seed)
    random = np.random.default_rng(seed)
    devices = int(random.integers(4, 8, endpoint=True))
    microbatches = int(random.integers(8, 12, endpoint=True))
    assert (instance.num_devices, instance.num_microbatches) == (devices, microbatches)
    assert 4 <= devices <= 8
    assert 8 <= microbatches <= 12
    for entry, low, high in (
        (instance.times.forward, 50, 150),
        (instance.times.backward_input, 50, 150),
        (instance.times.backward_weight, 30, 100),
    ):
        expected = random.integers(low, high, size=devices, endpoint=True)
        assert entry == tuple(map(Decimal, expected.tolist()))
    assert instance.p2p.latency == 10
    assert instance.memory is not None
    assert instance.memory.capacity == devices
    assert instance.memory.activation == 1
    assert instance.memory.released_by_backward_weight == 1
    assert instance.objective == "makespan"
    assert lower(instance).num_ops == 3 * devices * microbatches


def test_seeds_differ_and_repeat() -> None:
    texts = [instance_text(generate(seed=seed)) for seed in (0, 1, 2, 0)]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3


def test_options_override_the_random_family() -> None:
    instance = generate(
        seed=9,
        devices=3,
        microbatches=IntegerRange(2, 2),
        forward=IntegerRange(7, 7),
        backward_weight=Decimal(5),
        capacity=PerDevice(Decimal("1.5")),
        share=Decimal("0.4"),
        name="mine",
    )
    assert instance.name == "mine"
    assert (instance.num_devices, instance.num_microbatches) == (3, 2)
    assert instance.times.forward == (7, 7, 7)
    assert instance.times.backward_weight == 5
    assert instance.memory is not None
    assert instance.memory.capacity == Decimal("4.5")
    assert instance.memory.released_by_backward_weight == Decimal("0.4")


def test_memory_options_do_not_change_the_draws() -> None:
    wide = generate(capacity="none", objective="device_span", seed=4)
    assert wide.memory is None
    assert wide.times == generate(seed=4).times


def test_fused_backward_replaces_the_split_one() -> None:
    instance = generate(backward=IntegerRange(100, 200), seed=1)
    assert not instance.times.is_split


@pytest.mark.parametrize("seed", range(6))
def test_random_bidirectional_pipes_get_an_even_number(seed: int) -> None:
    instance = generate(placement="bidirectional", seed=seed)
    assert instance.num_microbatches % 2 == 0


def test_p_counts_the_activations_of_all_stages_of_a_device() -> None:
    instance = generate(
        seed=0,
        placement="wave",
        stages_per_device=3,
        activation=Decimal("0.5"),
        devices=4,
    )
    assert instance.memory is not None
    assert instance.memory.capacity == 6


def test_plain_options() -> None:
    instance = generate(**PLAIN)
    assert instance.name == "linear-4x8"
    assert instance.memory is None
    assert instance.times.backward == 200


def test_profile_as_published() -> None:
    instance = generate(profile="6.2B")
    expected = {
        "schema": 1,
        "kind": "pipeline",
        "name": "zb-6.2b-8x24",
        "num_devices": 8,
        "num_microbatches": 24,
        "times": {"forward": 29718, "backward_input": 29444, "backward_weight": 19927},
        "p2p": {"latency": 527},
        "memory": {
            "capacity": 8,
            "activation": 1.0,
            "released_by_backward_weight": 0.43243243243243246,
        },
    }
    assert instance == parse_instance(expected)


def test_stages_of_a_device_share_the_profile() -> None:
    instance = generate(placement="vshape", profile="zb-16x48-b")
    assert instance.times.by_kind() == {"F": 14407, "I": 14380, "W": 9676}
    assert instance.memory is not None
    assert instance.memory.capacity == 32
    thirds = generate(
        placement="interleaved", stages_per_device=7, profile="zb-16x48-b"
    )
    assert thirds.times.forward == Decimal("4116.286")
    assert lower(thirds).num_ops == 3 * 16 * 7 * 48


def test_profile_in_another_shape_says_so() -> None:
    instance = generate(devices=4, microbatches=8, profile="1.5b")
    assert instance.name == "zb-1.5b-8x24-as-4x8"
    assert instance.memory is not None
    assert instance.memory.capacity == 4


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_an_instance(name: str) -> None:
    profile = find_profile(name)
    assert generate(profile=name).num_devices == profile.num_devices


def test_text_reads_back_and_fingerprint_ignores_the_name() -> None:
    for instance in (
        generate(seed=2),
        generate(**PLAIN),
        generate(placement={"stage_to_device": (0, 1, 1, 0)}, devices=2, seed=3),
        generate(p2p_mode="nic", p2p_bytes=Decimal(3), bandwidth=Decimal(2), seed=3),
    ):
        text = instance_text(instance)
        assert PipelineInstance.parse(json.loads(text)) == instance
        renamed = instance.model_copy(update={"name": "other"})
        assert fingerprint(renamed) == fingerprint(instance)
    assert fingerprint(generate(seed=2)) != fingerprint(generate(seed=3))


def test_parsers() -> None:
    assert parse_count("4..8") == parse_count("4-8") == IntegerRange(4, 8)
    assert parse_count(" 7 ") == 7
    assert parse_times("50-150") == IntegerRange(50, 150)
    assert parse_times("1.5,2") == (Decimal("1.5"), Decimal(2))
    assert parse_times("1e-5") == Decimal("0.00001")
    assert parse_numbers("3") == 3
    assert parse_capacity("NONE") == "none"
    assert parse_capacity("1.5p") == PerDevice(Decimal("1.5"))
    assert parse_capacity("p") == PerDevice(Decimal(1))
    assert parse_capacity("2,3") == (2, 3)
    assert parse_capacity("8") == 8
    assert (
        parse_unequal("0.6")
        == parse_unequal(" 0.6:lognormal")
        == Unequal(Decimal("0.6"))
    )
    assert parse_unequal("1:normal") == Unequal(Decimal(1), "normal")
    assert parse_placement("wave") == "wave"
    assert parse_placement("0,1, 0") == {"stage_to_device": (0, 1, 0)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_options({"p2p": "x"}), '--p2p: expected a number, got "x"'),
        (
            lambda: read_options({"forward": "24ms"}),
            "--forward: expected a plain number, got the text",
        ),
        (
            lambda: read_options({"p2p_bytes": "4mb"}),
            '--p2p-bytes: unknown unit "mb"; expected',
        ),
        (
            lambda: generate(time_unit="msec", seed=1),
            'time_unit: unknown unit "msec"; did you mean',
        ),
        (lambda: read_options({"p2p": "-1"}), "--p2p: expected a number >= 0, got -1"),
        (
            lambda: read_options({"p2p": "nan"}),
            "--p2p: expected a finite number, got NaN",
        ),
        (lambda: read_options({"p2p": "1,,2"}), '--p2p: expected a number, got ""'),
        (
            lambda: read_options({"devices": "x"}),
            "a whole number or a range such as 4..8",
        ),
        (
            lambda: read_options({"devices": "0"}),
            "--devices: expected at least 1, got 0",
        ),
        (
            lambda: read_options({"devices": "0..4"}),
            "--devices: expected at least 1, got 0",
        ),
        (lambda: read_options({"devices": "8..4"}), "did you mean 4..8?"),
        (
            lambda: read_options({"devices": "1.." + "9" * 40}),
            "expected at most 15 digits",
        ),
        (lambda: read_options({"placement": "0,x"}), 'such as 0,1,1,0, got "x"'),
        (
            lambda: read_options({"unequal": "x"}),
            '--unequal: expected a number, got "x"',
        ),
        (
            lambda: read_options({"unequal": "11"}),
            "--unequal: expected a spread of at most 10",
        ),
        (
            lambda: read_options({"unequal": "1:gauss"}),
            '--unequal: expected lognormal or normal behind the colon, got "gauss"',
        ),
        (lambda: read_options({"unequal": "1:"}), 'behind the colon, got ""'),
        (
            lambda: generate(**PLAIN, unequal=Unequal(Decimal(1))),
            "--unequal: expected --seed N with it, to draw the lengths from",
        ),
        (
            lambda: generate(unequal=Unequal(Decimal(1)), profile="6.2b"),
            "--unequal: expected --seed N with it",
        ),
        (
            lambda: find_profile("6.3b"),
            '--profile: unknown profile "6.3b"; did you mean "6.2b"?',
        ),
        (
            lambda: generate(),
            "--devices: this option is required; or start from --seed N",
        ),
        (lambda: generate(devices=4), "--microbatches: this option is required"),
        (lambda: generate(devices=4, microbatches=8), "--forward: this option is req"),
        (
            lambda: generate(devices=4, microbatches=8, forward=Decimal(1)),
            "--backward: expected it, or --backward-input with --backward-weight",
        ),
        (
            lambda: generate(backward_input=Decimal(0)),
            "--backward-weight: expected it together with --backward-input",
        ),
        (
            lambda: generate(backward_weight=Decimal(0)),
            "--backward-input: expected it together with --backward-weight",
        ),
        (
            lambda: generate(backward=Decimal(1), backward_input=Decimal(0)),
            "--backward: expected either --backward or",
        ),
        (
            lambda: build({"forward": IntegerRange(1, 2)}),
            "--forward: the range 1..2 needs --seed N",
        ),
        (
            lambda: generate(devices=IntegerRange(1, 2), profile="6.2b"),
            "--devices: the range 1..2 needs --seed N",
        ),
        (lambda: generate(seed=1, profile="6.2b"), "--profile: expected either a seed"),
        (lambda: generate(seed=-1), "--seed: expected a whole number >= 0, got -1"),
        (
            lambda: generate(**PLAIN, share=Decimal(1)),
            "--share: expected --capacity with it",
        ),
        (
            lambda: generate(activation=(Decimal(1),) * 4, devices=4, seed=1),
            "--capacity: expected an amount, not 1p, with an activation per stage",
        ),
        (lambda: generate(devices=10**9, seed=1), "num_devices"),
        (lambda: generate(placement="wawe", seed=1), 'did you mean "wave"?'),
        (
            lambda: generate(**{**PLAIN, "forward": (Decimal(1),)}),
            "times.forward: expected a",
        ),
    ],
)
def test_messages(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)


def test_command_writes_a_file(tmp_path: Path) -> None:
    target = tmp_path / "instance.json"
    assert run("--seed", "7", "-o", str(target)) == ""
    assert load_instance(target) == generate(seed=7)


def test_command_prints_and_seed_alone_means_random() -> None:
    assert (
        run("--seed", "3")
        == run("--random", "--seed", "3")
        == instance_text(generate(seed=3))
    )
    assert run("--random") == GOLDEN.read_text(encoding="utf-8")


def test_command_takes_every_option() -> None:
    text = run(
        *("--devices", "3", "--microbatches", "5", "--forward", "1,2,3"),
        *("--backward-input", "2", "--backward-weight", "1.5", "--p2p", "0.5"),
        *("--p2p-mode", "link", "--p2p-bytes", "10,0.02kB", "--bandwidth", "4"),
        *(
            "--capacity",
            "2,3,4",
            "--activation",
            "1",
            "--share",
            "0.25",
            "--static",
            "0.5",
        ),
        *("--allreduce", "7", "--optimizer", "2", "--objective", "device_span"),
        *("--time-unit", "ms", "--name", "all"),
    )
    assert json.loads(text) == {
        "schema": 1,
        "kind": "pipeline",
        "name": "all",
        "time_unit": "ms",
        "num_devices": 3,
        "num_microbatches": 5,
        "placement": "linear",
        "times": {"forward": [1, 2, 3], "backward_input": 2, "backward_weight": 1.5},
        "p2p": {"mode": "link", "latency": 0.5, "bytes": [10, 20], "bandwidth": 4},
        "memory": {
            "capacity": [2, 3, 4],
            "activation": 1,
            "released_by_backward_weight": 0.25,
            "static": 0.5,
        },
        "allreduce": 7,
        "optimizer": 2,
        "objective": "device_span",
    }


def test_unequal_microbatches_have_lengths_and_times_over_them() -> None:
    instance = generate(seed=5, unequal=Unequal(Decimal("0.6")), forward=Decimal(90))
    plain = generate(seed=5, forward=Decimal(90))
    assert instance.name == f"{plain.name}-lognormal0.6"
    assert instance.lengths is not None
    problem, alike = lower(instance), lower(plain)
    for kind in ("F", "I", "W"):
        times, means = (p.duration[p.grid(kind)] for p in (problem, alike))
        expected = means[:, :1] * np.array(instance.lengths)
        assert (times * problem.scale.tick * 1000 == expected).all()
    assert (instance.memory, instance.p2p) == (plain.memory, plain.p2p)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("law", ["lognormal", "normal"])
def test_lengths_are_drawn_last_and_have_the_mean_1000(seed: int, law: str) -> None:
    shape = {"devices": 2, "microbatches": 16, "backward": Decimal(2)}
    instance = generate(seed=seed, unequal=Unequal(Decimal("0.6"), law), **shape)
    random = np.random.default_rng(seed)
    random.integers(50, 150, size=2, endpoint=True)
    normal = random.normal(0 if law == "lognormal" else 1, 0.6, 16)
    cut = np.clip(np.exp(normal) if law == "lognormal" else normal, 0.1, 10)
    assert instance.lengths == tuple(
        np.rint(1000 * cut / cut.mean()).astype(int).tolist()
    )
    assert abs(np.mean(instance.lengths) - 1000) < 1


def test_equal_lengths_where_the_spread_is_none() -> None:
    instance = generate(seed=1, microbatches=8, unequal=Unequal(Decimal(0)))
    assert instance.lengths == (1000,) * 8
    assert lower(instance).families[0].shape[0] == 8


def test_command_draws_unequal_microbatches() -> None:
    text = run("--seed", "3", "-p", "4", "-m", "16", "--unequal", "0.6")
    made = generate(seed=3, devices=4, microbatches=16, unequal=Unequal(Decimal("0.6")))
    assert text == instance_text(made)
    assert json.loads(text)["times"]["forward"][0] == {"per_token": 0.131}


def test_command_takes_placements_and_profiles() -> None:
    explicit = json.loads(run("--seed", "1", "-p", "2", "--placement", "0,1,1,0"))
    assert explicit["placement"] == {"stage_to_device": [0, 1, 1, 0]}
    wave = json.loads(
        run(
            "--profile",
            "1.5b",
            "--placement",
            "wave",
            "--stages-per-device",
            "2",
            "-m",
            "16",
        )
    )
    assert (wave["stages_per_device"], wave["num_microbatches"]) == (2, 16)


def test_command_refuses_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    target = str(tmp_path / "absent" / "x.json")
    done = CliRunner().invoke(program(), ["generate", "--seed", "1", "-o", target])
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
