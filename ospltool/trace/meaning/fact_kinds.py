"""The kinds of facts that traces tell: what `Facts` gathers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ospltool.trace.meaning.exchanges import Place, place

if TYPE_CHECKING:
    from ospltool.trace.reading.record import Record

Run = tuple[str, int]
"""A node and the run of its service."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateSpan:
    """A service state of a run, from its first record to the first record of the next state."""

    run: Run
    state: str
    start_ns: int
    end_ns: int
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A node confirmed a master.

    Attributes:
        run: who.
        namespace: of which name-space.
        chooser: the address of the node.
        master: the address of the master that it confirmed.
        place: where it says so.
    """

    run: Run
    namespace: str
    chooser: str
    master: str
    place: Place


@dataclasses.dataclass(slots=True)
class Conflict:
    """A conflict on one node.

    Attributes:
        run: the node.
        number: its number there.
        kind: the event of its creation, such as `conflict.master`.
        namespace: the name-space, if it is about one.
        fellow: the address of the other node, if there is one.
        created: where it was created.
        resolving: how often work on it began.
        started: when merging for it began.
        stopped: when its last merge ended.
        ended: where it was resolved, combined with another or discarded.
        how: the event of its end.
    """

    run: Run
    number: str
    kind: str
    namespace: str
    fellow: str
    created: Place
    resolving: int = 0
    started: Place | None = None
    stopped: Place | None = None
    ended: Place | None = None
    how: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Requests were made for a merge: the merge begins."""

    run: Run
    namespace: str
    groups: int
    fellows: int
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class MergeState:
    """A node says in which merge state its own set is, or advertises it."""

    run: Run
    namespace: str
    role: str
    state: str
    event: str
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """What a node was told of a fellow's name-space, where that changed.

    Attributes:
        run: who was told.
        namespace: the name-space.
        fellow: the address of the fellow.
        master: the address of the fellow's master; empty where it is not told.
        role: the fellow's role.
        state: its merge state.
        place: the line.
    """

    run: Run
    namespace: str
    fellow: str
    master: str
    role: str
    state: str
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class StoredReplaced:
    """A node of our engine says that another set took the place of its stored one.

    Attributes:
        run: who.
        namespace: of which name-space.
        before: samples of the former set.
        kept: the number of the back-up; empty where none was kept.
        place: the line.
    """

    run: Run
    namespace: str
    before: int
    kept: str
    place: Place


@dataclasses.dataclass(slots=True)
class Activity:
    """A thread in one run: its last record."""

    last_ns: int
    last_record: Record

    @property
    def last(self) -> Place:
        """Where it is."""
        return place(self.last_record)


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """A main thread printed nothing for a while: what it said before, what after."""

    run: Run
    state: str
    thread: str
    length_ns: int
    before: Place
    after: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Jump:
    """A clock that was set: two neighbouring records of one file."""

    run: Run
    by_ns: int
    before: Place
    after: Place
    is_mismatch: bool = False
    """The two timestamps of one line do not agree."""
