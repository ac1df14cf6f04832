"""Follows files that grow: through rotation, truncation and disappearance.

Files are looked at every few milliseconds. That costs less than a thousandth of a core, works on every file
system (events of the kernel do not come from network file systems), and its delay is the interval.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Final

from ospltool.trace.reading.headers import last_on_line
from ospltool.trace.reading.reader import LONGEST_RECORD, TraceParser, parse_events
from ospltool.trace.reading.reports import read_report
from ospltool.trace.reading.scan import record_spans
from ospltool.trace.reading.sources import Format, SourceError, sniff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ospltool.trace.reading.record import Record
    from ospltool.trace.reading.sources import Source

POLL_S: Final = 0.01
IDLE_S: Final = 0.2
"""The last record of a file is only known to be whole when the next one begins, or after so much silence."""

READ_BYTES: Final = 1 << 20
HEAD_BYTES: Final = 96
"""A file whose first bytes have changed was truncated and written anew, however long it is by now."""


def check_can_be_followed(sources: Sequence[Source]) -> None:
    """Refuses what does not grow record by record.

    Raises:
        SourceError: a file is compressed.
    """
    compressed = next((source for source in sources if source.compressed), None)
    if compressed is not None:
        raise SourceError(
            f"{compressed.path}: a compressed file does not grow record by record; it can not be followed"
        )


class Notice(str):
    """Something about a file, for the operator: it was rotated, truncated, has gone."""

    __slots__ = ()


@dataclasses.dataclass(slots=True)
class _File:
    """A file that is followed, opened or not (any more)."""

    source: Source
    descriptor: int = -1
    inode: tuple[int, int] = (0, 0)
    offset: int = 0
    head: bytes = b""
    rest: bytes = b""
    rest_since: float = 0.0
    parser: TraceParser | None = None
    gone: bool = False


class Follower:
    """Reads what is added to files.

    Args:
        sources: the files; they need not exist yet.
        starts: byte offset at which to begin, by file; the end when not given.
        needle: only records that contain these bytes are wanted.
    """

    def __init__(
        self, sources: Sequence[Source], starts: dict[str, int] | None = None, needle: bytes | None = None
    ) -> None:
        check_can_be_followed(sources)
        self._needle = needle
        self._files = [_File(source) for source in sources]
        for file in self._files:
            self._open(file, (starts or {}).get(file.source.file))

    def close(self) -> None:
        """Closes all files."""
        for file in self._files:
            self._close(file)

    def poll(self) -> list[Record | Notice]:
        """What has come in since the last time, by file."""
        found: list[Record | Notice] = []
        for file in self._files:
            found.extend(self._poll(file))
        return found

    def run(self, wait: Callable[[float], bool]) -> Iterator[list[Record | Notice]]:
        """Gives what comes in until `wait(seconds)` says that it is over; an empty list when it was quiet."""
        while True:
            yield self.poll()
            if wait(POLL_S):
                return

    def _open(self, file: _File, start: int | None) -> bool:
        try:
            file.descriptor = os.open(file.source.path, os.O_RDONLY | os.O_CLOEXEC)
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
        """What a new file holds may differ from the one before; an empty one is not known yet."""
        if os.fstat(file.descriptor).st_size:
            found = sniff(file.source.path, file.source.node)
            if found.format is Format.UNKNOWN:
                found = dataclasses.replace(found, format=Format.TRACE)
            file.source = found
        file.parser = TraceParser(file.source, file.offset)

    def _close(self, file: _File) -> None:
        if file.descriptor >= 0:
            os.close(file.descriptor)
            file.descriptor = -1

    def _poll(self, file: _File) -> Iterator[Record | Notice]:
        if file.descriptor < 0:
            if not self._open(file, 0):
                return
            yield Notice(f"{file.source.path}: is there again, reading from its beginning")
        status = os.fstat(file.descriptor)
        if status.st_size < file.offset or (
            status.st_size > file.offset and os.pread(file.descriptor, len(file.head), 0) != file.head
        ):
            yield from self._flush(file)
            yield Notice(f"{file.source.path}: was truncated, reading from its beginning")
            file.offset = 0
            file.head = os.pread(file.descriptor, HEAD_BYTES, 0)
            self._sniff_again(file)
        yield from self._read(file)
        yield from self._look_for_another(file)

    def _read(self, file: _File) -> Iterator[Record]:
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

    def _records(self, file: _File, data: bytes) -> Iterator[Record]:
        data = file.rest + data
        if file.source.format is Format.TRACE:
            cut = last_on_line(data)
        elif file.source.format is Format.EVENTS:
            cut = data.rfind(b"\n") + 1
        else:
            cut = data.rfind(b"\n====") + 1
        if cut <= 0 and len(data) > LONGEST_RECORD:
            cut = len(data)
        file.rest = data[max(cut, 0) :]
        if cut > 0:
            yield from self._parse(file, data[:cut])

    def _flush(self, file: _File) -> Iterator[Record]:
        """Gives out what waited for the next record."""
        if file.rest:
            data, file.rest = file.rest, b""
            yield from self._parse(file, data)

    def _parse(self, file: _File, data: bytes) -> Iterator[Record]:
        """The records of bytes that begin with a record and end with one."""
        start = file.offset - len(file.rest) - len(data)
        if self._needle is not None and self._needle not in data:
            return
        parser = file.parser
        if file.source.format is Format.REPORTS:
            yield read_report(data, file.source, start)
        elif file.source.format is Format.EVENTS:
            yield from parse_events(data, file.source, start)
        elif parser is not None and self._needle is not None:
            for begin, end in record_spans(data, self._needle, untimed=file.source.untimed):
                yield from parser.parse(data[begin:end], start + begin)
        elif parser is not None:
            yield from parser.parse(data, start)

    def _look_for_another(self, file: _File) -> Iterator[Record | Notice]:
        """Whether the path leads to another file now: the old one was read to its end."""
        try:
            status = file.source.path.stat()
        except OSError:
            if not file.gone:
                file.gone = True
                yield from self._flush(file)
                yield Notice(f"{file.source.path}: has gone, waiting for it")
            return
        file.gone = False
        if (status.st_dev, status.st_ino) != file.inode:
            yield from self._read(file)  # what was written between the last look and the rotation
            yield from self._flush(file)
            self._close(file)
            if self._open(file, 0):
                yield Notice(f"{file.source.path}: was rotated, reading the new file")
                yield from self._read(file)
