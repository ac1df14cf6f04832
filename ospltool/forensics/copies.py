"""Traces and logs that are there twice: each fact would count twice, also as one of another node.

Some records of each file are looked for in the others, by time, thread and text. A file is a copy of another
one, or of a part of it, if all of these are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ospltool.analytics.engines import Engine
from ospltool.trace.reading.sources import PlainStream, TraceFile, TraceFormat, open_stream

PROBES: Final = 16
"""Records of a file that are looked for in the others, about."""

LEAST_PROBES: Final = 3
"""A file with fewer records is not called a copy."""

MOST_FILES: Final = 1_000
"""Among more files, copies are not looked for."""

MOST_AT_ONCE: Final = 50
"""The same for files that are read whole, each of which is compared with each."""

MOST_BYTES: Final = 64 << 20
"""Bytes of those files together: a compressed file of 2 MB may hold 2 GB."""
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


def copies_in(engine: Engine) -> list[CopiedFile]:
    """Return the copied files of a case."""
    files = int(str(next(iter(engine.query("select count(*) from sources").rows))[0]))
    if not 1 < files <= MOST_FILES:
        return []
    found = _asked(engine, "")  # by time alone: other columns of all records take longer to read
    return _asked(engine, _SAME) if found else []


def _asked(engine: Engine, same: str) -> list[CopiedFile]:
    looked: dict[SourceKey, int] = {}
    seen: dict[tuple[SourceKey, SourceKey], int] = {}
    for node, file, count, other_node, other_file, found in engine.query(
        _SQL.format(probes=PROBES, same=same)
    ).rows:
        key = (str(node), str(file))
        looked[key] = int(str(count))
        if other_file is not None:
            seen[key, (str(other_node), str(other_file))] = int(str(found))
    return _copied(looked, seen)


def copies_among(sources: Sequence[TraceFile]) -> list[CopiedFile]:
    """Return the copied files among small files, which are read whole.

    If they hold more than MOST_BYTES, as a few compressed ones may, none is examined.

    Raises:
        SourceError: a file cannot be read.
    """
    if len(sources) > MOST_AT_ONCE:
        return []
    texts: dict[SourceKey, bytes] = {}
    left = MOST_BYTES
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
    for key in sorted(looked, reverse=True):
        originals = sorted(other for one, other in whole if one == key and other not in left)
        if originals:
            left.add(key)
            found.append(CopiedFile(*key, *originals[0]))
    return sorted(found, key=lambda one: (one.node, one.file))


def without(sources: Iterable[TraceFile], copied: Iterable[CopiedFile]) -> tuple[TraceFile, ...]:
    """Return the sources that are not copies."""
    left = {(one.node, one.file) for one in copied}
    return tuple(one for one in sources if (one.node, one.file) not in left)


_SAME: Final = " and thread = its_thread and text = its_text"
_SQL: Final = """
with marks as (
  select node, file, off, time_ns, thread, text,
    row_number() over (partition by node, file order by off asc nulls first) as place,
    count(*) over (partition by node, file) as places
  from records
  where (edge is null or edge or kind = 'report') and time_ns is not null and kind in ('trace', 'report')
),
probes as (
  select node as its_node, file as its_file, off as its_off, time_ns as its_ns, thread as its_thread,
    text as its_text
  from marks
  where place = 1 or place = places or mod(place, cast(floor(places / {probes}) as bigint) + 1) = 0
),
counts as (
  select its_node as node, its_file as file, count(*) as looked from probes group by its_node, its_file
),
hits as (
  select its_node, its_file, node as other_node, file as other_file, count(distinct its_off) as found
  from probes join records on time_ns = its_ns{same}
  where node <> its_node or file <> its_file
  group by its_node, its_file, node, file
)
select counts.node, counts.file, looked, other_node, other_file, found
from counts left join hits on counts.node = its_node and counts.file = its_file
order by 1 asc nulls first, 2 asc nulls first, 4 asc nulls first, 5 asc nulls first
"""
