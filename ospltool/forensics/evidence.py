"""The evidence of an investigation: records in the order of time, and attachments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ospltool.forensics.attachments import Attachment
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.sources import SourceError
from ospltool.trace.views.times import parse_time


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The selection of records.

    Attributes:
        since_ns: earliest time; None for the beginning.
        until_ns: latest time; None for the end.
        nodes: names of nodes; empty for all.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    nodes: tuple[str, ...] = ()

    def has(self, record: TraceRecord) -> bool:
        """Return whether a record is selected; events that identify nodes are, at any time."""
        if self.nodes and record.node not in self.nodes:
            return False
        if (self.since_ns is None and self.until_ns is None) or record.event in IDENTITY:
            return True
        time = record.time_ns
        if time is None:
            return False
        return (self.since_ns is None or time >= self.since_ns) and (
            self.until_ns is None or time <= self.until_ns
        )


IDENTITY = frozenset({"lifecycle.address", "lifecycle.configuration"})
"""Events that tell which node has which address."""


class Evidence(Protocol):
    """A source of records and attachments."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes with traces or logs."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Stores, configurations and recordings."""

    def first_ns(self) -> int | None:
        """Return the time of the first record; None if no record has a time."""

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time, those of a file in its order."""

    def facts(self, window: Window, skews: Mapping[str, int], *, with_waits: bool) -> TraceFacts:
        """Collect the facts from the records; where main threads waited only with `with_waits`."""

    def skews(self, wishes: Iterable[str]) -> dict[str, int]:
        """Parse corrections of clocks; return nanoseconds to add, by node."""


def window_of(evidence: Evidence, since: str | None, until: str | None, nodes: Sequence[str]) -> Window:
    """Return the window that a user names.

    Args:
        evidence: where nodes and the first record are looked up.
        since: earliest time, absolute or relative to the first record; None for the beginning.
        until: latest time; None for the end.
        nodes: names of nodes; empty for all.

    Raises:
        TimeError: a time is malformed.
        SourceError: there is no such node.
    """
    unknown = sorted(set(nodes) - set(evidence.nodes))
    if unknown:
        raise SourceError(f"no node {', '.join(unknown)}; there are {', '.join(evidence.nodes) or 'none'}")
    reference = evidence.first_ns() if since or until else None
    return Window(
        parse_time(since, reference) if since else None,
        parse_time(until, reference) if until else None,
        tuple(nodes),
    )
