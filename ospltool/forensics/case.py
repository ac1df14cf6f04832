"""A case as evidence: its records, read by any engine, and its attachments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ospltool.analytics.case import Case, is_case_directory
from ospltool.analytics.engines import Engine
from ospltool.forensics.attachments import Attachment
from ospltool.forensics.evidence import IDENTITY, Window
from ospltool.trace.case.loading import FILE_SUFFIXES
from ospltool.trace.case.records import WantedRecords, first_time_of, nodes_of, records_of
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.reading.record import RecordKind, TraceRecord
from ospltool.trace.reading.sources import SourceError
from ospltool.trace.views.view import skew_of


def is_case(name: str) -> bool:
    """Return whether a name is a case: a directory of tables, or one DuckDB file."""
    path = Path(name)
    return is_case_directory(path) or (path.suffix in FILE_SUFFIXES and path.is_file())


class CaseEvidence:
    """A case, and the engine that reads its tables.

    Args:
        case: the case.
        engine: an engine that is open on it; the caller closes it.
    """

    def __init__(self, case: Case, engine: Engine, attachments: tuple[Attachment, ...] = ()) -> None:
        self._case = case
        self._engine = engine
        self.nodes = tuple(nodes_of(engine))
        self.attachments = attachments

    def first_ns(self) -> int | None:
        """Return the time of the first record."""
        return first_time_of(self._engine)

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time."""
        yield from self._records(_rows(window, skews))

    def facts(self, window: Window, skews: Mapping[str, int], *, with_waits: bool) -> TraceFacts:
        """Collect the facts from the records that contain any."""
        wanted = dataclasses.replace(_rows(window, skews), for_facts=True, with_waits=with_waits)
        return TraceFacts.of(self._records(wanted), with_waits=with_waits)

    def _records(self, wanted: WantedRecords) -> Iterator[TraceRecord]:
        for record in records_of(self._case, self._engine, wanted):
            if record.kind is RecordKind.DAMAGED:
                damage.note(damage.FileDamage(record.file, record.offset, record.text.partition(": ")[2]))
            yield record

    def skews(self, wishes: Iterable[str]) -> dict[str, int]:
        """Parse corrections of clocks.

        Raises:
            SourceError: a wish is "auto", which needs files.
            RenderError: a correction is malformed, or names an unknown node.
        """
        found = {}
        for wish in wishes:
            if wish == "auto":
                raise SourceError(
                    "--skew auto works on files; estimate it there and write NODE=DURATION here"
                )
            node, add_ns = skew_of(wish, self.nodes)
            found[node] = add_ns
        return found


def _rows(window: Window, skews: Mapping[str, int]) -> WantedRecords:
    return WantedRecords(window.since_ns, window.until_ns, window.nodes, tuple(sorted(IDENTITY)), skews)
