"""The note on a back-up: which set replaced it, by whose action, when and why.

A back-up is a former complete set of a name-space that stays in the store when another set that does not
contain it takes its place (deployment guide 5.2.3.3). The note is the mark of its set version.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Final, TypeVar

from engine.core import plain
from engine.store.interface import MAX_BACKUPS

T = TypeVar("T")

REPLACED_MARK: Final = "replaced"
"""Key of the mark by which a store remembers that a command replaced a node's set."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replaced:
    """The replacement of a set.

    Attributes:
        by: the node or the command that replaced it.
        at_ns: time, nanoseconds since 1970 UTC.
        why: the reason, in words.
        before: samples of the set that was replaced.
        after: samples of the set that took its place.
        mark: the mark that the set had while it was complete.
    """

    by: str
    at_ns: int
    why: str
    before: int = 0
    after: int = 0
    mark: str = ""

    def to_mark(self) -> str:
        """Return the note as the mark of a set version."""
        return json.dumps(plain.to_plain(self))


def surplus(kept: Sequence[T]) -> Sequence[T]:
    """Return the back-ups of a name-space, given oldest first, that one more displaces."""
    return kept[: max(0, len(kept) - MAX_BACKUPS + 1)]


def replaced(mark: str) -> Replaced | None:
    """Read the note in a back-up's mark; None if an earlier release wrote none."""
    try:
        note: Replaced = plain.from_json(Replaced, mark.encode())
    except ValueError:
        return None
    return note
