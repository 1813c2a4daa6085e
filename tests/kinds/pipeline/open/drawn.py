"""Tiny random pipelines with parts beside each other, for the plain model of combined parts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.outside.plain_model import Instance, pipes_of

PARTS = (
    "steps",
    "slices",
    "replicas",
    "layers",
    "recompute",
    "offload",
    "alltoall",
    "blocks",
    "fillers",
    "window",
    "pipes",
)
"""All parts, in the order in which they are drawn."""

PAIRS = (
    "slices recompute",
    "slices offload",
    "slices fillers",
    "slices layers",
    "slices replicas",
    "blocks recompute",
    "blocks layers",
    "blocks fillers",
    "fillers recompute",
    "steps recompute",
    "steps blocks",
    "steps layers",
    "layers fillers",
    "replicas recompute",
    "replicas layers",
    "alltoall recompute",
    "window slices",
    "window steps",
    "window blocks",
    "window fillers",
    "pipes slices",
    "pipes recompute",
    "pipes offload",
    "pipes fillers",
    "pipes steps",
    "pipes blocks",
    "pipes alltoall",
)
"""Two parts, of which there are many instances."""

APART = (
    {"slices", "blocks"},
    {"replicas", "alltoall"},
    {"replicas", "steps"},
    {"replicas", "fillers"},
    {"replicas", "blocks"},
    {"blocks", "alltoall"},
    {"layers", "recompute"},
    {"layers", "offload"},
    {"layers", "window"},
    {"layers", "pipes"},
    {"window", "pipes"},
    {"replicas", "window"},
    {"replicas", "pipes"},
)
"""Parts that a pipeline may not have together."""

MORE = "three"
"""Stands for three parts that are drawn too."""

PLACEMENTS = {
    "linear": 2,
    "bidirectional": 2,
    "vshape": 4,
    "interleaved": 4,
    "explicit": 3,
}
"""Stages on two devices."""


MOST_OPS = 16
"""Ops of a step; those of slices, steps and pieces count a little more than once."""


def drawn(name: str, seed: int) -> Instance:
    """Return a pipeline with some parts; the same for the same seed."""
    draw = Random(f"{name} {seed}")
    parts = set(name.split())
    while name == MORE:
        parts = set(draw.sample(PARTS, 3))
        if not any(pair <= parts for pair in APART):
            break
    data = _base(draw, parts)
    for name in PARTS:
        if name in parts and name in DRAWS:
            DRAWS[name](draw, data)
    _adds_memory(draw, data)
    _tells_microbatches_apart(draw, data)
    _leaves_more_to_weights(draw, data)
    _empties_stages(draw, data)
    _slows_devices(draw, data)
    return data


def _empties_stages(draw: Random, data: Instance) -> None:
    """Let some stages have none of the equal layers."""
    if "layers" not in data or draw.random() < 0.4:
        return
    layers, stages = data["layers"], _stages(data)
    rows = [draw.choice([0, 0, 1]) for _ in range(stages)]
    layers["min_per_stage"] = draw.choice([0, rows])
    fewer = layers["body"]["count"] - draw.randint(0, 1)
    layers["body"]["count"] = max(1, sum(rows), fewer)


def _slows_devices(draw: Random, data: Instance) -> None:
    """Let the devices have speeds of their own, where they may."""
    if draw.random() < 0.4:
        speeds = [draw.choice([1, 2, 0.5, 0.8, 1.25]) for _ in range(2)]
        is_two_way = data.get("placement") == "bidirectional"
        data["speed"] = speeds[:1] * 2 if is_two_way else speeds


def _leaves_more_to_weights(draw: Random, data: Instance) -> None:
    """Let input gradients of some stages keep more than the activation."""
    memory = data.get("memory", {})
    if "layers" in data or "released_by_backward_weight" not in memory:
        return
    if draw.random() < 0.5:
        memory.pop("released_by_backward_weight")
        factors = [draw.choice([0.5, 1.25, 1.5]) for _ in memory["activation"]]
        pairs = zip(memory["activation"], factors, strict=True)
        memory["left_to_weight"] = [amount * factor for amount, factor in pairs]


def _tells_microbatches_apart(draw: Random, data: Instance) -> None:
    """Give micro-batches modes of their own on some stages that have a given mode."""
    memory = data.get("memory", {})
    modes = [memory[field] for field in ("recompute", "offload") if field in memory]
    if not modes or not isinstance(modes[0]["decide"], list) or draw.random() < 0.3:
        return
    names = ["keep", *(mode["name"] for mode in modes[0].get("modes", []))]
    names += ["offload"] if "offload" in memory else []
    decide = [
        [draw.choice(names) for _ in range(data["num_microbatches"])]
        if draw.random() < 0.7
        else name
        for name in modes[0]["decide"]
    ]
    for entry in modes:
        entry["decide"] = decide


def _base(draw: Random, parts: set[str]) -> Instance:
    """Return a small pipeline without parts."""
    while True:
        is_split = draw.random() < 0.4
        usual = [name for name in PLACEMENTS if name != "bidirectional"]
        placement = draw.choice([*usual, "linear", "linear", "linear"])
        if "blocks" in parts:
            placement = draw.choice(["linear", "vshape", "interleaved"])
        if "window" in parts:
            placement = draw.choice(["linear", "linear", "interleaved"])
        if "pipes" in parts:
            placement = "bidirectional"
        stages, microbatches = PLACEMENTS[placement], draw.randint(1, 3)
        weight = 1.3 if parts & {"slices", "steps", "alltoall"} else 1
        if "replicas" in parts:
            microbatches = draw.choice([2, 2, 3, 4])
        elif parts & {"blocks", "recompute", "offload", "window"}:
            microbatches = draw.choice([2, 2, 3])
        if "pipes" in parts:
            microbatches = 2
        if stages * microbatches * weight * (3 if is_split else 2) <= MOST_OPS:
            break
    data: Instance = {"num_devices": 2, "num_microbatches": microbatches}
    if placement == "explicit":
        data["placement"] = {"stage_to_device": draw.choice([[0, 1, 0], [0, 0, 1]])}
    elif placement != "linear":
        data["placement"] = placement
    kinds = ("forward", "backward_input", "backward_weight")
    data["times"] = {
        kind: [_time(draw) for _ in range(stages)]
        for kind in (kinds if is_split else ("forward", "backward"))
    }
    if draw.random() < 0.4 and not parts & {"layers", "slices"}:
        _makes_unequal(draw, data)
    if draw.random() < 0.6:
        data["p2p"] = {"latency": draw.randint(0, 3)}
        if draw.random() < 0.25:
            modes = ["link", "send_queue", *([] if "replicas" in parts else ["nic"])]
            size = {"bytes": draw.randint(1, 3), "bandwidth": draw.choice([1, 2])}
            data["p2p"] |= {"mode": draw.choice(modes)} | size
    for field in ("allreduce", "optimizer"):
        if draw.random() < 0.2:
            data[field] = [draw.randint(0, 4) for _ in range(stages)]
    if draw.random() < 0.15 and "blocks" not in parts:
        data["objective"] = "device_span"
    data["memory"] = {"activation": [draw.choice([2, 2, 4]) for _ in range(stages)]}
    if is_split and draw.random() < 0.6:
        share = draw.choice([0, 0.5, 1])
        data["memory"]["released_by_backward_weight"] = share
    return data


def _time(draw: Random) -> int:
    return 0 if draw.random() < 0.08 else draw.randint(1, 5)


def _makes_unequal(draw: Random, data: Instance) -> None:
    """Give every micro-batch times of its own."""
    count = data["num_microbatches"]
    data["times"] = {
        kind: [
            [max(0, time + draw.randint(-1, 2)) for _ in range(count)] for time in row
        ]
        for kind, row in data["times"].items()
    }


def _stages(data: Instance) -> int:
    return len(pipes_of(data)[0])


def _fields(data: Instance) -> list[str]:
    """Return the fields of times, the forward's first."""
    source = data.get("times") or data["layers"]["body"]
    return [field for field in source if field.startswith(("forward", "backward"))]


def _steps(draw: Random, data: Instance) -> None:
    data["steps"] = 2
    if _stages(data) == 4:
        data["num_microbatches"] = min(data["num_microbatches"], 2)


def _slices(draw: Random, data: Instance) -> None:
    data["slices"] = 2
    for kind, row in data["times"].items():
        if draw.random() < 0.5:
            units = 2 * draw.choice([1, data["num_microbatches"]])
            data["times"][kind] = [
                [max(0, time + draw.randint(-1, 1)) for _ in range(units)]
                for time in row
            ]
    if draw.random() < 0.4:
        data["memory"]["key_value"] = draw.choice([0.5, 1])


def _layers(draw: Random, data: Instance) -> None:
    stages = _stages(data)
    kinds = list(data.pop("times"))

    def cost(limit: int) -> Instance:
        return {kind: draw.randint(0, limit) for kind in kinds}

    body = {kind: draw.randint(1, 3) for kind in kinds}
    more = 2 if stages < 4 and "replicas" not in data else 1
    body |= {"count": stages + draw.randint(0, more), "activation": 2}
    if draw.random() < 0.3:
        body["static"] = draw.choice([0.5, 1])
    data["layers"] = {"body": body}
    if draw.random() < 0.4:
        data["layers"]["first"] = cost(3) | {"activation": draw.choice([0, 1])}
    if draw.random() < 0.4:
        data["layers"]["last"] = cost(4) | {"static": draw.choice([0, 1])}
    types = draw.choice([0, 1, 1, 2]) if stages < 3 else draw.choice([0, 1])
    if types:
        data["layers"]["recompute"] = [
            {"name": name, "time": draw.randint(0, 2), "held": draw.choice([0, 0.5, 1])}
            for name in ("full", "mlp")[:types]
        ]
    data["memory"].pop("activation")


def _replicas(draw: Random, data: Instance) -> None:
    count = data["num_microbatches"]
    replicas: Instance = {"count": 2, "assignment": draw.choice(["fixed", "free"])}
    replicas["counts"] = "any" if count % 2 else draw.choice(["equal", "any"])
    if replicas["assignment"] == "free":
        data.pop("objective", None)
    elif count % 2 or draw.random() < 0.5:
        order = draw.sample(range(count), count)
        cut = draw.randint(1, count - 1) if replicas["counts"] == "any" else count // 2
        replicas["members"] = [order[:cut], order[cut:]]
    data["replicas"] = replicas


def _decision(draw: Random, data: Instance, names: list[str]) -> str | list[str]:
    """Return who decides; so few cells that all ways are tried soon."""
    stages = _stages(data)
    decide = draw.choice(["all", "stage", "stage", "microbatch", "list"])
    cells = stages * data["num_microbatches"]
    if decide == "microbatch" and cells * len(names) > 4:
        decide = "stage"
    if decide == "stage" and stages * len(names) > 4:
        decide = "all"
    if decide == "list":
        return [draw.choice(["keep", *names]) for _ in range(stages)]
    return decide


def _recompute(draw: Random, data: Instance) -> None:
    stages = _stages(data)
    names = ["full", "select"][: draw.choice([1, 1, 2])]
    data["memory"]["recompute"] = {
        "modes": [
            {
                "name": name,
                "time": [draw.randint(0, 3) for _ in range(stages)]
                if draw.random() < 0.4
                else draw.randint(1, 2),
                "held": draw.choice([0, 0.5, 1]),
            }
            for name in names
        ],
        "decide": _decision(draw, data, names),
        "place": draw.choice(["before_backward", "anytime"]),
    }


def _offload(draw: Random, data: Instance) -> None:
    memory = data["memory"]
    decide = _decision(draw, data, ["offload"])
    if "recompute" in memory:
        decide = memory["recompute"]["decide"]
        if decide == "microbatch":
            decide = memory["recompute"]["decide"] = "stage"
    memory["offload"] = {
        "amount": draw.choice([1, 2]),
        "out": draw.randint(0, 3),
        "back": draw.randint(0, 3),
        "duplex": draw.random() < 0.5,
        "decide": decide,
    }
    if draw.random() < 0.4:
        memory["offload"]["links"] = [[0, 1]]
    if draw.random() < 0.4:
        memory["offload"]["host_capacity"] = draw.choice([1, 2, 4])


def _window(draw: Random, data: Instance) -> None:
    if not {"recompute", "offload"} & data["memory"].keys():
        _recompute(draw, data)
    for field in ("recompute", "offload"):
        if field in data["memory"]:
            data["memory"][field]["decide"] = "window"


def _alltoall(draw: Random, data: Instance) -> None:
    backward = _fields(data)[1]
    kinds = draw.choice([["forward"], [backward], ["forward", backward]])
    data["collectives"] = {
        kind: {
            "pieces": draw.choice([[1, 1], [1, 2, 1], [0, 1]]),
            "alltoall": draw.randint(1, 3),
        }
        for kind in kinds
    }
    for inside in data["collectives"].values():
        size = len(inside["pieces"])
        inside["alltoall"] = [draw.randint(0, 3) for _ in range(size)]
    if draw.random() < 0.4:
        data["collectives"]["comm_streams"] = "per_kind"
    if draw.random() < 0.2:
        data["collectives"]["devices_per_node"] = 2


def _blocks(draw: Random, data: Instance) -> None:
    stages = _stages(data)
    ratio = {"ratio": draw.choice([0.5, 0.75, 0.8])}
    data["overlap"] = ratio
    if "layers" not in data and draw.random() < 0.6:
        rows = [[draw.randint(2, 9) for _ in range(stages)] for _ in range(stages)]
        if draw.random() < 0.3:
            rows[draw.randrange(stages)][draw.randrange(stages)] = None
        data["overlap"] = {"time": rows if draw.random() < 0.7 else rows[0][0] or 4}
    if "backward_weight" in _fields(data) and draw.random() < 0.4:
        data["overlap"]["with_weight"] = False
    if draw.random() < 0.3:
        data["overlap"]["memory"] = draw.choice([0.5, 1])


def _op(draw: Random, data: Instance) -> str:
    kinds = "FIW" if len(_fields(data)) == 3 else "FB"
    kind, stage = draw.choice(kinds), draw.randrange(_stages(data))
    name = f"{kind}{stage}"
    if draw.random() < 0.7:
        name += f".{draw.randrange(data['num_microbatches'])}"
    if "steps" in data and draw.random() < 0.3:
        name += "@1"
    return name


def _fillers(draw: Random, data: Instance) -> None:
    data["fillers"] = []
    is_cut = bool({"slices", "collectives"} & data.keys())
    for number in range(draw.choice([1, 1, 2])):
        filler: Instance = {
            "name": f"x{number}",
            "device": draw.randrange(2),
            "pieces": [draw.randint(1, 5) for _ in range(draw.choice([1, 1, 2]))],
        }
        if draw.random() < 0.5:
            filler["after"] = _op(draw, data)
        if draw.random() < 0.4:
            filler["before"] = _op(draw, data)
        if draw.random() < 0.2:
            filler["release"] = draw.randint(1, 8)
        if draw.random() < 0.15:
            filler["stream"] = draw.choice(["comm", "host"])
        if "steps" in data and draw.random() < 0.4:
            filler["per_step"] = True
        has_choice = len(filler["pieces"]) == 1 and draw.random() < 0.5
        if has_choice and data.get("objective") is None:
            filler["devices"] = [1 - filler["device"]]
        elif draw.random() < 0.4:
            filler["memory"] = {"running": draw.choice([0.5, 1, 2])}
            is_one_op = "." in filler.get("after", "") and not is_cut
            if is_one_op and draw.random() < 0.5:
                filler["memory"]["waiting"] = draw.choice([0.5, 1])
        data["fillers"].append(filler)


def _adds_memory(draw: Random, data: Instance) -> None:
    """Give devices room for little more than what one micro-batch needs."""
    memory, slices = data["memory"], data.get("slices", 1)
    if "layers" in data:
        layers, stages = data["layers"], _stages(data)
        share = -(-layers["body"]["count"] // stages) * 2
        held = [share] * stages
        fixed = layers["body"].get("static", 0) * layers["body"]["count"] // 2
    else:
        held, fixed = memory["activation"], 0
        if draw.random() < 0.1:
            memory["static"] = fixed = 1
    where = pipes_of(data)[0]
    rooms = [
        sum(
            amount for amount, there in zip(held, where, strict=True) if there == device
        )
        for device in range(2)
    ]
    factor = draw.choice([0.6, 0.75, 1, 1, 1.25, 1.5, 2])
    if {"recompute", "offload"} & memory.keys() or "recompute" in data.get(
        "layers", {}
    ):
        factor = draw.choice([0.5, 0.75, 1, 1, 1, 1.25])
    room = max(rooms) * slices * factor + fixed + memory.get("key_value", 0)
    memory["capacity"] = room
    if draw.random() < 0.3:
        memory["capacity"] = [room, draw.choice([1, 1.5]) * room]
    if draw.random() < 0.05 and not {"recompute", "offload"} & memory.keys():
        data.pop("memory")
        for filler in data.get("fillers", []):
            filler.pop("memory", None)
        data.get("overlap", {}).pop("memory", None)


DRAWS: dict[str, Callable[[Random, Instance], None]] = {
    "steps": _steps,
    "slices": _slices,
    "layers": _layers,
    "replicas": _replicas,
    "recompute": _recompute,
    "offload": _offload,
    "alltoall": _alltoall,
    "blocks": _blocks,
    "fillers": _fillers,
    "window": _window,
}
