"""Megatron-LM's own schedules in virtual time: a program by itself, JSON in and out.

All of `megatron.core.pipeline_parallel.schedules` and `p2p_communication` is real but the calls of
`torch.distributed` that move tensors, and the layers of a combined step. Each rank is a thread with
a clock of its own, which ops advance by their durations. A receive ends at
`max(sent + latency, posted)` where sends are buffered; send and receive end at
`max(sent, posted) + latency` where they rendezvous. Shares nothing with the program.

A case has the fields p, v, m, F and B (a time per stage, or a list per micro-batch), block, group,
combined, overlap ("steady", "all", "none"), rendezvous and latency. Printed are for each case the
ops as [kind, stage, micro-batch, start, end], or an error.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from typing import Any

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
threading.stack_size(64 * 2**20)
torch.set_num_threads(1)

PATIENCE = 20.0
RANK = threading.local()


def on_cpu(make: Any) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        return make(*args, **kwargs)

    return called


for maker in ("zeros", "ones", "empty", "tensor"):
    setattr(torch, maker, on_cpu(getattr(torch, maker)))
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *args, **kwargs: None


class Deadlock(Exception):
    pass


class Group:
    def __init__(self, rank: int, size: int, name: str) -> None:
        self.own_rank, self.own_size, self.name = rank, size, name

    def rank(self) -> int:
        return self.own_rank

    def size(self) -> int:
        return self.own_size


class Wire:
    """Sends and receives of one case; those of a pair of ranks meet in the order of posting."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.lock, self.is_dead = case, threading.Lock(), False
        self.open: dict[Any, list[Posted]] = {}

    def post(self, is_send: bool, tensor: Any, peer: int, group: Any) -> Posted:
        name = getattr(group, "name", "world")
        pair = (RANK.number, peer, name) if is_send else (peer, RANK.number, name)
        posted = Posted(self, is_send, tensor.detach().clone() if is_send else tensor)
        with self.lock:
            others = self.open.setdefault((pair, not is_send), [])
            if not others:
                self.open.setdefault((pair, is_send), []).append(posted)
                return posted
            other = others.pop(0)
            posted.peer, other.peer = other, posted
            source, target = (posted, other) if is_send else (other, posted)
            with torch.no_grad():
                target.tensor.copy_(source.tensor)
            posted.met.set()
            other.met.set()
        return posted


class Posted:
    def __init__(self, wire: Wire, is_send: bool, tensor: Any) -> None:
        self.wire, self.is_send, self.tensor = wire, is_send, tensor
        self.time, self.met = RANK.clock, threading.Event()
        self.peer: Posted | None = None

    def wait(self) -> None:
        RANK.clock = max(RANK.clock, self.end())

    def end(self) -> int:
        case = self.wire.case
        if self.is_send and not case["rendezvous"]:
            return self.time
        if not self.met.wait(PATIENCE) or self.wire.is_dead:
            self.wire.is_dead = True
            raise Deadlock("a rank waits for ever")
        assert self.peer is not None
        if case["rendezvous"]:
            return max(self.time, self.peer.time) + case["latency"]
        return max(self.peer.time + case["latency"], self.time)


class P2POp:
    def __init__(self, op: Any, tensor: Any, peer: int, group: Any = None) -> None:
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group


def isend(tensor: Any, dst: int = 0, group: Any = None) -> Posted:
    return RANK.wire.post(True, tensor, dst, group)


def irecv(tensor: Any, src: int = 0, group: Any = None) -> Posted:
    return RANK.wire.post(False, tensor, src, group)


FAKES: dict[str, Any] = {
    "isend": isend,
    "irecv": irecv,
    "P2POp": P2POp,
    "batch_isend_irecv": lambda ops: [o.op(o.tensor, o.peer, o.group) for o in ops],
    "is_initialized": lambda: True,
    "get_world_size": lambda group=None: RANK.size if group is None else group.size(),
    "get_global_rank": lambda group, rank: rank,
    "get_process_group_ranks": lambda group: list(range(group.size())),
    "get_backend": lambda group=None: "nccl",
    "get_rank": lambda group=None: RANK.number if group is None else group.rank(),
}
for name, fake in FAKES.items():
    setattr(dist, name, fake)


def ran(kind: str, stage: int, microbatch: int, time: int) -> None:
    """Note an op; those of a combined step take no time of their own."""
    start = RANK.clock
    RANK.clock += 0 if RANK.is_combining else time
    RANK.log.append([kind, stage, microbatch, start, RANK.clock])


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, stage: int, microbatch: int, times: Any) -> Any:
        ctx.op = stage, microbatch, times[1]
        ran("F", stage, microbatch, times[0])
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ran("B", *ctx.op)
        return gradient * 1.5, None, None, None


class Chunk(torch.nn.Module):
    def __init__(self, config: Any, stage: int, is_last: bool) -> None:
        super().__init__()
        from megatron.core.enums import ModelType

        self.config, self.stage, self.is_last = config, stage, is_last
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.model_type = ModelType.encoder_or_decoder
        self.share_embeddings_and_output_weights = False
        self.x: Any = None

    def set_input_tensor(self, x: Any) -> None:
        self.x = x[0] if isinstance(x, list) else x

    def forward(self, microbatch: int, times: Any) -> Any:
        x = torch.full((4, 1, 4), microbatch + 1.0) if self.x is None else self.x
        return Op.apply(x * self.weight, self.stage, microbatch, times)


def combined_step(
    forward_step: Any,
    data: Any,
    f_model: Any,
    num_microbatches: int,
    input_tensor: Any,
    store: Any,
    b_model: Any,
    b_input: Any,
    b_output: Any,
    gradient: Any,
    config: Any,
    f_model_chunk_id: Any = None,
    pre_forward: Any = None,
    pre_backward: Any = None,
    post_forward: Any = None,
    post_backward: Any = None,
    **rest: Any,
) -> Any:
    """Stand in for the layers of a combined step; who calls it, and when, is Megatron's."""
    f_chunk = None if f_model is None else f_model.stage // RANK.size
    b_chunk = None if b_model is None else b_model.stage // RANK.size
    if f_model is not None and pre_forward is not None:
        pre_forward(f_chunk)
    if b_model is not None and pre_backward is not None:
        pre_backward(b_chunk)
    start = RANK.clock
    RANK.is_combining = f_model is not None and b_model is not None
    output, input_gradient = None, None
    if f_model is not None:
        f_model.set_input_tensor([input_tensor])
        output, loss = forward_step(data, f_model)
        if f_model.is_last:
            output = loss(output)[0] / num_microbatches
    if b_model is not None:
        if b_input is not None:
            b_input.retain_grad()
        torch.autograd.backward(b_output, grad_tensors=gradient)
        input_gradient = None if b_input is None else b_input.grad
    if RANK.is_combining:
        RANK.clock = start + RANK.wire.case["block"]
        for op in RANK.log[-2:]:
            op[3:] = start, RANK.clock
    RANK.is_combining = False
    if f_model is not None and post_forward is not None:
        post_forward(output, f_chunk)
    if b_model is not None and post_backward is not None:
        post_backward(input_gradient, b_chunk)
    return output, torch.tensor(0, dtype=torch.int), input_gradient


def run_rank(rank: int, wire: Wire, results: dict[int, Any]) -> None:
    case = wire.case
    RANK.number, RANK.size, RANK.wire = rank, case["p"], wire
    RANK.clock, RANK.log, RANK.is_combining = 0, [], False
    try:
        schedule(rank, case)
        results[rank] = RANK.log
    except Exception as error:
        wire.is_dead = wire.is_dead or isinstance(error, Deadlock)
        results[rank] = f"{type(error).__name__}: {error}"


def schedule(rank: int, case: dict[str, Any]) -> None:
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer.transformer_config import TransformerConfig

    p, v, m = case["p"], case["v"], case["m"]
    overlaps = v > 1 and case["overlap"] != "none"
    config = TransformerConfig(
        num_layers=p * v,
        hidden_size=4,
        num_attention_heads=1,
        pipeline_model_parallel_size=p,
        virtual_pipeline_model_parallel_size=v if v > 1 else None,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        overlap_p2p_comm=overlaps,
        batch_p2p_comm=not overlaps,
        overlap_p2p_comm_warmup_flush=case["overlap"] == "all",
        microbatch_group_size_per_vp_stage=case.get("group"),
        deallocate_pipeline_outputs=False,
    )
    # Behind the checks of the config, which ask for experts and bf16.
    config.overlap_moe_expert_parallel_comm = bool(case.get("combined"))
    chunks = [Chunk(config, c * p + rank, c * p + rank == p * v - 1) for c in range(v)]
    counts = [0] * v

    def time_of(entry: Any, microbatch: int) -> int:
        return entry[microbatch] if isinstance(entry, list) else entry

    def forward_step(data: Any, model: Any, checkpoint: Any = None) -> Any:
        chunk, stage = model.stage // p, model.stage
        microbatch = counts[chunk]
        counts[chunk] += 1
        times = [time_of(case[kind][stage], microbatch) for kind in "FB"]
        return model(microbatch, times), lambda out: (out.mean(), {})

    groups = ProcessGroupCollection()
    groups.tp, groups.cp = Group(0, 1, "tp"), Group(0, 1, "cp")
    groups.pp = Group(rank, p, "pp")
    groups.embd = groups.pos_embd = groups.dp_cp = groups.dp = groups.tp_dp_cp = None
    run = schedules.forward_backward_pipelining_without_interleaving
    if v > 1:
        run = schedules.forward_backward_pipelining_with_interleaving
    run(
        forward_step_func=forward_step,
        data_iterator=[iter(())] * v if v > 1 else iter(()),
        model=chunks if v > 1 else chunks[0],
        num_microbatches=m,
        seq_length=4,
        micro_batch_size=1,
        forward_only=False,
        p2p_communicator=P2PCommunicator(groups.pp, config),
        pg_collection=groups,
    )


def run_case(case: dict[str, Any]) -> Any:
    """Return the ops of all ranks, or the first error."""
    wire, results = Wire(case), {}
    threads = [
        threading.Thread(target=run_rank, args=(rank, wire, results), daemon=True)
        for rank in range(case["p"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [log for log in results.values() if isinstance(log, str)]
    return errors[0] if errors else [op for log in results.values() for op in log]


if __name__ == "__main__":
    import megatron.core
    from megatron.core.pipeline_parallel import combined_1f1b

    combined_1f1b.set_streams = lambda *args, **kwargs: None
    combined_1f1b.combined_forward_backward_step = combined_step
    runs = [run_case(case) for case in json.load(sys.stdin)]
    json.dump({"version": megatron.core.__version__, "runs": runs}, sys.stdout)
