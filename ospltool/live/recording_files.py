"""The files of a recording: where its keys are, and its lines from a key on, while a recorder may write."""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from engine.runtime.monitor import NodeEvent
from ospltool.live.record_file import (
    KEY_MARK,
    MAX_LINE_BYTES,
    RecordingFault,
    RecordingHeader,
    RecordingLine,
    decode_line,
)
from ospltool.live.recorder import MAX_FILES, part_of, parts_of
from ospltool.output.text import plural

BEGINNING: Final = b'{"format_version":'
"""The first bytes of every line."""

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Least size of a block: more than an hour of three nodes."""


class LinePlace(NamedTuple):
    """A place between two lines: number of the file since the recording was opened, and byte in it."""

    part: int
    offset: int


class ReadLine(NamedTuple):
    """A line, the places before and after it, and the faults of the unreadable lines before it."""

    line: RecordingLine | None
    before: LinePlace
    after: LinePlace
    faults: tuple[str, ...]


class _Key(NamedTuple):
    heard_ns: int
    place: LinePlace


class _Part:
    """One file, up to where it was written when it was looked at last.

    Args:
        path: its name when it was opened; a recorder gives it others later.
        whole_lines: leave out a last line without an end: it is still being written.
    """

    def __init__(self, path: Path, *, whole_lines: bool) -> None:
        self.path = path
        self.searched = 0
        """Bytes that were searched for keys."""
        self._whole_lines = whole_lines
        self._file: BinaryIO = path.open("rb")
        self.identity = _identity(os.fstat(self._file.fileno()))
        """What stays the same while the file changes its name."""
        self._map: mmap.mmap | None = None
        self.size = 0
        try:
            self.grow()
        except OSError:
            self.close()
            raise

    @property
    def content(self) -> mmap.mmap | None:
        """The bytes of the file, of which the first `size` count; None for an empty or closed one."""
        return self._map

    def grow(self) -> bool:
        """Take in what was written since; return whether there is more."""
        written = os.fstat(self._file.fileno()).st_size
        if written <= (len(self._map) if self._map is not None else 0):
            return False
        new = mmap.mmap(self._file.fileno(), written, access=mmap.ACCESS_READ)
        if self._map is not None:
            self._map.close()
        self._map = new
        size = new.rfind(b"\n", self.size) + 1 if self._whole_lines else written
        grows, self.size = size > self.size, max(size, self.size)
        return grows

    def finish(self) -> None:
        """Keep what there is: the file does not grow any more."""
        self._file.close()

    def close(self) -> None:
        """Let go of the file. A second call does nothing."""
        self._file.close()
        if self._map is not None:
            self._map.close()
        self._map, self.size = None, 0


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class RecordingFiles:
    """The files of a recording, the places of its keys, and its lines from a key on.

    Args:
        path: the recorder's file; its older parts are read too.
        follow: `grow` takes in what a recorder adds.

    Raises:
        RecordingFault: the files cannot be read, or do not begin like a recording.
    """

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        self._path = path
        self._follow = follow
        self._parts: list[_Part] = []
        self._first = 0
        self._keys: list[_Key] = []
        self._blocks: list[_Key] = []
        one = path
        try:
            for one in parts_of(path):
                self._parts.append(_Part(one, whole_lines=follow))
            for part in self._parts[: -1 if follow else None]:
                part.finish()
            self._find_keys()
            if not follow and not any(part.size for part in self._parts):
                raise RecordingFault(f"{path}: not a recording: the file is empty")
        except OSError as error:
            self.close()
            raise RecordingFault(f"{one}: {error.strerror or error}") from error
        except RecordingFault:
            self.close()
            raise

    def close(self) -> None:
        """Close all files."""
        for part in self._parts:
            part.close()

    def grow(self) -> bool:
        """Take in what was added, also in new files, and let go of removed ones; return whether it is more.

        Files that a recorder removed would keep their place on the disk, and what they held would pile up.

        Raises:
            RecordingFault: what was added does not begin like a recording.
        """
        if not self._follow:
            return False
        try:
            newer = self._newer()
            grows = self._parts[-1].grow()
            for part in (self._parts[-1], *newer)[:-1]:
                part.finish()
            self._parts += newer
        except OSError as error:
            raise RecordingFault(f"{self._path}: {error.strerror or error}") from error
        grows = grows or any(part.size for part in newer)
        if grows:
            self._find_keys()
        if newer:
            self._let_go()
        return grows

    @property
    def begin_ns(self) -> int:
        """The moment of the first line that is still there; 0 without any."""
        return self._keys[0].heard_ns if self._keys else 0

    def key_before(self, moment_ns: int) -> int:
        """Return the number of the last key at or before a moment; 0 if there is none."""
        return max(0, bisect.bisect_right(self._keys, moment_ns, key=lambda key: key.heard_ns) - 1)

    def block_before(self, moment_ns: int) -> LinePlace:
        """Return where reading begins for what a moment shows: the block before that of the moment.

        Blocks are BLOCK_BYTES long, so that what leads up to a moment depends on the recording only, and is
        read in seconds.
        """
        number = bisect.bisect_right(self._blocks, moment_ns, key=lambda block: block.heard_ns) - 2
        if self._blocks:
            return self._blocks[max(0, number)].place
        return LinePlace(self._first, 0)

    def read(self, place: LinePlace) -> ReadLine:
        """Return the next readable line, if there is one (yet), with the unreadable ones before it."""
        number, offset = place
        faults: list[str] = []
        while True:
            line = self._line(number, offset)
            if line is not None:
                where, before = f"{self._parts[number].path}, byte {offset}", LinePlace(number, offset)
                offset += len(line) + 1
                if len(line) > MAX_LINE_BYTES:
                    faults.append(f"{where}: a line of {plural(len(line), 'byte')} is skipped")
                elif line:
                    try:
                        found = decode_line(line, where)
                        return ReadLine(found, before, LinePlace(number, offset), tuple(faults))
                    except RecordingFault as fault:
                        faults.append(str(fault))
            elif number + 1 < len(self._parts):
                number, offset = number + 1, 0
            else:
                return ReadLine(None, LinePlace(number, offset), LinePlace(number, offset), tuple(faults))

    def entries(self, key: int) -> Iterator[RecordingLine]:
        """Yield the readable lines from a key on, through all later files."""
        if not self._keys:
            return
        place = self._keys[key].place
        while True:
            read = self.read(place)
            if read.line is None:
                return
            yield read.line
            place = read.after

    def event_before(self, moment_ns: int) -> int | None:
        """Return the moment of the last event before a moment."""
        for key in range(self.key_before(moment_ns - 1), -1, -1):
            end = self._keys[key + 1] if key + 1 < len(self._keys) else None
            found = None
            for entry in self.entries(key):
                if entry.heard_ns >= moment_ns:
                    break
                if end is not None and entry.heard_ns > end.heard_ns:
                    break
                if isinstance(entry.item, NodeEvent):
                    found = entry.heard_ns
            if found is not None:
                return found
        return None

    def event_after(self, moment_ns: int) -> int | None:
        """Return the moment of the first event after a moment."""
        return next(
            (
                entry.heard_ns
                for entry in self.entries(self.key_before(moment_ns))
                if isinstance(entry.item, NodeEvent) and entry.heard_ns > moment_ns
            ),
            None,
        )

    def last_moment(self) -> int:
        """Return the moment of the last readable line."""
        for part in reversed(self._parts):
            if part.content is None:
                continue
            end = part.size
            for _ in range(100):
                start = part.content.rfind(b"\n", 0, max(0, end - 1)) + 1
                try:
                    return decode_line(part.content[start:end], "").heard_ns
                except RecordingFault:
                    end = start
                if not start:
                    break
        return 0

    def _newer(self) -> list[_Part]:
        """Open the files that were begun after the last known one, oldest first."""
        known = self._parts[-1].identity
        found: dict[tuple[int, int], _Part] = {}
        try:
            for number in range(MAX_FILES * 100):
                path = part_of(self._path, number)
                if not path.exists() or _identity(path.stat()) == known:
                    break
                part = _Part(path, whole_lines=True)
                if part.identity in found or part.identity == known:  # it got its next number meanwhile
                    part.close()
                else:
                    found[part.identity] = part
        except OSError as error:
            for part in found.values():
                part.close()
            if isinstance(error, FileNotFoundError):
                return []  # it changes its number right now: the next call finds it
            raise
        return [*reversed(found.values())]

    def _let_go(self) -> None:
        """Close the files that were removed, and forget their keys."""
        there = set()
        for number in range(len(self._parts) - self._first + 2):
            with contextlib.suppress(FileNotFoundError):  # a number may be missing while others change
                there.add(_identity(part_of(self._path, number).stat()))
        while self._first < len(self._parts) - 1 and self._parts[self._first].identity not in there:
            self._parts[self._first].close()
            self._first += 1
        self._keys = [key for key in self._keys if key.place.part >= self._first]
        self._blocks = [key for key in self._blocks if key.place.part >= self._first] or self._keys[:1]

    def _find_keys(self) -> None:
        """Note the keys that were not found before, first of all the first line."""
        for number in range(self._first, len(self._parts)):
            part = self._parts[number]
            content = part.content
            if content is not None and not part.size and not BEGINNING.startswith(content[: len(BEGINNING)]):
                _first_moment(part, content)  # its first line is not whole, and is none of a recording
            if content is None or part.searched >= part.size:
                continue
            if not self._keys:
                self._add_key(_Key(_first_moment(part, content), LinePlace(number, 0)))
            offset = content.find(KEY_MARK, part.searched, part.size)
            while offset >= 0:
                end = content.find(b"\n", offset, part.size)
                line = content[offset : end if end >= 0 else part.size]
                if not offset or content[offset - 1 : offset] == b"\n":
                    with contextlib.suppress(RecordingFault):  # cut by a failed write: its reader tells it
                        self._add_key(_Key(decode_line(line, "").heard_ns, LinePlace(number, offset)))
                offset = content.find(KEY_MARK, offset + 1, part.size)
            part.searched = part.size

    def _line(self, number: int, offset: int) -> bytes | None:
        """Return the line at an offset, without its end; None at the end of a file."""
        part = self._parts[number]
        if part.content is None or offset >= part.size:
            return None
        end = part.content.find(b"\n", offset, part.size)
        return part.content[offset : part.size if end < 0 else end]

    def _add_key(self, key: _Key) -> None:
        """Note a key; it begins a block if the last block is large enough."""
        self._keys.append(key)
        if not self._blocks or self._distance(self._blocks[-1].place, key.place) >= BLOCK_BYTES:
            self._blocks.append(key)

    def _distance(self, begin: LinePlace, end: LinePlace) -> int:
        """Return the bytes between two places."""
        return sum(part.size for part in self._parts[begin.part : end.part]) + end.offset - begin.offset


def _first_moment(part: _Part, content: mmap.mmap) -> int:
    end = content.find(b"\n", 0, MAX_LINE_BYTES)
    line = content[: end if end >= 0 else min(len(content), MAX_LINE_BYTES)]
    return decode_line(line, f"{part.path}:1").heard_ns


def header_of(path: Path) -> RecordingHeader | None:
    """Return the first line of a recording; None while nothing is recorded yet, or if it has none.

    Raises:
        RecordingFault: the file cannot be read, or does not begin like a recording.
    """
    try:
        with path.open("rb") as file:
            line = file.readline(MAX_LINE_BYTES)
    except OSError as error:
        raise RecordingFault(f"{path}: {error.strerror or error}") from error
    if not line.endswith(b"\n"):
        return None
    item = decode_line(line, f"{path}:1").item
    return item if isinstance(item, RecordingHeader) else None
