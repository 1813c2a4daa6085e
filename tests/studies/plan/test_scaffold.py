"""Requests written from the sizes of a model: every formula on figures worked out by hand."""

import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_text
from ppsolve.models.studies.plan.estimates import (
    all_parameters,
    block_activations,
    block_operations,
    block_parameters,
    embedding_activations,
    embedding_parameters,
    head_activations,
    head_operations,
    head_parameters,
    total,
)
from ppsolve.models.studies.plan.request import Link, load_request, parse_request
from ppsolve.models.studies.plan.scaffold import plan_request
from ppsolve.models.studies.plan.sizes import Sizes
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


def operations(given):
    return {field: total(terms) for field, terms in block_operations(given).items()}


def test_operations_of_a_block():
    """24 s h^2 = 24 x 4 x 100 and 4 s^2 h = 4 x 16 x 10; the backward takes twice the sum."""
    found = operations(sizes())
    assert found == {
        "forward": 9600 + 640,
        "backward_input": 9600 + 1280,
        "backward_weight": 9600,
    }
    assert found["backward_input"] + found["backward_weight"] == 2 * found["forward"]


def test_recomputed_operations_belong_to_the_input_gradient():
    assert operations(sizes(recompute="selective"))["backward_input"] == 10880 + 640
    assert operations(sizes(recompute="full"))["backward_input"] == 10880 + 10240


def test_operations_of_the_whole_model_are_the_published_formula():
    """Narayanan et al. 2021: 96 B s l h^2 (1 + s / 6h + V / 16 l h) with full recomputation.

    That counts 8 passes of the layers' products, and the logits three times, not recomputed.
    """
    given = sizes(recompute="full")
    logits = sum(map(total, head_operations(given).values()))
    assert 3 * sum(operations(given).values()) + logits == 96 * 4 * 3 * 100 * (
        1 + 4 / 60 + 100 / (16 * 3 * 10)
    )


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
    assert total(block_activations(sizes(**fields))) == amount


def test_activations_of_both_ends():
    """The mask, 4 x 10; 4 x 4 x 10 before the logits and 4 x 4 x 100 for them."""
    assert ends(sizes()) == (40, 160 + 1600)
    assert ends(sizes(tensor_parallel=2)) == (40, 160 + 800)
    shared = sizes(tensor_parallel=2, sequence_parallel=True)
    assert ends(shared) == (20, 80 + 800)


def ends(given):
    return total(embedding_activations(given)), total(head_activations(given))


def test_parameters():
    given = sizes()
    parts = embedding_parameters(given), block_parameters(given), head_parameters(given)
    assert [*map(total, parts)] == [104 * 10, 1200 + 130, 1000 + 20]


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
        ({"kv_heads": 3}, "kv_heads: expected a divisor of heads (2), got 3"),
        ({"dense_layers": 1}, "dense_layers: expected experts beside dense_layers"),
        ({"experts_per_token": 2}, "experts: expected experts, there are none"),
        (
            {"experts": 2, "experts_per_token": 3},
            "experts_per_token: expected at most the 2 experts, got 3",
        ),
        (
            {"experts": 2, "dense_layers": 3},
            "dense_layers: expected less than the 3 layers, got 3",
        ),
        ({"kv_rank": 3}, "kv_rank: expected query_rank, kv_rank and rope_dim together"),
        (
            {"context_parallel": 3},
            "context_parallel: expected a divisor of sequence_length (4), got 3",
        ),
        (
            {"context_parallel": 4, "tensor_parallel": 2},
            "context_parallel: expected a divisor of devices_per_node (4), got 8",
        ),
        ({"optimizer_shards": 3}, "optimizer_shards: expected replicas, of 1 devices"),
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


GPT3 = {
    "layers": 96,
    "hidden": 12288,
    "heads": 96,
    "sequence_length": 2048,
    "vocabulary": 50257,
}
LLAMA3_8B = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "gated": True,
    "sequence_length": 8192,
    "vocabulary": 128256,
}
LLAMA3_70B = LLAMA3_8B | {"layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672}
MIXTRAL = LLAMA3_8B | {
    "experts": 8,
    "experts_per_token": 2,
    "vocabulary": 32000,
}
DEEPSEEK_V3 = {
    "layers": 61,
    "hidden": 7168,
    "heads": 128,
    "head_dim": 128,
    "query_rank": 1536,
    "kv_rank": 512,
    "rope_dim": 64,
    "ffn": 18432,
    "gated": True,
    "experts": 256,
    "experts_per_token": 8,
    "shared_experts": 1,
    "expert_ffn": 2048,
    "dense_layers": 3,
    "sequence_length": 4096,
    "vocabulary": 129280,
}


def test_parameters_of_llama_3_are_those_of_its_checkpoints():
    """Their tensors hold 8,030,261,248 and 70,553,706,496 numbers."""
    assert all_parameters(sizes(**LLAMA3_8B)) == 8_030_261_248
    assert all_parameters(sizes(**LLAMA3_70B)) == 70_553_706_496


def test_parameters_of_mixtral_are_those_of_its_checkpoint():
    """46,702,792,704 numbers; a token uses 12.9 B (Jiang et al. 2024, section 2)."""
    given = sizes(**MIXTRAL)
    assert all_parameters(given) == 46_702_792_704
    assert all_parameters(given, active=True) / 1e9 == pytest.approx(12.9, abs=0.05)


def test_parameters_of_deepseek_v3_are_the_published_ones():
    """671 B, of which a token uses 37 B (DeepSeek-AI 2024, abstract), to three digits or two.

    The published 37 B leave the words of the input out, which are looked up.
    """
    given = sizes(**DEEPSEEK_V3)
    assert all_parameters(given) / 1e9 == pytest.approx(671, abs=0.5)
    assert all_parameters(given, active=True) / 1e9 == pytest.approx(37.5, abs=0.6)


def test_parameters_of_gpt_3_are_175_billion():
    """Brown et al. 2020, table 2.1; the head shares the words of the embedding there."""
    given = sizes(**GPT3)
    words = given.vocabulary * given.hidden
    assert all_parameters(given) - words == pytest.approx(175e9, rel=0.003)


def test_operations_of_llama_are_six_per_weight_and_token_and_those_of_scores():
    """Forward and backward: 6 s W, W without the embedding, and 12 s^2 h of each block."""
    given = sizes(**LLAMA3_8B)
    blocks = 32 * sum(operations(given).values())
    norms = 65 * 4096
    weights = all_parameters(given) - norms - given.vocabulary * given.hidden
    s = given.sequence_length
    logits = sum(map(total, head_operations(given).values()))
    assert blocks + logits == 6 * s * weights + 32 * 12 * s * s * 4096


def test_a_token_passes_its_own_experts_alone():
    given = sizes(**MIXTRAL)
    *_, experts, _ = block_operations(given, has_experts=True)["forward"]
    assert (experts.name, experts.formula) == ("experts", "2 s (K g h x)")
    assert experts.amount == 2 * 8192 * 2 * 3 * 4096 * 14336


@pytest.mark.parametrize(
    ("fields", "amount"),
    [
        # 8 s h of inputs, 4 s d (a + k) and 6 s f, and 2 a s^2 of scores; d is 5.
        ({"kv_heads": 1, "ffn": 20}, 320 + 4 * 4 * 5 * 3 + 6 * 4 * 20 + 2 * 2 * 16),
        # 4 a s in place of the scores.
        ({"kv_heads": 1, "ffn": 20, "flash_attention": True}, 320 + 240 + 480 + 32),
        # Each device has half of the sequence, but scores with all of it.
        ({"kv_heads": 1, "ffn": 20, "context_parallel": 2}, (320 + 240 + 480) / 2 + 32),
        ({"recompute": "full", "context_parallel": 2}, 40),
    ],
)
def test_activations_of_gated_blocks(fields, amount):
    assert total(block_activations(sizes(gated=True, **fields))) == amount


MOE = {"experts": 4, "experts_per_token": 2, "shared_experts": 1, "expert_ffn": 5}


def test_activations_of_experts():
    """10 s h, 4 s h K and 8 s h, and 4 s x (K + S), x is 5, and 5 a s^2."""
    terms = block_activations(sizes(**MOE), has_experts=True)
    assert total(terms) == 400 + 320 + 320 + 4 * 4 * 5 * 3 + 5 * 2 * 16


def test_experts_and_the_optimizer_are_shared_by_replicas():
    """4 experts of 100 parameters on 2 replicas; each has 1 copy where 2 share the optimizer."""
    given = sizes(**MOE, dense_layers=1, expert_parallel=2, optimizer_shards=2)
    request = plan_request(given)
    _, dense, block, _ = request.model.layers
    assert (dense.count, block.count, request.search.replicas) == (1, 2, (2, 4))
    experts = 4 * 2 * 10 * 5
    others = total(block_parameters(given, has_experts=True)) - experts
    assert block.parameter_bytes == 2 * (experts / 2 + others)
    assert block.state_bytes == experts / 2 * 16 + others * 10
    # Two all-to-alls of 4 x 2 x 10 bytes of 2 experts a token, half of which stay.
    computed = sum(
        term.amount for term in block_operations(given, has_experts=True)["forward"]
    )
    assert float(block.forward.per_sample) == pytest.approx(computed / 1000 + 2 * 40)


def test_context_parallelism_shares_operations_and_reduces_gradients():
    given = sizes(context_parallel=2, bandwidth=10**5)
    request = plan_request(given)
    _, block, _ = request.model.layers
    assert request.model.tensor_parallel == 2
    # 10,240 operations by two devices; 4 x 2 x 10 bytes of keys and values at 0.1 per microsecond,
    # less the 640 operations of scores.
    assert float(block.forward.per_sample) == pytest.approx(5.12 + 800 - 0.32)
    assert (block.output_bytes.per_sample, block.optimizer) == (40, 2660 / 0.1)


def test_estimates_are_explained():
    done = run("init", *options(tensor_parallel="1,2"), "--explain")
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert lines.count("tensor parallel 2, recompute none:") == 1
    text = "block parameters: 1,330 = attention 400 [2 h d (a + k)] + feed-forward 800 [g h f] + "
    assert any(line.startswith(text) for line in lines)
    assert "head parameters: 1,020 = words 1,000 [V h] + norm 20 [2 h]" in lines
    reduced = "2 x 2 (t - 1) x 2 s h / (t c) / bandwidth"
    assert f"block forward all-reduces: 80.000 us = {reduced}" in lines
    assert json.loads(done.stdout)["kind"] == "plan"


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


def test_a_fixed_batch_needs_no_goodput():
    request = plan_request(sizes())
    document = json.loads(instance_text(request))
    assert request.goodput.init_batch_size == 8
    document.pop("goodput", None)
    assert parse_request(document) == request
    del document["search"]["batch_sizes"]
    with pytest.raises(
        InputError, match='goodput: this field is required without "bat'
    ):
        parse_request(document)


def test_a_link_may_be_a_time():
    assert Link.parse({"latency": 7}).transfer(Fraction(1000)) == 7
    with pytest.raises(InputError, match='expected "bandwidth", "latency" or both'):
        Link.parse({})
