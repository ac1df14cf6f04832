"""The compiled library: `ring.c`, which was compiled when the project was installed (see hatch_build.py).

OSPLTOOL_NATIVE=no makes a process go without it; with OSPLTOOL_NATIVE=required it does not run without it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pathlib
from typing import TYPE_CHECKING, Final

from engine.dds.errors import UnsupportedCyclone

if TYPE_CHECKING:
    from collections.abc import Mapping

CHOICE: Final = "OSPLTOOL_NATIVE"
LIBRARY: Final = pathlib.Path(__file__).with_name("libring.so")
SOURCE: Final = pathlib.Path(__file__).with_name("ring.c")

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


def load(path: pathlib.Path, source: pathlib.Path) -> ctypes.PyDLL:
    """Open a library and compare the source that it was made from with the source that is here.

    The functions keep the interpreter lock: a call takes some nanoseconds.

    Raises:
        NoLibrary: it is not there, not for this machine, not ours, or of another source.
    """
    if not path.exists():
        raise NoLibrary(f"{path} is not there: ospltool was installed without a C compiler; {_AGAIN}")
    try:
        library = ctypes.PyDLL(str(path))
        library.ring_source.restype = ctypes.c_char_p
        digest = library.ring_source()
    except (OSError, AttributeError) as error:
        raise NoLibrary(f"{path} is not a library of ospltool for this machine ({error}); {_AGAIN}") from None
    try:
        expected = hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError as error:
        raise NoLibrary(f"nothing tells whether {path} fits: {error}; {_AGAIN}") from None
    if digest != expected.encode():
        raise NoLibrary(f"{path} was compiled from another version of {source.name}; {_AGAIN}")
    return library


@functools.cache
def _found() -> ctypes.PyDLL | str:
    try:
        if choice_of(os.environ) == "no":
            return f"{CHOICE}=no"
        return load(LIBRARY, SOURCE)
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


def absence() -> str:
    """Why this process goes without the library; empty when it has it."""
    found = _found()
    return found if isinstance(found, str) else ""


def check() -> None:
    """Hold this process to what OSPLTOOL_NATIVE demands.

    Raises:
        UnsupportedCyclone: the variable has no such value, or demands the library and it cannot be used.
    """
    try:
        choice = choice_of(os.environ)
    except ValueError as error:
        raise UnsupportedCyclone(str(error)) from None
    if choice == "required" and absence():
        raise UnsupportedCyclone(f"{CHOICE}=required: {absence()}")
