"""Mutations: of bytes, of lines, of JSON by its structure, and of texts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

NASTY_BYTES = [
    *(b"|", b"||||||", b"\n", b"\r\n", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x81", b"../", b"/etc/passwd"),
    *(
        "سلام".encode(),
        "١٢٣".encode(),
        "\u202e\u200f\u200d".encode(),
        "😀".encode(),
        b"\xed\xa0\x80",
        b"\t",
        b'"',
        b"'",
    ),
    *(b"9" * 400, b"1e999", b"-1", b"NaN", b"%s%n", b"{}", b"[", b"[" * 3000, b"\x1b[2J", b"\xc3", b" " * 50, b"&a *a"),
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff" * 8, b"!!python/object:os.system", b"~"),
]
NASTY_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, float("nan"), float("inf"), 0.5, "", "a"),
    *("\x00", "\ud800", "\x1b[2J", "x" * 5000, "../../etc", [], {}, [[]], {"": {}}, [0] * 2000, "١٢", "nan", "1e999"),
]
NASTY_SIGNS = "0123456789٠١٢۳۴.,:;-–—/\\()[]{}<>%$€£₿°²½⅞'\"!?؟،؛\u200c\u200d\u202e\ufeff\x00\x1b\ud800\U0001f469 \n\t"


def mutated(content: bytes, drawn: random.Random) -> bytes:
    """A few random edits: flips, cuts, repeats, and strings that have broken parsers before."""
    data = bytearray(content)
    for _ in range(drawn.choice([1, 1, 2, 3, 6])):
        place = drawn.randrange(len(data) + 1)
        kind = drawn.randrange(7)
        if kind == 0 and data:
            data[place % len(data)] = drawn.randrange(256)
        elif kind == 1 and data:
            data[place % len(data)] ^= 1 << drawn.randrange(8)
        elif kind == 2:
            del data[place : place + drawn.randint(1, 40)]
        elif kind == 3:
            data[place:place] = drawn.choice(NASTY_BYTES)
        elif kind == 4:
            nasty = drawn.choice(NASTY_BYTES)
            data[place : place + len(nasty)] = nasty
        elif kind == 5:
            first = drawn.randrange(len(data) + 1)
            data[place:place] = data[first : first + drawn.randint(0, 80)]
        elif drawn.random() < 0.3:
            del data[place:]
    return bytes(data)


def mutated_value(value: Any, drawn: random.Random) -> Any:
    """A JSON value in which one place, at any depth, is another value, is gone, or stands twice."""
    if isinstance(value, dict) and value and drawn.random() < 0.85:
        changed = dict(value)
        key = drawn.choice(list(changed))
        kind = drawn.randrange(8)
        if kind == 0:
            del changed[key]
        elif kind == 1:
            changed[drawn.choice(["", "x", "__class__", key * 2, "\x1b"])] = changed[key]
        else:
            changed[key] = mutated_value(changed[key], drawn)
        return changed
    if isinstance(value, list) and value and drawn.random() < 0.85:
        changed_list = list(value)
        place = drawn.randrange(len(changed_list))
        kind = drawn.randrange(8)
        if kind == 0:
            del changed_list[place]
        elif kind == 1:
            changed_list.insert(place, changed_list[drawn.randrange(len(changed_list))])
        else:
            changed_list[place] = mutated_value(changed_list[place], drawn)
        return changed_list
    if type(value) is int and drawn.random() < 0.4:
        return drawn.choice([value + 1, value - 1, -value, value * 2, value << 40])
    return drawn.choice(NASTY_VALUES)


def mutated_json(content: bytes, drawn: random.Random, *, without: Sequence[str] = ()) -> bytes:
    """The text of a JSON file with one place, or some, or some bytes changed; `without` names its checksums."""
    if drawn.random() < 0.25:
        return mutated(content, drawn)
    value = json.loads(content)
    for checksum in without:
        value.pop(checksum, None)
    for _ in range(drawn.choice([1, 1, 1, 2, 4])):
        value = mutated_value(value, drawn)
    if drawn.random() < 0.02:
        depth = drawn.choice([10, 500, 100_000])
        return b'{"a":' * depth + b"1" + b"}" * depth
    return json.dumps(value).encode(errors="surrogatepass")


def mutated_text(text: str, drawn: random.Random) -> str:
    """A text with signs, numbers and pieces of other scripts put in, or one sign again and again."""
    if drawn.random() < 0.03:
        return drawn.choice([*NASTY_SIGNS, "a", "ا", "1,", "1.", "a.", "1/", "- "]) * drawn.choice([10, 300, 4000])
    signs = list(text)
    for _ in range(drawn.choice([1, 2, 4, 12])):
        place = drawn.randrange(len(signs) + 1)
        kind = drawn.randrange(5)
        if kind == 0:
            signs.insert(place, drawn.choice(NASTY_SIGNS))
        elif kind == 1:
            signs.insert(place, chr(drawn.choice([drawn.randrange(0x3000), drawn.randrange(0x110000)])))
        elif kind == 2:
            signs.insert(
                place, str(drawn.choice([0, 7, 1999, 10**6, 10**21, 10**60, 3.14, -5, "1/2", "12:61", "31.02."]))
            )
        elif kind == 3:
            del signs[place : place + drawn.randint(1, 9)]
        else:
            signs[place:place] = signs[: drawn.randint(0, 30)]
    return "".join(signs)
