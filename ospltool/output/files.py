"""Files that commands write: for their owner only, never through a link, never over another file unasked."""

from __future__ import annotations

import errno
import io
import os
from typing import IO, TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    import pathlib

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def new_bytes(path: pathlib.Path, *, force: bool = False) -> IO[bytes]:
    """A new file, to be written.

    Args:
        path: where; what is there is neither followed nor overwritten.
        force: overwrite a file that is there. A link is refused all the same.

    Raises:
        OSError: it is there, or cannot be made; its text says what to do.
    """
    try:
        descriptor = os.open(path, _NEW | (os.O_TRUNC if force else os.O_EXCL), 0o600)
    except FileExistsError as error:
        raise OSError(error.errno, "it is there already; --force overwrites a file", str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                error.errno, "it is a symbolic link, which is not written through", str(path)
            ) from None
        raise
    return os.fdopen(descriptor, "wb")


def new_text(path: pathlib.Path, *, force: bool = False) -> TextIO:
    """The same for text in UTF-8. See `new_bytes`."""
    return io.TextIOWrapper(new_bytes(path, force=force), encoding="utf-8")
