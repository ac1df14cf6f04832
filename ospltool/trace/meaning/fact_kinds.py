"""The kinds of facts that `TraceFacts` gathers from traces."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final, NamedTuple

from ospltool.trace.meaning.lines import RecordPlace, place
from ospltool.trace.reading.record import TraceRecord, number

Run = tuple[str, int]
"""A node and the number of its run."""

BUILT_IN: Final = "__BUILT-IN PARTITION__."
TOLD_BY: Final = frozenset({"store.namespace", "store.restored", "injection.started"})
"""Events of ospltool with the number of samples of a name-space on the node."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateSpan:
    """A service state of a run, from its first record to the first record of the next state."""

    run: Run
    state: str
    start_ns: int
    end_ns: int
    place: RecordPlace


@dataclasses.dataclass(frozen=True, slots=True)
class MasterConfirmation:
    """A node's confirmation of a master.

    Attributes:
        run: the node's run.
        namespace: name-space.
        chooser: address of the node.
        master: address of the master that it confirmed.
        place: line about it.
    """

    run: Run
    namespace: str
    chooser: str
    master: str
    place: RecordPlace


@dataclasses.dataclass(slots=True)
class TracedConflict:
    """A conflict on one node."""

    run: Run
    """The node's run."""
    number: str
    """Its number on the node."""
    kind: str
    """Event of its creation, such as `conflict.master`."""
    namespace: str
    """Its name-space; empty without one."""
    fellow: str
    """Address of the other node; empty without one."""
    created: RecordPlace
    """Line about its creation."""
    resolving: int = 0
    """Number of times that work on it began."""
    started: RecordPlace | None = None
    """Line about the beginning of its merge."""
    stopped: RecordPlace | None = None
    """Line about the end of its last merge."""
    ended: RecordPlace | None = None
    """Line about its resolution, its combination with another, or its end without effect."""
    how: str = ""
    """Event of its end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """The beginning of a merge with its requests."""

    run: Run
    namespace: str
    groups: int
    fellows: int
    place: RecordPlace


@dataclasses.dataclass(frozen=True, slots=True)
class MergeState:
    """The merge state of a node's own set, as the node reports or advertises it."""

    run: Run
    namespace: str
    role: str
    state: str
    event: str
    place: RecordPlace


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """A changed description of a fellow's name-space that a node received.

    Attributes:
        run: run of the node that received it.
        namespace: name-space.
        fellow: address of the fellow.
        master: address of the fellow's master; empty if unknown.
        role: the fellow's role.
        state: the fellow's merge state.
        place: line about it.
    """

    run: Run
    namespace: str
    fellow: str
    master: str
    role: str
    state: str
    place: RecordPlace


@dataclasses.dataclass(frozen=True, slots=True)
class StoredReplaced:
    """An ospltool node's report that another set replaced its stored one.

    Attributes:
        run: the node's run.
        namespace: name-space.
        before: number of samples in the former set.
        kept: number of the back-up; empty if none was kept.
        place: line about it.
    """

    run: Run
    namespace: str
    before: int
    kept: str
    place: RecordPlace


@dataclasses.dataclass(slots=True)
class Activity:
    """The last record of a thread in one run."""

    last_ns: int
    last_record: TraceRecord

    @property
    def last(self) -> RecordPlace:
        """Place of the last record."""
        return place(self.last_record)


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """A silence of a main thread between two lines."""

    run: Run
    state: str
    thread: str
    length_ns: int
    before: RecordPlace
    after: RecordPlace


@dataclasses.dataclass(frozen=True, slots=True)
class Jump:
    """A jump of a clock between two neighbouring records of one file."""

    run: Run
    by_ns: int
    before: RecordPlace
    after: RecordPlace
    is_mismatch: bool = False
    """The two timestamps of one line disagree."""


class SizeOrigin(enum.StrEnum):
    """Origin of a known size."""

    SENT = "sent"
    """The node sent its whole set."""
    TAKEN = "taken"
    """The node replaced its set with the whole set of another node."""
    JOINED = "joined"
    """The node joined another set with its own, so the size is a lower bound."""
    EMPTIED = "emptied"
    """Merge policy Delete discarded the set."""
    TOLD = "told"
    """The node reported its size."""
    STORED = "stored"
    """A store contains the set."""
    RECORDED = "recorded"
    """A console recorded the node's snapshot."""


class SetSize(NamedTuple):
    """The number of samples with data in a set at one moment. It is a tuple, since there are many."""

    node: str
    """Name of the node."""
    group: str
    """Partition.topic; a name-space in ospltool traces."""
    time_ns: int
    """Time since 1970."""
    samples: int
    """Number of samples; only those with data if the trace counts by kind."""
    how: SizeOrigin
    """Origin of the size."""
    source: str = ""
    """Store or recording; empty for a line."""
    disposes: int = 0
    """Number of disposes in the set, whose instances vanish when they are purged."""


def told_size(record: TraceRecord) -> SetSize | None:
    """Return the size of a set in a line of ospltool; None if it has none."""
    samples = number(record.fields.get("samples"))
    namespace = record.fields.get("namespace")
    if samples is None or not namespace or record.time_ns is None:
        return None
    return SetSize(record.node, namespace, record.time_ns, samples, SizeOrigin.TOLD)
