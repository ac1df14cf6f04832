"""Targets of trace lines: a file, or a standard stream."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    import pathlib

# Each rotation renames them all. Chosen.
MAX_FILES: Final = 1_000
"""Limit for the former files that a rotation keeps."""
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ROTATION: Final = re.compile(r"([1-9][0-9]{0,11})([KMG]?)(?::([0-9]{1,4}))?", re.ASCII | re.IGNORECASE)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_STANDARD_STREAMS: Final = {"stdout": 1, "stderr": 2}


class Sink(Protocol):
    """Takes whole lines. Both calls may raise OSError; the tracer counts lost lines."""

    def write(self, line: str) -> None:
        """Write a line, given without its end."""

    def close(self) -> None:
        """Close the target."""


class DescriptorSink:
    """Writes each line to a file descriptor at once, so that nothing is lost if the process is killed.

    Args:
        descriptor: open for writing; for a file, with O_APPEND, so that writing continues at the start of a
            truncated file (logrotate's copytruncate) and several runs do not overwrite each other.
        synchronous: whether to wait until each line is on disk (//OpenSplice/DurabilityService/Tracing,
            attribute `synchronous`).
        owned: whether `close` closes the descriptor.
    """

    def __init__(self, descriptor: int, *, synchronous: bool = False, owned: bool = False) -> None:
        self._descriptor = descriptor
        self._synchronous = synchronous
        self._owned = owned
        self._torn = False

    def write(self, line: str) -> None:
        """Write the line and its end; after a line that was cut off, begin a new line first."""
        data = f"{line}\n".encode()
        if self._torn:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        finally:
            if 0 < written < len(data):
                self._torn = True
            elif written:
                self._torn = False
        if self._synchronous:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor if it is owned. Idempotent."""
        if self._owned:
            self._owned = False
            os.close(self._descriptor)


class Rotation(msgspec.Struct, frozen=True):
    """Rotation of a trace file.

    Attributes:
        max_bytes: a line that would make the file larger than this begins a new file; at least 1.
        files: number of former files to keep, `FILE.1` being the newest.
    """

    max_bytes: int
    files: int = 1

    @classmethod
    def parse(cls, text: str) -> Rotation:
        """Parse `SIZE` or `SIZE:FILES`, such as `64M:5`; K, M and G are binary.

        Raises:
            ValueError: the text has another form, or keeps more than `MAX_FILES` files.
        """
        found = _ROTATION.fullmatch(text.strip())
        files = int(found[3] or 1) if found else 0
        if found is None or files > MAX_FILES:
            raise ValueError(f"{text!r} is not SIZE or SIZE:FILES, such as 64M:5 (0 to {MAX_FILES} files)")
        return cls(int(found[1]) * _UNITS[found[2].upper()], files)


class FileSink:
    """A trace file, which may rotate.

    It is opened with the first line for which the disk has room; its directory is made.

    If a rotation fails, writing continues in the present file.

    Args:
        path: path of the file.
        synchronous: see `DescriptorSink`.
        rotation: None for a file that grows.

    Raises:
        OSError: the file cannot be opened for a reason other than a full disk.
    """

    def __init__(
        self, path: pathlib.Path, *, synchronous: bool = False, rotation: Rotation | None = None
    ) -> None:
        self._path = path
        self._synchronous = synchronous
        self._rotation = rotation
        self._sink: DescriptorSink | None = None
        self._bytes = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            if error.errno not in _FULL:
                raise

    def _open(self) -> DescriptorSink:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        status = os.fstat(descriptor)
        self._bytes = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self._rotation = None  # a device or a pipe does not rotate
        self._sink = DescriptorSink(descriptor, synchronous=self._synchronous, owned=True)
        return self._sink

    def write(self, line: str) -> None:
        """Write the line and its end, in a new file if this one is full."""
        sink = self._sink or self._open()
        if self._rotation is not None:
            size = len(line.encode()) + 1
            if self._bytes and self._bytes + size > self._rotation.max_bytes:
                sink = self._rotate(sink, self._rotation.files)
            self._bytes += size
        sink.write(line)

    def _rotate(self, sink: DescriptorSink, files: int) -> DescriptorSink:
        try:
            for number in range(files, 0, -1):
                before = self._former(number - 1) if number > 1 else self._path
                with contextlib.suppress(FileNotFoundError):  # there are fewer files than may be kept
                    before.replace(self._former(number))
            if not files:
                self._path.unlink()
            self._open()
        except OSError:
            self._bytes = 0  # try again after another `max_bytes`
            return sink
        sink.close()
        assert self._sink is not None
        return self._sink

    def _former(self, number: int) -> pathlib.Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._sink is not None:
            self._sink.close()


def open_sink(
    output_file: str,
    directory: pathlib.Path,
    *,
    synchronous: bool = False,
    rotation: Rotation | None = None,
) -> DescriptorSink | FileSink:
    """Open the sink of a configured OutputFile: `stdout` or `stderr` in any case, or a file to append to.

    Only its owner can read a new file, because it may contain payloads and addresses.

    Args:
        output_file: the configured value.
        directory: base of a relative path.
        synchronous: see `DescriptorSink`; for files only.
        rotation: rotation of a file, None for none.

    Raises:
        OSError: the file cannot be opened.
    """
    stream = _STANDARD_STREAMS.get(output_file.strip().lower())
    if stream is not None:
        return DescriptorSink(stream)
    return FileSink(directory / output_file, synchronous=synchronous, rotation=rotation)
