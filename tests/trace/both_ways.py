"""Traces scanned with the compiled library and with NumPy, which must find the same."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospltool.trace.meaning.detail_columns import _masked
from ospltool.trace.reading import compiled
from ospltool.trace.reading.splitter import Split, padded_for_views, split, string_views

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def without_library() -> Iterator[None]:
    """Makes the tools scan with NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "library", lambda: None)
        yield


def compare(data: bytes, *, untimed: bool = False) -> Split:
    """Compares all that the library finds in bytes that begin a line; returns their records."""
    found = split(data, untimed=untimed)
    with without_library():
        expected = split(data, untimed=untimed)
    for name in ("start", "body", "stop", "end", "time_ns"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert (found.suspect | ~expected.suspect).all()  # times that were not compared are suspect, too
    assert found.head == expected.head
    assert contexts(found) == contexts(expected)
    _compare_kinds(data, found)
    if data.isascii():  # a view begins between two characters
        _compare_views(data, found)
    return found


def contexts(found: Split) -> list[tuple[str, str]]:
    """State and thread of each record."""
    return [found.contexts[code] for code in found.context.tolist()]


def _compare_kinds(data: bytes, found: Split) -> None:
    scanner = compiled.library()
    assert scanner is not None
    store = np.array([not state for state, _ in contexts(found)], np.bool_)
    open_end = found.stop == found.end
    kind_of, firsts, texts = compiled.kinds(
        scanner, np.frombuffer(data, np.uint8), found.body, found.stop, store, open_end
    )
    masked = _masked(data).tobytes()
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
    present = found.body % 3 > 0
    for marks in (None, present):
        views = string_views(data, padded_for_views(data), found.body, found.stop, marks)
        with without_library():
            expected = string_views(data, padded_for_views(data), found.body, found.stop, marks)
        assert views.to_pylist() == expected.to_pylist()
        views.validate(full=True)
