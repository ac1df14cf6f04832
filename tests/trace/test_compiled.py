"""The compiled library finds what the reader finds: in traces, damaged ones, and those made to harm."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospltool.trace.reading import compiled
from ospltool.trace.reading.splitter import split
from tests.fuzzing import damaged
from tests.trace.both_ways import compare, contexts
from tests.trace.fuzz_trace import traces

if TYPE_CHECKING:
    pass

STAMP = "2026-11-21T01:08:30+0000 1795223310.294122015"
ODD_ZONES = [
    f"2026-11-21T{hour:02}:08:30{zone} 1795223310.000000000 INIT (t)"
    for hour in range(30)
    for zone in ("+0000", "-0100", "+9999", "-9999")
]
POINTERS = "0xabcdefABCDEF0123456789 1x2 x0x 0xxf 0x12x34 0xgg"


def test_samples_and_damaged_samples_are_scanned_alike() -> None:
    samples = traces()
    assert sum(compare(data).start.size for data in samples) > 9_000
    chance = random.Random(18)
    for seed in range(1_000):
        compare(damaged(chance.choice(samples), seed), untimed=seed % 2 > 0)


def lines(*headers: str) -> bytes:
    return "".join(f"{header} -> text {number}\n" for number, header in enumerate(headers)).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b">",
        b") -> ",
        b"\n" * 50,
        lines(f"{STAMP} INIT (t)").rstrip(b"\n"),
        lines(f"{STAMP} INIT (t)")[:-8],
        lines(*(f"{STAMP} INIT ({'t' * size})" for size in range(90))),
        lines(*(f"{STAMP} {'S' * size} (t)" for size in range(70))),
        lines(f"{STAMP} INIT (a) -> (b)", f"{STAMP} INIT (())", f"{STAMP}  (t)", f"{STAMP} (t)"),
        lines("2026-11-21T01:08:30+0000 9223372036.854775807 INIT (t)"),
        lines("2026-11-21T01:08:30+0000 9999999999.999999999 INIT (t)"),
        lines("2026-11-21T01:08:30+0000 9223372036.854775808 INIT (t)"),
        lines(*ODD_ZONES),
        f"{STAMP} INIT (t) -> {POINTERS}\r\r\n\r\n".encode() * 3,
        b"".join(f"{STAMP} INIT (t) -> {'7' * size}{'x' * (size % 3)}\n".encode() for size in range(530)),
        b"".join(f"{STAMP} INIT (t) -> {chr(code)}9\n".encode() for code in range(32, 1000)),
    ],
)  # fmt: skip
def test_what_is_at_the_bounds_is_scanned_alike(data: bytes) -> None:
    compare(data)
    compare(data, untimed=True)


def test_more_contexts_than_are_numbered_at_once() -> None:
    data = lines(*(f"{STAMP} INIT (thread{number})" for number in range(5_000)))
    assert len(set(contexts(compare(data)))) == 5_000


def test_more_ends_of_headers_than_there_is_room_for() -> None:
    assert compare(b") -> " * 3_000).start.size == 0


def test_messages_of_one_place_in_the_table_are_told_apart_or_left() -> None:
    """Kinds that take too many probes are matched one by one, and none is taken for another."""
    words = [
        f"{chr(97 + number // 26 % 26)}{chr(97 + number % 26)}{'z' * (number // 676)}"
        for number in range(9_000)
    ]
    data = "".join(f"{STAMP} INIT (t) -> {word}\n" for word in words).encode()
    found = split(data)
    none = np.zeros(found.start.size, np.bool_)
    kind_of, firsts, texts = compiled.kinds(
        compiled.library(), np.frombuffer(data, np.uint8), found.body, found.stop, none, none
    )
    assert [texts[kind].decode() for kind in kind_of.tolist() if kind >= 0] == words
    assert firsts == list(range(9_000))
