"""Follows files that grow: through rotation, truncation and disappearance.

Files are polled every few milliseconds. That costs less than a thousandth of a core and works on every file
system, including network file systems, which send no events.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ospltool.output.locations import is_remote
from ospltool.trace.reading.headers import last_on_line
from ospltool.trace.reading.ranges import record_spans
from ospltool.trace.reading.reader import LONGEST_RECORD, TraceParser, parse_events
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.report_logs import read_report
from ospltool.trace.reading.sources import (
    SNIFFED_BYTES,
    SourceError,
    TraceFile,
    TraceFormat,
    plain_lines,
    prefix_of,
    sniff,
)

# A person does not see it, and a look is a `stat` for each file.
POLL_S: Final = 0.01
# Longer than a process needs to write the lines of one record.
IDLE_S: Final = 0.2
"""Silence after which the last record of a file counts as whole; otherwise the next record shows it."""

# Chosen; larger reads are not faster.
READ_BYTES: Final = 1 << 20
# The header of the first line, which has a time.
HEAD_BYTES: Final = 96
"""First bytes of a file that reveal by a change that it was truncated and rewritten."""


def check_can_be_followed(sources: Sequence[TraceFile]) -> None:
    """Refuse files that do not grow record by record.

    Raises:
        SourceError: a file is compressed, or on another file system.
    """
    compressed = next((source for source in sources if source.compressed), None)
    if compressed is not None:
        raise SourceError(
            f"{compressed.path}: a compressed file does not grow record by record; it cannot be followed"
        )
    remote = next((source for source in sources if is_remote(source.path)), None)
    if remote is not None:
        raise SourceError(f"{remote.path}: only files of this machine are followed; `load --follow` takes it")


class FileNotice(str):
    """A message about a file to the operator: it was rotated or truncated, or has disappeared."""

    __slots__ = ()


@dataclasses.dataclass(slots=True)
class _File:
    """A followed file, open or not."""

    source: TraceFile
    """Path, node and present format of the file."""
    descriptor: int = -1
    """File descriptor; -1 while it is not open."""
    inode: tuple[int, int] = (0, 0)
    """Device and inode of the open file."""
    offset: int = 0
    """Number of bytes read."""
    head: bytes = b""
    """First bytes, to detect a truncation."""
    rest: bytes = b""
    """Bytes of the last record, which may not be whole."""
    rest_since: float = 0.0
    """Time of the last bytes, in seconds of the monotonic clock."""
    parser: TraceParser | None = None
    """Parser of the file, if it is a durability trace."""
    prefix: re.Pattern[bytes] | None = None
    """What another tool puts before each line."""
    gone: bool = False
    """Whether its path has disappeared."""


class GrowingFiles:
    """A reader of the bytes that are added to files.

    Args:
        sources: the files; they need not exist yet.
        starts: byte offset at which to begin, by file; by default the end.
        needle: bytes that wanted records contain.
    """

    def __init__(
        self, sources: Sequence[TraceFile], starts: dict[str, int] | None = None, needle: bytes | None = None
    ) -> None:
        check_can_be_followed(sources)
        self._needle = needle
        self._files = [_File(source) for source in sources]
        for file in self._files:
            self._open(file, (starts or {}).get(file.source.file))

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            self._close(file)

    def poll(self) -> list[TraceRecord | FileNotice]:
        """Return the records and notices since the last call, by file."""
        found: list[TraceRecord | FileNotice] = []
        for file in self._files:
            found.extend(self._poll(file))
        return found

    def run(self, wait: Callable[[float], bool]) -> Iterator[list[TraceRecord | FileNotice]]:
        """Yield news, perhaps empty, until `wait(seconds)` returns True."""
        while True:
            yield self.poll()
            if wait(POLL_S):
                return

    def _open(self, file: _File, start: int | None) -> bool:
        try:
            file.descriptor = os.open(file.source.path, os.O_RDONLY | os.O_CLOEXEC)
        # It may come later, as a rotated one does.
        except FileNotFoundError:
            return False
        except OSError as cause:
            raise SourceError(f"{file.source.path}: {cause.strerror}") from None
        status = os.fstat(file.descriptor)
        file.inode = (status.st_dev, status.st_ino)
        file.offset = status.st_size if start is None else start
        file.head = os.pread(file.descriptor, HEAD_BYTES, 0)
        file.rest = b""
        file.gone = False
        self._sniff_again(file)
        return True

    def _sniff_again(self, file: _File) -> None:
        """Determine the format of a new file again; that of an empty one stays unknown."""
        if os.fstat(file.descriptor).st_size:
            found = sniff(file.source.path, file.source.node)
            if found.format is TraceFormat.UNKNOWN:
                found = dataclasses.replace(found, format=TraceFormat.TRACE)
            file.source = found
            file.prefix = prefix_of(os.pread(file.descriptor, SNIFFED_BYTES, 0))
        file.parser = TraceParser(file.source, file.offset)

    def _close(self, file: _File) -> None:
        if file.descriptor >= 0:
            os.close(file.descriptor)
            file.descriptor = -1

    def _poll(self, file: _File) -> Iterator[TraceRecord | FileNotice]:
        if file.descriptor < 0:
            if not self._open(file, 0):
                return
            yield FileNotice(f"{file.source.path}: exists again, reading from its beginning")
        status = os.fstat(file.descriptor)
        if status.st_size < file.offset or (
            status.st_size > file.offset and os.pread(file.descriptor, len(file.head), 0) != file.head
        ):
            yield from self._flush(file)
            yield FileNotice(f"{file.source.path}: was truncated, reading from its beginning")
            file.offset = 0
            file.head = os.pread(file.descriptor, HEAD_BYTES, 0)
            self._sniff_again(file)
        yield from self._read(file)
        yield from self._look_for_another(file)

    def _read(self, file: _File) -> Iterator[TraceRecord]:
        while data := os.pread(file.descriptor, READ_BYTES, file.offset):
            if len(file.head) < HEAD_BYTES:
                file.head = os.pread(file.descriptor, HEAD_BYTES, 0)
                if file.offset == 0:
                    self._sniff_again(file)
            file.offset += len(data)
            file.rest_since = time.monotonic()
            yield from self._records(file, data)
        if file.rest and time.monotonic() - file.rest_since > IDLE_S:
            yield from self._flush(file)

    def _records(self, file: _File, data: bytes) -> Iterator[TraceRecord]:
        data = file.rest + data
        whole = data.rfind(b"\n") + 1  # more of the last line may come
        plain = plain_lines(data[:whole], file.prefix) + data[whole:]
        if file.source.format is TraceFormat.TRACE:
            cut = last_on_line(plain)
        elif file.source.format is TraceFormat.EVENTS:
            cut = plain.rfind(b"\n") + 1
        else:
            cut = plain.rfind(b"\n====") + 1
        if cut <= 0 and len(data) > LONGEST_RECORD:
            cut = len(data)
        file.rest = data[max(cut, 0) :]
        if cut > 0:
            yield from self._parse(file, plain[:cut])

    def _flush(self, file: _File) -> Iterator[TraceRecord]:
        """Yield the bytes that waited for the next record."""
        if file.rest:
            data, file.rest = plain_lines(file.rest, file.prefix), b""
            yield from self._parse(file, data)

    def _parse(self, file: _File, data: bytes) -> Iterator[TraceRecord]:
        """Yield the records of bytes that begin with a record and end with one."""
        start = file.offset - len(file.rest) - len(data)
        if self._needle is not None and self._needle not in data:
            return
        parser = file.parser
        if file.source.format is TraceFormat.REPORTS:
            yield read_report(data, file.source, start)
        elif file.source.format is TraceFormat.EVENTS:
            yield from parse_events(data, file.source, start)
        elif parser is not None and self._needle is not None:
            for begin, end in record_spans(data, self._needle, untimed=file.source.untimed):
                yield from parser.parse(data[begin:end], start + begin)
        elif parser is not None:
            yield from parser.parse(data, start)

    def _look_for_another(self, file: _File) -> Iterator[TraceRecord | FileNotice]:
        """Open the new file if the path leads to another one, after reading the old one to its end."""
        try:
            status = file.source.path.stat()
        except OSError:
            if not file.gone:
                file.gone = True
                yield from self._flush(file)
                yield FileNotice(f"{file.source.path}: disappeared, waiting for it")
            return
        file.gone = False
        if (status.st_dev, status.st_ino) != file.inode:
            yield from self._read(file)  # written between the last poll and the rotation
            yield from self._flush(file)
            self._close(file)
            if self._open(file, 0):
                yield FileNotice(f"{file.source.path}: was rotated, reading the new file")
                yield from self._read(file)
