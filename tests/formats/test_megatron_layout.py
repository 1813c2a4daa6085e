"""Layout strings: every valid one is read as Megatron-LM reads it, every invalid one refused."""

import json
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.layers import parse_layout
from ppsolve.solver.formats.megatron import LayerTimes, instance_of
from tests.paths import DATA

CASES = json.loads((DATA / "megatron_layouts.json").read_text())["cases"]
VALID = [case for case in CASES if case["valid"]]
INVALID = [case for case in CASES if not case["valid"]]


def read(case):
    return parse_layout(
        case["layout"],
        case["pp"],
        num_layers=case["num_layers"],
        mtp_layers=case["mtp_num_layers"] or 0,
    )


def case_id(case):
    return f"{case['layout']}-{case['pp']}-{case['num_layers']}"


@pytest.mark.parametrize("case", VALID, ids=case_id)
def test_valid_strings(case):
    layout = read(case)
    assert list(layout.stages) == case["stages"]
    assert layout.chunks == case["vpp"]
    assert layout.by_rank(layout.stages) == case["rank_chunks"]
    assert layout.by_rank(layout.layer_ids) == case["layer_ids"]
    assert layout.mtp_standalone == case["mtp_standalone"]
    assert read({**case, "layout": layout.text()}) == layout


@pytest.mark.parametrize("case", INVALID, ids=case_id)
def test_invalid_strings(case):
    with pytest.raises(InputError, match="expected"):
        read(case)


def as_lists(stages):
    names = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
    return json.dumps([[names[letter] for letter in stage] for stage in stages])


@pytest.mark.parametrize("case", VALID, ids=case_id)
def test_lists_of_names(case):
    assert read({**case, "layout": as_lists(case["stages"])}) == read(case)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[["embedding"], "loss"]', "expected a list of names in stage 1"),
        (
            '[["embedding", "encoder", "loss"]]',
            "embedding, decoder, mtp, loss in stage 0",
        ),
        ('[["embedding", ["loss"]]]', "in stage 0, got a list"),
        ('[["decoder", "loss"]]', 'expected E as the first layer, got "t"'),
        ('[["embedding", "loss"]', "not valid JSON"),
    ],
)
def test_wrong_lists(text, message):
    with pytest.raises(InputError, match=r"^layout: ") as refused:
        parse_layout(text, 1)
    assert message in str(refused.value)


def test_lists_of_one_model_may_be_in_capitals_and_have_empty_stages():
    layout = parse_layout(' [["Embedding ", "DECODER"], [], ["loss"]]', 3)
    assert layout.text() == "Et||L"


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        # A group is unrolled first, so that its last layer can be repeated again.
        ("E(t)*2*3L", ["EttttL"]),
        ("Et*02L", ["EttL"]),
        ("E(t|t)*2L", ["Et", "tt", "tL"]),
        ("E(t*2|)*2L", ["Ett", "tt", "L"]),
    ],
)
def test_repeats_are_text(text, stages):
    assert list(parse_layout(text, 1).stages) == stages


@pytest.mark.parametrize(
    "text", ["Et*99999999999L", "E(t|)*999999L", "E()*2L", "E(t*2L", "Et)L"]
)
def test_repeats_that_are_none(text):
    with pytest.raises(InputError, match="expected"):
        parse_layout(text, 1)


def test_times_of_stages_are_those_of_their_layers():
    times = LayerTimes.parse(
        {
            "num_microbatches": 4,
            "decoder": {"forward": 10, "backward": 20},
            "loss": {"forward": 3, "backward_input": 2, "backward_weight": 2.5},
        }
    )
    instance = instance_of(parse_layout("Et*2|t||L", 2), times)
    assert instance.stage_to_device == (0, 1, 0, 1)
    assert instance.times.forward == (20, 10, 0, 3)
    assert instance.times.backward == (40, 20, 0, Decimal("4.5"))


def test_split_backwards_where_all_layers_have_them():
    layers = [{"forward": 1, "backward_input": 2, "backward_weight": n} for n in (3, 5)]
    times = LayerTimes.parse({"num_microbatches": 4, "decoder": layers})
    instance = instance_of(parse_layout("Et|tL", 2), times)
    assert instance.times.backward_weight == (3, 5)
    with pytest.raises(
        InputError, match="expected one entry for each of 3 layers t, got 2"
    ):
        instance_of(parse_layout("Et|ttL", 2), times)


class TestCommand:
    def run(self, *args):
        return CliRunner().invoke(
            build(), ["convert", "megatron-layout", *map(str, args)]
        )

    def test_a_string(self):
        done = self.run("Et*2|tL", "--ranks", 2)
        assert done.exit_code == 0
        found = json.loads(done.stdout)
        assert found["layers_per_stage"] == [2, 1]
        assert found["layer_ids"] == [[[0, 1]], [[2]]]

    def test_a_file_with_times(self, tmp_path):
        (tmp_path / "layout.txt").write_text("Et|tL\n")
        times = {"num_microbatches": 2, "decoder": {"forward": 1, "backward": 2}}
        (tmp_path / "times.json").write_text(json.dumps(times))
        options = "--ranks", 2, "--times", tmp_path / "times.json"
        done = self.run(tmp_path / "layout.txt", *options)
        assert done.exit_code == 0
        assert json.loads(done.stdout)["times"] == {
            "forward": [1, 1],
            "backward": [2, 2],
        }

    def test_refusals(self, tmp_path):
        done = self.run("Et|tL", "--ranks", 3, "-o", tmp_path / "split.json")
        assert done.exit_code == 2
        assert (
            "layout: expected a multiple of 3 stages (pipeline ranks), got 2"
            in done.stderr
        )
        assert not (tmp_path / "split.json").exists()
