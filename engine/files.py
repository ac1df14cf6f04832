"""Files that belong to a service or tool alone: no link is followed, and nobody else can read them.

A name in a directory that others may write to can be a link that they made; what is written through it is
written to another file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

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


def new_beside(path: Path) -> tuple[Path, int]:
    """Make a new file in the directory of another one; return its path and a descriptor to append to it.

    Nobody can have made its name before. The caller puts it in place of the other one, or removes it.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    return new, open_private(new, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of another one, if there is one: readers see the old or the new one.

    Raises:
        OSError: it cannot be written; the former file stays.
    """
    new, descriptor = new_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def identity(found: os.stat_result) -> tuple[int, int]:
    """Return what tells a file from all others, whatever its names: its device and its inode."""
    return found.st_dev, found.st_ino
