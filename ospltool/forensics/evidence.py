"""The evidence of an investigation: records in the order of time, and attachments."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from ospltool.forensics.attachments import Attachment, AttachmentKind, find_attachments, what_is
from ospltool.forensics.passing import facts_through_a_case, is_worth_a_case
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.merge import merged
from ospltool.trace.reading.sources import MOST_AT_ONCE, SourceError, find_sources, named_path
from ospltool.trace.reading.watched import watched
from ospltool.trace.views.selection import first_time
from ospltool.trace.views.times import parse_time
from ospltool.trace.views.view import skews_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from ospltool.trace.reading.record import TraceRecord
    from ospltool.trace.reading.sources import TraceFile


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


class RawEvidence:
    """Files and directories as evidence.

    Args:
        names: files, directories, and `NODE=PATH`.
        stream: shows the progress if it is a terminal.

    Raises:
        SourceError: a name leads to no readable file.
    """

    def __init__(self, names: Sequence[str], stream: TextIO) -> None:
        self._stream = stream
        paths = {name: named_path(name)[1] for name in names}
        for name, path in paths.items():
            if not path.exists():
                raise SourceError(f"{name}: no such file or directory")
        plain = [name for name, path in paths.items() if what_is(path) is None]
        self.sources: tuple[TraceFile, ...] = ()
        cause: SourceError | None = None
        try:
            self.sources = find_sources(plain).sources if plain else ()
        except SourceError as error:
            cause = error
        self.nodes = tuple(sorted({source.node for source in self.sources}))
        self.attachments = tuple(find_attachments(names, self.nodes))
        if cause is not None and not any(
            one.what is not AttachmentKind.CONFIGURATION for one in self.attachments
        ):
            raise cause

    def first_ns(self) -> int | None:
        """Return the time of the first record."""
        return first_time(self.sources)

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time.

        Raises:
            SourceError: there are too many files.
        """
        if len(self.sources) > MOST_AT_ONCE:
            raise SourceError(
                f"{len(self.sources)} files cannot be read at once; load them into a case "
                "(`ospltool trace load`)"
            )
        for record in watched(merged(self.sources, skews), self.sources, self._stream):
            if window.has(record):
                yield record

    def facts(self, window: Window, skews: Mapping[str, int], *, with_waits: bool) -> TraceFacts:
        """Collect the facts from the records; for large files through a temporary case."""
        if len(self.sources) <= MOST_AT_ONCE and is_worth_a_case(self.sources):
            return facts_through_a_case(self.sources, window, skews, self._stream, with_waits=with_waits)
        return TraceFacts.of(self.records(window, skews), with_waits=with_waits)

    def skews(self, wishes: Iterable[str]) -> dict[str, int]:
        """Parse or estimate corrections of clocks."""
        return skews_of(self.sources, wishes)


def window_of(evidence: Evidence, since: str | None, until: str | None, nodes: Sequence[str]) -> Window:
    """Return the window that a user names.

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
