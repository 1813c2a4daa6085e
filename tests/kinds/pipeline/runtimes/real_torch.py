"""PyTorch's own `_PipelineScheduleRuntime` in virtual time: a program by itself, JSON in and out.

Its lowering and its loop over actions are real; the stages and the calls that move tensors are not.
Each rank is a thread with a clock of its own, which ops advance by their durations. A receive ends
at `max(sent + latency, posted)` where sends are buffered; send and receive end at
`max(sent, posted) + latency` where they rendezvous. Shares nothing with the program.

A case has the fields ranks (of the stages), m, rows (actions of each rank), form, times (kind to a
time per stage), rendezvous and latency. Printed are for each case the ops as [kind, stage,
micro-batch, start, end], or an error.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules

warnings.filterwarnings("ignore")
PATIENCE = 20.0
RANK = threading.local()


@dataclass
class Posted:
    """A send or a receive; those of a pair of ranks meet in the order of posting."""

    case: dict[str, Any]
    is_send: bool
    key: Any
    time: int
    met: threading.Event = field(default_factory=threading.Event)
    peer: Any = None

    def wait(self) -> None:
        case = self.case
        if self.is_send and not case["rendezvous"]:
            return
        if not self.met.wait(PATIENCE):
            raise RuntimeError("a rank waits for ever")
        assert self.peer.key == self.key, "other data are received"
        sent, posted = (self, self.peer) if self.is_send else (self.peer, self)
        end = max(sent.time + case["latency"], posted.time)
        if case["rendezvous"]:
            end = max(sent.time, posted.time) + case["latency"]
        RANK.clock = max(RANK.clock, end)


class Wire:
    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.lock = case, threading.Lock()
        self.open: dict[Any, list[Posted]] = defaultdict(list)

    def post(self, is_send: bool, key: Any, peer: int) -> Posted:
        pair = (RANK.number, peer) if is_send else (peer, RANK.number)
        posted = Posted(self.case, is_send, key, RANK.clock)
        with self.lock:
            others = self.open[pair, not is_send]
            if others:
                posted.peer = others.pop(0)
                posted.peer.peer = posted
                posted.met.set()
                posted.peer.met.set()
            else:
                self.open[pair, is_send].append(posted)
        return posted


def isend(key: Any, group: Any = None, tag: int = 0, group_dst: int = 0) -> Posted:
    return RANK.wire.post(True, key, group_dst)


def irecv(key: Any, group: Any = None, tag: int = 0, group_src: int = 0) -> Posted:
    return RANK.wire.post(False, key, group_src)


class Stage:
    """A stage whose ops take time and compute nothing."""

    def __init__(self, number: int, case: dict[str, Any]) -> None:
        self.stage_index, self.case, self.submod = number, case, torch.nn.Identity()
        self.is_first, self.is_last = number == 0, number == len(case["ranks"]) - 1

    def transfer(self, op: Any, kind: str, microbatch: int, peer: int) -> list[Any]:
        """Return the op of a transfer with the stage `peer`, none beyond the ends."""
        if not 0 <= peer < len(self.case["ranks"]):
            return []
        source = self.stage_index if op is isend else peer
        post = SimpleNamespace(op=op, tensor=(kind, source, microbatch))
        post.group = SimpleNamespace(group_name="pipeline")
        post.tag, post.group_peer = 0, self.case["ranks"][peer]
        return [post]

    def get_fwd_send_ops(self, microbatch: int) -> list[Any]:
        return self.transfer(isend, "F", microbatch, self.stage_index + 1)

    def get_bwd_send_ops(self, microbatch: int) -> list[Any]:
        return self.transfer(isend, "B", microbatch, self.stage_index - 1)

    def get_fwd_recv_ops(self, microbatch: int) -> list[Any]:
        return self.transfer(irecv, "F", microbatch, self.stage_index - 1)

    def get_bwd_recv_ops(self, microbatch: int) -> list[Any]:
        return self.transfer(irecv, "B", microbatch, self.stage_index + 1)

    def run(self, kind: str, microbatch: int) -> None:
        start = RANK.clock
        RANK.clock += self.case["times"][kind][self.stage_index]
        RANK.log.append([kind, self.stage_index, microbatch, start, RANK.clock])

    def forward_one_chunk(self, microbatch: int, *args: Any, **kwargs: Any) -> None:
        self.run("F", microbatch)

    def backward_one_chunk(
        self, microbatch: int, loss: Any, full_backward: bool, last_backward: bool
    ) -> None:
        self.run("B" if full_backward else "I", microbatch)

    def backward_weight_one_chunk(self, microbatch: int, last_backward: bool) -> None:
        self.run("W", microbatch)

    def ignored(self, *args: Any) -> None:
        """Compute nothing, as values do not count."""

    set_local_fwd_input = set_local_bwd_input = get_local_bwd_output = ignored
    perform_reduce_grad = ignored


class Runtime(schedules._PipelineScheduleRuntime):
    """The real runtime of one rank, without the groups that its constructor asks for."""

    def __init__(self, rank: int, case: dict[str, Any]) -> None:
        self.rank, self._n_microbatches, self._loss_fn = rank, case["m"], None
        self.pp_group_size, self._num_stages = len(case["rows"]), len(case["ranks"])
        mine = (n for n, place in enumerate(case["ranks"]) if place == rank)
        self._stages = [Stage(number, case) for number in mine]
        self._internal_losses, self.scale_grads = [], False
        self._defer_pp_recv, self._comp_type_to_function_map = False, {}
        self.backward_counter, self.unsharded_stages = Counter(), set()
        self.bwd_recv_ops, self.fwd_recv_ops = {}, {}
        self.unshard_ops = defaultdict(list)
        self.pipeline_order = {
            number: [schedules._Action.from_str(name) for name in row]
            for number, row in enumerate(case["rows"])
        }
        self._prepare_schedule_with_comms(self.pipeline_order, format=case["form"])

    def _validate_and_set_stage_mapping(self, actions: Any) -> None:
        places = dict(enumerate(RANK.wire.case["ranks"]))
        self.stage_index_to_group_rank = places

    def _initialize_stages(self, *args: Any) -> None:
        pass

    def _check_inputs(self, *args: Any) -> tuple[list[Any], list[Any]]:
        return [()] * self._n_microbatches, [{}] * self._n_microbatches


def run_rank(rank: int, wire: Wire, results: dict[int, Any]) -> None:
    RANK.number, RANK.wire, RANK.clock, RANK.log = rank, wire, 0, []
    try:
        Runtime(rank, wire.case)._step_microbatches()
        results[rank] = RANK.log
    except Exception as error:
        results[rank] = f"{type(error).__name__}: {error}"


def run_case(case: dict[str, Any]) -> Any:
    """Return the ops of all ranks, or the first error."""
    wire, results = Wire(case), {}
    threads = [
        threading.Thread(target=run_rank, args=(rank, wire, results), daemon=True)
        for rank in range(len(case["rows"]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [log for log in results.values() if isinstance(log, str)]
    return errors[0] if errors else [op for log in results.values() for op in log]


if __name__ == "__main__":
    dist.isend, dist.irecv = isend, irecv
    json.dump([run_case(case) for case in json.load(sys.stdin)], sys.stdout)
