"""Text of any origin: what a terminal would act on is escaped, what is endless is cut."""

import json

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.printable import plain_json, printable, printable_lines

ACTING = [
    *map(chr, (*range(0x20), *range(0x7F, 0xA0))),
    *"\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u2060\ufeff\u00ad",
    *map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xE0001)),
]


@pytest.mark.parametrize("character", ACTING, ids=ascii)
def test_what_acts_on_a_terminal_is_escaped(character):
    shown = printable(f"a{character}b")
    assert shown == "a" + character.encode("unicode_escape").decode() + "b"
    text = json.dumps([f"a{character}b", 1], ensure_ascii=False, indent=1)
    assert plain_json(text).replace("\n", "").isprintable()
    assert json.loads(plain_json(text)) == json.loads(text)


def test_ordinary_text_stays():
    for text in ("", "größer 1F1B 日本語 é 😀", r"a\u0041", "[bold]x[/bold]"):
        assert printable(text) == printable_lines(text) == text
        assert plain_json(json.dumps(text, ensure_ascii=False)) == f'"{text}"'.replace(
            "\\", "\\\\"
        )


def test_long_text_keeps_both_ends():
    text = "begin" + "-" * 10**6 + "end"
    assert len(printable(text)) == 600
    assert printable(text).startswith("begin---")
    assert printable(text).endswith("---end")
    assert printable(text, 20) == "begin-------...--end"
    assert len(printable("\u2066" * 10**6)) == 600


def test_lines_stay_lines():
    assert printable_lines("a\nb\x1b\n") == "a\nb\\x1b\n"
    assert printable("a\nb") == r"a\nb"


def test_errors_are_one_line():
    error = InputError("x\n\x1b[2J", source="\u202ename", field="f" * 10**5)
    assert str(error).isprintable()
    assert str(error).startswith(r"\u202ename: fff")
    assert str(error).endswith(r": x\n\x1b[2J")
