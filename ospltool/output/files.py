"""Output files: readable by their owner only, never written through a link, overwritten only with --force."""

from __future__ import annotations

import errno
import io
import os
import pathlib
from typing import IO, Final, TextIO

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def new_bytes(path: pathlib.Path, *, force: bool = False) -> IO[bytes]:
    """Create a file for writing.

    Args:
        path: the file; it must not exist.
        force: overwrite a file that exists. A link is refused all the same.

    Raises:
        OSError: the file exists, or cannot be created; the text says what to do.
    """
    try:
        descriptor = os.open(path, _NEW | (os.O_TRUNC if force else os.O_EXCL), 0o600)
    except FileExistsError as error:
        raise OSError(error.errno, "the file exists; --force overwrites it", str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                error.errno, "the file is a symbolic link, which is not followed", str(path)
            ) from None
        raise
    return os.fdopen(descriptor, "wb")


def new_text(path: pathlib.Path, *, force: bool = False) -> TextIO:
    """Create a text file in UTF-8 (see `new_bytes`)."""
    return io.TextIOWrapper(new_bytes(path, force=force), encoding="utf-8")
