"""Name expressions: matching, the exact intersection of two, and whether one covers another.

Partitions, topics, name-spaces and roles are all matched by the same small language: `*` stands for any
sequence of characters, dots included, and for none; `?` stands for exactly one character; everything else
stands for itself. Matching is case-sensitive and covers the whole string (DDS 1.4, 2.2.3.13 PARTITION;
deployment guide, 5.2.1 Role and scope, 5.2.2 Name-spaces).
"""

from __future__ import annotations

import functools
import re
from collections import deque
from typing import Final

_STAND_IN: Final = "\x7f"


@functools.lru_cache(maxsize=4096)
def compiled(expression: str) -> re.Pattern[str]:
    """Return the regular expression that accepts exactly what `expression` accepts.

    The text between two `*` is matched once, from the left, and never moved again (an atomic group). That
    finds every match in time proportional to both lengths, even for an expression made to be slow.
    """
    first, *others = [
        "".join("." if char == "?" else re.escape(char) for char in part) for part in expression.split("*")
    ]
    if not others:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


def matches(expression: str, name: str) -> bool:
    """Whether `expression` accepts the whole of `name`."""
    return expression in ("*", name) or compiled(expression).fullmatch(name) is not None


def is_literal(expression: str) -> bool:
    """Whether `expression` accepts one name only."""
    return "*" not in expression and "?" not in expression


def name_within(expression: str) -> str:
    """Return a name that `expression` accepts and that nobody uses."""
    return expression.replace("*", _STAND_IN).replace("?", _STAND_IN)


@functools.lru_cache(maxsize=4096)
def intersection(left: str, right: str) -> str | None:
    """Return a shortest name that both expressions accept; None if they accept no common name.

    People are shown this name, so two wildcards that meet are filled with as little as possible.
    """
    # Breadth first over the product of both expressions as automata: a state is a pair of positions, a `*`
    # may stand for nothing, and every step that consumes a character is recorded to spell the name.
    start = (0, 0)
    came_from: dict[tuple[int, int], tuple[tuple[int, int], str] | None] = {start: None}
    layer = [start]
    while layer:
        following: list[tuple[int, int]] = []
        index = 0
        while index < len(layer):  # leaving a `*` costs no character and stays in this layer
            state = layer[index]
            index += 1
            if state == (len(left), len(right)):
                return _spell(came_from, state)
            for successor, char in _steps(left, right, state):
                if successor not in came_from:
                    came_from[successor] = (state, char)
                    (following if char else layer).append(successor)
        layer = following
    return None


def _steps(left: str, right: str, state: tuple[int, int]) -> list[tuple[tuple[int, int], str]]:
    """Return the states reachable from `state`, each with the character it consumes ("" for none)."""
    i, j = state
    steps: list[tuple[tuple[int, int], str]] = []
    if i < len(left) and left[i] == "*":
        steps.append(((i + 1, j), ""))
    if j < len(right) and right[j] == "*":
        steps.append(((i, j + 1), ""))
    if i < len(left) and j < len(right):
        a, b = left[i], right[j]
        if a in "*?" or b in "*?" or a == b:
            char = _common_character(a, b)
            steps.append(((i + (a != "*"), j + (b != "*")), char))
    return steps


def _common_character(a: str, b: str) -> str:
    """Return a character that both positions accept."""
    if a not in "*?":
        return a
    return b if b not in "*?" else "x"


def _spell(
    came_from: dict[tuple[int, int], tuple[tuple[int, int], str] | None], state: tuple[int, int]
) -> str:
    """Return the characters consumed on the way to `state`."""
    chars: list[str] = []
    step = came_from[state]
    while step is not None:
        chars.append(step[1])
        step = came_from[step[0]]
    return "".join(reversed(chars))


# People's expressions need tens; the number grows with the product of the lengths. "No" costs a warning or
# a comparison, never data.
MAX_STATES = 500
"""States of one comparison at most; beyond, the answer is the careful one: no."""

# Two expressions of a hundred characters, the longest that OpenSplice stores.
MAX_PRODUCT = 10_000
"""Product of the lengths of two expressions at most; beyond, the answer is no."""

_OTHER = ""
"""Stands for every character that occurs in neither expression."""


@functools.lru_cache(maxsize=4096)
def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` accepts every name that `narrow` accepts.

    So a check can tell an expression that is never reached from one that is sometimes reached.
    """
    if wide in ("*", narrow):
        return True
    if is_literal(narrow):
        return matches(wide, narrow)
    if is_literal(wide) or len(wide) * len(narrow) > MAX_PRODUCT:
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
