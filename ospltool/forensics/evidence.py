"""The evidence of an investigation: records in the order of time, and attachments, from files or a case.

Large files are read through a temporary case, many times faster. A case is read with any engine.

Of traces and logs that are there twice, each fact would count twice, also as one of another node. So some
records of each file are looked for in the others, by time, thread and text. A file is a copy of another one,
or of a part of it, if all of these are there. Most files of a case are known to be none before that: their
records that the load chose by their times are not among those of others.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import importlib.util
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from ospltool.analytics.case import FILE_SUFFIXES, Case, is_case_directory
from ospltool.analytics.contract import LEAST_SAMPLED, NO_DOMAIN, SAMPLED, SAMPLED_MOD, Detail
from ospltool.analytics.engines import Engine, literal, literals
from ospltool.forensics.attachments import Attachment, AttachmentKind, find_attachments, what_is
from ospltool.output.locations import located
from ospltool.output.progress import ProgressLine, advance, shown
from ospltool.output.times import parse_time
from ospltool.trace.case.reading_back import (
    CaseFile,
    WantedRecords,
    Window,
    files_by_domain,
    first_time_of,
    records_in,
    records_of,
    rows_of,
    telling_of_alignments,
    telling_of_facts,
)
from ospltool.trace.meaning.catalogue import Product
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.reading.reader import merged, require_records
from ospltool.trace.reading.record import RecordKind, TraceRecord, no_collection
from ospltool.trace.reading.sources import (
    MOST_AT_ONCE,
    SHRUNK,
    PlainStream,
    SourceError,
    TraceFile,
    TraceFormat,
    find_sources,
    named_path,
    open_stream,
)
from ospltool.trace.views.conversation import events_of
from ospltool.trace.views.records import skew_of, skews_of
from ospltool.trace.views.selection import first_time

if TYPE_CHECKING:
    import pyarrow as pa

# ------------------------------------------------------------------ files that are there twice

# Enough that two traces of equal nodes are not taken for one; each is searched in all other files.
PROBES: Final = 16
"""Records of a file that are looked for in the others, about."""

LEAST_PROBES: Final = 3
"""A file with fewer records is not called a copy."""

# The work grows with the product of files and probes.
MOST_SEARCHED: Final = 1_000
"""Among more files, copies are not looked for."""

# Chosen: with at most 17 probes of each file, some tens of megabytes.
MOST_BROADCAST: Final = 10_000
"""Files of a case up to which their probes are kept in the memory of each machine of a cluster."""

# 1,225 pairs: about as many searches as above.
MOST_COMPARED: Final = 50
"""The same for files that are read whole, each of which is compared with each."""

MOST_COPY_BYTES: Final = 64 << 20
"""Bytes of those files together: a compressed file of 2 MB may hold 2 GB."""
# As reading of traces; larger blocks are not faster.
BLOCK_BYTES: Final = 1 << 20

SourceKey = tuple[str, str]
"""Node and path of a file."""


@dataclasses.dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file whose records are in another one, too.

    Attributes:
        node: its node.
        file: its path, as the user gave it.
        of_node: the node of the other file.
        of_file: the path of the other file.
    """

    node: str
    file: str
    of_node: str
    of_file: str

    def __str__(self) -> str:
        return (
            f"whether {self.file} (of {self.node}) is a log of its own: all that was looked for in it is "
            f"also in {self.of_file} (of {self.of_node}), so it was left out"
        )


def is_searched(files: Sequence[CaseFile]) -> bool:
    """Return whether copies are looked for among the files of a domain."""
    return 2 <= len(files) <= MOST_SEARCHED


class Samples:
    """Records of a domain that copies of a file have in common: reports, and what the load chose by its time.

    Args:
        files: the files of the domain.
    """

    def __init__(self, files: Sequence[CaseFile]) -> None:
        self._files = files if is_searched(files) else ()
        most = max((one.records for one in files), default=0)
        self._below = max(LEAST_SAMPLED, min(SAMPLED_MOD, SAMPLED_MOD * SAMPLED // max(most, 1)))
        self._found: dict[SourceKey, set[int]] = {}

    def query(self, domain: str) -> str:
        """Return a query for the rows that `add` needs, of the domain with that name."""
        return (
            f"select {', '.join(_SAMPLED)} from records "  # noqa: S608 - our own names
            f"where domain = {literal(domain)} and (telling or telling is null) "
            f"and (kind = {literal(_REPORT)} or mod(time_ns, {SAMPLED_MOD}) < {self._below})"
        )

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the chosen ones of some rows, which come once each."""
        import numpy as np  # these come with the extra `sql`
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._files:
            return
        times = rows.column("time_ns").fill_null(-1).to_numpy()
        is_report = pc.equal(rows.column("kind"), _REPORT).to_numpy(zero_copy_only=False)
        is_chosen = (times >= 0) & (is_report | (times % SAMPLED_MOD < self._below))
        if "telling" in rows.schema.names:
            is_chosen &= rows.column("telling").fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        chosen = rows.select(_SAMPLED).take(pa.array(np.flatnonzero(is_chosen)))
        for node, file, kind, *key in zip(*(one.to_pylist() for one in chosen.columns), strict=True):
            if kind in _PROBED:
                self._found.setdefault((node, file), set()).add(hash(tuple(key)))

    def may_have_copies(self) -> bool:
        """Return whether a file may be a copy.

        It may be if all but some of its records are in others, or if few of them were chosen, as it is small
        and others are not.
        """
        files_with = collections.Counter(key for keys in self._found.values() for key in keys)
        for one in self._files:
            own = self._found.get((one.node, one.file), set())
            shared = sum(files_with[key] > 1 for key in own)
            is_small = len(own) < LEAST_PROBES <= one.records
            if is_small or (own and shared >= len(own) - 1 - len(own) // PROBES):
                return True
        return False


_SAMPLED: Final = ["node", "file", "kind", "time_ns", "thread", "text"]
_REPORT: Final = RecordKind.REPORT.value
_PROBED: Final = frozenset({RecordKind.TRACE.value, _REPORT})


def suspected_in(engine: Engine, files: Mapping[str, Sequence[CaseFile]]) -> dict[str, Sequence[CaseFile]]:
    """Return the domains that may have copied files; see `copies_in`."""
    suspected = {}
    for domain, some in files.items():
        if is_searched(some):
            samples = Samples(some)
            for rows in engine.batches(samples.query(domain)):
                samples.add(rows)
            if samples.may_have_copies():
                suspected[domain] = some
    return suspected


def copies_in(engine: Engine, files: Mapping[str, Sequence[CaseFile]]) -> dict[str, list[CopiedFile]]:
    """Return the copied files of each domain of a case that has any.

    Args:
        engine: an engine that is open on the case.
        files: the files of each domain.
    """
    hint = _SMALL if sum(map(len, files.values())) <= MOST_BROADCAST else ""
    found: dict[str, list[CopiedFile]] = {domain: [] for domain, some in files.items() if is_searched(some)}
    for same in ("", _SAME):  # by time alone first: other columns of all records take longer to read
        found = _copies_of(engine, found, hint, same) if found else {}
    return found


def _copies_of(engine: Engine, domains: Iterable[str], hint: str, same: str) -> dict[str, list[CopiedFile]]:
    looked: dict[str, dict[SourceKey, int]] = {}
    seen: dict[str, dict[tuple[SourceKey, SourceKey], int]] = {}
    query = _SQL.format(probes=PROBES, domains=literals(domains), hint=hint, same=same)
    for domain, node, file, count, other_node, other_file, found in engine.own_query(query).rows:
        key, other = (str(node), str(file)), (str(other_node), str(other_file))
        looked.setdefault(str(domain), {})[key] = int(str(count))
        seen.setdefault(str(domain), {})[key, other] = int(str(found))
    copied = {domain: _copied(looked[domain], pairs) for domain, pairs in seen.items()}
    return {domain: files for domain, files in copied.items() if files}


def copies_among(sources: Sequence[TraceFile]) -> list[CopiedFile]:
    """Return the copied files among small files, which are read whole.

    If they hold more than MOST_COPY_BYTES, as a few compressed ones may, none is examined.

    Raises:
        SourceError: a file cannot be read.
    """
    if len(sources) > MOST_COMPARED:
        return []
    texts: dict[SourceKey, bytes] = {}
    left = MOST_COPY_BYTES
    for source in sources:
        if source.format is not TraceFormat.UNKNOWN:
            with open_stream(source.path) as stream:
                text = texts[source.node, source.file] = b"".join(_blocks(stream, left + 1))
            left -= len(text)
            if left < 0:
                return []
    looked: dict[SourceKey, int] = {}
    seen: dict[tuple[SourceKey, SourceKey], int] = {}
    for key, text in texts.items():
        lines = list(_probes(text))
        looked[key] = len(lines)
        for other, its in texts.items():
            if other != key and lines and (found := sum(line in its for line in lines)):
                seen[key, other] = found
    return _copied(looked, seen)


def _blocks(stream: PlainStream, most: int) -> Iterator[bytes]:
    """Yield a stream up to `most` bytes."""
    while most > 0 and (block := stream.read(min(BLOCK_BYTES, most))):
        most -= len(block)
        yield block


def _probes(text: bytes) -> Iterator[bytes]:
    """Yield lines of a text, evenly spread, that say when something happened."""
    lines = [line for line in text.splitlines() if b" -> " in line or line.startswith(b"Internals")]
    step = len(lines) // PROBES + 1
    yield from dict.fromkeys([*lines[::step], *lines[-1:]])


def _is_whole(looked: int, found: int) -> bool:
    """Return whether enough was found; the last record of a copy may be cut."""
    return found >= LEAST_PROBES and found >= (looked if looked < PROBES // 2 else looked - 1)


def _copied(
    looked: Mapping[SourceKey, int], seen: Mapping[tuple[SourceKey, SourceKey], int]
) -> list[CopiedFile]:
    whole = {pair for pair, found in seen.items() if _is_whole(looked[pair[0]], found)}
    left: set[SourceKey] = set()
    found: list[CopiedFile] = []
    # From the last one, so that the file that is left as the original is the first by name.
    for key in sorted(looked, reverse=True):
        originals = sorted(other for one, other in whole if one == key and other not in left)
        if originals:
            left.add(key)
            found.append(CopiedFile(*key, *originals[0]))
    # In the order in which files are listed elsewhere.
    return sorted(found, key=lambda one: (one.node, one.file))


def without(sources: Iterable[TraceFile], copied: Iterable[CopiedFile]) -> tuple[TraceFile, ...]:
    """Return the sources that are not copies."""
    left = {(one.node, one.file) for one in copied}
    return tuple(one for one in sources if (one.node, one.file) not in left)


_SMALL: Final = "/*+ broadcast(probes) */ "
"""Without it, Spark moves all records to join them, which took three times as long. DuckDB ignores it."""

_SAME: Final = " and thread = its_thread and text = its_text"
_SQL: Final = """
with marks as (
  select domain, node, file, off, time_ns, thread, text,
    row_number() over (partition by domain, node, file order by off asc nulls first) as place,
    count(*) over (partition by domain, node, file) as places
  from records
  where (telling or telling is null) and (edge is null or edge or kind = 'report')
    and time_ns is not null and kind in ('trace', 'report')
    and domain in ({domains})
),
probes as (
  select domain as its_domain, node as its_node, file as its_file, off as its_off, time_ns as its_ns,
    thread as its_thread, text as its_text
  from marks
  where place = 1 or place = places or mod(place, cast(floor(places / {probes}) as bigint) + 1) = 0
),
counts as (
  select its_domain as domain, its_node as node, its_file as file, count(*) as looked
  from probes
  group by its_domain, its_node, its_file
),
hits as (
  select {hint}its_domain, its_node, its_file, node as other_node, file as other_file,
    count(distinct its_off) as found
  from probes join records on time_ns = its_ns and domain = its_domain{same}
  where node <> its_node or file <> its_file
  group by its_domain, its_node, its_file, node, file
)
select domain, node, file, looked, other_node, other_file, found
from counts join hits on domain = its_domain and node = its_node and file = its_file
order by 1 asc nulls first, 2 asc nulls first, 3 asc nulls first, 5 asc nulls first, 6 asc nulls first
"""


# ------------------------------------------------------------------ what an analysis asks for


class Evidence(Protocol):
    """A source of records and attachments."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes with traces or logs."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Stores, configurations and recordings."""

    @property
    def copied(self) -> Sequence[CopiedFile]:
        """The files that `facts` or `alignments` left out, since they are copies."""

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains with traces or logs, at least one."""

    def of_domain(self, domain: str) -> Evidence:
        """Return the evidence of one domain; that of the others is not to be used any more."""

    def first_ns(self) -> int | None:
        """Return the time of the first record; None if no record has a time."""

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time, those of a file in its order."""

    def alignments(self, window: Window, skews: Mapping[str, int], group: str) -> Iterator[TraceRecord]:
        """Yield the records that tell of alignments of a group by time; others may come, too."""

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
        parse_time(until, reference, is_later=True) if until else None,
        tuple(nodes),
    )


# Chosen: below it reading the files takes less than making a case of them.
LARGE_BYTES: Final = 16_000_000
"""Size from which a case is worth its start."""


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
        self.copied: Sequence[CopiedFile] = ()
        cause: SourceError | None = None
        with shown("looking at files", "looks"):
            try:
                self.sources = find_sources(plain).sources if plain else ()
                if plain:
                    require_records(self.sources)
            except SourceError as error:
                cause = error
            self._set_files(self.sources, find_attachments(names, {source.node for source in self.sources}))
        if cause is not None and not any(
            one.what is not AttachmentKind.CONFIGURATION for one in self.attachments
        ):
            raise cause

    def _set_files(self, sources: Sequence[TraceFile], attachments: Iterable[Attachment]) -> None:
        self.sources, self.attachments = tuple(sources), tuple(attachments)
        self.nodes = tuple(sorted({source.node for source in sources}))
        self.domains = _domains(sources, self.attachments)

    def of_domain(self, domain: str) -> RawEvidence:
        """Return the evidence of one domain."""
        chosen = copy.copy(self)
        chosen._set_files(
            [one for one in self.sources if one.domain == domain],
            [one for one in self.attachments if one.domain == domain],
        )
        return chosen

    def first_ns(self) -> int | None:
        """Return the time of the first record."""
        return first_time(self.sources)

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time.

        Raises:
            SourceError: there are too many files.
        """
        return self._records(self.sources, window, skews)

    def _records(
        self, sources: Sequence[TraceFile], window: Window, skews: Mapping[str, int]
    ) -> Iterator[TraceRecord]:
        if len(sources) > MOST_AT_ONCE:
            raise SourceError(
                f"{len(sources)} files cannot be read at once; load them into a case (`ospltool trace load`)"
            )
        for record in watched(merged(sources, skews), sources, self._stream):
            if window.has(record):
                yield record

    def alignments(self, window: Window, skews: Mapping[str, int], group: str) -> Iterator[TraceRecord]:
        """Yield the records that tell of alignments of a group; for large files through a temporary case."""
        if not is_worth_a_case(self.sources):
            yield from self._records(self._originals(), window, skews)
            return
        with _case_of(self.sources, self._stream) as case:
            yield from case.alignments(window, skews, group)
            self.copied = case.copied

    def facts(self, window: Window, skews: Mapping[str, int], *, with_waits: bool) -> TraceFacts:
        """Collect the facts from the records; for large files through a temporary case."""
        if is_worth_a_case(self.sources):
            with _case_of(self.sources, self._stream) as case:
                facts = case.facts(window, skews, with_waits=with_waits)
                self.copied = case.copied
            return facts
        return TraceFacts.from_records(self._records(self._originals(), window, skews), with_waits=with_waits)

    def _originals(self) -> tuple[TraceFile, ...]:
        """Return the sources that are no copies, which only small files are examined for."""
        if size_of(self.sources) < LARGE_BYTES:
            self.copied = copies_among(self.sources)
        return without(self.sources, self.copied)

    def skews(self, wishes: Iterable[str]) -> dict[str, int]:
        """Parse or estimate corrections of clocks."""
        return skews_of(self.sources, wishes)


def _domains(sources: Iterable[TraceFile], attachments: Iterable[Attachment]) -> tuple[str, ...]:
    """Return the domains of traces; without any, those of what lies beside them."""
    found = {one.domain for one in sources} or {one.domain for one in attachments}
    return tuple(sorted(found)) or (NO_DOMAIN,)


def is_worth_a_case(sources: Sequence[TraceFile]) -> bool:
    """Return whether files are many or are read faster through a case, and its packages are installed."""
    return (len(sources) > MOST_AT_ONCE or size_of(sources) >= LARGE_BYTES) and all(
        map(importlib.util.find_spec, ("duckdb", "pyarrow"))
    )


def size_of(sources: Sequence[TraceFile]) -> int:
    """Return the bytes of files, roughly if they are compressed."""
    return sum(one.path.stat().st_size * (SHRUNK if one.compressed else 1) for one in sources)


@contextlib.contextmanager
def _case_of(sources: Sequence[TraceFile], stream: TextIO) -> Iterator[CaseEvidence]:
    """Make a case of files, and delete it afterwards.

    Raises:
        SourceError: a source cannot be read, or there is no room for the case.
    """
    from ospltool.analytics.case import CaseError, open_case
    from ospltool.analytics.duck import DuckEngine
    from ospltool.trace.case.loading import load

    try:
        with tempfile.TemporaryDirectory(prefix="ospltool-case-") as scratch:
            with contextlib.closing(
                ProgressLine("loading", stream, in_bytes=True, by_timer=True)
            ) as progress:
                load(sources, pathlib.Path(scratch) / "case", progress=progress)
            case = open_case(pathlib.Path(scratch) / "case")
            with contextlib.closing(DuckEngine(case, is_frugal=True)) as engine:
                yield CaseEvidence(case, engine)
    except CaseError as cause:
        raise SourceError(str(cause)) from None
    except OSError as cause:
        raise SourceError(f"{tempfile.gettempdir()}: {cause.strerror or cause}") from None


def is_case(name: str) -> bool:
    """Return whether a name is a case: a directory of tables, or one DuckDB file."""
    path = located(name)
    return is_case_directory(path) or (path.suffix in FILE_SUFFIXES and path.is_file())


class CaseEvidence:
    """A case, and the engine that reads its tables.

    Args:
        case: the case.
        engine: an engine that is open on it; the caller closes it.
    """

    def __init__(self, case: Case, engine: Engine, attachments: tuple[Attachment, ...] = ()) -> None:
        self.case = case
        self.engine = engine
        self.files = files_by_domain(engine)
        self.nodes = tuple(sorted({one.node for some in self.files.values() for one in some}))
        self.domains = tuple(self.files) or _domains((), attachments)
        self.copied: Sequence[CopiedFile] = ()
        self.attachments = attachments

    def of_domain(self, domain: str) -> CaseEvidence:
        """Return the evidence of one domain."""
        self.engine.show_domain(domain)
        beside = tuple(one for one in self.attachments if one.domain == domain)
        return CaseEvidence(self.case, self.engine, beside)

    def first_ns(self) -> int | None:
        """Return the time of the first record."""
        return first_time_of(self.engine)

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time."""
        yield from self._read(WantedRecords(window, skews))

    def _read(self, wanted: WantedRecords) -> Iterator[TraceRecord]:
        window, is_all = wanted.window, wanted.window == Window()
        with shown("reading the case", "records"):
            for some in records_of(self.case, self.engine, wanted):
                yield from _noted(some) if is_all else filter(window.has, _noted(some))
                advance(len(some))

    def alignments(self, window: Window, skews: Mapping[str, int], group: str) -> Iterator[TraceRecord]:
        """Yield the records that tell of alignments of a group by time; others may come, too."""
        is_own = any(one.origin is Product.ENGINE for some in self.files.values() for one in some)
        events = events_of(is_own=is_own)
        yield from self._read(self._originals(window, skews, telling_of_alignments(events, group)))

    def _originals(
        self, window: Window, skews: Mapping[str, int], telling: str, quiet: str = "false"
    ) -> WantedRecords:
        """Return what is wanted of the files that are no copies."""
        copied = copies_in(self.engine, suspected_in(self.engine, self.files))
        self.copied = [one for some in copied.values() for one in some]
        without = tuple((one.node, one.file) for one in self.copied)
        return WantedRecords(window, skews, without, telling, quiet)

    def facts(self, window: Window, skews: Mapping[str, int], *, with_waits: bool) -> TraceFacts:
        """Collect the facts from the records that contain any."""
        wanted = self._originals(window, skews, *telling_within(window, with_waits=with_waits))
        files = [one for some in self.files.values() for one in some]
        with shown("reading the case", "records"):
            rows = rows_of(self.case, self.engine, wanted)
            return facts_of_rows(rows, wanted, files, self.case.detail, with_waits=with_waits)

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


def telling_within(window: Window, *, with_waits: bool) -> tuple[str, str]:
    """Return `WantedRecords.telling` and `quiet` for the facts of a window."""
    if window.since_ns is None and window.until_ns is None:
        return telling_of_facts(with_waits=with_waits)
    return "", "false"  # the first and last records of a window are not marked, so all of it is read


def facts_of_rows(
    batches: Iterable[pa.RecordBatch],
    wanted: WantedRecords,
    files: Iterable[CaseFile],
    detail: Detail,
    *,
    with_waits: bool,
) -> TraceFacts:
    """Collect the facts of one domain from its rows, on whatever machine they are.

    Args:
        batches: rows as `rows_in_order` yields them.
        wanted: what they were selected by, with `telling_within`.
        files: the files of the domain.
        detail: detail of the case.
        with_waits: gather silences of main threads.
    """
    from ospltool.trace.case.step_columns import StepColumns  # its packages come with the extra `sql`

    window, skews = wanted.window, wanted.skews
    origins = {} if detail is Detail.FULL else {one.file: one.origin for one in files}
    facts = TraceFacts(with_waits=with_waits)
    with no_collection():
        for rows in batches:
            advance(len(rows))
            if not wanted.telling:
                for record in filter(window.has, _noted(records_in(rows, skews, origins))):
                    facts.add(record)
                continue
            steps = StepColumns(rows, skews)
            records = _noted(records_in(steps.others(), skews, origins))
            facts.add_rows(steps.rows(facts.lines), records)
            steps.forget(facts.names.own)
    facts.finish()
    if wanted.telling:  # records that could not be parsed tell nothing, so none of them came
        facts.unparsed_bytes = sum(
            one.unparsed_bytes
            for one in files
            if (not window.nodes or one.node in window.nodes) and (one.node, one.file) not in wanted.without
        )
    return facts


def _noted(records: Iterable[TraceRecord]) -> Iterator[TraceRecord]:
    """Pass records on, and note those that say where a file cannot be read."""
    for record in records:
        if record[0] is RecordKind.DAMAGED:
            damage.note(damage.FileDamage(record.file, record.offset, record.text.partition(": ")[2]))
        yield record


# Counting each record would cost more than reading it.
EVERY_RECORDS: Final = 5_000


def watched(
    records: Iterable[TraceRecord], sources: Sequence[TraceFile], stream: TextIO
) -> Iterator[TraceRecord]:
    """Pass records on, and show on a terminal how much of their sources was read."""
    if not stream.isatty():
        yield from records
        return
    size = sum(source.path.stat().st_size for source in sources if not source.compressed)
    done = 0
    with contextlib.closing(ProgressLine("reading", stream, in_bytes=True)) as progress:
        for number, record in enumerate(records):
            done += record.length
            if number % EVERY_RECORDS == 0:
                progress(done, size or None)
            yield record
