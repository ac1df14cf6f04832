"""Decide exactly whether one name expression accepts every name that another one accepts.

So a check can tell an expression that is never reached from one that is sometimes reached.
"""

from __future__ import annotations

import functools
from collections import deque

from engine.core import expressions

MAX_STATES = 500
"""States of one comparison at most; beyond, the answer is the careful one: no."""

MAX_PRODUCT = 10_000
"""Product of the lengths of two expressions at most; beyond, the answer is no."""

_OTHER = ""
"""Stands for every character that occurs in neither expression."""


@functools.lru_cache(maxsize=4096)
def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` accepts every name that `narrow` accepts."""
    if wide in ("*", narrow):
        return True
    if expressions.is_literal(narrow):
        return expressions.matches(wide, narrow)
    if expressions.is_literal(wide) or len(wide) * len(narrow) > MAX_PRODUCT:
        return False
    alphabet = [*sorted({*wide, *narrow} - {"*", "?"}), _OTHER]
    start = (_closure(narrow, {0}), _closure(wide, {0}))
    seen = {start}
    queue = deque([start])
    while queue:
        left, right = queue.popleft()
        if len(narrow) in left and len(wide) not in right:
            return False
        for char in alphabet:
            following = (_step(narrow, left, char), _step(wide, right, char))
            if following[0] and following not in seen:
                if len(seen) >= MAX_STATES:
                    return False
                seen.add(following)
                queue.append(following)
    return True


def _closure(expression: str, positions: set[int]) -> frozenset[int]:
    """Return the positions reached without a character: every `*` may stand for nothing."""
    reached = set(positions)
    for position in sorted(positions):
        while position < len(expression) and expression[position] == "*":
            position += 1
            reached.add(position)
    return frozenset(reached)


def _step(expression: str, positions: frozenset[int], char: str) -> frozenset[int]:
    """Return the positions after one more character."""
    following = set()
    for position in positions:
        if position < len(expression):
            wanted = expression[position]
            if wanted == "*":
                following.add(position)
            elif wanted in ("?", char):
                following.add(position + 1)
    return _closure(expression, following)
