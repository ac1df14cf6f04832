"""Work that waits now and then, several pieces of it at a time: what one waits for, the others need not."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Generator, Iterable
from typing import Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Waits: TypeAlias = Generator[float, None, T]
"""Work that yields how many seconds it has to wait now; other work may go on meanwhile."""

# Bounds writers that are open at once for a late joiner of many groups. Chosen; a larger number saves
# waiting only until the processor is the limit.
TOGETHER: Final = 32
"""Pieces of such work that go on together at most: each may have writers of its own."""


def together(pieces: Iterable[Waits[T]]) -> Waits[list[T]]:
    """Carry out pieces of work, up to `TOGETHER` at a time, and wait for all of these at once."""
    results: list[T] = []
    left = iter(pieces)
    while some := list(itertools.islice(left, TOGETHER)):
        ended: dict[int, T] = {}
        while len(ended) < len(some):
            until_s = 0.0
            for number, piece in enumerate(some):
                if number not in ended:
                    try:
                        until_s = max(until_s, time.monotonic() + next(piece))
                    except StopIteration as end:
                        ended[number] = end.value
            yield max(0.0, until_s - time.monotonic())
        results += [ended[number] for number in range(len(some))]
    return results


def completed(work: Waits[T]) -> T:
    """Carry out work, and sleep where it has to wait."""
    while True:
        try:
            pause_s = next(work)
        except StopIteration as end:
            made: T = end.value
            return made
        if pause_s > 0:
            # A worker's own thread: nothing else waits for it.
            time.sleep(pause_s)


def at_once(work: Callable[P, Waits[T]]) -> Callable[P, T]:
    """Return a function that carries out the whole work."""

    @functools.wraps(work)
    def carry_out(*arguments: P.args, **named: P.kwargs) -> T:
        return completed(work(*arguments, **named))

    return carry_out
