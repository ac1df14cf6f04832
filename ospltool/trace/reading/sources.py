"""Finds the files to read, their formats and their nodes."""

from __future__ import annotations

import codecs
import dataclasses
import enum
import gzip
import io
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Final, cast

from ospltool.analytics.contract import NO_DOMAIN
from ospltool.output.installation import extra_command
from ospltool.output.locations import LocationError, is_remote, located
from ospltool.output.progress import advance
from ospltool.trace.meaning.catalogue import Product
from ospltool.trace.reading import damage
from ospltool.trace.reading.damage import SoundPart
from ospltool.trace.reading.headers import IS_LINE_HEADER, headers
from ospltool.trace.reading.record import valid_text

# A first record comes within it, also after lines that a shell or Cyclone DDS printed.
SNIFFED_BYTES: Final = 1 << 16
MOST_FILES: Final = 200_000
"""Most files in a directory; one with more is not a directory of traces."""

# The usual limit of open files of a process is 1,024 (ulimit -n).
MOST_AT_ONCE: Final = 1_000
"""Most files that are merged at once, since all of them are open. A case has no such bound."""

# Traces of text compress to a tenth or an eighth with gzip and zstd.
SHRUNK: Final = 8
"""Factor, roughly, by which a compressed trace grows."""

REPORT: Final = re.compile(
    rb"\A(?:={60,}[ \t]*\r*\n|Report[ \t]*: )"
    rb"|(?:^|(?<=\0))={60,}[ \t]*\r*\n(?:Report|Context|Date|Description)[ \t]*: ?",
    re.MULTILINE,
)
"""The beginning of a report in a log, maybe after something else."""

_JSON_LINE: Final = re.compile(
    rb'\{(?:"[^"\n]*": ?[^\n]*?, ?)?"(log|message|msg|MESSAGE|line)": ?"[^"\n]*?(\\n)?"[^\n]*\}\r?(?:\n|\Z)'
)
_ENGINE_JSON: Final = re.compile(rb'\A\{"format_version":\d+,"kind":"trace-event"')
_ENGINE_ADDRESS: Final = re.compile(rb"-> My address is: '(?!\d+'\s)")
_COMPRESSED: Final = {".gz": "gzip", ".zst": "zstd"}
_PLAIN_STEMS: Final = re.compile(r"(?:durability|ospl-info|ospl-error|trace)(?:[-_.]|$)")


class SourceError(Exception):
    """An unreadable file; the message names it and the reason."""


class NothingFoundError(SourceError):
    """Directories without a trace or a log."""


class TraceFormat(enum.StrEnum):
    """Format of a file."""

    TRACE = "trace"
    REPORTS = "reports"
    """ospl-info.log or ospl-error.log."""
    EVENTS = "events"
    """An ospltool trace in lines of JSON."""
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class TraceFile:
    """A file to read.

    Attributes:
        path: its place.
        node: name of the node that wrote it.
        format: its format.
        untimed: whether its records lack timestamps.
        origin: product that wrote it.
        name: name to show in place of its path; empty for the path.
        domain: name of the domain of its node.
    """

    path: pathlib.Path
    node: str
    format: TraceFormat = TraceFormat.TRACE
    untimed: bool = False
    origin: Product = Product.OPENSPLICE
    name: str = ""
    domain: str = NO_DOMAIN

    @property
    def compressed(self) -> bool:
        """Whether it is compressed or in UTF-16, and must be read from its beginning."""
        return bool(_packing_of(self.path))

    @property
    def file(self) -> str:
        """Path as the user gave it."""
        return self.name or str(self.path)


@dataclasses.dataclass(frozen=True, slots=True)
class SourceSet:
    """The files that a user named.

    Attributes:
        sources: files to read, in order of domain, node and path.
        skipped: files in directories that are neither traces nor logs.
        awaited: files that are followed once they come.
    """

    sources: tuple[TraceFile, ...]
    skipped: tuple[pathlib.Path, ...] = ()
    awaited: tuple[TraceFile, ...] = ()


def find_sources(names: Iterable[str]) -> SourceSet:
    """Find the sources of a command line: files, directories (searched recursively), `NODE=FILE`.

    Raises:
        SourceError: a name leads to no readable file.
    """
    names = list(names)
    given: list[tuple[str, pathlib.Path]] = []
    skipped: list[pathlib.Path] = []
    explicit: set[pathlib.Path] = set()
    for name in names:
        node, path = named_path(name)
        if not path.exists():
            raise SourceError(f"{path}: no such file or directory")
        if path.is_dir():
            given.extend((node, found) for found in _files_below(path))
        else:
            given.append((node, path))
            explicit.add(path)
    sources: list[TraceFile] = []
    taken: set[pathlib.Path] = set()
    for node, path in given:
        advance(1)
        try:
            source = sniff(path, node)
        except SourceError as cause:
            if path in explicit:
                raise
            damage.note(damage.FileDamage(str(path), 0, str(cause).removeprefix(f"{path}: ")))
            continue
        if source.format is TraceFormat.UNKNOWN and path not in explicit:
            skipped.append(path)
        elif path not in taken:
            taken.add(path)
            sources.append(source)
    if names and not sources:
        raise NothingFoundError(f"{', '.join(sorted(set(names)))}: no trace or log found")
    named = _with_names(sources)
    # By domain, node and file: ties of time are settled in this order, so equal files give equal output.
    return SourceSet(
        tuple(sorted(named, key=lambda source: (source.domain, source.node, source.file))), tuple(skipped)
    )


def named_path(name: str) -> tuple[str, pathlib.Path]:
    """Split `NODE=FILE`; an existing path with "=" is not such a pair, and has no node.

    Raises:
        SourceError: the name or the file is missing, or nothing can open the URI.
    """
    node, separator, rest = name.partition("=")
    if not separator or "/" in node or pathlib.Path(name).exists():
        node, rest = "", name
    elif not node or not rest:
        raise SourceError(f"{name}: NODE=FILE needs both a name and a file")
    try:
        return node, located(rest)
    except LocationError as cause:
        raise SourceError(str(cause)) from None


def _files_below(directory: pathlib.Path) -> list[pathlib.Path]:
    found: list[pathlib.Path] = []
    try:
        next(directory.iterdir(), None)  # `rglob` passes over what may not be entered
    except OSError as cause:
        raise SourceError(f"{directory}: {cause.strerror}") from None
    for path in sorted(directory.rglob("*")):
        if not (is_remote(path) or path.is_file()) or path.name.startswith("."):
            continue
        found.append(path)
        if len(found) > MOST_FILES:
            raise SourceError(
                f"{directory}: more than {MOST_FILES} files; name the directories of the traces"
            )
    return found


def sniff(path: pathlib.Path, node: str = "") -> TraceFile:
    """Determine the format of a file from its beginning.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with open_stream(path) as stream:
            head = stream.read(SNIFFED_BYTES)
    except OSError as cause:
        raise SourceError(f"{path}: {cause.strerror or cause}") from None
    if _ENGINE_JSON.match(head):
        return TraceFile(path, node, TraceFormat.EVENTS, origin=Product.ENGINE)
    wrapped = _JSON_LINE.match(head)
    if wrapped:  # to read its quotes and escapes as parts of records would make faults of them
        option = "-rj" if wrapped[2] else "-r"
        advice = f"take the texts out first, as with `jq {option} .{wrapped[1].decode()} FILE`"
        raise SourceError(f"{path}: each line is an object of JSON: {advice}")
    # The search alone would take most of the time in which a directory of traces is looked through.
    text = head.lstrip(b"\r\n\0")
    report = REPORT.search(text) if text.startswith(b"Report") or b"=" * 60 in text else None
    timed = next(headers(head), None)
    first = timed if timed is not None else next(headers(head, untimed=True), None)
    if report is not None and (first is None or report.start() <= first.start):
        return TraceFile(path, node, TraceFormat.REPORTS)
    if first is None:
        # Of a damaged file, which may be a trace, the damage is to be told wherever it is read.
        is_damaged = damage.found_in(path) is not None
        return TraceFile(path, node, TraceFormat.TRACE if is_damaged else TraceFormat.UNKNOWN)
    origin = Product.ENGINE if _ENGINE_ADDRESS.search(head) else Product.OPENSPLICE
    return TraceFile(path, node, TraceFormat.TRACE, untimed=first.time_ns is None, origin=origin)


# As the longest report; a file without line ends is no trace.
_LONGEST_LINE: Final = 1 << 20
"""Bytes in which the end of a line that is not whole yet is looked for."""

_SEQUENCE: Final = re.compile(rb"\x1b\[[0-9;?:]*[A-Za-z]")
_DATE_TIME: Final = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_BEFORE_LINES: Final = b"|".join(
    (
        rb"\xef\xbb\xbf",  # the mark of UTF-8
        rb"[ \t]+",
        rb"> ?",  # a quotation
        rb"[\w.-]+ +\| ",  # docker compose
        rb"\[[\w./ -]+\] ",  # kubectl --prefix
        _DATE_TIME + rb" ",  # docker logs -t, kubectl --timestamps
        rb"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|"
        + _DATE_TIME
        + rb") [\w.-]+ [^\s:]+: ",  # journal
        rb"(?:[\w./-]+:)?\d+:",  # grep -n
    )
)
_FIRST_RECORD: Final = re.compile(
    rb"^((?:" + _BEFORE_LINES + rb"){0,3}?)(?:={60,}[ \t]*\r*$|" + IS_LINE_HEADER.pattern + rb")",
    re.MULTILINE,
)
_PROGRAM: Final = re.compile(rb"^(?:([\w.-]+) +\| |\[([\w./ -]+)\] )", re.MULTILINE)
_PREFIXED_BYTES: Final = 1 << 13
"""Bytes in which the first record is looked for: of another text, each line costs time."""

_PART: Final = re.compile(rb"([\w./+-]+)|([ \t]+)(?=.)|([ \t]+)$|(.)", re.DOTALL)


def prefix_of(head: bytes) -> re.Pattern[bytes] | None:
    """Return what stands before each line of a log or trace that another tool passed on; None for nothing.

    `head` is its beginning. Names, numbers and times in it may differ from line to line.
    """
    found = _FIRST_RECORD.search(plain_lines(head[:_PREFIXED_BYTES]))
    if found is None or not found[1]:
        return None
    parts = []
    for word, blanks, last, other in _PART.findall(found[1]):
        if word and word != found[1]:
            parts.append(rb"[\w./+-]+")
        elif blanks and parts:  # names in columns
            parts.append(rb" +")
        elif blanks or last:  # what follows may be indented itself; of empty lines, blanks may be gone
            parts.append(rb"(?:%s|[ \t]*(?=\r*$))" % (blanks or last))
        else:
            parts.append(re.escape(word or other))
    return re.compile(b"".join(parts))


def plain_lines(data: bytes, prefix: re.Pattern[bytes] | None = None) -> bytes:
    """Return whole lines without what a terminal interprets, and without what another tool put before them.

    As many carriage returns are put before each line end, so that every line stays where it is in the file:
    readers of records take them for a part of the line end.

    Args:
        data: the lines.
        prefix: what is put before each; None for nothing (see `prefix_of`).
    """
    if prefix is None and b"\x1b[" not in data:
        return data
    lines = []
    for line in data.split(b"\n"):
        plain = _SEQUENCE.sub(b"", line)
        found = None if prefix is None else prefix.match(plain)
        plain = plain if found is None else plain[found.end() :]
        lines.append(plain + b"\r" * (len(line) - len(plain)))
    return b"\n".join(lines)


class PlainStream:
    """A stream of bytes without what other tools put into lines; see `plain_lines`.

    Args:
        stream: the bytes, at their beginning.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._ready = b""
        """Bytes that were not asked for yet, as they are passed on."""
        self._rest = stream.read(SNIFFED_BYTES)
        """Bytes after them, as they were read."""
        self._prefix = prefix_of(self._rest)
        self.programs: set[bytes] = set()
        """Names of the containers of which lines were read, if each line has one before it."""

        if isinstance(stream, io.RawIOBase):  # read_into begins without a copy
            self.seek(0)

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; none at the end."""
        if not self._ready:
            self._prepare(self._rest + self._stream.read(size))
        found = self._ready if size < 0 else self._ready[:size]
        self._ready = self._ready[len(found) :]
        return found

    def read_into(self, buffer: bytearray, at: int, size: int) -> int:
        """Read at most `size` bytes into a buffer, uncopied where they are plain; return how many."""
        is_plain = self._prefix is None and not self._ready and not self._rest
        if is_plain and isinstance(self._stream, io.RawIOBase):
            got = self._stream.readinto(memoryview(buffer)[at : at + size]) or 0
            if buffer.find(b"\x1b", at, at + got) < 0:
                return got
            self._prepare(bytes(buffer[at : at + got]))
        data = self.read(size)
        buffer[at : at + len(data)] = data
        return len(data)

    def _prepare(self, data: bytes) -> None:
        """Make bytes plain, and those after them up to the end of a line that has something to leave out."""
        last, whole = 0 if self._prefix is not None else data.rfind(b"\x1b"), len(data)
        if last >= 0 and data.find(b"\n", last) < 0:  # the sequence may go on, too
            while data.find(b"\n", last) < 0 and len(data) - last < _LONGEST_LINE:
                block = self._stream.read(SNIFFED_BYTES)
                if not block:
                    break
                data += block
            whole = data.find(b"\n", last) + 1 or len(data)
        if self._prefix is not None:
            whole = data.rfind(b"\n") + 1 or len(data)
            self.programs |= {found[1] or found[2] for found in _PROGRAM.finditer(plain_lines(data[:whole]))}
        self._ready, self._rest = plain_lines(data[:whole], self._prefix), data[whole:]

    def seek(self, offset: int) -> None:
        """Go to an offset, which begins a line."""
        self._ready = self._rest = b""
        self._stream.seek(offset)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> PlainStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_stream(path: pathlib.Path) -> PlainStream:
    """Open a file, decompressed, as UTF-8, and without what other tools put into its lines.

    The bytes end where a compressed file is damaged; see `damage`.

    Raises:
        SourceError: the package for its compression is not installed.
        OSError: it cannot be opened.
    """
    return PlainStream(_opened(path))


def as_written(path: pathlib.Path, offset: int, plain: bytes) -> bytes:
    """Return the bytes of a file at an offset, with what the stream of the file left out.

    Those of a file that is not read at any offset come back without: it would be read from its beginning
    for each record.

    Args:
        path: the file.
        offset: byte offset of the first of them.
        plain: what the stream of the file gave for them.
    """
    if b"\r" not in plain or _packing_of(path):
        return plain
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(len(plain))
    except OSError:
        return plain


_PACKINGS: Final = (
    ("gzip", re.compile(rb"\x1f\x8b\x08")),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd")),
    ("utf-16", re.compile(rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]")),
    ("utf-16-le", re.compile(rb"[ -~]\0[ -~]\0")),
    ("utf-16-be", re.compile(rb"\0[ -~]\0[ -~]")),
)
"""How files are packed, with their first bytes."""


def _packing_of(path: pathlib.Path) -> str:
    """Return how a file is packed, by its first bytes, or else by its name; empty if it is not."""
    try:
        with path.open("rb", buffering=0) as stream:
            head = stream.read(4)
    except OSError:
        head = b""
    found = next((kind for kind, first in _PACKINGS if first.match(head)), "")
    return found or _COMPRESSED.get(path.suffix, "")


def _opened(path: pathlib.Path) -> IO[bytes]:
    match packing := _packing_of(path):
        case "gzip":
            return cast("IO[bytes]", SoundPart(path, gzip.open, (OSError, EOFError, zlib.error)))
        case "zstd":
            return _open_zstd(path)
        case "":
            return path.open("rb", buffering=0)
        case _:  # as a shell of Windows writes it
            return cast("IO[bytes]", codecs.EncodedFile(path.open("rb"), "utf-8", packing, "replace"))


def _open_zstd(path: pathlib.Path) -> IO[bytes]:
    try:
        from backports import zstd
    except ImportError:
        raise SourceError(f"{path}: reading .zst needs `{extra_command('sql')}`") from None
    return cast("IO[bytes]", SoundPart(path, zstd.open, (OSError, EOFError, zstd.ZstdError)))


def _with_names(sources: list[TraceFile]) -> Iterator[TraceFile]:
    """Yield every source with a node name, from its file name or its directory.

    `n1/durability.log` and `durability-n1.log` belong to node `n1`. All names are valid Unicode, since a
    case cannot hold others.
    """
    for source in sources:
        node, file = source.node or _node_of(source.path), source.file
        name = source.name if valid_text(file) == file else valid_text(file)
        yield dataclasses.replace(source, node=valid_text(node), name=name, domain=domain_of(source.path))


def domain_of(path: pathlib.Path) -> str:
    """Return the domain that a part `domain=NAME` of a path names, the deepest one; else NO_DOMAIN.

    A trace itself does not name its domain in all releases, and the numbers of domains repeat from system to
    system, so nothing is guessed from the text.
    """
    named = (part.name.partition("=") for part in (path, *path.parents))
    found = next((value for key, _, value in named if key == "domain" and value), NO_DOMAIN)
    return valid_text(found)


def _node_of(path: pathlib.Path) -> str:
    name = path.name
    for suffix in (*_COMPRESSED, ".log", ".txt", ".json", ".jsonl"):
        name = name.removesuffix(suffix)
    name = re.sub(r"(?:\.log)?\.\d{1,8}$", "", name)  # rotated: durability.log.1
    stem = _PLAIN_STEMS.sub("", name)
    parent = path.absolute().parent.name
    return stem or parent or "node"
