"""Where trace lines go: a file that grows, or a standard stream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import pathlib

_STANDARD_STREAMS: Final = {"stdout": 1, "stderr": 2}


class Sink(Protocol):
    """Takes whole lines. Both calls may raise OSError; the tracer counts what could not be written."""

    def write(self, line: str) -> None:
        """Write `line`, which has no line end."""

    def close(self) -> None:
        """Take nothing more."""


class DescriptorSink:
    """Writes each line to a file descriptor at once, so that nothing is lost when the process is killed.

    Args:
        descriptor: open for writing; for a file, with O_APPEND, so that a truncated file goes on at its
            start (logrotate's copytruncate) and several runs do not overwrite each other.
        synchronous: wait until each line is on the disk (//OpenSplice/DurabilityService/Tracing,
            attribute `synchronous`).
        owned: close the descriptor on `close`.
    """

    def __init__(self, descriptor: int, *, synchronous: bool = False, owned: bool = False) -> None:
        self._descriptor = descriptor
        self._synchronous = synchronous
        self._owned = owned
        self._torn = False

    def write(self, line: str) -> None:
        """Write the line and its end; after a line that was cut off, begin on a new one."""
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
        """Close the descriptor if it is ours; a second call does nothing."""
        if self._owned:
            self._owned = False
            os.close(self._descriptor)


def open_sink(output_file: str, directory: pathlib.Path, *, synchronous: bool = False) -> DescriptorSink:
    """The sink of a configured OutputFile: `stdout` or `stderr` in any case, or a file to append to.

    A new file can be read by its owner only: payloads and addresses are nobody else's business.

    Args:
        output_file: the configured value.
        directory: what a relative path starts from.
        synchronous: see `DescriptorSink`; only for files, a stream has no disk.

    Raises:
        OSError: the file can not be opened.
    """
    stream = _STANDARD_STREAMS.get(output_file.strip().lower())
    if stream is not None:
        return DescriptorSink(stream)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(directory / output_file, flags, 0o600)
    return DescriptorSink(descriptor, synchronous=synchronous, owned=True)
