"""What each runtime can say is said, what it cannot is refused by its rule and first op."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.origin import PlanOrigin
from ppsolve.solver.api.api import simulate
from ppsolve.solver.formats.layers import parse_layout
from ppsolve.solver.formats.program import RuntimeProgram, read_program
from ppsolve.solver.formats.targets import TARGETS, chosen
from tests.formats.cases import FOLDED, TWO_RANKS, schedule
from tests.paths import ROOT

FUSED = {"forward": 1, "backward": 2}
SPLIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}


def program(
    heuristic, devices, microbatches, *, group_size=None, layers=None, **fields
):
    shape = {"num_devices": devices, "num_microbatches": microbatches}
    instance = PipelineInstance.parse({"times": FUSED, **shape, **fields})
    entry = simulate(instance, heuristic, group_size=group_size).model_dump(mode="json")
    return replace(read_program(entry, instance), layers=layers)


def planned(made, **chosen):
    """Return a program of two stages as a plan would choose it, with three and four layers."""
    given = {
        "request": "tiny",
        "layers_per_stage": (3, 4),
        "microbatch_size": 1,
        **chosen,
    }
    instance = made.instance.model_copy(update={"plan": PlanOrigin(**given)})
    return replace(made, instance=instance, layers=(3, 4))


def looped(chunks):
    return {"placement": "interleaved", "stages_per_device": chunks}


def written(to, made: RuntimeProgram, model=None, recomputed=None):
    target = chosen(to)
    settings = target.settings(model=model, recomputed=recomputed)
    files = target.files(made, settings, Path("out.json"))
    return files[Path("out.json")]


def refused(to, made, message, model=None, recomputed=None):
    with pytest.raises(InputError, match=message):
        written(to, made, model, recomputed)


class TestMegatron:
    """Its order is fixed: 1F1B, or interleaved 1F1B in groups."""

    @pytest.mark.parametrize("microbatches", [1, 3, 4, 9])
    @pytest.mark.parametrize("devices", [1, 2, 4])
    def test_1f1b(self, devices, microbatches):
        made = program("1f1b", devices, microbatches)
        assert (
            written("megatron", made) == f"--pipeline-model-parallel-size {devices}\n"
        )

    @pytest.mark.parametrize(
        ("microbatches", "group"), [(4, 4), (8, 4), (8, 8), (11, 7), (9, 5)]
    )
    def test_interleaved(self, microbatches, group):
        made = program(
            "interleaved-1f1b", 4, microbatches, group_size=group, **looped(3)
        )
        assert written("megatron", made).splitlines() == [
            "--pipeline-model-parallel-size 4",
            f"--microbatch-group-size-per-virtual-pipeline-stage {group}",
            "--num-virtual-stages-per-pipeline-rank 3",
        ]

    def test_groups_that_it_does_not_run(self):
        made = program("interleaved-1f1b", 3, 7, group_size=3, **looped(2))
        refused(
            "megatron", made, "groups of 3 to 7 micro-batches, the last one not below 3"
        )

    def test_other_orders_are_refused_by_their_first_op(self):
        refused(
            "megatron", program("gpipe", 2, 3), "rank 0 runs 0F2 at place 2, not 0B0"
        )
        made = program("looped-bfs", 2, 4, **looped(2))
        refused("megatron", made, "rank 0 runs 2F3 at place 7, not 2B0")

    def test_split_backwards_are_refused(self):
        refused("megatron", program("zb-h1", 2, 4, times=SPLIT), "not 0B0")

    def test_placements_are_refused_by_name_or_stage(self):
        made = program("zbv", 2, 4, times=SPLIT, placement="vshape")
        refused("megatron", made, r"this is a V placement \(vshape\)")
        elsewhere = read_program(schedule(". 1F0 1B0", "0F0 . . 0B0"))
        refused("megatron", elsewhere, "stage 0 is on rank 1 instead of 0")
        uneven = read_program(schedule("0F0 . 2F0 2B0 . 0B0", ". 1F0 . . 1B0"))
        refused("megatron", uneven, "needs a multiple of 2 stages, got 3")

    def test_the_split_is_a_layout(self):
        made = program("1f1b", 2, 3, layers=(3, 2))
        assert (
            '--num-layers 5\n--pipeline-model-parallel-layout "Et*3|t*2L"'
            in written("megatron", made)
        )
        text = written("megatron", made, model="Et*3L").splitlines()
        assert text[1:] == [
            "--num-layers 3",
            '--pipeline-model-parallel-layout "Et*2|tL"',
        ]
        assert parse_layout("Et*2|tL", 2, num_layers=3).layers_per_stage == (2, 1)

    def test_a_split_that_is_none(self):
        made = program("1f1b", 2, 3, layers=(3, 2))
        refused(
            "megatron", made, "expected the 5 layers of the split, got 4", model="Ett,L"
        )
        hint = "got 7; embedding and loss count: with 5 decoder layers give 4,3"
        refused("torchtitan", made, hint, model="Et*5L")
        short = program("1f1b", 2, 3, layers=(5,))
        refused("megatron", short, "expected the layers of 2 stages, got 1 numbers")

    def test_the_choices_of_a_plan(self):
        made = planned(program("1f1b", 2, 3), microbatch_size=2, replicas=4)
        assert written("megatron", made).splitlines()[1:] == [
            "--num-layers 7",
            '--pipeline-model-parallel-layout "Et*3|t*4L"',
            "--micro-batch-size 2",
            "--global-batch-size 24",
        ]
        more = {
            "rank_order": "stages_first",
            "tensor_parallel": 8,
            "recompute": "selective",
        }
        made = planned(program("1f1b", 2, 3), replicas=2, **more)
        assert written("megatron", made).splitlines()[3:] == [
            "--tensor-model-parallel-size 8",
            "--recompute-granularity selective",
            "--use-tp-pp-dp-mapping",
            "--micro-batch-size 1",
            "--global-batch-size 6",
        ]

    def test_the_layers_of_a_plan_have_its_names(self):
        made = planned(program("1f1b", 2, 3), model="Et*5L")
        assert (
            '--num-layers 5\n--pipeline-model-parallel-layout "Et*2|t*3L"'
            in written("megatron", made)
        )
        refused(
            "megatron", made, "expected the 7 layers of the split, got 9", model="Et*7L"
        )
        other = replace(made, layers=(2, 2))
        assert "--num-layers 4" in written("megatron", other)

    @pytest.mark.parametrize(
        ("layers", "counts", "most"),
        [
            ((3, 3), (2, 2), 2),
            ((3, 1), (2, 1), 2),
            ((3, 2), (3, 2), 3),
            ((3, 0), (1, 0), 1),
        ],
    )
    def test_recomputed_layers_are_one_number(self, layers, counts, most):
        # A stage with fewer layers recomputes all that it has.
        made = program("1f1b", 2, 3, layers=layers)
        assert written("megatron", made, recomputed=counts).splitlines()[-3:] == [
            "--recompute-granularity full",
            "--recompute-method block",
            f"--recompute-num-layers {most}",
        ]

    def test_no_recomputed_layers_are_no_flags(self):
        made = program("1f1b", 2, 3, layers=(3, 2))
        assert written("megatron", made, recomputed=(0, 0)) == written("megatron", made)

    def test_virtual_stages_recompute_each(self):
        made = program("interleaved-1f1b", 2, 4, layers=(2, 1, 3, 2), **looped(2))
        text = written("megatron", made, recomputed=(2, 1, 2, 2))
        assert "--recompute-num-layers 2" in text
        message = "as many layers of every stage: 2 of stage 2, not 1"
        refused("megatron", made, message, recomputed=(2, 1, 1, 2))

    @pytest.mark.parametrize("runtime", ["megatron", "primus"])
    def test_recomputed_layers_that_are_not_there(self, runtime):
        made = program("1f1b", 2, 3, layers=(3, 2))
        refused(
            runtime,
            made,
            "at most the 2 decoder layers of stage 1, got 3",
            recomputed=(3, 3),
        )
        refused(runtime, made, "expected 2 stages, got 1 numbers", recomputed=(3,))
        refused(
            runtime, made, "the 2 decoder layers of stage 0, got 3", "EttmL", (3, 0)
        )
        unknown = program("1f1b", 2, 3)
        refused(runtime, unknown, "needs the layers of each stage", recomputed=(1, 1))


class TestDeepSpeed:
    """1F1B with one stage per rank; the list of layers is cut in parts."""

    def test_parts(self):
        made = program("1f1b", 3, 4, layers=(3, 0, 2))
        assert json.loads(written("deepspeed", made)) == {
            "num_stages": 3,
            "gradient_accumulation_steps": 4,
            "parts": [0, 3, 3, 5],
        }

    def test_refusals(self):
        refused("deepspeed", program("1f1b", 2, 4), "needs the layers of each stage")
        refused(
            "deepspeed", program("gpipe", 2, 4), "DeepSpeed runs 1F1B; rank 0 runs 0F2"
        )
        made = program("interleaved-1f1b", 2, 4, **looped(2))
        refused("deepspeed", made, "one stage per rank, stage 2 is on rank 0")


class TestTorchtitan:
    """PyTorch's file with settings; the name of the schedule says the placement."""

    def files(self, made, path="run.py", model=None):
        target = chosen("torchtitan")
        files = target.files(made, target.settings(model=model), Path(path))
        return {str(name): text for name, text in files.items()}

    def test_three_files_that_agree(self):
        made = program(
            "zbv", 2, 4, times=SPLIT, placement="vshape", layers=(2, 1, 1, 2)
        )
        files = self.files(made)
        assert list(files) == ["run.py", "run.csv", "run.toml"]
        found: dict = {}
        config = type("Config", (), {"parallelism": type("Parallelism", (), {})})
        exec(files["run.py"], {"config": config}, found)
        settings = vars(config.parallelism)
        assert settings["pipeline_parallel_schedule"] == "ZBVZeroBubble"
        assert settings["pipeline_parallel_degree"] == 2
        assert settings["num_pp_microbatches"] == 4
        assert settings["pipeline_parallel_schedule_csv"] == "run.csv"
        assert settings["module_fqns_per_model_part"] == [
            ["tok_embeddings", "layers.0", "layers.1"],
            ["layers.2"],
            ["layers.3"],
            ["layers.4", "layers.5", "norm", "lm_head"],
        ]
        old = tomllib.loads(files["run.toml"])
        assert old["training"]["local_batch_size"] == 4
        assert old["parallelism"]["pipeline_parallel_microbatch_size"] == 1
        assert old["parallelism"]["module_fqns_per_model_part"][3][-1] == "output"
        assert len(files["run.csv"].splitlines()) == 2

    @pytest.mark.parametrize("path", ["run.csv", "run.toml"])
    def test_no_file_has_the_name_of_another(self, path):
        made = program("1f1b", 2, 4)
        assert sorted(self.files(made, path)) == ["run.csv", "run.py", "run.toml"]

    def test_the_choices_of_a_plan(self):
        made = planned(
            program("1f1b", 2, 3), microbatch_size=2, tensor_parallel=4, model="Et*5L"
        )
        old = tomllib.loads(self.files(made)["run.toml"])
        assert old["training"]["local_batch_size"] == 6
        assert old["parallelism"]["tensor_parallel_degree"] == 4
        text = self.files(made)["run.py"]
        assert "config.parallelism.tensor_parallel_degree = 4\n" in text
        assert '["tok_embeddings", "layers.0", "layers.1"]' in text

    def test_loops_have_the_name_of_a_library_class(self):
        made = program("interleaved-1f1b", 2, 4, **looped(2))
        assert '"PipelineScheduleMulti"' in self.files(made)["run.py"]

    def test_refusals(self):
        made = program("1f1b", 2, 4, layers=(3, 1))
        with pytest.raises(
            InputError, match="expected a file: there are three of them"
        ):
            self.files(made, "-")
        with pytest.raises(InputError, match="torchtitan has no layer m"):
            self.files(made, model="Et,m,L")
        wave = program("looped-bfs", 2, 4, placement="wave", stages_per_device=3)
        with pytest.raises(InputError, match="stage 2 is on rank 1 instead of 0"):
            self.files(wave)


class TestColossalAI:
    """A V placement; the runtime takes micro-batches from queues."""

    @pytest.mark.parametrize("devices", [1, 2, 3])
    def test_queues_give_the_same_micro_batches(self, devices):
        made = program("zbv", devices, 2 * devices, times=SPLIT, placement="vshape")
        found = json.loads(written("colossalai", made))
        assert (found["pp_size"], found["num_microbatches"]) == (devices, 2 * devices)
        for rank, nodes in enumerate(found["scheduler_nodes"]):
            taken: Counter = Counter()
            for node in nodes:
                key = node["type"], node["chunk"]
                assert (node["minibatch"], node["stage"]) == (taken[key], rank)
                taken[key] += 1
            kinds = [f"{node['type']}{node['chunk']}" for node in nodes]
            # The turn on the last rank is local, and nothing comes before rank 0.
            assert kinds.count("SEND_FORWARD0") == (
                0 if rank == devices - 1 else 2 * devices
            )
            assert kinds.count("RECV_FORWARD0") == (0 if rank == 0 else 2 * devices)
            assert kinds.count("SEND_FORWARD1") == (0 if rank == 0 else 2 * devices)
            assert kinds.count("SEND_BACKWARD1") == (
                0 if rank == devices - 1 else 2 * devices
            )

    def test_refusals(self):
        made = program("1f1b", 2, 4)
        refused("colossalai", made, "which makes 4 stages, got 2")
        refused(
            "colossalai",
            program("interleaved-1f1b", 2, 4, **looped(2)),
            "stage 2 is on rank",
        )
        whole = program("looped-bfs", 2, 4, placement="vshape")
        refused("colossalai", whole, "ColossalAI runs I and W apart, it has no 3B3")
        refused(
            "colossalai",
            read_program(FOLDED),
            "needs a multiple of 2 micro-batches, got 1",
        )
        rows = "0F0 1F0 1I0 0I0 0F1 1F1 1I1 0I1 1W1 0W0 0W1 1W0"
        refused("colossalai", read_program(schedule(rows)), "1W1 comes before 1W0")


class TestPrimus:
    """Tables run strictly in order; neighbours on one rank exchange too."""

    def table(self, made):
        return json.loads(written("primus", made))

    @pytest.mark.parametrize(
        ("heuristic", "algorithm", "fields"),
        [
            ("1f1b", "zero-bubble", {}),
            ("interleaved-1f1b", "1f1b-interleaved", looped(2)),
            ("zbv", "zbv-formatted", {"times": SPLIT, "placement": "vshape"}),
        ],
    )
    def test_transfers_are_pairs(self, heuristic, algorithm, fields):
        found = self.table(program(heuristic, 2, 4, **fields))
        assert found["pp_algorithm"] == algorithm
        ends = {"SF": "RF", "SB": "RB"}
        pairs: dict = {}
        for rank, nodes in enumerate(found["table"]):
            for node in nodes:
                args = node["args"]
                if args is None:
                    continue
                is_send = node["func_type"] in ends
                assert args["from_pp_rank" if is_send else "to_pp_rank"] == rank
                other = args["send_to_chunk" if is_send else "recv_from_chunk"]
                chunks = (node["chunk"], other) if is_send else (other, node["chunk"])
                kind = ends.get(node["func_type"], node["func_type"])
                key = (
                    kind,
                    node["mini_batch"],
                    args["from_pp_rank"],
                    args["to_pp_rank"],
                    chunks,
                )
                pairs.setdefault(key, []).append(node["func_type"])
        stages = 2 * found["vpp_size"]
        assert len(pairs) == 2 * (stages - 1) * 4
        assert all(
            sorted(pair)[0][0] == "R" and len(pair) == 2 for pair in pairs.values()
        )

    def test_neighbours_on_one_rank(self):
        nodes = self.table(read_program(FOLDED))["table"][1]
        assert [node["func_type"] for node in nodes[:6]] == [
            "RF",
            "F",
            "SF",
            "RF",
            "F",
            "SF",
        ]
        assert nodes[2]["args"] == {
            "from_pp_rank": 1,
            "to_pp_rank": 1,
            "send_to_chunk": 1,
        }
        assert nodes[3]["args"] == {
            "from_pp_rank": 1,
            "to_pp_rank": 1,
            "recv_from_chunk": 0,
        }

    def test_recomputed_layers_have_numbers(self):
        # Decoder layers count over all stages; the first ones of a stage are recomputed.
        made = program("1f1b", 3, 4, layers=(2, 3, 1))
        found = json.loads(written("primus", made, recomputed=(1, 2, 0)))
        assert found["recompute_layer_ids"] == "0,2,3"
        assert (found["recompute_granularity"], found["recompute_method"]) == (
            "full",
            None,
        )
        assert "recompute_layer_ids" not in self.table(made)

    def test_a_plan_recomputes_attention(self):
        made = planned(program("1f1b", 2, 3), recompute="selective")
        assert self.table(made)["recompute_granularity"] == "selective"

    def test_pairs_are_groups(self):
        made = read_program({"orders": [["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]]})
        nodes = self.table(made)["table"][0]
        group = {"combined_group": ["(F|1|0)", "(BW|0|0)"]}
        assert [node["args"] for node in nodes] == [None, group, group, None]

    def test_data_are_taken_in_the_order_of_forwards(self):
        rows = "0F1 0F0 . . 0B0 0B1", ". . 1F0 1B0 1F1 1B1"
        refused(
            "primus",
            read_program(schedule(*rows)),
            "on the first stage .* 0F1 is forward",
        )

    def test_refusals(self):
        wave = program("looped-bfs", 2, 4, placement="wave", stages_per_device=3)
        refused("primus", wave, "stage 2 is on rank 1 instead of 0")


def test_our_own_form_says_everything():
    made = replace(read_program(TWO_RANKS), layers=(3, 4))
    found = json.loads(written("json", made))
    assert found["stage_to_rank"] == [0, 1]
    assert found["layers_per_stage"] == [3, 4]
    assert found["plan"] is None
    assert found["data_order"] == [0, 1]
    assert found["compute_only"][1] == ["1F0", "1B0", "1F1", "1B1"]
    assert found["compute_comms"][1][0] == "1RECV_F0"


def test_what_a_file_leaves_out_is_told():
    more = {"rank_order": "replicas_first", "tensor_parallel": 8, "recompute": "full"}
    made = planned(program("1f1b", 2, 3), microbatch_size=2, replicas=4, **more)
    parts = {
        "layers_per_stage": "layers per stage 3,4",
        "microbatch_size": "micro-batch size 2",
        "replicas": "4 replicas",
        "rank_order": "ranks replicas first",
        "tensor_parallel": "tensor parallelism 8",
        "recompute": "full recomputation",
    }
    says = {
        "torch": set(),
        "colossalai": set(),
        "deepspeed": {"layers_per_stage"},
        "primus": {"recompute"},
        "torchtitan": {"layers_per_stage", "tensor_parallel"},
        "megatron": parts.keys() - {"replicas"},
        "json": parts.keys(),
    }
    for name, said in says.items():
        left = "; ".join(words for field, words in parts.items() if field not in said)
        told = [f"{name}: not in the file, set by hand: {left}"] if left else []
        assert list(chosen(name).unsaid(made)) == told
    (line,) = chosen("megatron").unsaid(program("1f1b", 2, 3))
    assert (
        line == "megatron: the layers of each stage are not known; --layers says them"
    )
    assert list(chosen("torch").unsaid(program("1f1b", 2, 3))) == []


def test_formats_belong_to_runtimes():
    with pytest.raises(InputError, match='megatron has no format "compute_comms"'):
        chosen("megatron").settings("compute_comms")
    with pytest.raises(
        InputError, match="--recompute: expected --to megatron or primus"
    ):
        chosen("torch").settings(recomputed=(1, 1))
    with pytest.raises(InputError, match="expected --to torch --format compute_comms"):
        chosen("torch").settings(fsdp=True)
    with pytest.raises(InputError, match='did you mean "megatron"'):
        chosen("megatorn")


EVERY = (
    "bidirectional pipes and several replicas: a stage lives on one rank",
    "ops in pieces, with other ops between them",
    "forwards of the last stage in another order than 0, 1, 2, ...",
    "times: a runtime runs an order as early as it can",
)
CANNOT = {
    "torch": ("the split of layers",),
    "torchtitan": (
        "other placements than linear, interleaved and vshape",
        "sends and receives",
    ),
    "megatron": (
        "other orders than 1F1B and interleaved 1F1B in groups",
        "split backwards",
        "other placements than linear and interleaved",
        "different numbers of recomputed layers per stage",
        "offloads of some stages or micro-batches only",
    ),
    "colossalai": (
        "other placements than vshape",
        "whole backwards",
        "ops of a stage and kind in another order than 0, 1, 2, ...",
        "micro-batches that are no multiple of the ranks",
        "the split of layers",
    ),
    "primus": (
        "other placements than linear, interleaved and vshape",
        "forwards of the first stage in another order than 0, 1, 2, ...",
        "pairs of one micro-batch",
        "offloads of other stages than the first chunks of a V placement, or beside pairs launched "
        "together",
        "the split of layers (flags of Megatron-LM say it)",
    ),
    "deepspeed": (
        "other orders than 1F1B",
        "split backwards",
        "other placements than linear",
    ),
    "mindformers": (
        "other orders than 1F1B and interleaved 1F1B in groups of as many micro-batches as ranks",
        "split backwards",
        "other placements than linear and interleaved",
        "other layers than an embedding, decoder layers and a loss",
        "layers of `select` and of `comm` on one stage: both lists begin at its first layer",
    ),
    "json": (),
}


def test_the_page_lists_what_each_runtime_cannot_say():
    page = (ROOT / "docs" / "data" / "runtimes.md").read_text().splitlines()
    assert [target.name for target in TARGETS] == list(CANNOT)
    for name, cannot in CANNOT.items():
        assert any(line.startswith(f"| `{name}` |") for line in page), name
        missing = {line for line in (*EVERY, *cannot) if f"- {line}" not in page}
        assert missing == set(), name


def test_our_own_form_has_the_plan():
    found = json.loads(
        written("json", planned(program("1f1b", 2, 3), microbatch_size=2))
    )
    assert PlanOrigin.parse(found["plan"]).microbatch_size == 2
