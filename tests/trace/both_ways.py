"""Traces scanned by the compiled library, and by the reader that goes through them header by header."""

from __future__ import annotations

import itertools
import re
from typing import Final

import numpy as np

from ospltool.trace.reading import compiled
from ospltool.trace.reading.headers import headers, is_cut
from ospltool.trace.reading.splitter import NO_TIME, Split, split, string_views

_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_POINTER: Final = re.compile(rb"(?=0x([0-9a-fA-F]{1,16}))")


def compare(data: bytes, *, untimed: bool = False) -> Split:
    """Compares all that the library finds in bytes that begin a line; returns their records."""
    found = split(data, untimed=untimed)
    slow = list(headers(data, untimed=untimed))
    assert found.start.tolist() == [header.start for header in slow]
    assert found.body.tolist() == [header.end for header in slow]
    assert [None if time == NO_TIME else time for time in found.time_ns.tolist()] == [
        None if is_cut(one.time_ns, after.time_ns if after else None) else one.time_ns
        for one, after in itertools.zip_longest(slow, slow[1:])
    ]
    assert contexts(found) == [(one.state, one.thread) for one in slow]
    ends = [*(header.start for header in slow[1:]), len(data)]
    bodies = [data[header.end : end].rstrip(b"\r\n") for header, end in zip(slow, ends, strict=False)]
    assert [data[a:b] for a, b in zip(found.body.tolist(), found.stop.tolist(), strict=True)] == bodies
    _compare_kinds(data, found)
    if data.isascii():  # a view begins between two characters
        _compare_views(data, found)
    return found


def contexts(found: Split) -> list[tuple[str, str]]:
    """State and thread of each record."""
    return [found.contexts[code] for code in found.context.tolist()]


def _masked(data: bytes) -> bytes:
    """The bytes with every digit, and every hexadecimal digit of a pointer, as `0`."""
    masked = data.translate(_DIGITS)
    changed = bytearray(masked)
    for found in _POINTER.finditer(masked):
        changed[slice(*found.span(1))] = b"0" * len(found[1])
    return bytes(changed)


def _compare_kinds(data: bytes, found: Split) -> None:
    store = np.array([not state for state, _ in contexts(found)], np.bool_)
    open_end = found.stop == found.end
    kind_of, firsts, texts = compiled.kinds(
        compiled.library(), np.frombuffer(data, np.uint8), found.body, found.stop, store, open_end
    )
    masked = _masked(data)
    rows = zip(
        found.body.tolist(), found.stop.tolist(), store.tolist(), open_end.tolist(), kind_of.tolist(),
        strict=True,
    )  # fmt: skip
    seen: dict[tuple[bytes, bool], int] = {}
    for row, (body, stop, by_store, is_open, kind) in enumerate(rows):
        if is_open or not 0 < stop - body <= 512:
            assert kind == -1
            continue
        expected = seen.setdefault((masked[body:stop], by_store), len(seen))
        assert kind == expected
        assert texts[kind] == masked[body:stop]
        assert firsts[kind] <= row
    assert len(texts) == len(seen)


def _compare_views(data: bytes, found: Split) -> None:
    texts = [data[a:b].decode() for a, b in zip(found.body.tolist(), found.stop.tolist(), strict=True)]
    present = found.body % 3 > 0
    for marks in (None, present):
        views = string_views(data, found.body, found.stop, marks)
        shown = [True] * len(texts) if marks is None else marks.tolist()
        assert views.to_pylist() == [
            text if is_shown else None for text, is_shown in zip(texts, shown, strict=True)
        ]
        views.validate(full=True)
