"""Files that belong to a service or tool alone: no link is followed, and nobody else can read them.

A name in a directory that others may write to can be a link that they made; what is written through it is
written to another file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

# Files hold data and secrets of applications: for their owner only, whatever the umask is.
_PRIVATE: Final = 0o600
_MENDABLE: Final = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
        *(errno.ENOSPC, errno.EDQUOT, errno.ETXTBSY, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE),
    }
)
"""Errors of a shortage or of a device, which may be over at the next attempt."""
LINK: Final = "it is a symbolic link, which is not followed"


def is_permanent(error: OSError) -> bool:
    """Whether another attempt would end in the same way: a missing permission, no directory, a link."""
    return error.errno is not None and error.errno not in _MENDABLE


def open_private(path: Path, flags: int) -> int:
    """Open a file, and return its descriptor; a new one is for its owner only.

    Args:
        path: the file. Links in the path to its directory are followed.
        flags: as for `os.open`.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, LINK, str(path)) from None
        raise


def new_beside(path: Path, suffix: str = ".new") -> tuple[Path, int]:
    """Make a new file beside another one; return its path and a descriptor to append to it.

    The caller puts it in place of the other one, or removes it. What a killed process left there is removed.

    Args:
        path: the other file.
        suffix: added to its name; processes that may do so at once have different ones.

    Raises:
        OSError: it cannot be made, or somebody else makes it at the same time.
    """
    new = path.with_name(path.name + suffix)
    new.unlink(missing_ok=True)
    return new, open_private(new, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)


@contextlib.contextmanager
def replacing(path: Path, suffix: str = ".new") -> Iterator[IO[bytes]]:
    """Write a file that takes the place of another one, if there is one: readers see the old or the new one.

    Arguments are as for `new_beside`.

    Raises:
        OSError: it cannot be written; the former file stays.
    """
    new, descriptor = new_beside(path, suffix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def lock_file(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file as its only owner; return the descriptor, which holds the lock until it is closed.

    The lock is on the file itself (device and inode), so it holds whatever the path to it, and a file that
    was replaced while it was being opened is opened again.

    Args:
        path: the file.
        flags: as for `os.open`.

    Raises:
        BlockingIOError: another open descriptor has the lock.
        OSError: it cannot be opened, or is a link.
    """
    while True:
        file = open_private(path, flags)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(path, file):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def is_at(path: Path, file: int) -> bool:
    """Whether an open file is the one that is at a path now, and not by a link."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(file))
    # The file was removed or renamed meanwhile: what is open is then not at the path.
    except FileNotFoundError:
        return False
