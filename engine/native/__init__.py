"""The compiled library, which was made from the C files here when the project was installed (hatch_build.py).

OSPLTOOL_NATIVE=no makes a process go without it; with OSPLTOOL_NATIVE=required it does not run without it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pathlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHOICE: Final = "OSPLTOOL_NATIVE"
LIBRARY: Final = pathlib.Path(__file__).with_name("libnative.so")
SOURCES: Final = tuple(sorted(LIBRARY.parent.glob("*.[ch]")))

_CHOICES: Final = ("", "no", "required")
_AGAIN: Final = "install ospltool again (in a checkout: pip install --editable .)"


class NoLibrary(Exception):
    """The library cannot be used; the message says why, and what to do."""


def choice_of(environ: Mapping[str, str]) -> str:
    """What OSPLTOOL_NATIVE says: `no`, `required` or nothing.

    Raises:
        ValueError: it says something else.
    """
    choice = environ.get(CHOICE, "")
    if choice not in _CHOICES:
        raise ValueError(f"{CHOICE} must be no, required or empty, not {choice!r}")
    return choice


def load(path: pathlib.Path, sources: Sequence[pathlib.Path]) -> ctypes.PyDLL:
    """Open a library and compare the sources that it was made from with those that are here.

    The functions keep the interpreter lock: to wait for its return would take longer than they do.

    Raises:
        NoLibrary: it is not there, not for this machine, not ours, or of other sources.
    """
    if not path.exists():
        raise NoLibrary(f"{path} is not there: ospltool was installed without a C compiler; {_AGAIN}")
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
def _found() -> ctypes.PyDLL | str:
    try:
        if choice_of(os.environ) == "no":
            return f"{CHOICE}=no"
        return load(LIBRARY, SOURCES)
    except (NoLibrary, ValueError) as reason:
        return str(reason)


def library() -> ctypes.PyDLL:
    """The library, opened once for each process.

    Raises:
        NoLibrary: it cannot be used here.
    """
    found = _found()
    if isinstance(found, str):
        raise NoLibrary(found)
    return found


def unlocked() -> ctypes.CDLL:
    """The library, opened again so that its calls give up the interpreter lock.

    Each caller declares its own functions on what it gets.

    Raises:
        NoLibrary: it cannot be used here.
    """
    library()
    return ctypes.CDLL(str(LIBRARY))


def absence() -> str:
    """Why this process goes without the library; empty when it has it."""
    found = _found()
    return found if isinstance(found, str) else ""


def check() -> None:
    """Hold this process to what OSPLTOOL_NATIVE demands.

    Raises:
        NoLibrary: the variable has no such value, or demands the library and it cannot be used.
    """
    try:
        choice = choice_of(os.environ)
    except ValueError as error:
        raise NoLibrary(str(error)) from None
    if choice == "required" and absence():
        raise NoLibrary(f"{CHOICE}=required: {absence()}")
