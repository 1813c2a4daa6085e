"""Programs of ranks that post transfers and wait for them, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.solver.kinds.pipeline.grammar import ComputeStep, parse_step
from ppsolve.solver.kinds.pipeline.programs.waits import (
    Network,
    ProgramRun,
    ProgramStep,
    Wait,
    Waited,
    run_programs,
)

LENGTHS = {"F": 5, "B": 7}


def step_of(text: str) -> ProgramStep:
    if text.startswith("wait "):
        return Wait(parse_step(text.removeprefix("wait ")))
    return parse_step(text)


def ran(
    *programs: str,
    is_rendezvous: bool = False,
    latency: int = 2,
    ranks: Sequence[int] = (0, 1),
) -> ProgramRun:
    """Run programs whose steps stand between commas; forwards take 5, backwards 7."""

    def duration(step: ComputeStep) -> int:
        return LENGTHS[step.kind]

    rows = [[step_of(text) for text in row.split(", ")] for row in programs]
    return run_programs(
        rows, duration, Network(ranks, lambda *_: latency, is_rendezvous)
    )


def starts(run: ProgramRun) -> dict[str, int]:
    return {str(step): start for step, start in run.start.items()}


LATE = (
    "0F0, 0SEND_F0, wait 0SEND_F0, 0F1",
    "1B0, 1RECV_F0, 1B1, wait 1RECV_F0, 1F0",
)
"""The receive is posted at 7, the send at 5."""


def test_a_buffered_send_ends_at_once() -> None:
    assert starts(ran(*LATE)) == {"0F0": 0, "0F1": 5, "1B0": 0, "1B1": 7, "1F0": 14}


def test_a_send_that_meets_its_receive_ends_with_it() -> None:
    run = ran(*LATE, is_rendezvous=True)
    assert starts(run) == {"0F0": 0, "0F1": 9, "1B0": 0, "1B1": 7, "1F0": 14}
    (transfer,) = run.transfers
    assert (transfer.sent, transfer.received, transfer.end) == (5, 7, 9)
    assert run.waits == [Waited(0, parse_step("0SEND_F0"), 5, 9)]


def test_the_latency_of_data_that_were_sent_before_is_over() -> None:
    """Sent at 5 and there at 7, when the receive is posted; met, the way takes 2 from then on."""
    programs = ("0F0, 0SEND_F0", "1B0, 1RECV_F0, wait 1RECV_F0, 1F0")
    assert ran(*programs).start[parse_step("1F0")] == 7
    assert ran(*programs, is_rendezvous=True).start[parse_step("1F0")] == 9


def test_a_rank_waits_for_data() -> None:
    run = ran("0F0, 0SEND_F0", "1RECV_F0, wait 1RECV_F0, 1F0")
    assert starts(run)["1F0"] == 7
    assert run.waits == [Waited(1, parse_step("1RECV_F0"), 0, 7)]
    assert run.makespan == 12


def test_ranks_that_receive_before_they_send_wait_for_ever() -> None:
    with pytest.raises(DeadlockError) as error:
        ran(
            "0RECV_B0, wait 0RECV_B0, 0F0, 0SEND_F0",
            "1RECV_F0, wait 1RECV_F0, 1B0, 1SEND_B0",
        )
    assert error.value.cycle == ["wait 0RECV_B0", "wait 1RECV_F0"]


def test_sends_that_meet_block_each_other() -> None:
    programs = (
        "0F0, 0SEND_F0, wait 0SEND_F0, 0RECV_B0",
        "1B0, 1SEND_B0, wait 1SEND_B0, 1RECV_F0",
    )
    assert ran(*programs).makespan == 7
    with pytest.raises(DeadlockError, match="wait 0SEND_F0 -> wait 1SEND_B0"):
        ran(*programs, is_rendezvous=True)


def test_a_receive_without_a_send() -> None:
    with pytest.raises(DeadlockError) as error:
        ran("0F0", "1RECV_F0, wait 1RECV_F0")
    assert error.value.cycle == ["wait 1RECV_F0"]


def test_receives_take_the_sends_of_a_rank_in_order() -> None:
    programs = ("0F0, 0SEND_F0, 0F1, 0SEND_F1", "1RECV_F1, 1RECV_F0")
    with pytest.raises(InputError, match=r"rank 1 posts 1RECV_F1 where rank 0 posts 0"):
        ran(*programs)


def test_each_pair_of_ranks_has_its_own_order() -> None:
    """The receive that was posted first may end last, as another rank sends."""
    run = ran(
        "0F0, 0F1, 0SEND_F0",
        "1RECV_F0, 1RECV_B0, wait 1RECV_B0, 1B0, wait 1RECV_F0, 1F0",
        "2B0, 2SEND_B0",
        ranks=(0, 1, 2),
    )
    assert starts(run)["1B0"] == 9
    assert starts(run)["1F0"] == 16
