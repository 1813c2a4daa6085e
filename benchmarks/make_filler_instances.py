"""Write pipelines with fillers, byte for byte: ``python benchmarks/make_filler_instances.py``.

The Llama-like 8B model of `make_memory_instances` in its pipeline, and other work for its bubbles:
encoders of images and sound with their backwards (DIP, Optimus), Newton-Schulz iterations of Muon,
copies of a checkpoint, and validation micro-batches. Times are those of matrix products at
400 TFLOP/s, in ms.
"""

from __future__ import annotations

from typing import Any

from make_memory_instances import FLOPS, MODELS
from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance

MODEL = MODELS["8b"]
TOKENS = 8192
NEWTON_SCHULZ = 5
"""Iterations of Muon for each matrix and step."""

VISION, SOUND = 630e6, 300e6
"""Parameters of the encoders."""

PATCHES = (1024, 5120, 0, 3072, 9216, 2048, 7168, 4096)
"""Patches of images in micro-batch i, repeated; 1,024 are one image."""

FRAMES = (3000, 0, 1500, 4500)
"""Frames of sound in micro-batch i, repeated."""


def milliseconds(flop: float) -> float:
    """Return the time of matrix products."""
    return round(1e3 * flop / FLOPS, 1)


def layers_of(devices: int) -> list[int]:
    """Return the layers of each stage; the last one, which has the head, has fewer."""
    even, rest = divmod(MODEL.layers + 2, devices)
    return [
        even + (stage < rest) - 2 * (stage == devices - 1) for stage in range(devices)
    ]


def pipeline(
    name: str, devices: int, microbatches: int, about: str, **fields: Any
) -> Any:
    """Return the pipeline of the language model, with fillers and more among `fields`."""
    work = [count * (MODEL.attention + MODEL.mlp) for count in layers_of(devices)]
    work[-1] += MODEL.vocabulary * MODEL.hidden
    times = [milliseconds(2 * each * TOKENS) for each in work]
    data = {
        "name": name,
        "description": f"A Llama-like 8b model, {about}",
        "time_unit": "ms",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {"forward": times, "backward_input": times, "backward_weight": times},
        "p2p": {"latency": 0.7},
        "memory": {"capacity": devices, "activation": 1},
        **fields,
    }
    return PipelineInstance.parse(data)


def encoders(devices: int, microbatches: int) -> PipelineInstance:
    """Return a multimodal step: encoders before the first forward, their backwards at the end."""
    fillers = []
    for i in range(microbatches):
        works = (("vision", VISION, PATCHES, 1024), ("sound", SOUND, FRAMES, 1500))
        for number, (kind, parameters, tokens, piece) in enumerate(works):
            pieces = tokens[i % len(tokens)] // piece
            if pieces:
                device = (i + number * devices // 2) % devices
                forward = milliseconds(2 * parameters * piece)
                fillers += [
                    {
                        "name": f"{kind}{i}",
                        "device": device,
                        "pieces": [forward] * pieces,
                        "before": f"F0.{i}",
                    },
                    {
                        "name": f"{kind}{i}-backward",
                        "device": device,
                        "pieces": [2 * forward] * pieces,
                        "after": f"I0.{i}",
                    },
                ]
    about = "encoders of images and sound before the first stage"
    name = f"encoders-{devices}x{microbatches}"
    return pipeline(name, devices, microbatches, about, fillers=fillers)


def matrices() -> dict[str, tuple[int, int]]:
    """Return the matrices of a layer: less and more of their two sizes."""
    hidden, ffn = MODEL.hidden, MODEL.ffn
    narrow = int(hidden * MODEL.kv_share)
    attention = {"q": (hidden, hidden), "k": (narrow, hidden), "v": (narrow, hidden)}
    return (
        attention
        | {"o": (hidden, hidden)}
        | dict.fromkeys(("gate", "up", "down"), (hidden, ffn))
    )


def muon(
    devices: int, microbatches: int, steps: int = 2, *, anywhere: bool = False
) -> PipelineInstance:
    """Return steps with Muon: each matrix after its gradients, before the next step's F.

    `anywhere` lets each device take the matrices of MLPs; the time to send them is not counted.
    """
    fillers = [
        {
            "name": f"{name}{layer}.{stage}",
            "device": stage,
            "pieces": [milliseconds(NEWTON_SCHULZ * (4 * m * m * n + 2 * m**3))],
            "after": f"W{stage}",
            **({"before": f"F{stage}@1", "per_step": True} if steps > 1 else {}),
            **(
                {"devices": [device for device in range(devices) if device != stage]}
                if anywhere and m * n > MODEL.hidden**2
                else {}
            ),
        }
        for stage, count in enumerate(layers_of(devices))
        for layer in range(count)
        for name, (m, n) in matrices().items()
    ]
    name = f"muon-{devices}x{microbatches}" + "-anywhere" * anywhere
    about = f"Newton-Schulz iterations of Muon for each matrix, steps: {steps}"
    return pipeline(name, devices, microbatches, about, steps=steps, fillers=fillers)


def checkpoint(devices: int, microbatches: int) -> PipelineInstance:
    """Return two steps: a snapshot of each stage in parts, each copied to the host."""
    fillers = []
    for stage, count in enumerate(layers_of(devices)):
        for layer in range(count):
            # 14 bytes per parameter: 2 TB/s on the device, 25 GB/s to the host.
            gigabytes = 14 * (MODEL.attention + MODEL.mlp) / 1e9
            snapshot = f"snapshot{layer}.{stage}"
            fillers += [
                {
                    "name": snapshot,
                    "device": stage,
                    "pieces": [round(gigabytes / 2, 1)],
                    "before": f"OPT{stage}@1",
                    "after": f"OPT{stage}",
                },
                {
                    "name": f"copy{layer}.{stage}",
                    "device": stage,
                    "stream": "host",
                    "pieces": [round(gigabytes / 25 * 1e3, 1)],
                    "after": snapshot,
                    "memory": {"waiting": 0.5},
                },
            ]
    name = f"checkpoint-{devices}x{microbatches}"
    about = "a checkpoint copied to the host in the step after it"
    more: Any = {"steps": 2, "optimizer": 20, "fillers": fillers}
    memory = {"capacity": devices + 2, "activation": 1}
    return pipeline(name, devices, microbatches, about, memory=memory, **more)


def validation(devices: int, microbatches: int, count: int) -> PipelineInstance:
    """Return a step with validation micro-batches: forwards alone, through all stages."""
    work = [each * (MODEL.attention + MODEL.mlp) for each in layers_of(devices)]
    work[-1] += MODEL.vocabulary * MODEL.hidden
    fillers = []
    for i in range(count):
        for stage, each in enumerate(work):
            filler = {
                "name": f"validation{stage}.{i}",
                "device": stage,
                "pieces": [milliseconds(2 * each * TOKENS / 4)],
            }
            fillers.append(
                filler | ({"after": f"validation{stage - 1}.{i}"} if stage else {})
            )
    name = f"validation-{devices}x{microbatches}"
    about = f"{count} validation micro-batches of a quarter of the tokens"
    return pipeline(name, devices, microbatches, about, fillers=fillers)


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance."""
    made = (
        encoders(4, 8),
        encoders(8, 16),
        muon(4, 8),
        muon(8, 8),
        muon(4, 8, 1, anywhere=True),
        checkpoint(4, 8),
        checkpoint(8, 16),
        validation(4, 8, 8),
        validation(8, 16, 12),
    )
    return {f"fillers/{instance.name}.json": instance for instance in made}


if __name__ == "__main__":
    run_writer(__doc__, every_instance)
