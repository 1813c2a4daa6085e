"""Safe reading of pickles: what numpy writes comes through, everything hostile is refused."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import _Unpickler as Unscanned
from typing import Any

import numpy as np
import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.pickles.scan import ALLOWED, NAMES, OPCODES
from ppsolve.solver.formats.pickles.timeline import (
    as_timeline,
    load_timeline_pickle,
    read_pickle_file,
)
from ppsolve.solver.formats.pickles.unpickler import Inert
from ppsolve.solver.formats.pipefisher import schedule_pickle
from tests.formats import hostile_pickles
from tests.formats.hostile_pickles import FORMS, NAMED, short_text, whole
from tests.formats.hostile_powers import GIANTS, POWERS
from tests.marks import first
from tests.paths import DATA

CASES = DATA / "pipefisher"
HOSTILE = {**hostile_pickles.HOSTILE, **POWERS, **GIANTS}
PROTOCOLS = range(6)

NUMPY_TIMELINE = {
    "start_end": [(np.int64(5), np.int64(2**62))],
    "call_forward": np.array([[1, 2], [3, 4], [5, 6]], dtype=">i4"),
    "call_backward": [np.array([1.5, 2.5], dtype="f4"), (None, None)],
    "cov_kron_A:a": np.array([[1, 3, 5], [2, 4, 6]], dtype="u1").T,
    "cov_kron_B:a": ((np.uint8(1), np.float32(2.25)), (np.float64(0.1), 2**100)),
    "inv_kron_A:a": np.arange(12).reshape(3, 4)[:, 1:3],
    "inv_kron_B:a": [
        (np.uint64(2**64 - 1), np.uint64(2**64 - 1)),
        [np.int16(-7), np.int8(-1)],
    ],
    "sync_kron_A:ä€\\": [],
}
PLAIN_TIMELINE = {
    "start_end": [(5, 2**62)],
    "call_forward": [(1, 2), (3, 4), (5, 6)],
    "call_backward": [(1.5, 2.5), (None, None)],
    "cov_kron_A:a": [(1, 2), (3, 4), (5, 6)],
    "cov_kron_B:a": [(1, 2.25), (0.1, 2**100)],
    "inv_kron_A:a": [(1, 2), (5, 6), (9, 10)],
    "inv_kron_B:a": [(2**64 - 1, 2**64 - 1), (-7, -1)],
    "sync_kron_A:ä€\\": [],
}


def load(data: bytes) -> dict[str, Any]:
    return load_timeline_pickle(data, "node0.pickle")


def refusal(data: bytes) -> str:
    """Return the one line that refuses `data`; what it says about the file is taken off."""
    with pytest.raises(InputError) as caught:
        load(data)
    return one_line(str(caught.value))


def one_line(text: str) -> str:
    """Return a refusal without the file that it names; it is short and printable."""
    assert text.startswith("node0.pickle: ")
    assert len(text) < 700
    assert text.isprintable()
    return text.removeprefix("node0.pickle: ")


@pytest.mark.parametrize(
    "path", sorted(CASES.glob("*/*.pickle")), ids=lambda path: path.stem
)
def test_measured_timelines_are_read_as_they_are(path: Path) -> None:
    data = path.read_bytes()
    assert load(data) == pickle.loads(data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numpy_becomes_plain(protocol: int) -> None:
    found = load(pickle.dumps(NUMPY_TIMELINE, protocol))
    assert found == PLAIN_TIMELINE
    assert list(found) == list(PLAIN_TIMELINE)
    numbers = {type(x) for pairs in found.values() for pair in pairs for x in pair}
    assert numbers == {int, float, type(None)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_names_of_numpy_1_and_2_say_the_same(protocol: int) -> None:
    data = pickle.dumps(NUMPY_TIMELINE, protocol)
    old, new = b"numpy.core", b"numpy._core"
    # Texts carry their length in the byte before them from protocol 4 on; frames are left out.
    if protocol >= 4:
        data = without_frames(data)
        for module in (b".multiarray", b".numeric"):
            for one, other in ((new, old), (old, new)):
                renamed = data.replace(
                    short_text(one + module), short_text(other + module)
                )
                assert load(renamed) == PLAIN_TIMELINE
    else:
        assert load(data.replace(new, old)) == PLAIN_TIMELINE
        assert load(data.replace(old, new)) == PLAIN_TIMELINE


def without_frames(data: bytes) -> bytes:
    start = data.index(b"\x95")
    return data[:start] + data[start + 9 :]


@pytest.mark.parametrize(
    "code", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
)
@pytest.mark.parametrize("order", "<>")
def test_every_dtype_in_both_byte_orders(code: str, order: str) -> None:
    array = np.array([[1, 2], [3, 100]], dtype=order + code)
    assert load(pickle.dumps({"a": array}))["a"] == [(1, 2), (3, 100)]
    assert load(pickle.dumps({"a": [(array[0, 1], array[1, 0])]}))["a"] == [(2, 3)]


def test_shared_parts_may_be_referred_to_again() -> None:
    pairs = [(None, None)] * 3
    assert load(pickle.dumps({"a": pairs, "b": pairs})) == {"a": pairs, "b": pairs}


BROKEN_PICKLE = (pickle.UnpicklingError, KeyError, IndexError, ValueError, EOFError)
"""What Python's unpickler raises; a hostile pickle that is scanned gives an InputError."""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], str]:
    """Return `refusal` in an empty folder that stays empty, with importing forbidden."""
    for protocol in PROTOCOLS:
        load(pickle.dumps(NUMPY_TIMELINE, protocol))

    def forbidden(*arguments: Any, **_: Any) -> Any:
        raise AssertionError(f"imports or runs {arguments[0]}")

    def read(data: bytes, load: Callable[[bytes], Any] = load) -> str:
        monkeypatch.chdir(tmp_path)
        with monkeypatch.context() as patch:
            for name in ("eval", "exec", "open", "compile", "__import__"):
                patch.setattr(builtins, name, forbidden)
            try:
                load(data)
                text = "accepted"
            except (InputError, *BROKEN_PICKLE) as error:
                text = str(error) if isinstance(error, InputError) else "broken"
        assert list(tmp_path.iterdir()) == []
        return text

    return read


def test_there_are_enough_kinds() -> None:
    assert len(HOSTILE) + len(FORMS) >= 200


DEEP = {
    *(
        "nested dicts",
        "nested lists",
        "arguments that are deep",
        "nested in a pair",
        "laughs by doubling",
        "key that is deep",
        "state that is deep",
    ),
    *(
        "name that is deep",
        "nested tuples",
        "key that is deep, in DICT",
        "shape that is deep",
    ),
}
"""Bombs of which a like one is always tried."""


LARGE = {
    *("laughs", "memo places", "opcodes", "stack"),
    *("payload that is deep", *DEEP),
}
"""Of half a second or more: read once, where nothing may be imported or run."""


@pytest.mark.parametrize(
    "kind", first(len(HOSTILE) - len(DEEP), sorted(HOSTILE, key=DEEP.__contains__))
)
def test_hostile_pickles_are_refused(
    kind: str, watched: Callable[[bytes], str]
) -> None:
    data, message = HOSTILE[kind]
    text = watched(data)
    assert message in one_line(text)
    if kind not in LARGE:
        assert text == "node0.pickle: " + refusal(data)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("kind", FORMS)
def test_other_forms_are_refused(kind: str, protocol: int) -> None:
    value, message = FORMS[kind]
    text = refusal(pickle.dumps(value, protocol))
    if kind in ("bytes", "empty label") and protocol == 0:
        return
    assert message in text


def test_a_list_that_holds_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "got a list of 1" in refusal(pickle.dumps(loop))
    assert "a[0]: expected a pair (start, end), got a list of 1" in refusal(
        pickle.dumps({"a": loop})
    )
    loop.append(loop)
    assert "a[0]: expected a number, got a list of 2" in refusal(
        pickle.dumps({"a": loop})
    )


def test_a_dict_that_holds_itself() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    assert "a: expected a list of (start, end), got a dict" in refusal(
        pickle.dumps(loop)
    )


def test_a_label_twice() -> None:
    twice = whole(b"}" + (short_text(b"a") + b"]s") * 2)
    assert "the key 'a' appears twice in one dict" in refusal(twice)


def test_half_a_character() -> None:
    assert "labels of printable characters" in refusal(b"}V\\ud800\n]s.")


def test_only_these_names_are_known() -> None:
    """Adding one is a decision: each must be a mark for the machine, never a function."""
    assert {f"{module}.{name}" for module, name in NAMES} == {
        "numpy.ndarray",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.core.numeric._frombuffer",
        "numpy._core.numeric._frombuffer",
        "_codecs.encode",
    }
    assert not any(callable(maker) for maker in NAMES.values())
    never = {
        "INST",
        "OBJ",
        "NEWOBJ",
        "NEWOBJ_EX",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
    }
    assert not never & ALLOWED


def test_the_unpickler_has_no_other_powers() -> None:
    """Opcodes that are not read are not in its table, whatever a scan lets through."""
    assert {OPCODES[code].name for code in Inert.dispatch} == ALLOWED | {"PROTO"}
    for opcode in ("REDUCE", "BUILD", "DICT", "SETITEM", "SETITEMS"):
        code = next(code for code in Inert.dispatch if OPCODES[code].name == opcode)
        assert Inert.dispatch[code] is not Unscanned.dispatch[code]


@pytest.mark.parametrize("kind", [*NAMED, *hostile_pickles.OPCODES, *POWERS])
def test_the_unpickler_runs_nothing_without_the_scan(kind: str, watched: Any) -> None:
    data, _ = HOSTILE[kind]
    assert "accepted" not in watched(
        data, lambda data: as_timeline(Inert(io.BytesIO(data)).load())
    )


def test_giants_are_not_converted_where_python_sets_no_limit() -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert "LONG at byte 0" in refusal(b"L" + b"9" * 10_000_000 + b"L\n.")
    finally:
        sys.set_int_max_str_digits(limit)


# Mutations of good pickles.

GOOD = [
    *(pickle.dumps(NUMPY_TIMELINE, protocol) for protocol in PROTOCOLS),
    *(pickle.dumps(PLAIN_TIMELINE, protocol) for protocol in PROTOCOLS),
    *(path.read_bytes() for path in sorted(CASES.glob("hand_*/*.pickle"))),
]
SPLICES = [
    *(bytes([code]) for code in range(256)),
    b"cos\nsystem\n",
    b"(h\x00h\x00t",
    b"\x95" + bytes(8),
    b"\x8c\x02os\x8c\x06system\x93",
    b"\x8e" + b"\xff" * 8,
    b"}b",
    b")R",
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        place = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[place : place + chance.randrange(1, 9)]
        elif kind == 2:
            changed[place:place] = chance.choice(SPLICES)
        elif kind == 3:
            start = chance.randrange(len(data))
            changed[place:place] = data[start : start + chance.randrange(1, 40)]
        elif chance.random() < 0.2:
            del changed[place:]
        else:
            changed[place : place + 1] = bytes([chance.randrange(256)])
    return bytes(changed)


@pytest.mark.parametrize("seed", first(2, range(10)))
def test_mutations_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(600):
        data = mutated(chance.choice(GOOD), chance)
        try:
            found = load(data)
        except InputError as error:
            assert str(error).isprintable()
            continue
        assert found
        assert all(
            type(label) is str and type(pairs) is list for label, pairs in found.items()
        )
        assert all(len(pair) == 2 for pairs in found.values() for pair in pairs)


# Schedules.

SCHEDULE = [
    [["-- start --", "call_forward", "-- end --"], []],
    [["cov_kron_A:a"], ["x:up_pipe"]],
]


def test_schedule_comes_back() -> None:
    data = schedule_pickle(SCHEDULE)
    assert pickle.loads(data) == SCHEDULE


# Files.


def test_files_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(b"}.")
    assert read_pickle_file(path) == b"}."
    with pytest.raises(InputError, match="no such file"):
        read_pickle_file(tmp_path / "b.pickle")
    with pytest.raises(InputError, match="expected a file, this is a directory"):
        read_pickle_file(tmp_path)
    with pytest.raises(InputError, match="cannot be read: Not a directory"):
        read_pickle_file(path / "a")


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "pipe.pickle"
    os.mkfifo(path)
    with pytest.raises(InputError, match="expected a file, or a pipe with a writer"):
        read_pickle_file(path)
    with pytest.raises(InputError, match="expected a file or a pipe, this is a device"):
        read_pickle_file("/dev/zero")


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    with path.open("wb") as stream:
        stream.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(InputError, match="expected a file of at most 67108864 bytes"):
        read_pickle_file(path)
    with pytest.raises(InputError, match="expected a pickle of at most 67108864 bytes"):
        load(bytes(64 * 1024 * 1024 + 1))
