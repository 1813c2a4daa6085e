"""Write the requests for plans, byte for byte: ``python benchmarks/make_plans.py [DIR]``.

The profiles are modelled, not measured: the operations of a transformer block (24 s h^2 + 4 s^2 h
per sample of s tokens and width h, twice that backward) at a rate that grows with the micro-batch,
and 34 s h bytes of activations. They have the shape of real ones: small micro-batches are slow,
the head weighs as much as a block, memory rules out what would be fastest. The observations of step
times are those of a goodput model with known parameters, disturbed by 2 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from shipped import write_set, writer_options

from ppsolve.models.documents.files import write_text
from ppsolve.models.studies.goodput.params import GradParams, PerfParams
from ppsolve.models.studies.plan.request import REQUEST_SUFFIX, PlanRequest
from ppsolve.solver.studies.goodput.model import GoodputModel

FAMILY = "plans"
OBSERVATIONS = f"{FAMILY}/observations.csv"

RATE = 420e6
"""Operations per microsecond at large micro-batches."""

HALF_RATE = 0.35
"""Samples of a micro-batch at which half of the rate is reached."""

VOCABULARY = 51_200
BYTES_OF_BFLOAT16 = 2


@dataclass(frozen=True)
class Transformer:
    """A decoder with `blocks` blocks of a width, on sequences of so many tokens."""

    blocks: int
    width: int
    tokens: int
    sizes: tuple[int, ...]

    def profile(self) -> dict[str, Any]:
        """Return the model of a request."""
        tokens, width = self.tokens, self.width
        block = 24 * tokens * width**2 + 4 * tokens**2 * width
        head = 2 * tokens * width * VOCABULARY
        table = BYTES_OF_BFLOAT16 * width * VOCABULARY
        sent = BYTES_OF_BFLOAT16 * tokens * width
        embedding = {
            **self.times(head // 20),
            "activation_bytes": sent,
            "output_bytes": sent,
            "parameter_bytes": table,
        }
        blocks = {
            **self.times(block),
            "activation_bytes": 34 * tokens * width,
            "output_bytes": sent,
            "parameter_bytes": BYTES_OF_BFLOAT16 * 12 * width**2,
        }
        logits = {
            **self.times(head),
            "activation_bytes": 4 * tokens * VOCABULARY,
            "parameter_bytes": table,
        }
        return {
            "microbatch_sizes": self.sizes,
            "layers": [
                {"name": "embedding", **embedding},
                {"name": "block", "count": self.blocks, **blocks},
                {"name": "head", **logits},
            ],
        }

    def times(self, operations: int) -> dict[str, list[int]]:
        """Return microseconds of forward, input- and weight-gradient backward by size."""
        forward = [round(operations * (size + HALF_RATE) / RATE) for size in self.sizes]
        return {
            "forward": forward,
            "backward_input": [round(1.05 * time) for time in forward],
            "backward_weight": [round(0.95 * time) for time in forward],
        }


def every_request() -> dict[str, PlanRequest]:
    """Return the set: file name below the directory -> request, named after its file."""
    return {
        f"{FAMILY}/{name}{REQUEST_SUFFIX}": PlanRequest.parse({"name": name, **fields})
        for name, fields in described().items()
    }


def described() -> dict[str, dict[str, Any]]:
    """Return the fields of every request by name."""
    links = {
        "within_node": {"latency": 8, "bandwidth": 200_000},
        "between_nodes": {"latency": 20, "bandwidth": 25_000},
    }
    large = Transformer(blocks=48, width=4096, tokens=2048, sizes=(1, 2, 4, 8))
    largest = Transformer(blocks=80, width=8192, tokens=4096, sizes=(1, 2, 4))
    small = Transformer(blocks=10, width=2048, tokens=1024, sizes=(1, 2))
    return {
        "gpt-48x32": {
            "description": "48 blocks of width 4096 on 4 nodes of 8 devices; modelled times",
            "model": large.profile(),
            "cluster": {"nodes": 4, "devices_per_node": 8, "memory": 80e9, **links},
            "goodput": {
                "init_batch_size": 128,
                "max_batch_size": 1024,
                "grad": {"sqr": 0.02, "var": 4},
            },
            "search": {
                "placements": ["linear", "interleaved", "vshape"],
                "virtual_stages": [2, 4],
                "batch_sizes": [128, 256, 512, 1024],
                "backward": ["fused", "split"],
            },
        },
        "gpt-80x128": {
            "description": "80 blocks of width 8192 (65 billion parameters) on 64 to 128 devices",
            "model": largest.profile(),
            "cluster": {"nodes": 16, "devices_per_node": 8, "memory": 80e9, **links},
            "goodput": {
                "init_batch_size": 128,
                "max_batch_size": 512,
                "grad": {"sqr": 0.02, "var": 4},
            },
            "search": {
                "pipeline_depths": [16, 32, 64],
                "replicas": [1, 2, 4, 8],
                "placements": ["linear", "interleaved", "vshape", "wave"],
                "virtual_stages": [2, 4],
                "batch_sizes": [128, 256, 512],
                "backward": ["fused", "split"],
            },
        },
        "small-12x4": {
            "description": "10 blocks of width 2048 on 2 nodes of 2 devices; modelled times",
            "model": small.profile(),
            "cluster": {"nodes": 2, "devices_per_node": 2, "memory": 9e9, **links},
            "goodput": {"init_batch_size": 8, "grad": {"sqr": 0.02, "var": 0.25}},
            "search": {
                "placements": ["linear", "interleaved", "vshape"],
                "batch_sizes": [8, 16],
                "layer_splits": ["balanced", "even"],
            },
        },
    }


OBSERVED = PerfParams(
    alpha_c=0.021,
    beta_c=0.0019,
    alpha_n=0.09,
    beta_n=0.004,
    alpha_r=0.012,
    beta_r=0.002,
    gamma=1.8,
)
"""Seconds, of a model that fits one device."""


def observations() -> str:
    """Return observed step times as CSV: sizes 8 to 64 on 1 to 32 devices of 8 a node."""
    model = GoodputModel(OBSERVED, GradParams(0.02, 0.25), init_batch_size=64)
    noise = np.random.default_rng(0)
    lines = ["num_nodes,num_replicas,atomic_bsz,accum_step_time,optim_step_time"]
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 16), (4, 32)):
        for size in (8, 16, 32, 64):
            accumulation, whole = (
                model.perf.step_time(nodes, replicas, size, a) for a in (1, 0)
            )
            times = ((accumulation - whole), whole) * np.exp(noise.normal(0, 0.02, 2))
            lines.append(f"{nodes},{replicas},{size},{times[0]:.5g},{times[1]:.5g}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the set below the directory given, or where it is kept."""
    directory = writer_options(__doc__).parse_args().directory
    write_set(every_request(), directory)
    write_text(directory / OBSERVATIONS, observations())


if __name__ == "__main__":
    main()
