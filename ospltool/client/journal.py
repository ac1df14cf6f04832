"""The journal of a DurableWriter: a file with the pending samples, which survives the process.

Records with checksums are appended to the file: a head that names its owner, the samples, and marks of stored
samples. When most of it is obsolete, a new file replaces it atomically; on a full disk the file is emptied
where it is, if all of it is obsolete. A journal that others removed or shortened is written again, unless
another file or another writer is in its place. A torn record at the end is cut off; after damage in the
middle the intact records count, and a copy of the file is kept. Both are reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
import stat
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.dataset.sample import DIGEST_BYTES
from engine.dds.cdr import Malformed
from engine.dds.client_protocol.naming import pack_samples, unpack_samples
from engine.files import is_at, lock_file, new_beside, open_private
from ospltool.client.errors import JournalError, JournalInUse, JournalMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.sample import Sample

# Rewriting 4 MiB takes milliseconds; below it is not worth an fsync.
COMPACT_BYTES: Final = 4 << 20
"""Size up to which an open journal is not compacted."""
# Chosen: damage that returns ten times is a broken disk.
MAX_COPIES: Final = 10
"""Limit for copies of damaged files beside a journal."""
# Then compacting writes a third of what was written since the last time.
_WORTH: Final = 3
"""Ratio of its size to its live records from which a journal is compacted."""
_MAGIC: Final = b"\xa5DWJ"
_FRAME: Final = struct.Struct("<4sIIc")
_CHECKED: Final = struct.Struct("<Ic")
_HEAD, _IDENTITY, _SAMPLE, _STORED = b"H", b"I", b"W", b"S"
_IDENTITY_BYTES: Final = 8
_VERSION: Final = 1
# Above the largest sample (`core.settings.LARGEST_SAMPLE_BYTES`): a larger size is damage.
_MAX_RECORD: Final = 1 << 30
_APPENDING: Final = os.O_RDWR | os.O_APPEND


@dataclasses.dataclass(frozen=True, slots=True)
class Recovery:
    """The contents of a journal when it was opened.

    Attributes:
        samples: number of pending samples.
        torn_bytes: unreadable bytes at the end, from an unfinished write.
        damaged_bytes: unreadable bytes between intact records, where samples may have been lost.
        copy: path of the copy of the damaged file; None without damage, or if there is no room for it.
    """

    samples: int = 0
    torn_bytes: int = 0
    damaged_bytes: int = 0
    copy: Path | None = None


def _frame(kind: bytes, body: bytes) -> bytes:
    check = zlib.crc32(body, zlib.crc32(_CHECKED.pack(len(body), kind)))
    return _FRAME.pack(_MAGIC, len(body), check, kind) + body


class Journal:
    """An open journal, which one thread at a time may use.

    Args:
        path: the file, in an existing directory. While it is open, a lock on it keeps other writers out,
            whatever path they know it by. Links are not followed.
        owner: topic, type and partitions, which must be the same in every run.
        sync: wait for the disk with each sample, so that it survives the loss of power, too.

    Attributes:
        found: contents when it was opened.
        size: size of the file in bytes.
        identity: names its pending samples to nodes, in every run until there are none.

    Raises:
        JournalInUse: another writer has it open.
        JournalMismatch: the file belongs to another topic, type or partition, or is not a journal.
        JournalError: the file cannot be read or written.
    """

    def __init__(self, path: Path, owner: dict[str, Any], *, sync: bool) -> None:
        self.path = path
        self._owner = {"version": _VERSION, **owner}
        self.identity = secrets.token_hex(_IDENTITY_BYTES)
        self._sync = sync
        self.size = self._live_bytes = 0
        self._sizes: dict[bytes, int] = {}
        self._unmarked: list[bytes] = []
        self._file = self._locked()
        try:
            self.samples, self.found = self._open()
        except BaseException:
            self.close()
            raise

    def append(self, sample: Sample) -> None:
        """Append a sample.

        Raises:
            JournalError: the file cannot be written; the sample is not in the journal.
        """
        self._mark()
        frame = _frame(_SAMPLE, pack_samples([sample]))
        self._write(frame, sync=self._sync)
        self._add(sample.digest, len(frame))

    def stored(self, digests: Iterable[bytes]) -> None:
        """Mark samples as stored.

        What a full disk refuses is written with the next sample, the next marks or at the end. A journal of
        which nothing counts any more is emptied instead, which needs no room.
        """
        for digest in digests:
            self._live_bytes -= self._sizes.pop(digest, 0)
            self._unmarked.append(digest)
        self._mark()

    def _mark(self) -> None:
        if not self._unmarked:
            return
        # Marks only spare handing over again; without them nodes find the samples to be known.
        with contextlib.suppress(JournalError):
            try:
                self._write(_frame(_STORED, b"".join(self._unmarked)), sync=False)
            except JournalError:
                if self._sizes:
                    return
                self._empty()
            self._unmarked.clear()

    def is_intact(self) -> bool:
        """Return whether the next run will find what was written; True once it is closed.

        If this returns False, `compact` writes the journal again.

        Raises:
            JournalError: another file is in its place.
        """
        if self._file < 0:
            return True
        try:
            if is_at(self.path, self._file):
                return os.fstat(self._file).st_size == self.size
            is_gone = not os.path.lexists(self.path)
        except OSError as error:
            raise JournalError(f"journal {self.path} cannot be read: {error.strerror}") from error
        if is_gone:
            return False
        raise JournalError(self._is_replaced)

    @property
    def _is_replaced(self) -> str:
        return (
            f"journal {self.path}: another file is in its place, and pending samples are in memory only; "
            f"move that file away, then the next write or flush makes the journal again"
        )

    @property
    def is_worth_compacting(self) -> bool:
        """Whether most of the file is obsolete."""
        return self.size > max(COMPACT_BYTES, _WORTH * self._live_bytes)

    def compact(self, samples: Iterable[Sample]) -> None:
        """Replace the file with a new one that has only these samples.

        Raises:
            JournalError: the file cannot be written, or `is_intact` raises; the former file stays in use.
        """
        is_intact = self.is_intact()
        frames = [(one.digest, _frame(_SAMPLE, pack_samples([one]))) for one in samples]
        try:
            new, file = new_beside(self.path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before another writer can find it
                size = sum(_write_all(file, part) for part in (self._head(), *(frame for _, frame in frames)))
                os.fsync(file)
                if is_at(self.path, self._file):
                    new.replace(self.path)
                else:  # it was removed: what another writer makes there meanwhile stays
                    os.link(new, self.path)
                    new.unlink()
            except BaseException:
                os.close(file)
                new.unlink(missing_ok=True)
                raise
            _sync_directory(self.path.parent)
        except FileExistsError:
            raise JournalError(self._is_replaced) from None
        except OSError as error:
            if self._file >= 0 and is_intact and not frames:
                self._empty()
                return
            raise JournalError(f"journal {self.path} cannot be written: {error.strerror}") from error
        if self._file >= 0:
            os.close(self._file)
        self._file, self.size = file, size
        self._sizes, self._live_bytes = {}, 0
        self._unmarked.clear()
        for digest, frame in frames:
            self._add(digest, len(frame))

    def _head(self) -> bytes:
        owner = json.dumps(self._owner).encode()
        return _frame(_HEAD, owner) + _frame(_IDENTITY, bytes.fromhex(self.identity))

    def _empty(self) -> None:
        """Empty the file, of which nothing counts any more; that works on a full disk, too."""
        os.ftruncate(self._file, 0)
        self.size, self._sizes, self._live_bytes = 0, {}, 0
        self._unmarked.clear()
        self._write(self._head(), sync=True)

    @property
    def has_room_inside(self) -> bool:
        """Whether compacting gains at least as much room as it needs."""
        return self.size > 2 * self._live_bytes

    def close(self) -> None:
        """Wait until the marks are on disk, close the file and release its lock. Idempotent."""
        if self._file >= 0:
            self._mark()
            # What may be lacking on the disk are marks, which only spare handing over again.
            with contextlib.suppress(OSError):
                os.fdatasync(self._file)
            os.close(self._file)
        self._file = -1

    def _locked(self) -> int:
        """Open the file, which is made if there is none, and lock it."""
        try:
            file = lock_file(self.path, _APPENDING | os.O_CREAT)
        except BlockingIOError:
            raise JournalInUse(f"journal {self.path} is in use by another writer") from None
        except OSError as error:
            raise JournalError(f"journal {self.path} cannot be opened: {error.strerror}") from error
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return file
        os.close(file)
        if stat.S_ISREG(found.st_mode):  # the next compaction would leave the other names a stale copy
            raise JournalError(
                f"journal {self.path} cannot be opened: it has {found.st_nlink} names (hard links); remove "
                f"the others, or copy the file"
            )
        raise JournalMismatch(f"{self.path} is not a journal")

    def _open(self) -> tuple[list[Sample], Recovery]:
        try:
            with os.fdopen(os.dup(self._file), "rb") as file:
                content = file.read()
        except OSError as error:
            raise JournalError(f"journal {self.path} cannot be read: {error.strerror}") from error
        self.size, read = len(content), _read(content)
        if read.records and not read.owner and not read.damaged_bytes:
            raise JournalMismatch(f"{self.path} is not a journal")
        if content and not read.records:
            raise JournalMismatch(f"{self.path} is not a journal: it has no readable record")
        if read.samples and read.identity:
            self.identity = read.identity
        if read.owner and read.owner != self._owner:
            raise JournalMismatch(f"journal {self.path} belongs to {json.dumps(read.owner)}")
        copy = self._copy(content) if read.damaged_bytes or read.torn_bytes else None
        samples = list(read.samples.values())
        try:
            if read.damaged_bytes and copy is None:  # the damage stays in the file: it is all that there is
                raise JournalError(f"journal {self.path} is damaged, and no copy of it can be made")
            self.compact(samples)
        except JournalError:
            if not content:
                raise
            self._go_on(samples, len(content) - read.torn_bytes)
        return samples, Recovery(len(samples), read.torn_bytes, read.damaged_bytes, copy)

    def _copy(self, content: bytes) -> Path | None:
        """Keep what is damaged beside the journal, and what is there, too; None if that is impossible."""
        for number in range(MAX_COPIES):
            suffix = f".damaged.{number}" if number else ".damaged"
            copy = self.path.with_name(self.path.name + suffix)
            try:
                damaged = open_private(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError:  # the copy of an earlier damage stays
                continue
            except OSError:  # a full disk, another owner: then the damage stays in the file
                return None
            try:
                _write_all(damaged, content)
            except OSError:
                copy.unlink(missing_ok=True)
                return None
            finally:
                os.close(damaged)
            return copy
        return None

    def _go_on(self, samples: Sequence[Sample], size: int) -> None:
        """Use the present file, because the disk has no room for a new one.

        Args:
            samples: its samples that are not stored.
            size: bytes up to the end of its last intact record.
        """
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise JournalError(f"journal {self.path} cannot be opened: {error.strerror}") from error
        self.size = size
        for sample in samples:
            self._add(sample.digest, len(_frame(_SAMPLE, pack_samples([sample]))))
        if not samples:
            self.compact(samples)

    def _add(self, digest: bytes, size: int) -> None:
        self._sizes[digest] = size
        self._live_bytes += size

    def _write(self, frame: bytes, *, sync: bool) -> None:
        try:
            _write_all(self._file, frame)
            if sync:
                os.fdatasync(self._file)
        except OSError as error:
            # A torn record at the end is found by its check value; cutting it off is only tidier.
            with contextlib.suppress(OSError):
                if os.fstat(self._file).st_size > self.size:  # else others have shortened it
                    os.ftruncate(self._file, self.size)
            raise JournalError(f"journal {self.path} cannot be written: {error.strerror}") from error
        self.size += len(frame)


@dataclasses.dataclass(slots=True)
class _Content:
    """The contents of a file."""

    owner: dict[str, Any] = dataclasses.field(default_factory=dict)
    identity: str = ""
    samples: dict[bytes, Sample] = dataclasses.field(default_factory=dict)
    records: int = 0
    torn_bytes: int = 0
    damaged_bytes: int = 0


def _read(content: bytes) -> _Content:
    """Read the records of a file; bytes between intact ones are damaged, those after the last are torn."""
    found = _Content()
    at = intact = 0
    while at < len(content):
        record = _record(content, at)
        if record is None:
            following = content.find(_MAGIC, at + 1)
            at = following if following >= 0 else len(content)
            continue
        found.damaged_bytes += at - intact
        kind, body, at = record
        intact = at
        found.records += 1
        _take(found, kind, body)
    found.torn_bytes = len(content) - intact
    return found


def _take(found: _Content, kind: bytes, body: bytes) -> None:
    if kind == _HEAD:
        found.owner = json.loads(body)
    elif kind == _IDENTITY:
        found.identity = body.hex() if len(body) == _IDENTITY_BYTES else ""
    elif kind == _SAMPLE:
        found.samples |= {sample.digest: sample for sample in unpack_samples(body)}
    elif kind == _STORED:
        for begin in range(0, len(body), DIGEST_BYTES):
            found.samples.pop(body[begin : begin + DIGEST_BYTES], None)


def _record(content: bytes, at: int) -> tuple[bytes, bytes, int] | None:
    """Return kind, body and end of the record at a place; None if it is not intact."""
    if at + _FRAME.size > len(content):
        return None
    magic, size, check, kind = _FRAME.unpack_from(content, at)
    end = at + _FRAME.size + size
    if magic != _MAGIC or size > _MAX_RECORD or end > len(content):
        return None
    body = content[at + _FRAME.size : end]
    if check != zlib.crc32(body, zlib.crc32(_CHECKED.pack(size, kind))):
        return None
    try:
        if kind == _SAMPLE:
            unpack_samples(body)
    # The check value is right, so another version wrote it: it counts as damage.
    except Malformed:
        return None
    return kind, body, end


def _write_all(file: int, data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    return len(data)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
