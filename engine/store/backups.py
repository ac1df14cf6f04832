"""What a back-up says of itself: which set took its place, by whose doing, when and why.

A back-up is a former complete set of a name-space that stays in the store when another set takes its place
without containing it (deployment guide 5.2.3.3). The note is the mark of its set version.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Final, TypeVar

from engine.core import plain
from engine.store.interface import MAX_BACKUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

REPLACED_MARK: Final = "replaced"
"""Under what name a store remembers that a command put another set in the place of a node's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replaced:
    """Why a set was replaced.

    Attributes:
        by: the node or the command that replaced it.
        at_ns: when, nanoseconds since 1970 UTC.
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
        """The note as the mark of a set version."""
        return json.dumps(plain.to_plain(self))


def surplus(kept: Sequence[T]) -> Sequence[T]:
    """Of the back-ups of a name-space, oldest first, those that go when one more comes."""
    return kept[: max(0, len(kept) - MAX_BACKUPS + 1)]


def replaced(mark: str) -> Replaced | None:
    """The note of a back-up's mark; None where an earlier release left it without one."""
    try:
        note: Replaced = plain.from_json(Replaced, mark.encode())
    except ValueError:
        return None
    return note
