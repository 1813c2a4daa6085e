"""What programs of two stages must keep, and how their steps wait for each other."""

from __future__ import annotations

import pytest

from ppsolve.models.documents.errors import DeadlockError
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    RECV_B,
    RECV_F,
    REDUCE_GRAD,
    SEND_B,
    SEND_F,
    Action,
    Communication,
)
from ppsolve.solver.kinds.pipeline.programs.communications import (
    events,
    needs,
    transfer_of,
)
from ppsolve.solver.kinds.pipeline.programs.rules import broken_exchanges, broken_rules

F0, F1 = Action(0, FORWARD, 0), Action(1, FORWARD, 0)
B0, B1 = Action(0, BACKWARD, 0), Action(1, BACKWARD, 0)
SENT_F, GOT_F = Communication(0, SEND_F, 0), Communication(1, RECV_F, 0)
SENT_B, GOT_B = Communication(1, SEND_B, 0), Communication(0, RECV_B, 0)


def test_an_action_sends_to_the_stage_that_uses_its_result() -> None:
    apart = {0: 0, 1: 1}
    assert transfer_of(F0, apart) == (SENT_F, GOT_F)
    assert transfer_of(B1, apart) == (SENT_B, GOT_B)
    assert transfer_of(F1, apart) is None
    assert transfer_of(F0, {0: 0, 1: 0}) is None
    assert transfer_of(F0, {0: 0, 1: 0}, local=True) == (SENT_F, GOT_F)


def test_a_backward_waits_for_its_forward_and_the_backward_behind_it() -> None:
    assert needs(F0, 2) == []
    assert needs(F1, 2) == [(F0,)]
    assert needs(B1, 2) == [(F1,)]
    assert needs(B0, 2) == [(F0,), (Action(1, BACKWARD_INPUT, 0), B1)]


def test_steps_follow_what_they_wait_for_or_are_named_in_a_cycle() -> None:
    assert list(events([[F0, B0], [F1, B1]])) == [(0, 0), (1, 0), (1, 1), (0, 1)]
    with pytest.raises(DeadlockError) as caught:
        list(events([[B0, F0], [F1, B1]]))
    assert caught.value.cycle == ["0B0"]
    later = [each._replace(microbatch=1) for each in (F0, B0, F1, B1)]
    with pytest.raises(DeadlockError) as caught:
        list(events([[F0, B0, *later[:2]], [*later[2:], F1, B1]]))
    assert sorted(caught.value.cycle) == ["0B0", "1F1"]


@pytest.mark.parametrize(
    ("rows", "rules"),
    [
        ([[F0, B0], [F1, B1]], []),
        ([[F0, B0], [F1]], ["missing"]),
        ([[F0, B0], [F1, B1], []], ["placement"]),
        ([[F0, B0, F1], [F1, B1]], ["placement", "twice"]),
    ],
)
def test_every_op_is_there_once_and_every_rank_has_some(
    rows: list[list[Action]], rules: list[str]
) -> None:
    assert [violation.rule for violation in broken_rules(rows)] == rules


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        ([F0, SENT_F, GOT_B, B0], [GOT_F, F1, B1, SENT_B], []),
        ([SENT_F, F0, GOT_B, B0], [GOT_F, F1, B1, SENT_B], ["send"]),
        ([F0, SENT_F, B0, GOT_B], [GOT_F, F1, B1, SENT_B], ["receive"]),
        ([F0, SENT_F, GOT_B, B0], [F1, GOT_F, SENT_B, B1], ["receive", "send"]),
    ],
)
def test_sends_stand_behind_their_op_and_receives_before_theirs(
    first: list[Action | Communication],
    second: list[Action | Communication],
    rules: list[str],
) -> None:
    rows = (
        [*first, Communication(0, REDUCE_GRAD)],
        [*second, Communication(1, REDUCE_GRAD)],
    )
    assert [violation.rule for violation in broken_exchanges(rows)] == rules
