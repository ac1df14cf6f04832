"""The compiled library, which was made from the C files here when the project was installed (hatch_build.py).

There is no second way to do its work: code that needs a function of it and cannot have the library gets
`NoLibrary`, which says how to build it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pathlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


def _unpacked(here: pathlib.Path) -> pathlib.Path:
    """Return a directory with the library and its sources; from an archive, as Spark ships it, a copy."""
    if here.is_dir():
        return here
    from importlib import resources

    copy = here.parents[1].resolve().with_suffix(".native")  # beside the archive: it goes with it
    copy.mkdir(exist_ok=True)
    for one in resources.files(__name__).iterdir():
        if one.name.endswith((".so", ".c", ".h")):
            new = copy / f"{one.name}.{os.getpid()}"  # other workers may do the same now
            new.write_bytes(one.read_bytes())
            new.replace(copy / one.name)
    return copy


LIBRARY: Final = _unpacked(pathlib.Path(__file__).parent) / "libnative.so"
SOURCES: Final = tuple(sorted(LIBRARY.parent.glob("*.[ch]")))

_AGAIN: Final = (
    "install ospltool again, with a C compiler or access to the package index (in a checkout: pip install "
    "--editable .)"
)


class NoLibrary(Exception):
    """The library cannot be used; the message says why, and what to do."""


def load(path: pathlib.Path, sources: Sequence[pathlib.Path]) -> ctypes.PyDLL:
    """Open a library and compare the sources that it was made from with those that are here.

    The functions keep the interpreter lock: to wait for its return would take longer than they do.

    Raises:
        NoLibrary: it is not there, not for this machine, not ours, or of other sources.
    """
    if not path.exists():
        raise NoLibrary(f"the compiled library {path} is not there; {_AGAIN}")
    try:
        library = ctypes.PyDLL(str(path))
        library.native_source.restype = ctypes.c_char_p
        digest = library.native_source()
    except (OSError, AttributeError) as error:
        raise NoLibrary(f"{path} is not a library of ospltool for this machine ({error}); {_AGAIN}") from None
    try:
        expected = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    except OSError as error:
        raise NoLibrary(f"nothing tells whether {path} fits: {error}; {_AGAIN}") from None
    if digest != expected.encode():
        names = " or ".join(source.name for source in sources)
        raise NoLibrary(f"{path} was compiled from another version of {names}; {_AGAIN}")
    return library


@functools.cache
def library() -> ctypes.PyDLL:
    """The library, opened once for each process.

    Raises:
        NoLibrary: it cannot be used here.
    """
    return load(LIBRARY, SOURCES)


def unlocked() -> ctypes.CDLL:
    """The library, opened again so that its calls give up the interpreter lock.

    Each caller declares its own functions on what it gets.

    Raises:
        NoLibrary: it cannot be used here.
    """
    library()
    return ctypes.CDLL(str(LIBRARY))
