"""Requests written from the sizes of a model: every formula on figures worked out by hand."""

import json

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.request import load_request, parse_request
from ppsolve.models.studies.plan.scaffold import (
    Sizes,
    block_activations,
    block_operations,
    end_activations,
    head_operations,
    parameters,
    plan_request,
)
from ppsolve.solver.cli.main import build
from tests.paths import ROOT

SMALL = {
    "layers": 3,
    "hidden": 10,
    "heads": 2,
    "sequence_length": 4,
    "vocabulary": 100,
    "batch_size": 8,
    "devices": 4,
    "memory": 10**6,
    "flops": 10**9,
    "bandwidth": 2 * 10**6,
}


def sizes(**fields):
    return Sizes.parse(SMALL | fields)


def test_operations_of_a_block():
    """24 s h^2 = 24 x 4 x 100 and 4 s^2 h = 4 x 16 x 10; the backward takes twice the sum."""
    found = block_operations(sizes())
    assert found == {
        "forward": 9600 + 640,
        "backward_input": 9600 + 1280,
        "backward_weight": 9600,
    }
    assert found["backward_input"] + found["backward_weight"] == 2 * found["forward"]


def test_recomputed_operations_belong_to_the_input_gradient():
    assert (
        block_operations(sizes(recompute="selective"))["backward_input"] == 10880 + 640
    )
    assert block_operations(sizes(recompute="full"))["backward_input"] == 10880 + 10240


def test_operations_of_the_whole_model_are_the_published_formula():
    """Narayanan et al. 2021: 96 B s l h^2 (1 + s / 6h + V / 16 l h) with full recomputation.

    That counts 8 passes of the layers' products, and the logits three times, not recomputed.
    """
    given = sizes(recompute="full")
    total = 3 * sum(block_operations(given).values()) + sum(
        head_operations(given).values()
    )
    assert total == 96 * 4 * 3 * 100 * (1 + 4 / 60 + 100 / (16 * 3 * 10))


@pytest.mark.parametrize(
    ("fields", "amount"),
    [
        ({}, 4 * 10 * 34 + 5 * 2 * 16),
        ({"tensor_parallel": 2}, 4 * 10 * (10 + 12) + 80),
        ({"tensor_parallel": 2, "sequence_parallel": True}, 4 * 10 * 17 + 80),
        ({"recompute": "selective"}, 1360),
        ({"recompute": "selective", "tensor_parallel": 2}, 880),
        ({"recompute": "full", "tensor_parallel": 2}, 80),
        ({"recompute": "full", "tensor_parallel": 2, "sequence_parallel": True}, 40),
    ],
)
def test_activations_of_a_block_on_a_device(fields, amount):
    assert block_activations(sizes(**fields)) == amount


def test_activations_of_both_ends():
    """The mask, 4 x 10; 4 x 4 x 10 before the logits and 4 x 4 x 100 for them."""
    assert end_activations(sizes()) == (40, 160 + 1600)
    assert end_activations(sizes(tensor_parallel=2)) == (40, 160 + 800)
    assert end_activations(sizes(tensor_parallel=2, sequence_parallel=True)) == (
        20,
        80 + 800,
    )


def test_parameters():
    assert parameters(sizes()) == (104 * 10, 1200 + 130, 1000 + 20)


def test_the_request_is_in_microseconds_and_of_one_of_the_devices_of_a_group():
    """10,240 operations by two devices of 1,000 per microsecond each take 5.12.

    Two all-reduces of 80 bytes are four steps of 40 bytes, each 20 at 2 bytes per microsecond.
    """
    found = plan_request(sizes(tensor_parallel=2, latency=7))
    _, block, head = found.model.layers
    assert (block.count, found.model.num_layers) == (3, 5)
    assert block.forward.per_sample * 1000 == 5120 + 4 * 20_000
    assert (block.forward.fixed, block.backward_input.fixed) == (4 * 7, 4 * 7)
    assert (
        block.backward_weight.fixed,
        head.forward.fixed,
        head.backward_input.fixed,
    ) == (
        0,
        0,
        14,
    )
    assert head.forward.per_sample * 1000 == 2 * 4 * 10 * 100 / 2
    assert (block.parameter_bytes, block.output_bytes.per_sample) == (1330, 40)
    assert (found.cluster.nodes, found.cluster.devices_per_node) == (1, 4)
    assert (found.model.tensor_parallel, found.model.recompute) == (2, "none")
    assert (found.cluster.within_node.bandwidth, found.cluster.within_node.latency) == (
        2,
        7,
    )
    assert found.cluster.memory == 10**6


def test_what_is_run_again_is_reduced_again():
    _, kept, _ = plan_request(sizes(tensor_parallel=2, latency=7)).model.layers
    _, again, _ = plan_request(
        sizes(tensor_parallel=2, latency=7, recompute="full")
    ).model.layers
    assert again.backward_input.fixed == 2 * kept.backward_input.fixed
    assert again.backward_input.per_sample - kept.backward_input.per_sample == (
        kept.forward.per_sample
    )
    _, alone, _ = plan_request(sizes(latency=7)).model.layers
    assert alone.forward.fixed == 0


def test_nodes_and_micro_batches():
    found = plan_request(
        sizes(
            devices_per_node=2,
            node_bandwidth=10**6,
            microbatch_sizes=[1, 2],
            name="mine",
        )
    )
    assert (found.name, found.cluster.nodes, found.cluster.devices_per_node) == (
        "mine",
        2,
        2,
    )
    assert found.cluster.between_nodes.bandwidth == 1
    assert found.model.microbatch_sizes == (1, 2)
    assert found.search.batch_sizes == (8,)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heads": 3}, "heads: expected a divisor of hidden (10), got 3"),
        (
            {"tensor_parallel": 4},
            "tensor_parallel: expected a divisor of heads (2), got 4",
        ),
        (
            {"devices_per_node": 3},
            "devices_per_node: expected a divisor of devices (4), got 3",
        ),
        (
            {"devices_per_node": 1, "tensor_parallel": 2, "node_bandwidth": 1},
            "tensor_parallel: expected a divisor of devices_per_node (1), got 2",
        ),
        ({"devices_per_node": 2}, "node_bandwidth: this is required with 2 nodes"),
        ({"layers": 0}, "layers: "),
        ({"flops": 0}, "flops: "),
        ({"recompute": "some"}, "recompute: "),
        ({"hidden": 10.5}, "hidden: "),
        ({"microbatch_sizes": []}, "microbatch_sizes: "),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(fields, words):
    with pytest.raises(InputError) as caught:
        sizes(**fields)
    assert words in str(caught.value)


def run(*arguments):
    return CliRunner().invoke(build(), ["plan", *arguments])


def options(**fields):
    given = {name.replace("_", "-"): value for name, value in (SMALL | fields).items()}
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


def test_the_command_writes_a_request_that_can_be_planned(tmp_path):
    path = tmp_path / "mine.plan.json"
    done = run(
        "init", *options(memory="1e6", flops="1e9"), "--name", "mine", "-o", str(path)
    )
    assert (done.exit_code, done.stdout) == (0, "")
    assert load_request(path) == plan_request(sizes(name="mine"))
    planned = run(str(path), "--json", "-t", "5")
    assert planned.exit_code == 0, planned.stderr
    assert json.loads(planned.stdout)["winner"]["configuration"]["batch_size"] == 8


def test_one_request_has_every_tensor_parallelism_and_recomputation():
    lists = options(
        tensor_parallel="1,2", recompute="none, full", microbatch_sizes="1,2"
    )
    found = parse_request(json.loads(run("init", *lists).stdout))
    assert [p.variant for p in found.profiles] == [
        (1, "none"), (1, "full"), (2, "none"), (2, "full")
    ]  # fmt: skip
    for profile in found.profiles:
        shared, recompute = profile.variant
        alone = options(
            tensor_parallel=shared, recompute=recompute, microbatch_sizes="1,2"
        )
        only = parse_request(json.loads(run("init", *alone).stdout))
        assert (only.model, only.variants) == (profile, ())
        assert only.model_copy(update={"model": found.model}) == found.model_copy(
            update={"variants": ()}
        )


def test_amounts_may_have_units():
    texts = options(memory="1.5MiB", bandwidth="0.2GB/s")
    numbers = options(memory=1.5 * 2**20, bandwidth="2e8")
    assert run("init", *texts).stdout == run("init", *numbers).stdout


def test_without_a_file_the_request_goes_to_stdout():
    found = json.loads(run("init", *options(), "--sequence-parallel").stdout)
    assert found["kind"] == "plan"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heads": 3}, "error: --heads: expected a divisor of hidden (10), got 3"),
        (
            {"microbatch_sizes": "1,x"},
            'sizes: expected whole numbers with commas, got "1,x"',
        ),
        ({"microbatch_sizes": "1,0"}, "--microbatch-sizes[1]: "),
        ({"microbatch_sizes": "2,1"}, "expected ascending sizes, got 2, 1"),
        ({"flops": "nan"}, "--flops: "),
        ({"memory": "-1"}, "--memory: "),
        (
            {"memory": "80gb"},
            'error: --memory: unknown unit "gb"; expected one of ns, us, ms',
        ),
        (
            {"memory": "80 ms"},
            'error: --memory: expected a number in B, got the text "80 ms"',
        ),
        ({"bandwidth": "80GB"}, "error: --bandwidth: expected a number in B/s"),
        ({"recompute": "all"}, "--recompute: "),
        ({"recompute": "none,all"}, "--recompute: "),
        (
            {"tensor_parallel": "1,x"},
            '--tensor-parallel: expected whole numbers with commas, got "1',
        ),
        (
            {"tensor_parallel": "1,3"},
            "--tensor-parallel: expected a divisor of heads (2), got 3",
        ),
        ({"node_bandwidth": "0"}, "--node-bandwidth: "),
    ],
)
def test_errors_name_options(fields, words):
    done = run("init", *options(**fields))
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_request_of_the_documentation_is_the_shipped_one():
    text = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    written = json.loads(text.split("```json\n")[1].split("```")[0])
    shipped = load_request(ROOT / "instances" / "plans" / "gpt-48x32.plan.json")
    assert parse_request(written) == shipped.model_copy(update={"description": None})


def test_help_names_both_commands():
    assert "plan init" in CliRunner().invoke(build(), ["--help"]).stdout
    assert "Transformer blocks" in run("init", "--help").stdout
    assert run("no-such-file.json").exit_code == 2


def test_micro_batches_of_which_no_number_makes_the_batch_are_refused():
    assert sizes(microbatch_sizes=[3, 4]).microbatch_sizes == (3, 4)
    with pytest.raises(
        InputError, match=r"divisor of batch_size \(8\) among them, got 3, 5"
    ):
        sizes(microbatch_sizes=[3, 5])
